"""Findings: what is wrong at one place of a store, one row each.

Checks return findings as Arrow batches, built from arrays: a log in which every record is damaged has as many findings
as records, and none of them may be a Python object. `Finding` is one row of them, for a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.verifier.codes import CODES

FINDING_SCHEMA = pa.schema(
    [
        ("code", pa.string()),
        ("severity", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("commit_log_offset", pa.int64()),
        ("expected", pa.string()),
        ("found", pa.string()),
    ]
)


@dataclass(frozen=True)
class Finding:
    """What is wrong at one place. A field that does not apply is None.

    Attributes:
        code: The code (`spark_mq.verifier.codes`).
        severity: `note`, `warning` or `error`.
        file: The file, as a path in the store, or the folder or file that is missing.
        position: The byte of the file.
    """

    code: str
    severity: str
    file: str | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    commit_log_offset: int | None = None
    expected: str | None = None
    found: str | None = None


def findings(code: str, count: int = 1, **columns: Any) -> pa.RecordBatch:
    """Findings with one code.

    Args:
        columns: Values of the other columns: an array or a list with a value for each finding, or one value for all. A
            column that is not given is NULL.
    """
    columns |= {"code": code, "severity": CODES[code].severity}
    arrays = [_column(columns.get(field.name), field.type, count) for field in FINDING_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=FINDING_SCHEMA)


def _column(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return value.cast(kind)
    if isinstance(value, np.ndarray):
        return pa.array(value.astype(value.dtype.newbyteorder("="))).cast(kind)
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
