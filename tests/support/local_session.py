"""A session that runs the tasks of a job in this process, one after the other: rebuilds and appends without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row, SparkSession

from spark_mq.indexer.rebuild import _Rebuild
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.indexer.report import RebuildReport


@dataclass(frozen=True)
class _Numbers:
    """What `SparkSession.range` gives: each number is a task of its own."""

    count: int

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: object) -> _Rows:  # noqa: N802
        ids = ([pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], ["id"])] for number in range(self.count))
        return _Rows([batch for numbers in ids for batch in task(numbers)])

    def mapInPandas(self, task: Callable[..., Iterator[pd.DataFrame]], schema: object) -> _Rows:  # noqa: N802
        frames = (frame for number in range(self.count) for frame in task([pd.DataFrame({"id": [number]})]))
        return _Rows([pa.RecordBatch.from_pandas(frame, preserve_index=False) for frame in frames])


@dataclass(frozen=True)
class _Rows:
    batches: list[pa.RecordBatch]

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches(self.batches)

    def collect(self) -> list[Row]:
        return [Row(**row) for batch in self.batches for row in batch.to_pylist()]


class _LocalSession:
    def range(self, start: int, stop: int, step: int, partitions: int) -> _Numbers:
        assert (start, step, partitions) == (0, 1, stop)
        return _Numbers(stop)


def local_session() -> SparkSession:
    """The session; a job needs no more of Spark than it has."""
    return cast(SparkSession, _LocalSession())


def rebuild_here(store: Path, output: Path | None = None, **settings: Any) -> RebuildReport:
    """The report of a rebuild in this process."""
    request = RebuildRequest.of(str(store), None if output is None else str(output), **settings)
    return _Rebuild(local_session(), request, None).run()
