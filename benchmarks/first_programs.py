"""The programs that `benchmarks.first_minute` runs, each in a process of its own.

    python -m benchmarks.first_programs NAME STORE OUTPUT

prints the seconds of the program, and its CPU seconds. Imports are not measured, the compilation of kernels is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition


def report(seconds: float, cpu: float) -> None:
    """Print what was measured."""
    print("measured", seconds, cpu)


@contextmanager
def measured() -> Iterator[None]:
    """A context whose seconds are reported."""
    started = time.perf_counter(), time.process_time()
    yield
    report(time.perf_counter() - started[0], time.process_time() - started[1])


def read_all(store: Path, output: Path) -> None:
    """Read all columns of a store, without Spark."""
    from spark_mq.datasource import RocketMQDataSource

    source = RocketMQDataSource({"path": str(store)})
    reader = source.reader(source.schema())
    with measured():
        for partition in reader.partitions():
            for _ in reader.read(partition):
                pass


def dispatch(store: Path, output: Path) -> None:
    """Dispatch all records of a store, and put some entries into an index file, without Spark."""
    import numpy as np

    from spark_mq.format.index_file import ENTRY_SIZE, IndexLayout
    from spark_mq.format.kernels.index_put import new_index_head, put_keys
    from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
    from spark_mq.indexer.rebuild_plan import DispatchSettings, DispatchTargets
    from spark_mq.indexer.split_dispatch import dispatch_split
    from spark_mq.io.location import Location
    from spark_mq.store.log.commit_log import CommitLog, plan_splits

    staged = Location.resolve(str(output))
    output.mkdir(parents=True)
    settings = DispatchSettings(2000, DEFAULT_DELAY_LEVELS)
    with measured():
        for split in plan_splits(CommitLog.open(Location.resolve(str(store))), 1 << 30):
            dispatch_split(split, DispatchTargets(staged, settings, has_queues=True, has_index=True), True)
        layout = IndexLayout(100, 200)
        put_keys(new_index_head(layout), layout, np.zeros(50 * ENTRY_SIZE, np.uint8))


def show(store: Path, output: Path) -> None:
    """Show the first rows of a store, in a session that has run a query."""
    from spark_mq.cli.spark import spark_session

    with spark_session("first minute") as spark:
        spark.range(10).collect()
        with measured():
            spark.read.format("rocketmq").load(str(store)).show()


class _OneRowReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


class OneRow(DataSource):
    """A data source of one row: what it costs, Spark itself costs."""

    @classmethod
    def name(cls) -> str:
        """The name in `format`."""
        return "one_row"

    def schema(self) -> str:
        """One column."""
        return "id INT"

    def reader(self, schema: object) -> DataSourceReader:
        """The reader of the row."""
        return _OneRowReader()


def _first_query(source: str, store: Path) -> None:
    """Report what the first query of a session costs beyond the second one."""
    from spark_mq.cli.spark import spark_session

    with spark_session("first query") as spark:
        spark.dataSource.register(OneRow)
        spark.range(10).collect()
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            spark.read.format(source).load(str(store)).limit(20).collect()
            seconds.append(time.perf_counter() - started)
        report(seconds[0] - seconds[1], 0)


def first_query(store: Path, output: Path) -> None:
    """The first query of messages beyond the second one."""
    _first_query("rocketmq", store)


def first_query_of_one_row(store: Path, output: Path) -> None:
    """The first query of `OneRow` beyond the second one."""
    _first_query("one_row", store)


PROGRAMS: dict[str, Callable[[Path, Path], None]] = {
    program.__name__: program for program in (read_all, dispatch, show, first_query, first_query_of_one_row)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
