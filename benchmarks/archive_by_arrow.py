"""What an archive would take if tasks wrote its Parquet files by Arrow, and Delta Kernel committed the files.

This is a measurement, not a part of spark-mq. Each repetition is a group, one after the other: a plain Spark write of
the messages, an archive as `spark-mq archive` writes it, and the same messages and keys by Arrow: one read of the log,
in the tasks of a Spark job, writes both tables' files, with Bloom filters and statistics. Delta Kernel, which is in
the jars of delta-spark, commits the files with `txn`; a commit that is repeated must be refused.

    python -m benchmarks.archive_by_arrow --size 256MiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.archive import made_store, new_archive, plain_write, timed
from spark_mq.archive.archive_tables import ArchiveTables
from spark_mq.archive.delta import delta_settings
from spark_mq.archive.table_rows import READ_COLUMNS, TIMES
from spark_mq.archive.tables import KEYS, MESSAGES, Layout, create_tables
from spark_mq.cli.spark import spark_session
from spark_mq.source.messages import MessagesReader
from spark_mq.source.option_values import parse_size
from spark_mq.source.options import parse_options

IDENTITY = {"cluster": "c", "broker": "b", "store": "s"}


class FilesSource(DataSource):
    """A batch source whose tasks write files, and whose rows name the files, with their statistics."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq_archive_files"

    def schema(self) -> str:
        """The columns."""
        return "is_keys BOOLEAN, name STRING, stats STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a store, for `table`."""
        return FilesReader(self.options["path"], self.options["table"])


class FilesReader(DataSourceReader):
    """Writes the messages and keys of each split."""

    def __init__(self, store: str, table: str) -> None:
        self._messages = MessagesReader(parse_options({"path": store}), list(READ_COLUMNS))
        self._table = table

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of the log."""
        return self._messages.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[bool, str, str]]:
        """Write the files of one split."""
        name = f"part-{uuid.uuid4()}.snappy.parquet"
        with (
            FileOfTable(f"{self._table}/{name}", MESSAGES) as messages,
            FileOfTable(f"{self._table}_keys/{name}", KEYS) as keys,
        ):
            for batch in self._messages.read(partition):
                messages.add(message_rows(batch))
                keys.add(key_rows(batch))
        yield False, name, messages.stats()
        yield True, name, keys.stats()


class FileOfTable:
    """A Parquet file in the layout of a table."""

    def __init__(self, path: str, layout: Layout) -> None:
        self._path, self._layout = path, layout
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._ranges: dict[str, tuple[Any, Any, int]] = {}
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> FileOfTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; a row group is written when it is large enough."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= (self._layout.row_group_size or 128 << 20):
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                group.schema,
                store_schema=False,
                write_page_index=True,
                write_statistics=[field.name for field in group.schema if not pa.types.is_binary(field.type)],
                bloom_filter_options={name: {"ndv": group.num_rows, "fpp": 0.01} for name in self._layout.blooms},
            )
        for name in self._layout.statistics:
            least_greatest = pc.min_max(group[name]).as_py()
            before = self._ranges.get(name, (None, None, 0))
            known = [value for value in (*before[:2], *least_greatest.values()) if value is not None]
            nulls = before[2] + group[name].null_count
            self._ranges[name] = (min(known), max(known), nulls) if known else (None, None, nulls)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows
        self._waiting, self._bytes = [], 0

    def stats(self) -> str:
        """The statistics, as Delta writes them."""
        known = {name: value for name, value in self._ranges.items() if value[0] is not None}
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: statistic(value[0], "") for name, value in known.items()},
                "maxValues": {name: statistic(value[1], "\U0010ffff") for name, value in known.items()},
                "nullCount": {name: value[2] for name, value in self._ranges.items()},
            }
        )


def statistic(value: Any, more: str) -> Any:
    """A minimum or a maximum in Delta's JSON: text has at most 32 characters, and `more` if it is longer."""
    if isinstance(value, str):
        return value if len(value) <= 32 else value[:32] + more
    return value if isinstance(value, int) else value.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"


def message_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the messages table."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["stored_body"] = columns.pop("encoded_body")
    for name, moment in TIMES.items():
        columns[name] = pc.if_else(pc.is_null(columns[moment]), columns[name], None)
    return table_rows(columns, batch.num_rows, MESSAGES.schema)


def key_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the keys table, for messages without a key twice in KEYS, as in a generated store."""
    keys, unique_keys = batch.column("keys"), batch.column("unique_key")
    parents, pieces = pc.list_parent_indices(keys).cast(pa.int64()), pc.list_flatten(keys)
    with_unique_key = pc.indices_nonzero(pc.is_valid(unique_keys)).cast(pa.int64())
    rows = pa.concat_arrays([parents, with_unique_key])
    types = pa.concat_arrays(
        [pa.repeat(pa.scalar(name), len(part)) for name, part in (("KEYS", parents), ("UNIQ_KEY", with_unique_key))]
    )
    order = pc.sort_indices(rows)
    rows = rows.take(order)
    columns = {name: batch.column(name).take(rows) for name in KEYS.schema.names if name in batch.schema.names}
    columns["key"] = pa.concat_arrays([pieces, unique_keys.take(with_unique_key)]).take(order)
    columns["key_type"] = types.take(order)
    return table_rows(columns, len(rows), KEYS.schema)


def table_rows(columns: dict[str, pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a table, with those of the identity."""
    columns |= {name: pa.repeat(pa.scalar(value), count) for name, value in IDENTITY.items()}
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def commit(spark: SparkSession, table: str, files: Sequence[Row], application: str, version: int) -> bool:
    """Whether the files were committed; false if this version of the application is in the table already."""
    jvm: Any = spark._jvm
    kernel = jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(spark._jsc.hadoopConfiguration())
    snapshot = kernel.TableManager.loadSnapshot(table).build(engine)
    last = snapshot.getLatestTransactionVersion(engine, application)
    if last.isPresent() and last.get() >= version:
        return False
    builder = snapshot.buildUpdateTableTransaction("spark-mq", kernel.Operation.STREAMING_UPDATE)
    transaction = builder.withTransactionId(application, version).build(engine)
    state = transaction.getTransactionState(engine)
    context = kernel.Transaction.getWriteContext(engine, state, jvm.java.util.HashMap())
    listed = jvm.java.util.ArrayList()
    for file in files:
        info = (Path(table) / file.name).stat()
        stats = kernel.statistics.DataFileStatistics.deserializeFromJson(file.stats, transaction.getSchema(engine))
        uri = f"file:{table}/{file.name}"
        listed.add(kernel.utils.DataFileStatus(uri, info.st_size, int(info.st_mtime * 1000), stats))
    statuses = kernel.internal.util.Utils.toCloseableIterator(listed.iterator())
    actions = kernel.Transaction.generateAppendActions(engine, state, statuses, context)
    result = transaction.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))
    for hook in result.getPostCommitHooks():
        hook.threadSafeInvoke(engine)
    return True


def write_by_arrow(spark: SparkSession, store: Path, folder: Path) -> dict[str, float]:
    """Archive messages and keys into new tables; returns the seconds of each part."""
    shutil.rmtree(folder, ignore_errors=True)
    table = str(folder / "messages")
    started = time.perf_counter()
    create_tables(spark, ArchiveTables.of(table))
    created = time.perf_counter()
    files = spark.read.format(FilesSource.name()).option("table", table).load(str(store)).collect()
    written = time.perf_counter()
    for _ in range(2):
        for is_keys, name in ((False, table), (True, f"{table}_keys")):
            commit(spark, name, [file for file in files if file.is_keys == is_keys], "benchmark", 0)
    ended = time.perf_counter()
    return {"create": created - started, "write": written - created, "commit": ended - written}


def main() -> int:
    """Measure, and print the figures and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="256MiB", help="bytes of records (256MiB)")
    parser.add_argument("--folder", type=Path, required=True, help="the folder for the store and the archives")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    store = made_store(arguments.folder, parse_size("--size", arguments.size))
    plain, now, by_arrow = (arguments.folder / name for name in ("plain", "lake", "lake-by-arrow"))
    groups = []
    with spark_session("spark-mq benchmark of files by Arrow", delta_settings) as spark:
        spark.dataSource.register(FilesSource)
        for number in range(arguments.repetitions + 1):
            seconds = timed(lambda: plain_write(spark, store, plain))
            report = new_archive(spark, store, now)
            parts = write_by_arrow(spark, store, by_arrow)
            if number:  # the first group warms up
                groups.append({"plain": seconds, "archive": report.seconds, **report.stages, **parts})
            print(json.dumps({"plain": seconds, "archive": report.seconds, **report.stages, **parts}), flush=True)
        for suffix in ("", "_keys"):
            counted = [
                spark.read.format("delta").load(f"{folder}/messages{suffix}").drop("cluster", "broker", "store")
                for folder in (now, by_arrow)
            ]
            comparable = [frame.drop("properties") for frame in counted]
            different = comparable[0].exceptAll(comparable[1]).count(), comparable[1].exceptAll(comparable[0]).count()
            print(f"messages{suffix}: {counted[0].count():,} and {counted[1].count():,} rows, {different} different")
    medians = {name: statistics.median(group[name] for group in groups) for name in groups[0]}
    arrow = medians["create"] + medians["write"] + medians["commit"]
    print(json.dumps(medians))
    print(f"plain {medians['plain']:.2f} s; archive {medians['archive']:.2f} s; by Arrow {arrow:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
