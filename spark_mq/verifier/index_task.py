"""Index files against staged entries, as tasks."""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location
from spark_mq.verifier.expected_entries import ExpectedEntries
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.log_end import LiveLog
from spark_mq.verifier.sink import FindingSink


@dataclass(frozen=True)
class IndexFileCheck:
    """The check of one index file.

    Attributes:
        file: The file.
        before: The file before it; None if it is the first one.
        is_last: Whether it is the newest file.
        layout: The numbers of slots and entries.
        expected: All entries that the log has.
        bounds: Start and end of the log.
        log: The log as it was when the check began.

    """

    file: Location
    before: Location | None
    is_last: bool
    layout: IndexLayout
    expected: ExpectedEntries
    bounds: LogBounds
    log: LiveLog

    def __call__(self, sink: FindingSink) -> None:
        """Put what is wrong into `sink`."""
        from spark_mq.verifier.index_file import NO_FILE_BEFORE, IndexFileChecker

        tail = NO_FILE_BEFORE
        if self.before is not None:
            tail = IndexFileChecker(self.before, self.layout, self.expected, self.bounds).tail()
        checker = IndexFileChecker(self.file, self.layout, self.expected, self.bounds)
        sink.add(checker.findings(tail, self.is_last, self.log.has_grown))
