"""What a batch of a stream costs beside the same stream of a source of one row, which is what Spark itself costs.

Both streams run side by side in one session, with a trigger of half a second, into the sink `noop`. The log of a store
grows by 1 MiB, ten times: the next records of a generated log are written to their places. The store has no consume
queues. Seconds are those of the queries' progress reports: `triggerExecution` of batches with rows, and of
triggers that found nothing new.

    python -m benchmarks.streams --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.run import generated
from spark_mq.cli.spark import spark_session

_TRIGGER = "500 milliseconds"
_SECONDS_TO_WAIT = 60.0


class _OneRowReader(DataSourceStreamReader):
    """A row for each new length of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"length": 0}

    def latestOffset(self, start: Mapping[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        return {"length": self._file.stat().st_size}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


class OneRowStream(DataSource):
    """A stream with one row a batch."""

    @classmethod
    def name(cls) -> str:
        """The name in `format`."""
        return "one_row_stream"

    def schema(self) -> str:
        """One column."""
        return "id INT"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
        """The reader of the rows."""
        return _OneRowReader(Path(self.options["path"]))


class GrowingStore:
    """A store to which the records of a generated log are written, one part after the other."""

    def __init__(self, source: Path, folder: Path, first: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (segment,) = (source / "commitlog").iterdir()
        self._source, self._file = segment, folder / "commitlog" / segment.name
        self._file.parent.mkdir(parents=True)
        self._ends = record_ends(segment)
        self._written = 0
        with self._file.open("wb") as file:
            file.truncate(segment.stat().st_size)
        self.grow(first)

    def grow(self, size: int) -> None:
        """Write the next records, of `size` bytes in all."""
        stop = next(end for end in self._ends if end >= self._written + size)
        with self._source.open("rb") as source:
            data = os.pread(source.fileno(), stop - self._written, self._written)
        with self._file.open("r+b") as file:
            os.pwrite(file.fileno(), data, self._written)
        self._written = stop


def record_ends(segment: Path) -> list[int]:
    """The positions after the records of a segment."""
    from spark_mq.io.location import Location
    from spark_mq.store.log.commit_log import CommitLog, SegmentSource
    from spark_mq.store.log.record_reader import RecordChunk, RecordReader

    (listed,) = CommitLog.open(Location.resolve(str(segment.parent.parent))).segments
    ends: list[int] = []
    with SegmentSource(listed) as source:
        for part in RecordReader(source, 0).read(listed.data_end):
            assert isinstance(part, RecordChunk)
            ends += (part.frames.position + part.frames.store_size + part.base).tolist()
    return ends


def durations(query: StreamingQuery, with_rows: bool, phase: str) -> list[float]:
    """The seconds of a phase of the reported triggers, of those with new rows or of those without."""
    reports = [report for report in query.recentProgress if (report["numInputRows"] > 0) == with_rows]
    return [report["durationMs"].get(phase, 0) / 1000 for report in reports]


def wait_for_batch(query: StreamingQuery, batches: int) -> None:
    """Wait until the query has reported this number of batches with rows."""
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    while len(durations(query, True, "triggerExecution")) < batches:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no batch within {_SECONDS_TO_WAIT:.0f} seconds: {query.exception()}")
        time.sleep(0.1)


def measure(spark: SparkSession, store: GrowingStore, folder: Path, batches: int) -> dict[str, StreamingQuery]:
    """Let the store grow, and return the queries, which have ended."""
    growing = folder / "growing file"
    growing.write_bytes(b"x")
    paths: dict[str, tuple[str, Path]] = {
        "messages": ("rocketmq", folder / "growing"),
        "one row": ("one_row_stream", growing),
    }
    queries = {}
    for name, (source, path) in paths.items():
        shutil.rmtree(folder / f"checkpoint {name}", ignore_errors=True)
        stream = spark.readStream.format(source).load(str(path)).writeStream.format("noop")
        stream = stream.option("checkpointLocation", str(folder / f"checkpoint {name}"))
        queries[name] = stream.trigger(processingTime=_TRIGGER).start()
    for batch in range(1, batches + 1):
        for query in queries.values():
            wait_for_batch(query, batch)
        time.sleep(2)  # some triggers that find nothing
        store.grow(1 << 20)
        with growing.open("ab") as file:
            file.write(b"x")
    for query in queries.values():
        wait_for_batch(query, batches + 1)
    return queries


def print_table(queries: Mapping[str, Any], warm_ups: int) -> None:
    """Print medians of the batches after the first ones."""
    phases = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch")
    print(f"{'':32} {'median':>8} {'min-max':>12} " + " ".join(f"{phase:>16}" for phase in phases[1:]))
    totals = {}
    for with_rows, what in ((False, "nothing new"), (True, "1 MiB new")):
        for name, query in queries.items():
            figures = {phase: durations(query, with_rows, phase)[warm_ups:] for phase in phases}
            medians = {phase: statistics.median(seconds) for phase, seconds in figures.items()}
            total = figures["triggerExecution"]
            totals[what, name] = medians["triggerExecution"]
            spread = f"{min(total):.2f}-{max(total):.2f}"
            rest = " ".join(f"{medians[phase]:16.3f}" for phase in phases[1:])
            print(f"{name + ', ' + what:32} {medians['triggerExecution']:8.3f} {spread:>12} {rest}")
    for what in ("nothing new", "1 MiB new"):
        print(f"beyond Spark's own cost, {what}: {totals[what, 'messages'] - totals[what, 'one row']:.3f} s")


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the stores")
    parser.add_argument("--batches", type=int, default=13, help="batches of 1 MiB, with the warm-ups (13)")
    parser.add_argument("--warm-ups", type=int, default=3, help="batches that do not count (3)")
    arguments = parser.parse_args()
    source = generated(arguments.folder, "256MiB", 450)
    store = GrowingStore(source, arguments.folder / "growing", 64 << 20)
    settings = {
        "spark.sql.streaming.noDataProgressEventInterval": "0",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    with spark_session("streams", given=settings) as spark:
        spark.dataSource.register(OneRowStream)
        queries = measure(spark, store, arguments.folder, arguments.batches)
        print_table(queries, arguments.warm_ups)
        for query in queries.values():
            query.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
