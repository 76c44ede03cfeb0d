"""What one process found out about a store's index files, for another process that looks keys up in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_mq.format.index_file import IndexHeader, IndexLayout
from spark_mq.store.index.coverage import IndexCoverage, IndexedRange, IndexedWindow
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.store.log.log_range import LogRange


@dataclass(frozen=True)
class CheckedFile:
    """A valid index file: `IndexedRange` without the open file."""

    name: str
    size: int
    modified: int
    header: IndexHeader
    start: int
    stop: int


@dataclass(frozen=True)
class CheckedIndex:
    """The valid files that the look-ups of one time range need; it can be pickled.

    Attributes:
        log: The part of the live log that can have messages of the time range.
    """

    layout: IndexLayout
    files: tuple[CheckedFile, ...]
    log: LogRange

    @classmethod
    def of(cls, window: IndexedWindow, layout: IndexLayout) -> CheckedIndex:
        """What was found out for a time range."""
        return cls(layout, tuple(_checked_file(span) for span in window.spans), window.log)

    def window(self, coverage: IndexCoverage) -> IndexedWindow:
        """The same files in this process.

        A file that has another size or time now is checked again, and one that is gone is left out: then its part of
        the log is read.
        """
        infos = {info.name: info for info in coverage.infos}
        spans = [_span(file, infos, coverage) for file in self.files]
        return IndexedWindow(tuple(_in_order([span for span in spans if span is not None])), self.log)


def _checked_file(span: IndexedRange) -> CheckedFile:
    return CheckedFile(span.info.name, span.info.size, span.info.modified, span.header, span.start, span.stop)


def _span(file: CheckedFile, infos: Mapping[str, IndexFileInfo], coverage: IndexCoverage) -> IndexedRange | None:
    info = infos.get(file.name)
    if info is None:
        return None
    if (info.size, info.modified) != (file.size, file.modified):
        return coverage.covered_range(info)
    return IndexedRange(info, coverage.index_file(info), file.header, file.start, file.stop)


def _in_order(spans: Sequence[IndexedRange]) -> list[IndexedRange]:
    """The files without those that begin before the file before them ends."""
    kept: list[IndexedRange] = []
    for span in spans:
        if not kept or span.header.begin_commit_log_offset >= kept[-1].header.end_commit_log_offset:
            kept.append(span)
    return kept
