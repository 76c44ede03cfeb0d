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
        before: The file before it; None if it is the first one.
        layout: The numbers of slots and entries.
        entries: The list of the entries that the log has (`ExpectedEntries.save`).
        bounds: Start and end of the log.
        log: The log as it was when the check began.
    """

    file: Location
    before: Location | None
    is_last: bool
    layout: IndexLayout
    entries: Location
    staged: Location
    bounds: LogBounds
    log: LiveLog

    def __call__(self, sink: FindingSink) -> None:
        """Put what is wrong into `sink`."""
        from spark_mq.verifier.index_file import NO_FILE_BEFORE, IndexFileChecker

        expected = ExpectedEntries.load(self.entries, self.staged)
        tail = NO_FILE_BEFORE
        if self.before is not None:
            tail = IndexFileChecker(self.before, self.layout, expected, self.bounds).tail()
        checker = IndexFileChecker(self.file, self.layout, expected, self.bounds)
        sink.add(checker.findings(tail, self.is_last, self.log.has_grown))
