"""What the first query and the first rebuild of a user on a machine cost: `python -m benchmarks.first_minute`.

Each command runs in a process of its own: first with an empty cache of compiled kernels (cold), then again (warm). The
first query of a session is compared with its second one; a data source of one row shows what Spark itself costs. The
commands without Spark also print CPU seconds, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.stores import OWN_STORES, RealStore

SAMPLE = RealStore("workload-533", OWN_STORES)
_READ = """
from spark_mq.source.datasource import RocketMQDataSource
source = RocketMQDataSource({"path": store})
reader = source.reader(source.schema())
prepare()
for partition in reader.partitions():
    for batch in reader.read(partition):
        pass
"""
_DISPATCH = """
import numpy as np
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.kernels.index_put import new_index_file, put_keys
from spark_mq.format.delay_level import DEFAULT_DELAY_LEVELS
from spark_mq.indexer.settings import DispatchTargets
from spark_mq.indexer.split_dispatch import dispatch_split
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.splits import plan_splits
entries = Location.resolve(output)
entries.filesystem.create_dir(entries.path)
prepare()
for split in plan_splits(CommitLog.open(Location.resolve(store)), 1 << 30):
    list(dispatch_split(split, DispatchTargets(2000, entries, DEFAULT_DELAY_LEVELS), True))
layout, numbers = IndexLayout(100, 200), np.arange(50)
put_keys(new_index_file(layout), layout, numbers.astype(np.int32), numbers, numbers)
"""
_SHOW = """
from spark_mq.cli.spark import spark_session
with spark_session("first minute") as spark:
    spark.range(10).collect()
    prepare()
    spark.read.format("rocketmq").load(store).show()
    measured()
"""
_FIRST_QUERY = """
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from spark_mq.cli.spark import spark_session
class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(0)]
    def read(self, partition):
        yield (1,)
class OneRow(DataSource):
    @classmethod
    def name(cls):
        return "one_row"
    def schema(self):
        return "id INT"
    def reader(self, schema):
        return Reader()
with spark_session("first query") as spark:
    spark.dataSource.register(OneRow)
    spark.range(10).collect()
    times = []
    for _ in range(2):
        prepare()
        spark.read.format("{source}").load(store).limit(20).collect()
        times.append(time.perf_counter() - started[0])
    print("measured", times[0] - times[1], 0)
"""
_PROGRAM = """
import sys, time
store, output = sys.argv[1:]
def prepare():
    global started
    started = time.perf_counter(), time.process_time()
def measured():
    print("measured", time.perf_counter() - started[0], time.process_time() - started[1])
{body}
measured()
"""
RUNS = {
    "all columns of a small store, no Spark": _READ,
    "dispatch of a small store, no Spark": _DISPATCH,
    "first show(), session running": _SHOW,
    "first query beyond the second": _FIRST_QUERY.replace("{source}", "rocketmq"),
    "the same of a source of one row": _FIRST_QUERY.replace("{source}", "one_row"),
}


def run(body: str, store: Path, output: Path, cache: Path) -> tuple[float, float]:
    """The seconds, and the CPU seconds of the process, of one run."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", _PROGRAM.replace("{body}", body), str(store), str(output)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    _, seconds, cpu = next(line for line in printed.splitlines() if line.startswith("measured ")).split()
    return float(seconds), float(cpu)


def run_rebuild(store: Path, output: Path, cache: Path) -> tuple[float, float]:
    """The seconds of `spark-mq rebuild`, from the shell on, also in place of CPU seconds."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "spark_mq", "rebuild", str(store), "--output", str(output), "--quiet"]
    started = time.perf_counter()
    subprocess.run([*command, "--broker-conf", f"{OWN_STORES / SAMPLE.name}.conf"], env=environment, check=True)
    seconds = time.perf_counter() - started
    return seconds, seconds


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", metavar="TEXT", default="", help="only what has this text in its name")
    parser.add_argument("--without-spark", action="store_true", help="leave out what starts a JVM")
    arguments = parser.parse_args()
    runs: dict[str, Callable[[Path, Path, Path], tuple[float, float]]] = {
        name: partial(run, body) for name, body in RUNS.items()
    }
    runs["spark-mq rebuild of a small store"] = run_rebuild
    with tempfile.TemporaryDirectory() as folder:
        store = SAMPLE.unpack(Path(folder))
        print(f"{'':40} {'cold':>7} {'warm':>7} {'cold CPU':>9} {'warm CPU':>9}")
        text = "no Spark" if arguments.without_spark else arguments.only
        for name in (name for name in runs if text in name):
            pairs = []
            for repetition in range(arguments.repetitions):
                work = Path(folder) / f"{name.replace(' ', '-').replace('/', '-')}-{repetition}"
                cache = work / "cache"
                cache.mkdir(parents=True)
                pairs.append([runs[name](store, work / state, cache) for state in ("cold", "warm")])
            figures = [statistics.median(pair[state][kind] for pair in pairs) for kind in (0, 1) for state in (0, 1)]
            print(
                f"{name:40} "
                + " ".join(f"{figure:{width}.2f}" for figure, width in zip(figures, (7, 7, 9, 9), strict=True))
            )


if __name__ == "__main__":
    main()
