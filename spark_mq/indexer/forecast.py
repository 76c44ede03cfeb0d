"""What a rebuild would do: its files, its settings, and the room that it needs; nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import CorruptLogError, NoRoomError, SparkMqError
from spark_mq.format.amounts import counted, size_text
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.consume_queue_ext import HEADER_SIZE as EXT_HEADER_SIZE
from spark_mq.format.dispatch import record_keys
from spark_mq.format.index_file import ENTRY_SIZE, SLOT_SIZE
from spark_mq.format.record import decode_record
from spark_mq.indexer.index_files import find_time_zone
from spark_mq.indexer.manifest import Manifest, segments_now
from spark_mq.indexer.queue_extensions import STAGED_EXT_SIZE, ExtSettings
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.io.file_reader import FileReader
from spark_mq.io.local import free_bytes
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.store.config.broker_conf import FileSetting, Sourced
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import find_index_layout, index_files, index_layout
from spark_mq.store.log.commit_log import CommitLog, Segment, plan_splits
from spark_mq.store.queue.folders import find_queue_file_size, listed

_BYTES_PER_SPLIT = 32 << 10
"""Bytes that each split stages besides units and entries: the directory of its runs, marks of progress."""
_RECORD_SIZE = 100
"""Bytes of an index record in RocksDB: texts with a unique key of 32 characters."""
_SAMPLES = 8
_SAMPLE_SIZE = 256 << 10


def room_needed(request: RebuildRequest, log: CommitLog) -> int | None:
    """The approximate number of bytes that a rebuild needs, from a sample of the log; None if the log cannot be read.

    Each unit and each index entry is stored twice, staged and in its file. Files are sparse after their last entry.
    """
    step = max(1, len(log.segments) // _SAMPLES)
    try:
        sampled = [_sample(segment) for segment in log.segments[::step]]
    except (OSError, SparkMqError):
        return None
    read = sum(size for size, _, _ in sampled)
    if not read:
        return None
    size = sum(segment.data_end for segment in log.segments)
    messages, entries = (sum(sample[part] for sample in sampled) * size // read for part in (1, 2))
    needed = len(plan_splits(log, request.split_size)) * _BYTES_PER_SPLIT
    if request.selection.has_queues:
        needed += 2 * UNIT_SIZE * messages
    if request.selection.has_ext:
        ext = ExtSettings.of(request.store, request.broker_conf)
        bits = ext.bit_count // 8 if ext.filters else 0
        needed += (STAGED_EXT_SIZE + EXT_HEADER_SIZE + 2 * bits) * messages
    if request.selection.has_index:
        layout = index_layout(request.store, request.broker_conf)
        files = -(-entries // (layout.index_num - 1))
        needed += 2 * ENTRY_SIZE * entries + files * layout.hash_slot_num * SLOT_SIZE
    if request.selection.has_index_database:
        needed += _RECORD_SIZE * (entries + messages)
    return needed


def _sample(segment: Segment) -> tuple[int, int, int]:
    """The number of bytes read at the start of a segment, and of the messages and index entries in them.

    One record at a time: a command waits for this before Spark starts, and must not wait for kernels.
    """
    with FileReader(segment.location) as file:
        data = file.read(0, min(segment.data_end, _SAMPLE_SIZE))
    position = messages = entries = 0
    while position < len(data):
        try:
            record = decode_record(data, position)
        except CorruptLogError:  # a blank, damage, or the record that the sample cuts
            break
        position += record.size
        messages += 1
        entries += len(record_keys(record))
    return position, messages, entries


def no_room_error(output: Location, needed: int | None, scratch: Sequence[str]) -> NoRoomError:
    """The error for a full disk: it names the disk, the bytes that are needed in all if known, and how to continue."""
    free = free_bytes(output.path) if output.is_local else None
    about = "" if needed is None else f"; the job needs about {size_text(needed)} there in all"
    if free is not None and (needed is None or free < needed):
        full = f"the disk of {output} is full, {size_text(free)} are free{about}"
    else:
        full = (
            f"a disk is full: that of {output}{about}; or that of Spark's scratch space ({', '.join(scratch)}: "
            "spark.local.dir, SPARK_LOCAL_DIRS)"
        )
    return NoRoomError(
        f"{full}. Make room, and run the command again with --resume (and without --replace): it continues with what "
        "this job has staged, and the files that are in place stay as they are until then"
    )


def file_settings(request: RebuildRequest) -> tuple[FileSetting, ...]:
    """The settings of the files that a request rebuilds. Only names, sizes and headers of files are read."""
    conf, settings = request.broker_conf, []
    if request.selection.in_rocksdb:
        source = f"rocksdbCQDoubleWriteEnable in {conf.source}" if request.selection.in_files else "--queue-store"
        settings.append(FileSetting("queues", "a RocksDB database", source))
    if request.selection.has_queues and request.selection.in_files:
        trees = [request.store / CONSUME_QUEUE, request.committer.output / CONSUME_QUEUE]
        size = find_queue_file_size(conf, listed(trees if request.resume else trees[:1]))
        settings.append(FileSetting("queue files", f"{size.value:,} bytes each", size.source))
    if request.selection.has_index:
        layout = find_index_layout(request.store, conf)
        slots, entries = layout.value.hash_slot_num, layout.value.index_num
        settings.append(FileSetting("index files", f"{slots:,} slots and {entries:,} entries each", layout.source))
        zone = (
            find_time_zone(index_files(request.store), layout.value)
            if request.time_zone is None
            else Sourced(request.time_zone, "--time-zone")
        )
        settings.append(FileSetting("names of index files", f"in the time zone {zone.value}", zone.source))
    if request.selection.has_index_database:
        settings.append(FileSetting("the index", "in files, and in RocksDB", f"indexRocksDBEnable in {conf.source}"))
    versions = request.broker_versions
    settings.append(FileSetting("rules", f"of a broker of version {versions}", versions.evidence))
    return tuple(settings)


@dataclass(frozen=True)
class Forecast(Report):
    """What a rebuild would do; `damage` is what names and sizes of the log's files show, and would be skipped."""

    store: str
    output: str
    trees: list[str]
    segments: int
    log_bytes: int
    replaced: list[str]
    continued: list[str]
    segments_staged_before: int
    settings: list[str]
    room_needed: int | None
    room_free: int | None
    damage: list[str]

    @property
    def lacks_room(self) -> bool:
        """Whether the disk of the output has less room than the job needs."""
        return self.room_needed is not None and self.room_free is not None and self.room_free < self.room_needed

    def to_text(self) -> str:
        """Lines for a terminal; a row that does not apply is left out."""
        before = self.segments_staged_before
        rows = [
            ("reads", self.log_text()),
            ("writes", ", ".join(f"{self.output}/{tree}" for tree in self.trees)),
            *(("replaces", f"{self.output}/{tree}") for tree in self.replaced),
            *(("continues", f"{self.output}/{tree}") for tree in self.continued),
            *([("continues", f"a killed job, which has staged {before:,} segments")] if before else []),
            *(("skips", text) for text in self.damage),
            *(("assumes", setting) for setting in self.settings),
            ("needs", self.room_text()),
        ]
        lines = [f"  {name:<10} {text}" for name, text in rows]
        return "\n".join([f"rebuild of {self.store}: a dry run, nothing is changed", *lines])

    def log_text(self) -> str:
        """The part of the log that is read."""
        return f"{counted(self.segments, 'segment')}, {size_text(self.log_bytes)}"

    def room_text(self) -> str:
        """The room that the job needs, and the room that there is."""
        needed = "an unknown number of bytes" if self.room_needed is None else f"about {size_text(self.room_needed)}"
        free = "" if self.room_free is None else f"; {size_text(self.room_free)} are free"
        return f"{needed} in {self.output}{free}{', WHICH IS NOT ENOUGH' if self.lacks_room else ''}"


def forecast(request: RebuildRequest) -> Forecast:
    """What a rebuild would do with the store and the output as they are now."""
    log, damage = request.check()
    committer = request.committer
    existing = committer.existing()
    return Forecast(
        store=str(request.store),
        output=str(committer.output),
        trees=list(committer.names),
        segments=len(log.segments),
        log_bytes=sum(segment.data_end for segment in log.segments),
        replaced=list(existing) if request.replace else [],
        continued=list(existing) if request.resume else [],
        segments_staged_before=_segments_staged(request, log) if request.resume else 0,
        settings=[str(setting) for setting in file_settings(request)],
        room_needed=room_needed(request, log),
        room_free=free_bytes(committer.output.path) if committer.output.is_local else None,
        damage=[corrupt.describe() for corrupt in damage],
    )


def _segments_staged(request: RebuildRequest, log: CommitLog) -> int:
    left = Manifest.load(request.committer.folder)
    if left is None or (left.settings.store, left.settings.trees) != (str(request.store), request.committer.names):
        return 0
    return len(left.fitting(segments_now(request.store, log)).bases)
