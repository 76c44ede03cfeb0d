"""A split's consume queue units, staged as one file: the units, grouped in runs, then a directory of the runs.

A *run* is consecutive queue offsets of one queue file, in the order of the log; its 20-byte units are ready to be
written. Units are numerous, so they stay out of the JVM: a task writes the file, and the task that writes a queue file
reads the runs that it needs. Spark only gets the file's name and its numbers of units and runs.

The directory is an Arrow stream of `RUN_SCHEMA`. The units of the runs follow each other in the order of the directory.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from spark_mq.errors import StorageError
from spark_mq.format.consume_queue import UNIT_SIZE, Units
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location

MAX_RUN_UNITS = 13_000
"""The limit of units in a run: about 256 KiB, so that a batch of a few dozen runs stays small."""

READERS = 8
"""The number of threads that read directories of many splits: on a remote filesystem each takes a while."""

RUN_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file_number", pa.int64()),
        ("first_queue_offset", pa.int64()),
        ("unit_count", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("last_store_timestamp", pa.int64()),
    ]
)
"""A row for each run. `commit_log_offset` is the offset of its first message, `last_store_timestamp` is in ms."""


@dataclass(frozen=True)
class StagedUnits:
    """A staged file. A file without a unit does not exist."""

    location: Location
    units: int
    runs: int
    size: int

    @classmethod
    def write(cls, folder: Location, units: Units, runs: pa.RecordBatch) -> Self:
        """Write a new file into `folder`.

        Args:
            units: The units of all runs, in the order of `runs`.
            runs: The runs (`RUN_SCHEMA`), at least one.
        """
        directory = pa.BufferOutputStream()
        with pa.ipc.new_stream(directory, RUN_SCHEMA) as stream:
            stream.write_batch(runs)
        content = directory.getvalue()
        # Names are unique, so the file of a task that Spark ran again is never read.
        location = folder / f"{uuid.uuid4().hex}.units"
        # The manifest names the file only after all splits are staged, so neither rename nor flush is needed.
        with location.open_output() as file:
            file.write(units.view(np.uint8).data)
            file.write(content)
        return cls(location, units.size, runs.num_rows, units.nbytes + content.size)

    def read_runs(self) -> pa.Table:
        """The directory: the columns of `RUN_SCHEMA`, and `first_unit`, the number of a run's first unit."""
        at = self.units * UNIT_SIZE
        with FileReader(self.location) as file:
            content = file.read(at, self.size - at)
        try:
            runs = pa.ipc.open_stream(content).read_all()
        except (pa.ArrowException, OSError) as error:  # Arrow: the stream ends too early
            raise StorageError(f"{self.location} is not complete: run the job again without --resume") from error
        counts = runs["unit_count"].to_numpy() if runs.schema.equals(RUN_SCHEMA) else np.zeros(0, np.int64)
        if (counts.size, int(counts.sum())) != (self.runs, self.units):
            raise StorageError(f"{self.location} has other runs than were staged: run the job again without --resume")
        return runs.append_column("first_unit", pa.array(counts.cumsum() - counts))

    def has_directory(self) -> bool:
        """Whether the file, which has its size, ends with the directory that it was written with."""
        try:
            self.read_runs()
        except StorageError:
            return False
        return True
