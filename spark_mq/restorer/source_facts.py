"""What a source has apart from its messages: files of `config/`, sizes and names of files, next offsets of queues.

A store has all of it. An archive has it in its tables `segments` and `snapshots`. An archive that an older spark-mq
wrote lacks the facts of queues and index files.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Self

from spark_mq.errors import ConfigError
from spark_mq.format.broker_version import ALL_VERSIONS, INDEX_TAGS, BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.index_file import IndexHeader, IndexLayout
from spark_mq.format.record import BLANK_SIZE, MAGIC_AT, STORED_BLANK_MAGIC, is_blank
from spark_mq.indexer.tag_entries import MANY, TaggedRanges, TagRun, tagged_ranges
from spark_mq.io.location import Location
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.config_file import files_of_databases, json_problem
from spark_mq.store.config.store_kind import Door, check_form, configured_batch_topics
from spark_mq.store.config.store_paths import CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.derived_facts import index_facts, next_offsets, queue_facts
from spark_mq.store.index.file_names import zone_of_names
from spark_mq.store.log.segment_files import SegmentFile, find_data_end, segment_files, usual_size
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import find_batch_file_size

if TYPE_CHECKING:
    from spark_mq.archive.archive_tables import ArchivedRows

OFFSET_COLUMNS = frozenset(("commit_log_offset", "queue_id", "queue_offset"))
"""The columns of rows that have the offsets of a store."""
BACKUP = ".bak"
"""The end of the name of a file's backup, which has the previous content (`MixAll.string2File`@5.3.3)."""

_BLANK_LOOK = 4 << 20
"""Bytes before the last byte that is not zero in which a second start of a blank is searched for."""


@dataclass(frozen=True)
class Source:
    """Where messages come from, and what else is known of their store.

    Attributes:
        is_store: Whether they are of a store, or of the archive of one; of a DataFrame nothing else is known.
        location: The store itself, if it is a directory.
        blanks: The blanks that have more than zeros after their first eight bytes, without the zeros at their end, by
            commit log offset.
        files: The files of `config/`, and `checkpoint`, by their path in the store. The content of a file that a broker
            cannot read is that of its backup; backups themselves are left out, and so are folders.
        index_names: The names of index files, by the commit log offset at which a file begins.
        log_end: The commit log offset after the last message; None if there is no message, as `log_start`.
        time_zone: The zone of the names of index files.
        databases: The folders in `config/`, which are RocksDB databases.
        tagged: Where tags have index entries, by the snapshots of an archive; None if they do not show it, and for a
            store, whose index shows it.
        batch_file_size: Bytes of a file of batch consume queues; None without such queues.
        form_notes: What the new store lacks because of the form of its source (`check_form`), a sentence each.
    """

    name: str
    has_offsets: bool = True
    is_store: bool = True
    location: Location | None = None
    segment_size: int | None = None
    queue_file_size: int | None = None
    blanks: Mapping[int, bytes] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    index_layout: IndexLayout | None = None
    index_names: Mapping[int, str] = field(default_factory=dict)
    next_offsets: Mapping[Queue, int] = field(default_factory=dict)
    log_start: int | None = None
    log_end: int | None = None
    broker_versions: BrokerVersions | None = None
    time_zone: tzinfo | None = None
    databases: tuple[str, ...] = ()
    tagged: TaggedRanges | None = None
    batch_file_size: int | None = None
    form_notes: tuple[str, ...] = ()

    @classmethod
    def of_rows(cls, has_offsets: bool) -> Self:
        """The rows of a DataFrame."""
        return cls("a DataFrame", has_offsets, is_store=False)

    @property
    def settings(self) -> dict[str, str]:
        """The sizes of the store's files, and whether it has light message queues, as a broker's settings."""
        sizes = {
            "mappedFileSizeCommitLog": self.segment_size,
            "mappedFileSizeConsumeQueue": self.queue_file_size,
            "mapperFileSizeBatchConsumeQueue": self.batch_file_size,
        }
        if self.index_layout is not None:
            sizes |= {"maxHashSlotNum": self.index_layout.hash_slot_num, "maxIndexNum": self.index_layout.index_num}
        has_light = any(topic.startswith(LIGHT_PREFIX) for topic, _ in self.next_offsets)
        light = {"enableMultiDispatch": "true", "enableLmq": "true"} if has_light else {}
        return {name: str(size) for name, size in sizes.items() if size} | light


def facts_of_store(store: Location) -> Source:
    """The facts of a store directory, of which only names, sizes and edges of large files are read."""
    forms, batches = check_form(store, Door.FILES), configured_batch_topics(store)
    with MessageStore(store.uri) as opened:
        log_start, log_end = opened.get_min_phy_offset(), opened.get_max_phy_offset()
        has_messages = 0 <= log_start < log_end
        queues = queue_facts(opened)
        ended = [segment for segment in opened.records.segments if segment.base + segment.size <= log_end]
        blanks = dict(_odd_blanks(opened, ended))
    infos, index = (store / CONFIG).entries(), index_facts(store)
    paths = [f"{CONFIG}/{info.base_name}" for info in infos if info.is_file]
    paths += [CHECKPOINT] if (store / CHECKPOINT).is_file else []
    of_databases, read = files_of_databases(store)
    return _source(
        str(store),
        forms,
        queues,
        index,
        index["files"] if index is not None else [],
        location=store,
        segment_size=usual_size(segment_files(store)) or None,
        blanks=blanks,
        files=readable_files({path: (store / path).read_bytes() for path in sorted(paths)} | of_databases, str(store)),
        log_start=log_start if has_messages else None,
        log_end=log_end if has_messages else None,
        broker_versions=_versions_of(store),
        databases=tuple(sorted({f"{CONFIG}/{info.base_name}" for info in infos if not info.is_file} - read)),
        batch_file_size=find_batch_file_size(BrokerConf.of(None), store).value if batches else None,
    )


def _source(
    name: str,
    forms: Iterable[object],
    queues: Mapping[str, Any] | None,
    index: Mapping[str, Any] | None,
    index_files: Sequence[Mapping[str, Any]],
    **facts: Any,
) -> Source:
    """A source with these facts of its queues, its index and its index files (`derived_facts`)."""
    begins = [(file["begin_commit_log_offset"], file["name"]) for file in index_files]
    counts = Counter(begin for begin, _ in begins)
    return Source(
        name,
        queue_file_size=None if queues is None else queues["file_size"],
        index_layout=_index_layout(index),
        # Offsets at which two files begin are left out.
        index_names={begin: file_name for begin, file_name in begins if counts[begin] == 1},
        next_offsets=next_offsets(queues),
        time_zone=zone_of_names((file["name"], file["begin_timestamp"]) for file in index_files),
        form_notes=tuple(map(str, forms)),
        **facts,
    )


def facts_of_archive(archive: ArchivedRows) -> Source:
    """The facts of one store in an archive, from its segments and its newest whole snapshot.

    A snapshot is not whole if a file was too large for it, or was removed while it was made. If no snapshot is whole,
    the newest one counts, without such files. Names of index files come from all snapshots: a broker deletes old files.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from spark_mq.archive.small_tables import newest_snapshot
    from spark_mq.archive.snapshot_files import snapshot_location

    name = archive.tables.name
    columns = ("commit_log_offset", "file_size", "end_offset", "filler_offset", "filler_bytes")
    segments = archive.rows(archive.tables.segments).where(F.col("commit_log_offset").isNotNull())
    rows = segments.select(*columns).toArrow().to_pylist()
    files = dict(newest_snapshot(archive).files)
    queues, newest_index = (json.loads(files.pop(folder, b"null")) for folder in (CONSUME_QUEUE, INDEX))
    index = _archived_index_files(archive)
    tagged = tags_of_files(index)
    forms = check_form(snapshot_location(files, name), Door.FILES)
    nested = {path for path in files if path.count("/") > 1}
    readable = readable_files({path: files[path] for path in files if path not in nested}, name)
    sizes = Counter(row["file_size"] for row in rows if row["file_size"])
    ends = [row["end_offset"] for row in rows if row["end_offset"] > row["commit_log_offset"]]
    return _source(
        f"{name} ({archive.identity.broker} of {archive.identity.cluster})",
        forms,
        queues,
        newest_index,
        index,
        segment_size=max(sizes, key=lambda size: (sizes[size], size), default=None),
        blanks={
            row["filler_offset"]: row["filler_bytes"]
            for row in rows
            if row["filler_offset"] is not None and len(row["filler_bytes"]) > BLANK_SIZE
        },
        files=readable,
        log_start=min(row["commit_log_offset"] for row in rows) if ends else None,
        log_end=max(ends, default=None),
        broker_versions=_versions_of(snapshot_location(readable, name), tagged),
        tagged=tagged,
        databases=tuple(sorted({path.rsplit("/", path.count("/") - 1)[0] for path in nested})),
    )


def readable_files(files: Mapping[str, bytes], source: str) -> dict[str, bytes]:
    """The files that a broker would read, by path: a file that is missing, empty or unreadable is that of its backup.

    The order of the two is that of `ConfigManager.load`@5.3.3. Only files that contain JSON have backups.
    """
    read: dict[str, bytes] = {}
    for path in sorted({path.removesuffix(BACKUP) for path in files}):
        if path.endswith(("/", BACKUP)):
            continue
        problems = []
        for name in (path, path + BACKUP) if _is_json(path, files) else (path,):
            content = files.get(name, b"")
            problem = json_problem(content) if _is_json(path, files) and content.strip() else None
            if problem is not None:
                problems.append(f"{name}: {problem}")
            elif content.strip():
                read[path] = content
                break
        if problems and path not in read:
            raise ConfigError(
                f"{source}: {'; '.join(problems)}. Put a readable copy in its place, or remove it with its {BACKUP}"
            )
    return read


def _is_json(path: str, files: Mapping[str, bytes]) -> bool:
    """Whether a broker reads the file as JSON (`ConfigManager`@5.3.3): by its name, or because it has a backup."""
    return path.endswith(".json") or path + BACKUP in files


def _versions_of(store: Location, tagged: TaggedRanges | None = None) -> BrokerVersions | None:
    """The versions that the files of a folder, and what an index showed, allow; None if they show none."""
    versions = find_broker_versions(store)
    if tagged is not None and tagged.has_end and versions.decide(INDEX_TAGS) is None:
        assert INDEX_TAGS.since is not None
        versions = dataclasses.replace(versions, first=INDEX_TAGS.since, evidence=tagged.source)
    return None if versions == ALL_VERSIONS else versions


def _index_layout(facts: Mapping[str, Any] | None) -> IndexLayout | None:
    """The layout of index files by their facts. Those of an older archive have only sizes and headers.

    All files except the last are full then, and those of a broker's default size have its default layout.
    """
    if facts is None:
        return None
    if facts.get("hash_slot_num"):
        return IndexLayout(facts["hash_slot_num"], facts["index_num"])
    sizes = {file["size"] for file in facts["files"]}
    if sizes == {IndexLayout().file_size}:
        return IndexLayout()
    full = [(file["size"], IndexHeader(index_count=file["index_count"]).encode()) for file in facts["files"][:-1]]
    layouts = {IndexLayout.of_full_file(*file) for file in full}
    return layouts.pop() if len(layouts) == len(sizes) == 1 else None


def tags_of_files(files: Iterable[Mapping[str, Any]]) -> TaggedRanges | None:
    """Where tags have entries, by the facts of index files (`index_facts`); None if they show nothing."""
    runs = [
        TagRun(run["has_entry"], run["commit_log_offset"], run["commit_log_offset"], MANY, 0, 0)
        for file in sorted(files, key=lambda file: file["begin_commit_log_offset"])
        for run in file["tag_runs"] or ()
    ]
    tagged = tagged_ranges(runs, ALL_VERSIONS)
    return dataclasses.replace(tagged, source="the archived index shows it") if runs else None


def _odd_blanks(store: MessageStore, segments: Iterable[SegmentFile]) -> Iterable[tuple[int, bytes]]:
    """The blanks of these segments that have more than zeros after their first eight bytes, with their offsets.

    Most segments end with eight bytes and zeros, which their last bytes show. Of any other segment, the last record is
    searched for: bytes in a blank are those of an older segment, and can look like the start of a blank themselves.
    """
    from spark_mq.store.log.split_reader import last_record

    for segment in segments:
        end = segment.base + segment.size
        data_end = segment.base + find_data_end(segment.location, segment.size)
        if _is_plain_blank(store.records.read, segment.base, data_end, end):
            continue
        last = last_record(store.location, segment.base, end)
        start = segment.base if last is None else last + store.records.record(last).size
        if is_blank(store.records.read(start, BLANK_SIZE), end - start):
            content = store.records.read(start, data_end - start)
            if len(content) > BLANK_SIZE:
                yield start, content


def _is_plain_blank(read: Callable[[int, int], bytes], base: int, data_end: int, end: int) -> bool:
    """Whether the last bytes before `data_end` are the eight bytes of a blank, and no other blank starts near them."""
    start = max(base, data_end - BLANK_SIZE)
    if not is_blank(read(start, BLANK_SIZE), end - start):
        return False
    look = max(base, start - _BLANK_LOOK)
    before = read(look, start - look)
    at = before.find(STORED_BLANK_MAGIC, MAGIC_AT)
    while at >= 0:
        if is_blank(before[at - MAGIC_AT : at - MAGIC_AT + BLANK_SIZE], end - look - at + MAGIC_AT):
            return False
        at = before.find(STORED_BLANK_MAGIC, at + 1)
    return True


def _archived_index_files(archive: ArchivedRows) -> list[dict[str, Any]]:
    """The index files of all snapshots of a store; of files with one name, the newest."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = archive.rows(archive.tables.snapshots).where(F.col("file") == INDEX)
    schema = (
        "files ARRAY<STRUCT<name: STRING, begin_timestamp: BIGINT, begin_commit_log_offset: BIGINT, "
        "tag_runs: ARRAY<STRUCT<has_entry: BOOLEAN, commit_log_offset: BIGINT>>>>"
    )
    content = F.from_json(F.col("content").cast("string"), schema)
    files = rows.select("snapshot_timestamp", F.explode(content["files"]).alias("file"))
    newest = F.max_by("file", "snapshot_timestamp").alias("file")
    return [row["file"] for row in files.groupBy("file.name").agg(newest).select("file").toArrow().to_pylist()]
