"""What tasks do with their findings: they write them to Parquet files, and count them.

So a million findings of one kind cost a task and the driver little, and the whole of them can be read as a table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_mq.io.location import Location
from spark_mq.verifier.finding import FINDING_SCHEMA, LATER, Finding, rows

SHOWN = 5
"""The number of findings of a code that a report shows in full."""
_WRITTEN_TOGETHER = 1 << 16
"""Findings that are written together: each write is a row group, of which a file keeps a description in memory."""
_JOINED = 256
"""Waiting batches that are joined into one: a batch of one finding takes kilobytes."""


@dataclass
class Summary:
    """Findings, counted; the first ones of each code, at most `SHOWN`; and the files that contain all of them.

    `later` is the first commit log offset of what has to be looked at again.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[Finding]] = field(default_factory=dict)
    files: list[Location] = field(default_factory=list)
    later: int = (1 << 63) - 1

    @classmethod
    def of(cls, summaries: Iterable[Summary]) -> Self:
        """The sum of several summaries; the first findings of a code are those with the smallest positions."""
        total = cls()
        for summary in summaries:
            total.files += summary.files
            total.later = min(total.later, summary.later)
            for code, count in summary.counts.items():
                total.counts[code] = total.counts.get(code, 0) + count
                first = [*total.first.get(code, ()), *summary.first[code]]
                total.first[code] = sorted(first, key=_position)[:SHOWN]
        return total

    def add(self, batch: pa.RecordBatch) -> None:
        """Count findings of one code."""
        code = batch["code"][0].as_py()
        if code == LATER:
            offset = pc.min(batch["commit_log_offset"]).as_py()
            self.later = min(self.later, -1 if offset is None else offset)
            return
        self.counts[code] = self.counts.get(code, 0) + batch.num_rows
        shown = self.first.setdefault(code, [])
        shown += rows([batch.slice(0, SHOWN - len(shown))])


def _position(finding: Finding) -> tuple[str, int, int]:
    return finding.file or "", finding.position or 0, finding.commit_log_offset or 0


class FindingSink:
    """Writes the findings of one task to a file in `folder`. When its context ends, `summary` is complete."""

    def __init__(self, folder: Location) -> None:
        self.summary = Summary()
        self._folder = folder
        self._file = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._write()
        self._file.close()

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take findings; a batch has findings of one code."""
        for batch in batches:
            if not batch.num_rows:
                continue
            self.summary.add(batch)
            if batch["code"][0].as_py() == LATER:
                continue
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            if self._waiting_rows >= _WRITTEN_TOGETHER:
                self._write()
            elif len(self._waiting) >= _JOINED:
                self._waiting = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            # Names are unique, so the file of a task that Spark ran again is never read.
            location = self._folder / f"{uuid.uuid4().hex}.parquet"
            file = self._file.enter_context(location.open_output())
            self._writer = self._file.enter_context(pq.ParquetWriter(file, FINDING_SCHEMA))
            self.summary.files.append(location)
        self._writer.write_table(pa.Table.from_batches(self._waiting), _WRITTEN_TOGETHER)
        self._waiting, self._waiting_rows = [], 0


def read_findings(files: Iterable[Location], columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The findings in Parquet files, or some of their columns.

    One batch is read at a time: a scan by `pyarrow.dataset` reads many files in advance.
    """
    for location in files:
        with location.open_input() as file:
            names = None if columns is None else list(columns)
            yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(columns=names)
