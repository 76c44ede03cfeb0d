"""Findings: what is wrong at one point of a store, one row each.

Checks return findings as Arrow batches, built from arrays: a log in which every record is damaged has as many findings
as records, and none of them may be a Python object. `Finding` is one row of them, for a report; `Damage` has their
numbers by code and file, for a repair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import native
from spark_mq.verifier.codes import CODES, Treatment

Codes = tuple[tuple[str, int], ...]
"""Codes of findings, in order, each with the number of findings."""

LATER = "LATER"
"""The code of what is not a finding while a broker appends, and has to be looked at again."""


@dataclass(frozen=True)
class Finding:
    """What is wrong at one point: the columns of `FINDING_SCHEMA`. A field that does not apply is None."""

    code: str
    severity: str
    file: str | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    commit_log_offset: int | None = None
    expected: str | None = None
    found: str | None = None

    @property
    def place(self) -> str:
        """File, byte, queue and commit log offset, as text for a person."""
        parts = [self.file] if self.file is not None else []
        if self.position is not None:
            parts.append(f"byte {self.position}")
        if self.topic is not None and (self.file is None or self.topic not in self.file):
            queue = "" if self.queue_id is None else f" queue {self.queue_id}"
            parts.append(f"topic {self.topic}{queue}")
        if self.commit_log_offset is not None:
            parts.append(f"commit log offset {self.commit_log_offset}")
        return ", ".join(parts)


_INTEGERS = {"position": pa.int64(), "queue_id": pa.int32(), "commit_log_offset": pa.int64()}
FINDING_SCHEMA = pa.schema([(field.name, _INTEGERS.get(field.name, pa.string())) for field in fields(Finding)])


def findings(
    code: str,
    file: Any,
    expected: Any = None,
    found: Any = None,
    *,
    queue: tuple[Any, Any] = (None, None),
    position: Any = None,
    commit_log_offset: Any = None,
) -> pa.RecordBatch:
    """Findings with one code: a value is an array or a list with a value for each finding, or one value for all."""
    values = (code, CODES[code].severity, file, position, *queue, commit_log_offset, expected, found)
    count = next((len(value) for value in values if isinstance(value, _ARRAYS)), 1)
    arrays = [_column(value, field.type, count) for value, field in zip(values, FINDING_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FINDING_SCHEMA)


def postponed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The findings as what a broker is about to change, which has to be looked at again."""
    return batch.set_column(0, "code", pa.repeat(pa.scalar(LATER), batch.num_rows))


_ARRAYS = (pa.ChunkedArray, pa.Array, np.ndarray, list)


def _column(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return value.cast(kind)
    if isinstance(value, np.ndarray):
        return pa.array(native(value)).cast(kind)
    if isinstance(value, list):
        return pa.array(value, kind)
    return pa.repeat(pa.scalar(value, kind), count)


def text(*parts: Any) -> pa.Array:
    """Texts that are joined from parts: a part is a text for all, or an array of numbers or texts."""
    pieces = [part if isinstance(part, str) else _column(part, pa.string(), 0) for part in parts]
    return pc.binary_join_element_wise(*pieces, "")


def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
    """The findings of batches, one object each: for a few of them."""
    for batch in batches:
        for row in batch.to_pylist():
            yield Finding(**row)


@dataclass(frozen=True)
class DamagedFile:
    """One file with findings of one treatment, and the last byte with a finding; -1 if none has a position."""

    file: str
    codes: Codes
    last_position: int = -1

    def has(self, *codes: str) -> bool:
        """Whether the file has a finding with one of these codes."""
        return any(code in codes for code, _ in self.codes)

    def has_only(self, *codes: str) -> bool:
        """Whether the file has only findings with these codes."""
        return all(code in codes for code, _ in self.codes)


@dataclass(frozen=True)
class Damage:
    """The findings of a check: code, file, number, and the last byte with one, in order of code and file.

    The file of a finding without one is empty text; the byte is -1 if none has a position.
    """

    counts: list[tuple[str, str, int, int]]

    @classmethod
    def of(cls, findings: Iterable[pa.RecordBatch]) -> Self:
        """The findings of a check (`FINDING_SCHEMA`)."""
        keys, counts = ["code", "file"], [([], "count_all"), ("position", "max")]
        tables = [
            pa.Table.from_batches([batch]).select([*keys, "position"]).group_by(keys).aggregate(counts)
            for batch in findings
        ]
        if not tables:
            return cls([])
        table = pa.concat_tables(tables).group_by(keys).aggregate([("count_all", "sum"), ("position_max", "max")])
        files, last = table["file"].fill_null(""), table["position_max_max"].fill_null(-1)
        columns = (table["code"], files, table["count_all_sum"], last)
        return cls(sorted(zip(*map(pa.ChunkedArray.to_pylist, columns), strict=True)))

    def has(self, code: str) -> bool:
        """Whether there is a finding with a code."""
        return any(code == found for found, *_ in self.counts)

    def treated(self, treatment: Treatment) -> list[DamagedFile]:
        """The files with a finding that has this treatment, by name."""
        files: dict[str, list[tuple[str, int]]] = defaultdict(list)
        last: dict[str, int] = {}
        for code, file, count, position in self.counts:
            if CODES[code].treatment == treatment:
                files[file].append((code, count))
                last[file] = max(last.get(file, -1), position)
        return [DamagedFile(file, tuple(codes), last[file]) for file, codes in sorted(files.items())]
