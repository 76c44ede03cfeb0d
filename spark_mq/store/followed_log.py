"""The new messages of a log to which a broker appends."""

from __future__ import annotations

from collections.abc import Iterator

from spark_mq.errors import LogCutError
from spark_mq.format.record import Record
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import RecordFilter, scan


class FollowedLog:
    """The messages of a log that match a filter and come after `position`, a commit log offset.

    A message is returned once, when it is whole and live. `position` is then after it.
    """

    def __init__(self, store: Location, row_filter: RecordFilter, position: int) -> None:
        """Follow the log of `store` from `position` on: the live end of an earlier read; -1 if the log was empty."""
        self.position = position
        self._store = store
        self._filter = row_filter
        self._finder = LiveEndFinder(store)

    def new_parts(self) -> Iterator[Record | CorruptRange]:
        """The matching messages that were added since the last call, and damaged or expired ranges among them."""
        end = self._finder.find_now()
        if end < self.position:
            raise LogCutError(
                f"{self._store}: the log was read up to commit log offset {self.position}, and ends at {end} now: the "
                "broker crashed and lost the end of its log; start again to read what it writes since"
            )
        if end == self.position:
            return
        files = FileReaders()
        try:
            records = RecordLookup(self._store, files)
            start = records.min_offset if self.position < 0 else self.position
            yield from scan(self._store, records, LogRange(start, end), self._filter)
        finally:
            files.close()
        self.position = end
