"""What a check found sound, kept in a file, so that the next check reads only what is new or has changed since then.

A journal is written after a sound check. It has the size, the times and the inode of each file, as they were before the
file was read, and the commit log offsets of its messages. Of a file that can still grow it also has a CRC-32 of the
bytes at its beginning, and of those before the place up to which it was sound.

| a file of the journal | is |
| --- | --- |
| has its size, its times (also the one of its last change of any kind) and its inode | not read |
| has its size and its inode, and the CRC-32 | read from the place on up to which it was sound |
| is missing, and its messages are before the log now | expired, as files of a broker do |
| anything else | changed: the log is read from the file's first message on, and all queues and index files are read |

So the log before `Since.start` is sound, and the other files are checked as if its messages had expired.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np

from spark_mq._version import __version__
from spark_mq.errors import StorageError
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Queue, is_live
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexLayout
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.store_kind import batch_topics, message_database
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE_EXT, DLEDGER, INDEX
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.store.queue.folders import QueueFolder, queue_path
from spark_mq.verifier.listed_store import ListedStore

_FORMAT = 1
_EDGE = 4 << 10
"""Bytes at each end of the sound part of a file whose CRC-32 a journal has."""
_NEVER = (1 << 63) - 1

Facts = tuple[int, ...]


class KnownFile(NamedTuple):
    """A file of a sound store: its facts, the offsets of its first and last message, and where its sound part ends.

    `edges` is the CRC-32 of a file that can grow, else None; such a file has no last message.
    """

    facts: Facts
    first: int
    last: int
    stop: int
    edges: int | None


class SoundEntries(NamedTuple):
    """The entries of an index file before number `stop`, which are sound, and the CRC-32 of the slots with only these.

    `begin` are the store time, in milliseconds, and the commit log offset of the first one, as in the header.
    """

    name: str
    stop: int
    slots: int
    begin: tuple[int, int]


@dataclass(frozen=True)
class Since:
    """What a check can leave out: the log before `start`, unchanged files, and units before those of `sound_to`.

    `checked` and `whole` are the times, in milliseconds, of the last check and of the last one that read everything;
    None without an earlier check. `reason` is why something is read that was sound.
    """

    start: int = 0
    last_store_timestamp: int | None = None
    newest_store_timestamp: int = 0
    unchanged: frozenset[str] = frozenset()
    sound_to: Mapping[Queue, int] = field(default_factory=dict)
    first_offsets: Mapping[Queue, int] = field(default_factory=dict)
    entries: SoundEntries | None = None
    checked: int | None = None
    whole: int | None = None
    reason: str = ""

    def with_earlier(self, offsets: Mapping[Queue, range]) -> dict[Queue, range]:
        """The queue offsets of queues, also those of messages that are not read again."""
        return {
            queue: range(min(found.start, self.first_offsets.get(queue, found.start)), found.stop)
            for queue, found in offsets.items()
        }


WHOLE = Since()


@dataclass(frozen=True)
class Journal:
    """What a file of `--since-last` has; see the fields of `Since`. `queues` are by topic and queue id: both ends."""

    store: str
    settings: dict[str, str]
    checked: int
    whole: int
    start: int
    last_store_timestamp: int
    newest_store_timestamp: int
    files: dict[str, KnownFile]
    queues: list[tuple[str, int, int, int]]
    entries: SoundEntries | None
    format: int = _FORMAT
    version: str = __version__

    @classmethod
    def load(cls, file: Location) -> Journal | str:
        """The journal in a file; or why there is none, as text for a person."""
        if not file.is_file:
            return "there is no earlier sound check"
        try:
            content = json.loads(file.read_bytes())
            files = {path: KnownFile(tuple(one[0]), *one[1:]) for path, one in content["files"].items()}
            entries = content["entries"]
            sound = None if entries is None else SoundEntries._make([*entries[:3], tuple(entries[3])])
            queues = [
                (str(topic), int(queue), int(first), int(stop)) for topic, queue, first, stop in content["queues"]
            ]
            journal = cls(**{**content, "files": files, "entries": sound, "queues": queues})
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return f"{file} is not a journal of this command"
        if (journal.format, journal.version) != (_FORMAT, __version__):
            return f"{file} is of another version of spark-mq"
        return journal

    def save(self, file: Location) -> None:
        """Write the file, whole."""
        try:
            publish(file, json.dumps(asdict(self)).encode())
        except OSError as error:
            raise StorageError(f"--since-last {file}: cannot be written: {error}") from error


def facts_of(location: Location) -> Facts:
    """Size, time of the last write, and of a local file the time of its last change of any kind and the inode."""
    if location.is_local:
        found = os.stat(location.path)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
    info = location.info()
    return info.size or 0, info.mtime_ns or 0


def files_now(listed: ListedStore) -> dict[str, Location]:
    """The files that a journal knows, by their paths in the store."""
    segments = {one.path: one.location for one in listed.log.segments}
    index = {f"{INDEX}/{info.name}": info.location for info in listed.index.files}
    folders = () if listed.has_database else listed.folders
    return {**segments, **{path: location for path, location, _ in _queue_files(folders)}, **index}


def plan_since(file: Location, listed: ListedStore) -> tuple[Since, Journal | None]:
    """What a check can leave out by the journal in a file, and the journal; everything is read without one."""
    journal = Journal.load(file)
    if isinstance(journal, str):
        return replace(WHOLE, reason=journal), None
    if (journal.store, journal.settings) != (str(listed.location), listed.conf.settings):
        return replace(WHOLE, reason=f"{file} is of another store, or of other settings of the broker"), None
    if (listed.location / CONSUME_QUEUE_EXT).entries() or listed.has_database or message_database(listed.location):
        return replace(WHOLE, reason="the store has extension units, or data in RocksDB, which are always read"), None
    if batch_topics(listed.location):
        return replace(WHOLE, reason="the store has batch consume queues, which are always read"), None
    log_start = listed.log.segments[0].base if listed.log.segments else _NEVER
    if log_start > journal.start:
        return replace(WHOLE, reason="the log has nothing of what was sound"), None
    start, unchanged, changed = journal.start, set[str](), ""
    now = files_now(listed)
    for path, known in journal.files.items():
        location = now.get(path)
        if location is None:
            place = known.first if known.last >= log_start else _NEVER
        elif (facts := facts_of(location)) == known.facts:
            unchanged.add(path)
            place = _NEVER
        else:
            place = _NEVER if _has_grown(known, facts, location, path) else known.first
        if place < start:
            start, changed = place, path
    for path in now.keys() - journal.files.keys():
        if _first_offset(listed, path, now[path]) < journal.start:
            start, changed = log_start, path
    known_times = replace(WHOLE, checked=journal.checked, whole=journal.whole)
    if start < journal.start:
        reason = f"{changed} is not as it was"
        if start <= log_start:
            return replace(known_times, reason=reason), None
        since = replace(known_times, start=start, reason=reason)
    else:
        since = replace(
            known_times,
            start=start,
            last_store_timestamp=journal.last_store_timestamp,
            unchanged=frozenset(unchanged),
            sound_to={(topic, queue): stop for topic, queue, _, stop in journal.queues},
            entries=journal.entries,
        )
    first_offsets = {(topic, queue): first for topic, queue, first, _ in journal.queues}
    since = replace(since, newest_store_timestamp=journal.newest_store_timestamp, first_offsets=first_offsets)
    return since, journal


def new_journal(
    listed: ListedStore,
    before: Mapping[str, Facts],
    earlier: Journal | None,
    start: int,
    times: tuple[int, int],
    offsets: Mapping[Queue, range],
    *,
    is_whole: bool,
    has_grown: bool,
) -> Journal:
    """The journal of a sound check.

    `before` are the facts of the files before they were read, `start` is the commit log offset up to which everything
    is sound, `times` are the store times of the last and of the newest message, and `offsets` those of the queues.
    """
    now = round(time.time() * 1000)
    files = dict(_known_files(listed, before, earlier, start, offsets))
    layout, last = listed.index.layout, listed.index.files[-1] if listed.index.files else None
    return Journal(
        str(listed.location),
        listed.conf.settings,
        now,
        now if is_whole or earlier is None else earlier.whole,
        start,
        *times,
        files,
        [(topic, queue, one.start, one.stop) for (topic, queue), one in offsets.items()],
        None if last is None or layout is None or has_grown else _sound_entries(last, layout, earlier),
    )


def _known_files(
    listed: ListedStore,
    before: Mapping[str, Facts],
    earlier: Journal | None,
    start: int,
    offsets: Mapping[Queue, range],
) -> Iterator[tuple[str, KnownFile]]:
    def known(path: str, location: Location, first: int, last: int, stop: int, head: int = _EDGE) -> KnownFile:
        facts = before[path]
        if stop >= facts[0]:
            return KnownFile(facts, first, last, facts[0], None)
        return KnownFile(facts, first, _NEVER, stop, _edges(location, stop, head))

    for segment in listed.log.segments:
        path = segment.path
        if segment.base < start:
            yield path, known(path, segment.location, segment.base, segment.end_offset - 1, start - segment.base)
    for path, location, (folder, name) in _queue_files(listed.folders):
        if path not in before:
            continue
        same = None if earlier is None else earlier.files.get(path)
        if same is not None and same.facts == before[path] and same.edges is None:
            yield path, same
            continue
        end = offsets.get((folder.topic, folder.queue_id), range(0)).stop
        stop = max(end * UNIT_SIZE - int(name), 0)
        first, last = _edge_offsets(location, before[path][0])
        yield path, known(path, location, first, last, stop)
    layout = listed.index.layout
    for info in listed.index.files:
        assert layout is not None, "files are listed by their layout"
        path, header = f"{INDEX}/{info.name}", info.stored_header()
        is_last = info is listed.index.files[-1]
        stop = layout.entries_at + ENTRY_SIZE * header.next_entry if is_last else info.size
        first, last = header.begin_commit_log_offset, header.end_commit_log_offset
        yield path, known(path, info.location, first, last, stop, head=0)


def _queue_files(folders: Iterable[QueueFolder]) -> Iterator[tuple[str, Location, tuple[QueueFolder, str]]]:
    for folder in folders:
        for info in folder.files:
            name = info.base_name
            yield queue_path(folder.topic, folder.queue_id, name), folder.location / name, (folder, name)


def _edges(location: Location, stop: int, head: int = _EDGE) -> int:
    with FileReader(location) as file:
        crc = zlib.crc32(file.read(0, min(head, stop)))
        first = max(stop - _EDGE, 0)
        return zlib.crc32(file.read(first, stop - first), crc)


def _has_grown(known: KnownFile, facts: Facts, location: Location, path: str) -> bool:
    """Whether a file only has more content than before, as far as its inode and its edges show."""
    if known.edges is None or facts[0] != known.facts[0] or facts[3:] != known.facts[3:]:
        return False
    return _edges(location, known.stop, 0 if path.startswith(INDEX) else _EDGE) == known.edges


def _edge_offsets(location: Location, size: int) -> tuple[int, int]:
    with FileReader(location) as file:
        units = [file.read(at, UNIT_SIZE).ljust(UNIT_SIZE, b"\0") for at in (0, max(size - UNIT_SIZE, 0))]
    first, last = (int(np.frombuffer(unit, UNIT_DTYPE)["commit_log_offset"][0]) for unit in units)
    return first, last


def _first_offset(listed: ListedStore, path: str, location: Location) -> int:
    """The commit log offset of the first message of a file; a file without messages has none to lose."""
    if path.startswith((COMMIT_LOG, DLEDGER)):
        return int(location.name)
    if path.startswith(INDEX):
        header = IndexFileInfo(location.name, location, 0).stored_header()
        return header.begin_commit_log_offset if header.next_entry > 1 else _NEVER
    with FileReader(location) as file:
        unit = np.frombuffer(file.read(0, UNIT_SIZE).ljust(UNIT_SIZE, b"\0"), UNIT_DTYPE)
    return int(unit["commit_log_offset"][0]) if is_live(unit)[0] else _NEVER


def _sound_entries(last: IndexFileInfo, layout: IndexLayout, earlier: Journal | None) -> SoundEntries:
    header, before = last.stored_header(), None if earlier is None else earlier.entries
    if before is not None and (before.name, before.stop) == (last.name, header.next_entry):
        return before
    with FileReader(last.location) as file:
        slots = zlib.crc32(file.read(HEADER_SIZE, SLOT_SIZE * layout.hash_slot_num))
    return SoundEntries(last.name, header.next_entry, slots, (header.begin_timestamp, header.begin_commit_log_offset))
