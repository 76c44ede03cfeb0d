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

from benchmarks.first_programs import dispatch, first_query, first_query_of_one_row, read_all, show
from benchmarks.growth import rebuild_command
from tests.support.stores import OWN_STORES, RealStore

SAMPLE = RealStore("workload-533", OWN_STORES)
RUNS = {
    "all columns of a small store, no Spark": read_all,
    "dispatch of a small store, no Spark": dispatch,
    "first show(), session running": show,
    "first query beyond the second": first_query,
    "first query of a source of one row": first_query_of_one_row,
}


def run(program: Callable[[Path, Path], None], store: Path, output: Path, cache: Path) -> tuple[float, float]:
    """The seconds, and the CPU seconds of the process, of one run."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "benchmarks.first_programs", program.__name__, str(store), str(output)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    _, seconds, cpu = next(line for line in printed.splitlines() if line.startswith("measured ")).split()
    return float(seconds), float(cpu)


def run_rebuild(store: Path, output: Path, cache: Path) -> tuple[float, float]:
    """The seconds of `spark-mq rebuild`, from the shell on, also in place of CPU seconds."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYSPARK_PYTHON": sys.executable}
    command = [*rebuild_command(store, output), "--broker-conf", f"{OWN_STORES / SAMPLE.name}.conf"]
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True)
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
        name: partial(run, program) for name, program in RUNS.items()
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
