"""A store's index files as one index of its log: the messages that have a key, newest first.

A look-up reads a slot and its entries in each file, and the records to which they point, because an entry has only a
hash and whole seconds. Parts of the log that no file covers are read in the log itself. Such a part can be before the
first file (a broker deletes index files after a crash), between two files, or after the last file (a broker that was
killed loses the entries that it had not written). So the answer is that of a scan of the whole log, except for messages
of transaction type ROLLBACK, which are not in any index.

If a file is not valid when it is opened (`coverage`) or during a look-up, `problems` names it, and its part of the log
is read instead. A look-up cannot notice one kind of damage: if a slot, or the pointer of an entry, became zero or
points to an older entry of the same slot, entries are skipped without a trace. `check` finds such damage, and reads
whole files for it (`format.index_file`). An entry that a whole file lacks is found only by `spark-mq verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Self

from spark_mq.errors import CorruptIndexError, CorruptLogError
from spark_mq.format.array_types import Int32s, Int64s
from spark_mq.format.dispatch import record_keys, record_tags_key
from spark_mq.format.index_file import MAX_TIME_DIFFERENCE, Entry, IndexFile, IndexHeader, walk_slot
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import HEAD_SIZE, Record, read_store_timestamp
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.io.location import Location
from spark_mq.store.index.coverage import CheckedIndex, IndexCoverage, IndexedRange
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS
from spark_mq.store.log.log_range import LogRange, between
from spark_mq.store.log.scan import SHORT_RANGE, WithKey, scan, splits_of
from spark_mq.store.log.segment_files import MAX_OFFSET

FIRST_TIME, LAST_TIME = 0, (1 << 63) - 1
"""The time range of `mqadmin queryMsgByKey`, if none is given."""
MQADMIN_MAX_NUM = 64
"""The number of messages for which `mqadmin queryMsgByKey` asks, if none is given."""

MAX_TABLE_RANGE = 8 << 30
"""The largest part of the log, in bytes, for a table: about 550 MB of memory for messages of the usual size."""


class IndexType(StrEnum):
    """What a look-up in the index is for (`QueryMessageRequestHeader.indexType`@5.5.0).

    In index files, a unique key is a key, too. In an index in RocksDB, it is not.
    """

    KEY = "K"
    TAG = "T"
    UNIQUE_KEY = "U"


@dataclass(frozen=True)
class BrokerAnswer:
    """What a broker returns.

    Attributes:
        index_last_update_timestamp: The end time of the newest index file, in milliseconds; 0 if the index has nothing.
        unreadable: Commit log offsets in the index at which the log has no record.
    """

    records: tuple[Record, ...]
    index_last_update_timestamp: int
    index_last_update_commit_log_offset: int
    unreadable: tuple[int, ...]


class KeyIndex(IndexCoverage):
    """The index of one store.

    `problems` describes the damage of files that are not used; look-ups can add to it, and files are opened when a
    look-up needs them. `look_up_problems` are those that look-ups added: an entry of a file that seemed valid leads to
    no message, so a message can be lost.
    """

    @cached_property
    def _tables(self) -> dict[LogRange, KeyTable | None]:
        """The table of each part of the log that was scanned twice; None for one that was scanned once."""
        return {}

    @property
    def parts(self) -> Sequence[IndexedRange | LogRange]:
        """All parts of the log in its order: files, and ranges of the log that no file covers."""
        return self.window().parts

    def checked(self, begin: int | None, end: int | None) -> CheckedIndex:
        """The files of a look-up in a range of store times, for another process."""
        window = self.window(begin, end)
        return CheckedIndex(self.layout, window.spans, window.log)

    def find_messages(
        self, topic: str, key: str, begin: int | None = None, end: int | None = None, beside: Sequence[LogRange] = ()
    ) -> Iterator[Record]:
        """The live messages of a topic that have a key, each once, newest first; none of the ranges `beside`."""
        first, last = EARLIEST_MILLIS if begin is None else begin, LATEST_MILLIS if end is None else end
        for record in self._find(WithKey(topic, key), begin, end, beside):
            if first <= record.store_timestamp <= last:
                yield record

    def count_entries(self, topic: str, key: str, begin: int | None = None, end: int | None = None) -> tuple[int, int]:
        """The number of entries that a look-up in a time range can read, and of those with the key's hash."""
        key_hash = WithKey(topic, key).key_hash
        met = hits = 0
        for part in self.window(begin, end).parts:
            if isinstance(part, IndexedRange):
                file = self.index_file(part.info)
                try:
                    for entry in walk_slot(file, file.header(), key_hash, file.newest_entry(key_hash)):
                        met += 1
                        hits += entry.key_hash == key_hash
                except CorruptIndexError:
                    continue
        return met, hits

    def expired_timestamp(self, topic: str, key: str) -> int | None:
        """The store time (milliseconds, in whole seconds) of the key's newest message that the log no longer has.

        None if no file has an entry of such a message. The message can have had another key with the same hash.
        """
        key_hash = WithKey(topic, key).key_hash
        for span in reversed(self.window(None, None).spans):
            try:
                for entry, store_timestamp in self._entries(span, key_hash, None, None):
                    if entry.commit_log_offset < self.records.min_offset:
                        return store_timestamp
            except CorruptIndexError:
                continue
        return None

    def _find(
        self, row_filter: WithKey, begin: int | None, end: int | None, beside: Sequence[LogRange]
    ) -> Iterator[Record]:
        key_hash = row_filter.key_hash
        stop = self._log_end
        for part in reversed(self.window(begin, end).parts):
            stop = min(stop, part.stop)
            done: set[int] = set()
            if isinstance(part, IndexedRange):
                try:
                    # The whole chain is followed first: an entry that is out of order can be the newest message's.
                    for entry, _ in list(self._entries(part, key_hash, begin, end)):
                        offset = entry.commit_log_offset
                        # Not from `stop` on: a message that was found, or that came after the log was opened.
                        if not part.start <= offset < stop or offset in done:
                            continue
                        if any(offset in log_range for log_range in beside):
                            continue
                        _check_place(self.index_file(part.info), part.header, entry)
                        record = self._record(part, offset, key_hash)
                        done.add(offset)
                        if row_filter.matches(record):
                            yield record
                    stop = min([stop, *done])
                    continue
                except CorruptIndexError as error:
                    problem = str(error)
                    if problem not in self.problems:
                        self.problems.append(problem)
                        self.look_up_problems.append(problem)
            # All of it, not only what comes after the entries that were good: one can be where another should be.
            uncovered = between([(other.start, other.stop) for other in beside], part.start, stop)
            for log_range in reversed(uncovered):
                for offset in reversed(self._scan(log_range, row_filter, begin, end)):
                    record = self.records.record(offset)
                    if offset not in done and row_filter.matches(record):
                        yield record
            stop = part.start

    def _scan(self, log_range: LogRange, row_filter: WithKey, begin: int | None, end: int | None) -> list[int]:
        """The offsets of messages that can have the key, ascending."""
        table = self._tables.get(log_range)
        if table is None and log_range in self._tables and SHORT_RANGE < log_range.size <= MAX_TABLE_RANGE:
            table = self._tables[log_range] = KeyTable.read(self.records.store, log_range)
        if table is not None:
            return table.offsets(row_filter.key_hash)
        self._tables[log_range] = None
        parts = scan(self.records, log_range, row_filter, begin, end)
        return [part.commit_log_offset for part in parts if isinstance(part, Record)]

    def _entries(
        self, span: IndexedRange, key_hash: int, begin: int | None, end: int | None
    ) -> Iterator[tuple[Entry, int]]:
        """The entries that have the hash, newest first, each with its approximate store time.

        Entries whose messages were certainly stored outside `begin` to `end` are left out, but they are followed, too:
        what comes later shows whether the chain is in order. Raises `CorruptIndexError`.
        """
        file, first = self.index_file(span.info), span.header.begin_commit_log_offset
        newest = file.newest_entry(key_hash)
        # A file that is not full may have grown since; the slot is read first, as the broker writes it last but one.
        header = span.header if span.header.is_full(file.layout) else file.header()
        last = max(header.end_commit_log_offset, span.header.end_commit_log_offset)
        is_over = False
        for entry in walk_slot(file, header, key_hash, newest):
            if not first <= entry.commit_log_offset <= last:
                raise CorruptIndexError(f"{file.name}: entry {entry.number} has offset {entry.commit_log_offset}")
            last = entry.commit_log_offset
            if is_over:
                continue
            # The first entry of a file was timed against the file before it; the file begins with its time.
            store_timestamp = header.begin_timestamp + (0 if entry.number == 1 else entry.time_difference * 1000)
            is_early = begin is not None and store_timestamp + 1000 + CLOCK_TOLERANCE_MILLIS < begin
            is_late = end is not None and store_timestamp > end + CLOCK_TOLERANCE_MILLIS
            if is_early or (is_late and entry.key_hash == key_hash):
                self._check_time(span, entry, header.begin_timestamp)
            is_over = is_early
            if entry.key_hash == key_hash and not is_late and not is_early:
                yield entry, store_timestamp

    def _check_time(self, span: IndexedRange, entry: Entry, begin_timestamp: int) -> None:
        """Raise `CorruptIndexError` if the entry's time is not that of its record: this time leaves messages out.

        `IndexFile.putKey`@5.3.3: whole seconds since the file's begin, at least 0.
        """
        if entry.commit_log_offset < self.records.min_offset or entry.number == 1:
            return
        head = self.records.read(entry.commit_log_offset, HEAD_SIZE)
        stored = read_store_timestamp(head, entry.commit_log_offset)
        if (
            stored is None
            or min(max(stored - begin_timestamp, 0) // 1000, MAX_TIME_DIFFERENCE) != entry.time_difference
        ):
            raise CorruptIndexError(
                f"{span.info.location}: entry {entry.number} has time difference {entry.time_difference}, its record "
                f"at {entry.commit_log_offset} was stored at {stored}"
            )

    def _record(self, span: IndexedRange, offset: int, key_hash: int) -> Record:
        """The record of an entry. Raises `CorruptIndexError` if neither a key nor the tags have the hash."""
        try:
            record = self.records.record(offset)
        except CorruptLogError as error:
            raise CorruptIndexError(f"{span.info.location}: an entry points to no record: {error}") from error
        topic = decode_utf8(record.topic)
        keys = [*record_keys(record), record_tags_key(record) or ""]
        if not any(WithKey(topic, key).key_hash == key_hash for key in keys):
            raise CorruptIndexError(
                f"{span.info.location}: an entry points to the message at {offset}, which has no such key"
            )
        return record


def _check_place(file: IndexFile, header: IndexHeader, entry: Entry) -> None:
    """Raise `CorruptIndexError` where the entries beside this one are not in the order of the log with it."""
    before = file.entry(entry.number - 1).commit_log_offset if entry.number > 1 else -1
    is_last = entry.number + 1 >= header.next_entry
    after = MAX_OFFSET if is_last else file.entry(entry.number + 1).commit_log_offset
    if not before <= entry.commit_log_offset <= after:
        raise CorruptIndexError(
            f"{file.name}: entry {entry.number} has offset {entry.commit_log_offset}, the entries beside it have "
            f"{before} and {after}"
        )


@dataclass(frozen=True)
class KeyTable:
    """The keys of a part of the log that no index file covers, for callers that look up many of them.

    To read the log again for each key would take seconds each time. The table has what an index has: key hashes,
    sorted, and the commit log offsets of their messages, ascending for each hash. A key takes 12 bytes.
    """

    key_hashes: Int32s
    commit_log_offsets: Int64s

    @classmethod
    def read(cls, store: Location, log_range: LogRange) -> Self:
        """The table of a range of the live log; damage is skipped."""
        import numpy as np

        from spark_mq.format.kernels.index_keys import index_keys
        from spark_mq.store.log.record_reader import joined_chunks
        from spark_mq.store.log.split_reader import read_split

        hashes, offsets = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for split in splits_of(store, log_range):
            for part in joined_chunks(read_split(split)):
                if not isinstance(part, list):
                    keys = index_keys(part.buffer, part.frames)
                    hashes.append(keys.key_hash)
                    offsets.append(np.repeat(part.frames.position + part.base, keys.entry_count))
        all_hashes = np.concatenate(hashes)
        order = np.argsort(all_hashes, kind="stable")
        return cls(all_hashes[order], np.concatenate(offsets)[order])

    def offsets(self, key_hash: int) -> list[int]:
        """The commit log offsets of the messages with a key of this hash, each once, ascending."""
        start, stop = self.key_hashes.searchsorted([key_hash, key_hash + 1])
        return list(dict.fromkeys(self.commit_log_offsets[start:stop].tolist()))
