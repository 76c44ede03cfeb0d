"""The valid index files of a store, the range of the log that each covers, and the same for another process.

A file is checked before it is used: its header, its first and last entry, and the records to which these point must
agree. The keys of one message can be in two files, and a broker that was killed may have put only some of them. So a
file covers its first or last message only if each key of the message has an entry in it, or in the file next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise, takewhile

from spark_mq.errors import CorruptIndexError, CorruptLogError, OptionError, StoreChangedError
from spark_mq.format.dispatch import record_keys
from spark_mq.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    MAX_TIME_DIFFERENCE,
    Entry,
    IndexFile,
    IndexHeader,
    IndexLayout,
)
from spark_mq.format.java_text import decode_utf8
from spark_mq.io.file_reader import read_together
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.file_names import files_in_time
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS
from spark_mq.store.log.log_range import LiveEnd, LogRange, between
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import WithKey

_MAX_KEYS = 1 << 15
"""More keys than the properties of a message can contain."""


_TRIES = 3
"""How often a file that a broker is writing is checked before it counts as damaged."""


@dataclass(frozen=True)
class IndexedRange:
    """A valid index file with its header when it was checked, and the range of the log that it covers.

    Attributes:
        start: The commit log offset of the first record whose keys are all in this file or in the file next to it.
        stop: The offset after the last such record, before all records that can be stale. If all messages of the file
            have expired, `stop` is not after `start`.
    """

    info: IndexFileInfo
    header: IndexHeader
    start: int
    stop: int


@dataclass(frozen=True)
class IndexedWindow:
    """The valid index files that a time range needs, in order, and the part of the live log that can have messages."""

    spans: tuple[IndexedRange, ...]
    log: LogRange

    @cached_property
    def parts(self) -> tuple[IndexedRange | LogRange, ...]:
        """The files, and the ranges of `log` that no file covers, in the order of the log."""
        covering = [span for span in self.spans if span.start < span.stop]
        uncovered = between([(span.start, span.stop) for span in covering], self.log.start, self.log.stop)
        return tuple(sorted([*covering, *uncovered], key=lambda part: part.start))


@dataclass(frozen=True)
class CheckedIndex:
    """The valid files that the look-ups of one time range need, for another process."""

    layout: IndexLayout
    spans: tuple[IndexedRange, ...]
    log: LogRange

    def window(self, coverage: IndexCoverage) -> IndexedWindow:
        """The same files in this process."""
        infos = {info.name: info for info in coverage.infos}
        spans: list[IndexedRange] = []
        for known in self.spans:
            info = infos.get(known.info.name)
            if info is None:
                continue
            is_same = (info.size, info.modified) == (known.info.size, known.info.modified)
            span = replace(known, info=info) if is_same else coverage.covered_range(info)
            if span is not None and (not spans or _follows(span, spans[-1])):
                spans.append(span)
        return IndexedWindow(tuple(spans), self.log)


@dataclass(frozen=True)
class _ValidIndexFile:
    """A file that agrees with the log.

    Attributes:
        edges: The key hashes in the entries of its first and last message, by offset.
        keys: The hashes of the keys of these two messages, if the log has them.
    """

    info: IndexFileInfo
    header: IndexHeader
    edges: dict[int, set[int]]
    keys: dict[int, set[int]]


def _follows(file: IndexedRange | _ValidIndexFile, before: IndexedRange | _ValidIndexFile) -> bool:
    return file.header.begin_commit_log_offset >= before.header.end_commit_log_offset


class IndexCoverage:
    """Opens and checks the index files of a store, each when it is first needed.

    A time range needs the files from the newest one before its messages to the oldest one after them. Names and headers
    say which files these are (`files_in_time`). Then the two are opened and checked: a file whose header and first
    record agree that they were stored more than `CLOCK_TOLERANCE_MILLIS` before the time range shows that everything
    before was stored before the time range, too. So what is not opened cannot have a message that is asked for.

    `problems` describes the damage of files that are not used, as text for a person.
    """

    def __init__(
        self,
        conf: BrokerConf,
        records: RecordLookup,
        live_end: LiveEnd,
        find_log_end: Callable[[], int],
        check: bool = False,
        checked: CheckedIndex | None = None,
    ) -> None:
        """List the index files. `checked` is what another process found out for the time range of all look-ups."""
        self.problems: list[str] = []
        self.look_up_problems: list[str] = []
        self.records = records
        self._live_end = live_end
        self._log_end = live_end.offset
        self._find_log_end = find_log_end
        self._check = check
        self._opened: dict[str, _ValidIndexFile | None] = {}
        self._begins: dict[str, int | None] = {}
        self._windows: dict[tuple[int, int], IndexedWindow] = {}
        self.infos: list[IndexFileInfo] = []
        self.layout = IndexLayout()
        try:
            infos = index_files(records.store)
            self.layout = index_layout(records.store, conf, infos) if checked is None else checked.layout
            self.infos = infos
        except OptionError as error:
            self.problems.append(str(error))
        self._only = None if checked is None else checked.window(self)

    def window(self, begin: int | None = None, end: int | None = None) -> IndexedWindow:
        """The valid files that a range of store times needs, and the part of the log that can have its messages."""
        if self._only is not None:
            return self._only
        count = len(self.infos)
        first, stop = files_in_time([info.name for info in self.infos], self._begin_of, begin, end)
        while first > 0 and not (begin is not None and self._begins_before(first, begin - CLOCK_TOLERANCE_MILLIS)):
            first -= 1
        while stop < count and not (end is not None and self._begins_after(stop, end + CLOCK_TOLERANCE_MILLIS)):
            stop += 1
        if (first, stop) not in self._windows:
            self._windows[first, stop] = self._window(first, stop)
        return self._windows[first, stop]

    def covered_range(self, info: IndexFileInfo) -> IndexedRange | None:
        """What one file covers if nothing is known about the files next to it; None if it is not valid."""
        valid = self._open(info)
        return None if valid is None else self._covered_range(valid, valid.edges)

    def index_file(self, info: IndexFileInfo) -> IndexFile:
        """The file, which is not checked."""
        return info.opened(self.layout, self.records.files)

    def _window(self, first: int, stop: int) -> IndexedWindow:
        """The files from `first` to before `stop`, both of which end the time range if they are not all files."""
        count = len(self.infos)
        valid = self._all_valid(first, min(stop + 1, count))
        if not all(_follows(file, before) for before, file in pairwise(valid)):
            first, stop = 0, count  # the choice relies on the order of the names
            valid = self._in_order(self._all_valid(0, count))
        late = self._open(self.infos[stop]) if stop < count else None
        entries: dict[int, set[int]] = {}
        for file in valid:
            for offset, hashes in file.edges.items():
                entries.setdefault(offset, set()).update(hashes)
        spans = [self._covered_range(file, entries) for file in valid if file is not late]
        log_start = spans[0].start if first > 0 and spans else self.records.min_offset
        log_stop = self._log_end if late is None else min(late.header.begin_commit_log_offset, self._log_end)
        return IndexedWindow(tuple(spans), LogRange(log_start, max(log_start, log_stop)))

    def _begin_of(self, index: int) -> int | None:
        """The begin time in the header of a file, unchecked; None if the file has no entry or cannot be read."""
        info = self.infos[index]
        if info.name not in self._begins:
            try:
                header = self.index_file(info).header()
            except (CorruptIndexError, StoreChangedError):
                header = IndexHeader()
            self._begins[info.name] = header.begin_timestamp if header.next_entry > 1 else None
        return self._begins[info.name]

    def _begins_before(self, index: int, time: int) -> bool:
        """Whether all records before the first one of the file are older than `time`, or have expired."""
        valid = self._open(self.infos[index])
        if valid is None:
            return False
        is_expired = valid.header.begin_commit_log_offset < self.records.min_offset
        return is_expired or valid.header.begin_timestamp < time

    def _begins_after(self, index: int, time: int) -> bool:
        """Whether all records from the first one of the file on are newer than `time`."""
        valid = self._open(self.infos[index])
        if valid is None or valid.header.begin_commit_log_offset < self.records.min_offset:
            return False
        return valid.header.begin_timestamp > time

    def _covered_range(self, valid: _ValidIndexFile, entries: Mapping[int, set[int]]) -> IndexedRange:
        """The range that the file covers; `entries` has the key hashes of all files' first and last messages."""
        header, records = valid.header, self.records
        start, stop = header.begin_commit_log_offset, header.end_commit_log_offset
        if start < records.min_offset:
            start = records.min_offset
        elif not valid.keys[start] <= entries[start]:
            start = records.next_offset(start)
        if stop >= records.min_offset and valid.keys[stop] <= entries[stop]:
            stop = records.next_offset(stop)
        return IndexedRange(valid.info, header, start, min(stop, self._live_end.certain))

    def _all_valid(self, first: int, stop: int) -> list[_ValidIndexFile]:
        unopened = [info for info in self.infos[first:stop] if info.name not in self._opened]
        if len(unopened) > 1 and unopened[0].location.stays_open:
            self._read_together(unopened)
        return [file for file in map(self._open, self.infos[first:stop]) if file is not None]

    def _read_together(self, infos: Sequence[IndexFileInfo]) -> None:
        """Read what the checks of several files over a network need, at the same time."""
        read_together([(info.location, 0, HEADER_SIZE) for info in infos])
        entries, offsets = [], []
        for info in infos:
            try:
                header = self.index_file(info).header()
            except (CorruptIndexError, StoreChangedError):
                continue
            if header.next_entry > 1:
                for number in (1, header.next_entry - 1):
                    position = self.layout.entries_at + ENTRY_SIZE * number
                    entries.append((info.location, position, position + ENTRY_SIZE))
                offsets += [header.begin_commit_log_offset, header.end_commit_log_offset]
        read_together([*entries, *self.records.heads(offsets)])

    def _in_order(self, files: Sequence[_ValidIndexFile]) -> list[_ValidIndexFile]:
        """The files without those that begin before the file before them ends."""
        kept: list[_ValidIndexFile] = []
        for file in files:
            if kept and not _follows(file, kept[-1]):
                self._add_problem(f"{file.info.location}: begins before the file before it ends")
            else:
                kept.append(file)
        return kept

    def _open(self, info: IndexFileInfo) -> _ValidIndexFile | None:
        """The file if it is valid and has an entry; otherwise None, and a problem if it is not valid."""
        if info.name not in self._opened:
            self._opened[info.name] = None
            try:
                self._opened[info.name] = self._open_file(info)
            except (CorruptIndexError, CorruptLogError, StoreChangedError) as error:
                self._add_problem(str(error))
        return self._opened[info.name]

    def _add_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _open_file(self, info: IndexFileInfo) -> _ValidIndexFile | None:
        """The file if it is valid; None if it has no entry. Raises `CorruptIndexError` or `CorruptLogError`."""
        info.check_size(self.layout)
        file = self.index_file(info)
        for attempt in range(_TRIES):
            header = file.header()
            if header.index_count < 0:
                raise CorruptIndexError(f"{file.name}: index count {header.index_count}")
            if header.next_entry <= 1:
                return None
            try:
                edges = self._edges(file, header)
                keys = self._check_file(file, header)
            except (CorruptIndexError, CorruptLogError):
                if attempt == _TRIES - 1 or file.header() == header:
                    raise
            else:
                return _ValidIndexFile(info, header, edges, keys)
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

    def _check_file(self, file: IndexFile, header: IndexHeader) -> dict[int, set[int]]:
        """The hashes of the keys of the file's first and last message, by offset, if the log has the message.

        Raises `CorruptIndexError` if the file contradicts itself or the log, `CorruptLogError` without a record.
        """
        start, end = header.begin_commit_log_offset, header.end_commit_log_offset
        last = file.entry(header.next_entry - 1)
        seconds = min(max(int((header.end_timestamp - header.begin_timestamp) / 1000), 0), MAX_TIME_DIFFERENCE)
        if start > end or (last.number > 1 and last.time_difference != seconds):
            raise CorruptIndexError(f"{file.name}: its header has other offsets or times than its entries")
        if self._check:
            from spark_mq.format.kernels.index_put import check_pointers

            check_pointers(file, header)
        messages = (start, header.begin_timestamp), (end, header.end_timestamp)
        return {
            offset: self._keys_of(file, offset, store_timestamp)
            for offset, store_timestamp in messages
            if offset >= self.records.min_offset
        }

    def _keys_of(self, file: IndexFile, offset: int, store_timestamp: int) -> set[int]:
        """The hashes of the keys of the live record at the offset, which was stored at that time.

        Raises `CorruptIndexError` if it is not there: a recovery may have truncated the log.
        """
        is_live = offset < self._log_end or offset < self._find_log_end()
        record = self.records.record(offset) if is_live else None
        if record is None or record.store_timestamp != store_timestamp:
            raise CorruptIndexError(
                f"{file.name}: it begins or ends with a message stored at {store_timestamp}, which is not at {offset}"
            )
        topic = decode_utf8(record.topic)
        return {WithKey(topic, key).key_hash for key in record_keys(record)}


def _hashes_at(offset: int, entries: Iterable[Entry]) -> set[int]:
    """The key hashes of the first entries that have the offset."""
    entries_at = takewhile(lambda entry: entry.commit_log_offset == offset, entries)
    return {entry.key_hash for entry in islice(entries_at, _MAX_KEYS)}
