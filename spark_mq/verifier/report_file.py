"""All findings as one file: JSON lines, or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from spark_mq.errors import StorageError
from spark_mq.io.location import Location
from spark_mq.verifier.finding import FINDING_SCHEMA


def write_findings(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write findings to a file: Parquet if its name ends with `.parquet`, else JSON lines."""
    location = Location.resolve(path)
    try:
        with location.open_output() as file:
            if location.name.endswith(".parquet"):
                with pq.ParquetWriter(file, FINDING_SCHEMA) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                return
            for batch in batches:
                for row in batch.to_pylist():
                    file.write(f"{json.dumps(row)}\n".encode())
    except OSError as error:
        raise StorageError(f"--report {location}: cannot be written: {error}") from error
