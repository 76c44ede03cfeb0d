"""Index files of gaps, written by tasks; a file that is as it should be is not written again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.format.broker_version import INDEX_FLUSHED_AT_STOP
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.index.plan import IndexFilePlan
from spark_mq.indexer.index.writer import IndexWriter
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.job.task_items import TaskItems
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.store_paths import INDEX
from spark_mq.verifier.sink import SUMMARY_SCHEMA, summary_batch
from spark_mq.verifier.spread import Spread

_BLOCK = 4 << 20


@dataclass(frozen=True)
class WrittenIndexFile:
    """An index file that a task made.

    Attributes:
        end_timestamp: The time in its header at which it ends, in milliseconds.
        is_same: Whether the store's file has the same bytes; then the new one was removed.
    """

    file: str
    end_timestamp: int
    is_same: bool


@dataclass(frozen=True)
class _IndexFiles:
    """For `mapInArrow`: numbers of planned files in, what was written out."""

    store: Location
    writer: IndexWriter
    done: Location | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for plan in self.writer.plans.each(batches, self.done):
            header = self.writer.write(plan)
            new, existing = self.writer.folder / plan.name, self.store / INDEX / plan.name
            is_same = _are_equal(new, existing)
            if is_same:
                new.delete()
            yield summary_batch(json.dumps([f"{INDEX}/{plan.name}", header.end_timestamp, is_same]))


def write_index_files(
    plans: Sequence[IndexFilePlan], layout: IndexLayout, store: Location, output: Location, spread: Spread
) -> list[WrittenIndexFile]:
    """Write planned index files into the folder `index` of an output.

    Args:
        layout: Slots and entries of an index file.
        output: The folder that gets the files, under their paths in the store.
        spread: Where tasks run.
    """
    if not plans:
        return []
    versions = find_broker_versions(store)
    empty_index_count = 0 if versions.decide(INDEX_FLUSHED_AT_STOP) is False else 1
    writer = IndexWriter(output / INDEX, layout, TaskItems.of(plans), empty_index_count, output)
    table = spread.rows(
        "make index files", "files", lambda done: _IndexFiles(store, writer, done), len(plans), SUMMARY_SCHEMA
    )
    return sorted(
        (WrittenIndexFile(*json.loads(row)) for row in table["summary"].to_pylist()), key=lambda written: written.file
    )


def _are_equal(one: Location, other: Location) -> bool:
    if not other.is_file or one.info().size != other.info().size:
        return False
    size = one.info().size
    with FileReader(one) as first, FileReader(other) as second:
        return all(
            bytes(first.read(at, min(_BLOCK, size - at))) == bytes(second.read(at, min(_BLOCK, size - at)))
            for at in range(0, size, _BLOCK)
        )
