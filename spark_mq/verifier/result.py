"""What a check found: a file of all findings, the first ones of each code, counts, and a verdict.

Tasks write their findings to Parquet files, and count them. So a million findings of one kind cost a task and the
driver little, and the whole of them can be read as a table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_mq.errors import StorageError
from spark_mq.format.amounts import counted
from spark_mq.format.timestamp import iso_text
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.verifier.codes import CODES, Code, Severity
from spark_mq.verifier.finding import FINDING_SCHEMA, LATER, Finding, rows

SHOWN = 5
"""The number of findings of a code that a report shows in full."""
_WRITTEN_TOGETHER = 1 << 16
"""Findings that are written together: each write is a row group, of which a file keeps a description in memory."""
_JOINED = 256
"""Waiting batches that are joined into one: a batch of one finding takes kilobytes."""
_NOT_READ_BY_BOOTS = frozenset({"ABORT", "OFFSET_BEFORE_MIN", "RECORD_TIME_BACK", "TOPIC_NOT_CONFIGURED"})
"""Codes of findings that change nothing about what a boot does to log, queues and index, beyond the file `abort`."""
_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


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


def write_findings(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write findings to a file: Parquet if its name ends with `.parquet`, else JSON lines."""
    location = Location.resolve(path)
    try:
        with location.open_output() as file:
            if location.name.endswith(".parquet"):
                with pq.ParquetWriter(file, FINDING_SCHEMA) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
            else:
                for batch in batches:
                    file.write("".join(f"{json.dumps(row)}\n" for row in batch.to_pylist()).encode())
    except OSError as error:
        raise StorageError(f"--report {location}: cannot be written: {error}") from error


@dataclass(frozen=True)
class VerifyReport(Report):
    """What a check found, without the findings themselves. A quick check does not read the log: its counts are None.

    `engine` is where the tasks ran: a key of `ENGINES`. With a journal, `sound_bytes` of the log were sound at the time
    `checked_timestamp`, and were not read again; all of the store was read at `whole_timestamp` (milliseconds). A
    reason says why more was read than what is new. Of a sample, `sampled_bytes` of the log were read. `is_accepted`
    says that the log was read, and that a recovery of each version accepts all its records whose CRCs are right.
    `tiered_queues` is the number of queues in tiered storage; None if it was not checked.
    """

    shown = ("verdict", "is_sound")

    store: str
    is_quick: bool
    counts: dict[str, int]
    first: dict[str, list[Finding]]
    messages: int | None
    log_bytes: int
    queues: int
    units: int | None
    index_files: int
    index_entries: int | None
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    engine: str = "local"
    is_accepted: bool = False
    sound_bytes: int = 0
    sampled_bytes: int | None = None
    checked_timestamp: int | None = None
    whole_timestamp: int | None = None
    whole_reason: str = ""
    tiered_queues: int | None = None

    def count(self, severity: Severity) -> int:
        """The number of findings of a severity."""
        return sum(count for code, count in self.counts.items() if CODES[code].severity == severity)

    @property
    def is_sound(self) -> bool:
        """Whether there is neither a warning nor an error."""
        return not self.count(Severity.ERROR) and not self.count(Severity.WARNING)

    @property
    def shows_boots(self) -> bool:
        """Whether a boot reads nothing in log, queues and index that is not as a broker wrote it, whatever version."""
        return self.is_accepted and self.counts.keys() <= _NOT_READ_BY_BOOTS

    @property
    def verdict(self) -> str:
        """The verdict in a few words: `sound`, or the numbers of errors, warnings and notes."""
        counts = [(self.count(severity), str(severity)) for severity in _GRAVEST_FIRST]
        text = ", ".join(counted(count, name) for count, name in counts if count)
        if not self.is_sound:
            return f"not sound: {'' if self.sampled_bytes is None else 'at least '}{text}"
        what = "sound, as far as a quick check can see" if self.is_quick else "sound"
        if self.sampled_bytes is not None:
            share = 100 * self.sampled_bytes / self.log_bytes if self.log_bytes else 100
            what += f", and the records of {share:.1f} % of the log"
        if self.sound_bytes and self.checked_timestamp is not None:
            since = iso_text(self.checked_timestamp)
            what = f"sound: what is new or has changed since {since}; the rest was sound then"
        if "NOT_CHECKED" in self.counts:
            what += ", except for what was not checked"
        return f"{what} ({text})" if text else what

    def codes(self) -> Iterator[tuple[str, Code]]:
        """The codes that were found: errors first, and the log before what depends on it."""
        for severity in _GRAVEST_FIRST:
            for name, code in CODES.items():
                if code.severity == severity and name in self.counts:
                    yield name, code
