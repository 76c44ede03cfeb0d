"""What a rebuild of a log of terabytes asks of the driver, of each task, of the shuffle and of an object store.

The driver's values for such a log are made up in full, and measured: the splits as tasks get them, the rows of all
splits, and the manifest. The rest is arithmetic, from the means of the generated stores.

    python -m benchmarks.large_log --terabytes 10 --queues 1000
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.manifest import Manifest, StagedSegment
from spark_mq.indexer.rebuild_plan import StagingSettings
from spark_mq.indexer.staged_files import STAGED_ENTRY_SIZE, SplitRow
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskItems
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, Segment, Split
from spark_mq.store.log.record_reader import CHUNK_SIZE

_MESSAGE_SIZE = 450
_KEYS_PER_MESSAGE = 2.5
_SEGMENT_SIZE = 1 << 30
_RUN_FIELDS = 100
"""Bytes of a row of Spark's shuffle besides its units."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Cost:
    """A value, its seconds, and the highest number of bytes that Python had allocated for it."""

    seconds: float
    allocated: int


def measured(make: Callable[[], Value]) -> tuple[Value, Cost]:
    """The value of `make`, and its cost: memory is taken from a second call, because tracing is slow."""
    started = time.perf_counter()
    value = make()
    seconds = time.perf_counter() - started
    tracemalloc.start()
    make()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return value, Cost(seconds, peak)


def splits_of(segments: int) -> list[Split]:
    """The splits of a log of as many full segments."""
    store = Location.resolve("/data/store/commitlog")
    splits = []
    for number in range(segments):
        base = number * _SEGMENT_SIZE
        segment = Segment(store / f"{base:020d}", base, _SEGMENT_SIZE, _SEGMENT_SIZE, number == segments - 1)
        starts = range(0, _SEGMENT_SIZE, DEFAULT_SPLIT_SIZE)
        splits += [Split(segment, start, start + DEFAULT_SPLIT_SIZE) for start in starts]
    return splits


def rows_of(splits: list[Split], messages: int, entries: int, runs: int) -> list[SplitRow]:
    """Rows of these splits, each with as many messages, entries and runs."""
    return [
        SplitRow(
            segment=split.segment.base,
            split_start=split.start,
            split_stop=split.stop,
            first_position=split.start,
            end_position=split.stop,
            messages=messages,
            inner_batches=0,
            bytes_read=DEFAULT_SPLIT_SIZE,
            first_store_timestamp=1_795_000_000_000,
            last_store_timestamp=1_795_000_000_000,
            newest_store_timestamp=1_795_000_000_000,
            time_steps_back=False,
            corrupt=(),
            units_file=f"{number:032x}.units",
            units=messages,
            runs=runs,
            units_size=messages * UNIT_SIZE,
            entries_file=f"{number:032x}.entries",
            index_entries=entries,
            trailing_messages=0,
        )
        for number, split in enumerate(splits)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terabytes", type=float, default=10)
    parser.add_argument("--queues", type=int, default=1000)
    arguments = parser.parse_args()
    size = int(arguments.terabytes * 1e12)
    segments = max(1, size // _SEGMENT_SIZE)
    splits = splits_of(segments)
    messages, entries = size // _MESSAGE_SIZE, int(size // _MESSAGE_SIZE * _KEYS_PER_MESSAGE)
    per_split = messages // len(splits)
    runs_per_split = min(arguments.queues, per_split)
    index_files = -(-entries // (IndexLayout().index_num - 1))
    queue_files = messages * UNIT_SIZE // DEFAULT_FILE_SIZE + arguments.queues
    rows, row_cost = measured(lambda: rows_of(splits, per_split, entries // len(splits), runs_per_split))
    settings = StagingSettings(
        DEFAULT_FILE_SIZE, "1s", version="1", store="/data/store", trees=("consumequeue", "index"), replace=False
    )
    staged = [StagedSegment(number * _SEGMENT_SIZE, _SEGMENT_SIZE, 1) for number in range(segments)]
    manifest = Manifest(settings).with_staged(staged, rows)
    content, manifest_cost = measured(lambda: json.dumps(vars(manifest), default=vars).encode())
    whole = pickle.dumps(tuple(splits))
    apart = pickle.dumps(TaskItems.of(splits))
    _, whole_cost = measured(lambda: pickle.loads(whole)[-1])
    _, apart_cost = measured(lambda: pickle.loads(apart)[-1])
    requests = len(splits) * (DEFAULT_SPLIT_SIZE // CHUNK_SIZE)
    table = [
        ("splits, each a task", f"{len(splits):,}"),
        ("messages; runs of units; index entries", f"{messages:,}; {runs_per_split * len(splits):,}; {entries:,}"),
        ("queue files; index files", f"{queue_files:,}; {index_files:,}"),
        ("staged bytes: units; entries", f"{messages * UNIT_SIZE:,}; {entries * STAGED_ENTRY_SIZE:,}"),
        (
            "shuffle: rows; bytes",
            f"{runs_per_split * len(splits):,}; {messages * UNIT_SIZE + runs_per_split * len(splits) * _RUN_FIELDS:,}",
        ),
        ("driver: rows of all splits", f"{row_cost.allocated / 1e6:,.0f} MB"),
        (
            "driver: manifest",
            f"{len(content) / 1e6:,.0f} MB, {manifest_cost.seconds:.1f} s, "
            f"{manifest_cost.allocated / 1e6:,.0f} MB to write it",
        ),
        ("each task: its split out of all splits", f"{apart_cost.seconds * 1000:,.0f} ms, {len(apart) / 1e6:,.1f} MB"),
        ("- if it unpickled all splits", f"{whole_cost.seconds * 1000:,.0f} ms, {len(whole) / 1e6:,.1f} MB"),
        ("object store: reads of the log", f"{requests:,} of {CHUNK_SIZE >> 20} MiB"),
        (
            "object store: new staged files and marks; reads of them",
            f"{3 * len(splits):,}; {2 * len(splits) + 3 * (len(splits) + index_files):,}",
        ),
    ]
    print(f"| {arguments.terabytes:g} TB, {arguments.queues:,} queues | |\n| --- | --- |")
    for name, value in table:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
