"""The valid index files of a store, and the range of the log that each covers.

A file is checked before it is used: its header, its first and last entry, and the records to which these point must
agree. The keys of one message can be in two files, and a broker that was killed may have put only some of them. So a
file covers its first or last message only if each key of the message has an entry in it, or in the file next to it.
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
"""More keys than the properties of a message can contain."""

_MAX_SECONDS = 0x7FFFFFFF

_TRIES = 3
"""How often a file that a broker is writing is checked before it counts as damaged."""


@dataclass(frozen=True)
class IndexedRange:
    """A valid index file, and the range of the log that it covers.

    Attributes:
        file: The file.
        header: The header when the file was checked.
        start: The commit log offset of the first record whose keys are all in this file or in the file next to it.
        stop: The offset after the last such record, at most the live end. If all messages of the file have expired,
            `stop` is not after `start`.

    """

    file: IndexFile
    header: IndexHeader
    start: int
    stop: int


@dataclass(frozen=True)
class _ValidIndexFile:
    """A file that agrees with the log; `edges` has the key hashes of its first and last message, by offset."""

    file: IndexFile
    header: IndexHeader
    edges: dict[int, set[int]]


@dataclass
class IndexCoverage:
    """Opens and checks the index files of a store.

    Attributes:
        store: The store directory.
        files: The open files of the store.
        records: The records of the store.
        log_end: The live end of the log for the reader.
        find_log_end: Finds the present live end: a broker may be writing.
        check: Whether each file is read whole to check its pointers.
        problems: The damage of files that are not used, as text for a person.

    """

    store: Location
    files: FileReaders
    records: RecordLookup
    log_end: int
    find_log_end: Callable[[], int]
    check: bool = False
    problems: list[str] = field(default_factory=list)

    def open(self, conf: BrokerConf) -> list[IndexedRange]:
        """The valid files in the order of the log, which is the order of their names."""
        valid = self._valid_files(conf)
        entries: dict[int, set[int]] = {}
        for file in valid:
            for offset, hashes in file.edges.items():
                entries.setdefault(offset, set()).update(hashes)
        return [self._covered_range(file, entries) for file in valid]

    def _covered_range(self, valid: _ValidIndexFile, entries: Mapping[int, set[int]]) -> IndexedRange:
        """The range that the file covers; `entries` has the key hashes of all files' first and last messages."""
        header, records = valid.header, self.records
        start, stop = header.begin_commit_log_offset, header.end_commit_log_offset
        if start < records.min_offset:
            start = records.min_offset
        elif not self._has_all_keys(start, entries[start]):
            start = next_record(records, start)
        if stop >= records.min_offset and self._has_all_keys(stop, entries[stop]):
            stop = next_record(records, stop)
        return IndexedRange(valid.file, header, start, min(stop, self.log_end))

    def _has_all_keys(self, offset: int, hashes: set[int]) -> bool:
        record = self.records.record(offset)
        topic = decode_utf8(record.topic)
        return all(WithKey(topic, key).key_hash in hashes for key in record_keys(record))

    def _valid_files(self, conf: BrokerConf) -> list[_ValidIndexFile]:
        try:
            layout = index_layout(self.store, conf)
        except OptionError as error:
            self.problems.append(str(error))
            return []
        valid: list[_ValidIndexFile] = []
        for info in index_files(self.store):
            try:
                file = self._open_file(info, layout)
            except (CorruptIndexError, CorruptLogError, StoreChangedError) as error:
                self.problems.append(str(error))
                continue
            if file is None:
                continue
            if valid and file.header.begin_commit_log_offset < valid[-1].header.end_commit_log_offset:
                self.problems.append(f"{file.file.name}: begins before the file before it ends")
            else:
                valid.append(file)
        return valid

    def _open_file(self, info: IndexFileInfo, layout: IndexLayout) -> _ValidIndexFile | None:
        """The file if it is valid; None if it has no entry. Raises `CorruptIndexError` or `CorruptLogError`."""
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
        """The key hashes of the file's first and last message, by offset. Raises `CorruptIndexError`."""
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
        """Raise `CorruptIndexError` if the file contradicts itself or the log, `CorruptLogError` without a record."""
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
        """Raise unless a live record stored at that time is at the offset: a recovery may have truncated the log."""
        is_live = offset < self.log_end or offset < self.find_log_end()
        if not is_live or self.records.record(offset).store_timestamp != store_timestamp:
            raise CorruptIndexError(
                f"{file.name}: it begins or ends with a message stored at {store_timestamp}, which is not at {offset}"
            )


def _hashes_at(offset: int, entries: Iterable[Entry]) -> set[int]:
    """The key hashes of the first entries that have the offset."""
    entries_at = takewhile(lambda entry: entry.commit_log_offset == offset, entries)
    return {entry.key_hash for entry in islice(entries_at, _MAX_KEYS)}
