"""The index files of a store that hold, and the parts of the log that they cover.

A file is looked at before it is used: its header, its first and its last entry and the records there must agree. A
message's keys can lie in two files, and a broker that was killed may have put some of them: so a file covers the
message with which it begins or ends only if each of its keys has an entry there, or in the file beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile

from spark_mq.errors import CorruptIndexError, CorruptLogError, OptionError, StoreChangedError
from spark_mq.format.index_check import check_pointers
from spark_mq.format.index_file import IndexHeader, IndexLayout
from spark_mq.format.index_query import Entry, IndexFile
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_keys import record_keys
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.log.log_range import next_record
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import WithKey

_MAX_KEYS = 1 << 15
"""More than the properties of a message can hold."""

_MAX_SECONDS = 0x7FFFFFFF

_TRIES = 3
"""How often a file that a broker is writing is looked at, before it counts as damaged."""


@dataclass(frozen=True)
class IndexedRange:
    """An index file that holds, and the part of the log that it covers.

    `start`: the offset of the first record all of whose keys are in it, or in a file beside it; `stop`: the offset
    behind the last one. Both are within the log, and `start` is not before `stop` where all its messages have expired.
    """

    file: IndexFile
    header: IndexHeader
    start: int
    stop: int


@dataclass(frozen=True)
class _ValidIndexFile:
    """A file that agrees with the log; `edges` has the hashes of the messages with which it begins and ends."""

    file: IndexFile
    header: IndexHeader
    edges: dict[int, set[int]]


@dataclass
class IndexCoverage:
    """Opens index files. `log_end` is the live end of the log as the reader sees it.

    `find_log_end` looks for it as it is now: a broker may be writing. `check`: each file is read whole, to see whether
    its pointers are. `problems` says what is wrong with files that are not used.
    """

    store: Location
    files: FileReaders
    records: RecordLookup
    log_end: int
    find_log_end: Callable[[], int]
    check: bool = False
    problems: list[str] = field(default_factory=list)

    def open(self, conf: BrokerConf) -> list[IndexedRange]:
        """The files that hold, in the order of the log, which is that of their names."""
        sound = self._sound_files(conf)
        entries: dict[int, set[int]] = {}
        for one in sound:
            for offset, hashes in one.edges.items():
                entries.setdefault(offset, set()).update(hashes)
        return [self._span(one, entries) for one in sound]

    def _span(self, one: _ValidIndexFile, entries: Mapping[int, set[int]]) -> IndexedRange:
        """What the file covers; `entries` has the hashes that any file has of the messages at files' edges."""
        header, records = one.header, self.records
        start, stop = header.begin_commit_log_offset, header.end_commit_log_offset
        if start < records.min_offset:
            start = records.min_offset
        elif not self._has_all_keys(start, entries[start]):
            start = next_record(records, start)
        if stop >= records.min_offset and self._has_all_keys(stop, entries[stop]):
            stop = next_record(records, stop)
        return IndexedRange(one.file, header, start, min(stop, self.log_end))

    def _has_all_keys(self, offset: int, hashes: set[int]) -> bool:
        record = self.records.record(offset)
        topic = decode_utf8(record.topic)
        return all(WithKey(topic, key).key_hash in hashes for key in record_keys(record))

    def _sound_files(self, conf: BrokerConf) -> list[_ValidIndexFile]:
        try:
            layout = index_layout(self.store, conf)
        except OptionError as error:
            self.problems.append(str(error))
            return []
        sound: list[_ValidIndexFile] = []
        for info in index_files(self.store):
            try:
                one = self._look_at(info, layout)
            except (CorruptIndexError, CorruptLogError, StoreChangedError) as error:
                self.problems.append(str(error))
                continue
            if one is None:
                continue
            if sound and one.header.begin_commit_log_offset < sound[-1].header.end_commit_log_offset:
                self.problems.append(f"{one.file.name}: begins before the file before it ends")
            else:
                sound.append(one)
        return sound

    def _look_at(self, info: IndexFileInfo, layout: IndexLayout) -> _ValidIndexFile | None:
        """A file that holds; None if it has no entry. Raises `CorruptIndexError`, `CorruptLogError`."""
        name, location = str(info.location), info.location
        layout.check_file_size(info.size, name)
        file = IndexFile(name, layout, lambda position, length: self.files.read(location, position, length))
        for attempt in range(_TRIES):
            header = file.header()
            if header.index_count < 0:
                raise CorruptIndexError(f"{file.name}: index count {header.index_count}")
            if header.next_entry <= 1:
                return None
            try:
                edges = self._edges(file, header)
                self._check_file(file, header)
            except (CorruptIndexError, CorruptLogError):
                if attempt == _TRIES - 1 or file.header() == header:
                    raise
            else:
                return _ValidIndexFile(file, header, edges)
        raise AssertionError("the last try returns or raises")

    def _edges(self, file: IndexFile, header: IndexHeader) -> dict[int, set[int]]:
        """The hashes of the messages with which the file begins and ends. Raises `CorruptIndexError`."""
        edges: dict[int, set[int]] = {}
        last = header.next_entry - 1
        for offset, numbers in (
            (header.begin_commit_log_offset, range(1, last + 1)),
            (header.end_commit_log_offset, range(last, 0, -1)),
        ):
            hashes = _hashes_at(offset, map(file.entry, numbers))
            if not hashes:
                raise CorruptIndexError(f"{file.name}: its header has other offsets than its first and last entry")
            edges.setdefault(offset, set()).update(hashes)
        return edges

    def _check_file(self, file: IndexFile, header: IndexHeader) -> None:
        """Raise `CorruptIndexError` where the file contradicts itself or the log, `CorruptLogError` for no record."""
        start, end = header.begin_commit_log_offset, header.end_commit_log_offset
        last = file.entry(header.next_entry - 1)
        seconds = min(max(int((header.end_timestamp - header.begin_timestamp) / 1000), 0), _MAX_SECONDS)
        if start > end or (last.number > 1 and last.time_difference != seconds):
            raise CorruptIndexError(f"{file.name}: its header has other offsets or times than its entries")
        if self.check:
            check_pointers(file, header)
        for offset, store_timestamp in ((start, header.begin_timestamp), (end, header.end_timestamp)):
            if offset >= self.records.min_offset:
                self._check_record(file, offset, store_timestamp)

    def _check_record(self, file: IndexFile, offset: int, store_timestamp: int) -> None:
        """Whether a live record lies there, stored then: a recovery may have cut off what the file still knows."""
        is_live = offset < self.log_end or offset < self.find_log_end()
        if not is_live or self.records.record(offset).store_timestamp != store_timestamp:
            raise CorruptIndexError(
                f"{file.name}: it begins or ends with a message stored at {store_timestamp}, which is not at {offset}"
            )


def _hashes_at(offset: int, entries: Iterable[Entry]) -> set[int]:
    """The key hashes of the first entries that have the offset."""
    found = takewhile(lambda entry: entry.commit_log_offset == offset, entries)
    return {entry.key_hash for entry in islice(found, _MAX_KEYS)}
