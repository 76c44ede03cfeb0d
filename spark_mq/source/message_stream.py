"""The stream reader of table `messages`: one process of the query computes offsets and partitions, tasks read.

Spark requests the end of the next batch, writes this end to the checkpoint, and reads from the last end to this one.
After a failure Spark reads the same range again. So an end must stay valid: it is the end of a whole record, which no
broker changes. See Spark's `DataSourceStreamReader`.

But a broker can lose the end of its log in a crash, and then write other records at the same offsets. An offset
therefore has marks of records that were read (`RecordMark`). When Spark requests the end of a batch, the newest mark
is compared with the log. If that record is lost, the stream stops, or goes back to the first record that the broker
wrote since: the first record after the newest mark that is still in the log, with a store time later than the newest
mark. If store times do not show that record (a clock was set back), the stream goes back to the mark: a message may
then be read twice, but none is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_mq._compat import HAS_READ_LIMITS, ReadAllAvailable, SupportsTriggerAvailableNow, limited_read
from spark_mq.errors import CorruptLogError, DataLossError, LogCutError, OptionError, StoreChangedError
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.source.messages import GapPartition, LookUpPartition, MessagesReader, SplitPartition
from spark_mq.source.options import EARLIEST, LATEST, Mode, StreamOptions
from spark_mq.source.stream_offset import NOTHING_YET, RecordMark, StreamOffset, is_lost, mark_of, thin_out
from spark_mq.source.topic_plan import plan_topics
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import EXPIRED, OffsetRange, list_offset_range
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import FOREVER
from spark_mq.store.log.segment_files import CorruptRange, segment_files
from spark_mq.store.message_store import MessageStore

_LEAST_BY_UNITS = 64 << 20
"""Bytes of the log of the smallest batch for which units are asked: they cost more than a scan of less."""
_TRIES = 5
"""Attempts to read the store when segments expire meanwhile."""

_Answer = TypeVar("_Answer")

_LOG = logging.getLogger(__name__)


class MessagesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader; `columns` are the columns that the query reads."""

    def __init__(self, options: StreamOptions, columns: list[str]) -> None:
        """Raise `OptionError` if this Spark does not support the options."""
        if not HAS_READ_LIMITS and (options.max_bytes is not None or options.max_messages is not None):
            raise OptionError(
                "options maxBytesPerTrigger and maxMessagesPerTrigger need Spark 4.2 or later: older versions set no "
                "limit for a Python source; without these options, a batch reads everything that is there"
            )
        self._options = options
        self._store = Location.resolve(options.read.path)
        self._rows = MessagesReader(options.read, columns)
        self._live_end = LiveEndFinder(self._store)
        self._seen_end: LiveEnd | None = None
        self._frozen_end: LiveEnd | None = None
        self._last: StreamOffset | None = None
        self._reported: set[str] = set()
        """Stray files that were logged."""
        self._newly_lost = 0
        """Bytes that were found to be gone when a batch was planned, after its end had been returned."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a new stream."""
        self._last = _retry_on_expiry(self._first_offset)
        return self._last.to_json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The end of the batch that starts at `start`; `start` itself if there is no new message.

        Spark before 4.2 passes no arguments.
        """
        begin = self._last if start is None else StreamOffset.of_json(start)
        is_limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        self._last = _retry_on_expiry(lambda: self._next_offset(begin, is_limited))
        return self._last.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of a batch, from the options."""
        if self._options.max_bytes is None and self._options.max_messages is None:
            return ReadAllAvailable()
        return limited_read(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: messages that are appended from now on are for the next query."""
        self._frozen_end = _retry_on_expiry(self._find_end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The live end when the reader last looked for it, for the query's progress."""
        return None if self._seen_end is None else StreamOffset(self._seen_end.offset).to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """One partition for each split of the batch, and one for each range that is gone."""
        first, last = StreamOffset.of_json(start), StreamOffset.of_json(end)
        begin, stop = first.commit_log_offset, last.commit_log_offset
        if last.read_from is not None:
            begin = last.read_from
        if last.marks and last != self._last:
            # An earlier run planned the batch. Records that the broker wrote since there are for the next batch.
            stop = max(min(stop, _retry_on_expiry(lambda: self._kept_end(last, self._find_end().offset))), begin)
        self._last = last
        listed = _retry_on_expiry(lambda: self._list(begin, stop))
        if listed.missing and self._options.fail_on_data_loss:
            raise _data_loss(listed.missing[0])
        self._newly_lost += max(listed.missing_bytes - (last.lost_bytes - first.lost_bytes), 0)
        if not listed.missing:
            by_units = self._by_units(LogRange(self._log_start() if begin == NOTHING_YET else begin, stop))
            if by_units is not None:
                return by_units
        splits = listed.splits(self._options.read.split_size, self._options.fail_on_data_loss)
        return [*map(GapPartition, listed.missing), *(SplitPartition(split) for split in splits)]

    def _by_units(self, log: LogRange) -> Sequence[InputPartition] | None:
        """The partitions of a batch whose topics' messages are read by their units; None if a scan costs less."""
        options = self._options.read
        if options.predicate.topics is None or options.check_crc or log.size < _LEAST_BY_UNITS:
            return None
        try:
            live = replace(self._seen_end or self._find_end(), offset=log.stop)
            with MessageStore(options.path, broker_conf=options.broker_conf, live_end=live) as store:
                plan = plan_topics(options, store, log)
        except (StoreChangedError, FileNotFoundError):
            return None  # the broker deletes old files: a scan says which
        if isinstance(plan, str):
            return None
        others = (LogRange(0, log.start), *plan.uncovered, LogRange(log.stop, FOREVER))
        return [
            *(LookUpPartition(look_up, others, live, None) for look_up in plan.look_ups),
            *(SplitPartition(split) for split in plan.splits),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises `DataLossError` if its segment expired since the batch was planned."""
        if isinstance(partition, GapPartition):
            yield from self._lost_rows(partition.gap)
            return
        batches = self._rows.read(partition)
        try:
            first = next(batches, None)
        except (StoreChangedError, FileNotFoundError):
            yield from self._expired(partition)
            return
        if first is not None:
            yield first
        yield from batches

    def _expired(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What is left of a partition whose segments, or units that lead to its messages, expired since the plan."""
        if isinstance(partition, SplitPartition):
            split = partition.split
            start, length = split.segment.base + split.start, split.stop - split.start
            reason = "the segment expired before it was read"
            yield from self._lost_rows(CorruptRange(str(split.segment.location), start, length, EXPIRED, reason))
        elif isinstance(partition, LookUpPartition) and partition.look_up.units is not None:
            for piece in partition.look_up.units.pieces:  # a scan finds the messages of those that are there
                listed = self._list(piece.start, piece.stop)
                for lost in listed.missing:
                    yield from self._lost_rows(lost)
                for split in listed.splits(self._options.read.split_size, is_end_known=False):
                    yield from self.read(SplitPartition(split))

    def _find_end(self) -> LiveEnd:
        self._seen_end = self._live_end.find_end_now()
        return self._seen_end

    def _first_offset(self) -> StreamOffset:
        options, live = self._options, self._find_end()
        if live.offset < 0:
            return StreamOffset(NOTHING_YET)
        if options.starting_offsets == EARLIEST:
            return StreamOffset(self._log_start())
        start = live.offset if options.starting_offsets == LATEST else self._find_start(live.offset)
        return StreamOffset(start, marks=self._marks((), self._log_start(), start, live))

    def _find_start(self, end: int) -> int:
        from spark_mq.store.log.split_reader import next_boundary, offset_for_time

        if self._options.starting_timestamp is not None:
            return offset_for_time(self._store, end, self._options.starting_timestamp)
        offset = int(self._options.starting_offsets or 0)
        if offset > end:
            raise OptionError(f"option startingOffsets={offset} is after the end of the log, {end}")
        return next_boundary(self._store, offset, end) if offset >= self._log_start() else offset

    def _log_start(self) -> int:
        """The commit log offset at which the log starts; 0 if there is no segment."""
        files = segment_files(self._store)
        return int(files[0].base_name) if files else 0

    def _next_offset(self, begin: StreamOffset | None, is_limited: bool) -> StreamOffset:
        live = self._find_end() if self._frozen_end is None else self._frozen_end
        end = live.offset
        if begin is None:
            return StreamOffset(end)
        start = self._kept_end(begin, end)
        goes_back = start < begin.commit_log_offset
        if end <= start and (begin.marks or not goes_back):
            return begin
        if is_limited:
            end = self._limited(start, end)
        listed = self._list(start, end)
        read_from = start if goes_back else None
        lost = begin.lost_bytes
        if listed.missing and self._options.fail_on_data_loss:
            # The messages before the missing range are read first.
            end = listed.missing[0].commit_log_offset
            if end <= start:
                raise _data_loss(listed.missing[0])
        else:
            lost += listed.missing_bytes + self._newly_lost
            self._newly_lost = 0
        return StreamOffset(end, lost, read_from, self._marks(begin.marks, start, end, live))

    def _kept_end(self, offset: StreamOffset, live_end: int) -> int:
        """The commit log offset up to which the log still has the records that were read up to `offset`.

        This is the offset itself if the broker did not lose the end of its log. Raises `LogCutError` if the broker did,
        unless the options say to continue.
        """
        read_to = offset.commit_log_offset
        if not offset.marks:
            if live_end < read_to:
                self._check_cut(read_to, f"the log ends at commit log offset {live_end}")
            return min(live_end, read_to) if live_end >= 0 else read_to
        with closing(FileReaders()) as files:
            records = RecordLookup(self._store, files)
            newest, *_ = offset.marks
            if not is_lost(records, newest, live_end):
                # After the newest record there was a blank or damage, which the broker may have overwritten.
                segment = records.segment_of(newest.commit_log_offset)
                is_in_segment = segment is not None and newest.end_offset < segment.base + segment.size
                is_record = is_in_segment and mark_of(records, newest.end_offset) is not None
                is_written_over = newest.end_offset < read_to and is_record
                return newest.end_offset if is_written_over or live_end < read_to else read_to
            self._check_cut(
                read_to,
                ("the log has no message" if live_end < 0 else f"the log ends at commit log offset {live_end}")
                if live_end < newest.end_offset
                else f"at commit log offset {newest.commit_log_offset} it has another record",
            )
            lost = [mark for mark in offset.marks if is_lost(records, mark, live_end)]
        kept = [mark.end_offset for mark in offset.marks if mark not in lost]
        return self._first_new(max([*kept, self._log_start()]), lost, live_end)

    def _first_new(self, kept_to: int, lost: Sequence[RecordMark], live_end: int) -> int:
        """The offset of the first record that the broker wrote since; `kept_to` if store times do not show it.

        The broker wrote it at or before the oldest lost mark, or, if it did not fit there, after a blank.
        """
        from spark_mq.store.log.split_reader import last_record, place_of_newer

        offset = place_of_newer(self._store, kept_to, live_end, lost[0].store_timestamp + 1)
        oldest_lost = min(mark.commit_log_offset for mark in lost)
        if offset <= oldest_lost:
            return offset
        before = last_record(self._store, kept_to, offset)
        return offset if before is None or before < oldest_lost else kept_to

    def _check_cut(self, read_to: int, reason: str) -> None:
        if self._options.fail_on_log_cut:
            raise LogCutError(
                f"{self._store}: {reason}, but was read up to {read_to}: the broker lost the end of its log, or the "
                "path is another store. With failOnLogCut=false the stream goes back to where the log differs, and "
                "continues with what the broker wrote since"
            )

    def _marks(self, before: Sequence[RecordMark], start: int, end: int, live: LiveEnd) -> tuple[RecordMark, ...]:
        """The marks of an offset at `end`: the marks before `start`, and the last record before `end`."""
        kept = [mark for mark in before if mark.end_offset <= start]
        first = start if kept else self._log_start()
        if end == live.offset and live.last_record is not None:
            last: int | None = live.last_record if live.last_record >= first else None
        else:
            from spark_mq.store.log.split_reader import last_record

            last = last_record(self._store, first, end)
        if last is None:
            return tuple(kept)
        with closing(FileReaders()) as files:
            mark = mark_of(RecordLookup(self._store, files), last)
        return thin_out([*([] if mark is None else [mark]), *kept], end)

    def _limited(self, start: int, end: int) -> int:
        from spark_mq.store.log.split_reader import boundary_after, next_boundary

        first = max(start, self._log_start())
        if self._options.max_bytes is not None:
            end = next_boundary(self._store, first + self._options.max_bytes, end)
        if self._options.max_messages is not None:
            if not self._options.fail_on_data_loss:
                first = next_boundary(self._store, first, end)
            end = boundary_after(self._store, first, end, self._options.max_messages)
        return end

    def _list(self, start: int, end: int) -> OffsetRange:
        """The segments of a range. A file that is not a valid segment is an error if the mode is FAILFAST."""
        listed = list_offset_range(self._store, self._log_start() if start == NOTHING_YET else start, end)
        for stray in listed.stray:
            if self._options.read.mode == Mode.FAILFAST:
                raise CorruptLogError(stray.describe())
            if stray.file not in self._reported:
                self._reported.add(stray.file)
                _LOG.warning("%s; the stream does not read it", stray.describe())
        return listed

    def _lost_rows(self, lost: CorruptRange) -> Iterator[pa.RecordBatch]:
        if self._options.fail_on_data_loss:
            raise _data_loss(lost)
        if self._options.read.mode == Mode.PERMISSIVE:
            yield from self._rows.read(GapPartition(lost))


def _data_loss(lost: CorruptRange) -> DataLossError:
    return DataLossError(
        f"{lost.describe()}. With failOnDataLoss=false the stream continues at {lost.commit_log_offset + lost.length}"
    )


def _retry_on_expiry(read: Callable[[], _Answer]) -> _Answer:
    """The result of `read`, which is called again if a broker removes segments meanwhile."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except DataLossError:
            raise
        except (StoreChangedError, FileNotFoundError):
            continue
    return read()
