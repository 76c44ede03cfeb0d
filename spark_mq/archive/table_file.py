"""A Parquet file of an archive's table, written by Arrow, with the Bloom filters and statistics of the table's layout.

Spark's own writer gets the rows from Python one by one, and encodes them one by one; Arrow encodes whole columns. The
statistics that Delta's log needs come from the file's metadata, so whoever commits the file needs only its name.

Delta Lake for Spark has no public way to commit a file that Spark did not write. Delta Kernel has, and it is among the
jars of delta-spark. The package `deltalake` (1.6) refuses to write to a table with clustering. Kernel needs a JVM that
this process can call, so with Spark Connect, and for tables that are not local, Spark writes the rows.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq._compat import SPARK_ERRORS
from spark_mq.archive.archive_tables import ArchivedRows, ArchiveTable, Layout
from spark_mq.archive.delta_log import CONFLICT, ENGINE_INFO, retry, sync_commit
from spark_mq.format.message_row import Row
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import DELTA_LOG

_PLAIN_PROPERTIES = {"delta.columnMapping.mode": ("none",), "delta.enableDeletionVectors": ("false",)}
"""Properties with which a file has other columns, or more rows, than the table."""
_SPECIAL = re.compile(r"[^\w./~+=@:,-]")
"""Characters that Spark would not take as they are when it reads a file by its path, or that Kernel encodes twice."""
_TRIES = 10
_CONFLICTS = ("ConcurrentWriteException", "ConcurrentTransactionException", "MetadataChanged", "ProtocolChanged")
_NOTE = b"spark_mq.note"
_MAX_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"


def append_rows(archive: ArchivedRows, table: ArchiveTable, rows: Sequence[Row], once: str | None = None) -> None:
    """Append rows of a store to a table; a second append with the same name (`once`) changes nothing."""
    application = str(uuid.uuid4()) if once is None else once
    named, kernel = archive.named(rows, table.layout.schema), find_kernel_table(archive.spark, table)
    if kernel is None:
        frame = archive.spark.createDataFrame(named)
        options = {"txnAppId": application, "txnVersion": "0"}
        writer = frame.write.format("delta").mode("append").options(**options)
        retry(CONFLICT, lambda: writer.saveAsTable(table.sql_name))
        return
    name = new_file_name()
    file = TableFile(f"{kernel.folder}/{name}", table.layout)
    for batch in named.to_batches():
        file.add(batch)
    file.close()
    written = kernel.written(name)
    if written is not None:
        # A file that is not committed adds no row to the table; VACUUM removes it.
        kernel.commit([written], application, 0)


class KernelTable:
    """A local Delta table to which files can be added."""

    def __init__(self, spark: SparkSession, table: ArchiveTable) -> None:
        self.folder, self._layout = Location.resolve(table.name).path, table.layout
        self._jvm = cast("Any", spark._jvm)
        self._kernel = self._jvm.io.delta.kernel
        self._engine = self._kernel.defaults.engine.DefaultEngine.create(spark._jsc.hadoopConfiguration())

    def written(self, name: str) -> WrittenFile | None:
        """The complete file with a name in the folder; None if it is not there, or another program wrote it."""
        return read_written_file(f"{self.folder}/{name}", self._layout)

    def has_committed(self, application: str, version: int, snapshot: Any = None) -> bool:
        """Whether the table has this version of the application, or a later one (`txn`)."""
        snapshot = self._snapshot() if snapshot is None else snapshot
        last = snapshot.getLatestTransactionVersion(self._engine, application)
        return bool(last.isPresent() and last.get() >= version)

    def commit(self, files: Sequence[WrittenFile], application: str, version: int) -> bool:
        """Whether the files were added; false if the table has this version of the application already.

        Files, and then the commit, are flushed to the disk: Delta itself leaves that to the operating system, and a
        power loss could leave a commit of empty files.
        """
        for path in (*(file.path for file in files), self.folder, f"{self.folder}/{DELTA_LOG}"):
            flush_to_disk(path)
        for number in range(1, _TRIES + 1):
            snapshot = self._snapshot()
            if self.has_committed(application, version, snapshot):
                return False
            try:
                self._add(snapshot, files, application, version)
            except SPARK_ERRORS as error:
                if number == _TRIES or not any(name in str(error) for name in _CONFLICTS):
                    raise
            else:
                return True
        return False

    def is_plain(self) -> bool:
        """Whether a file with the layout's columns and statistics is all that the table needs for new rows."""
        snapshot = self._snapshot()
        properties = snapshot.getTableProperties()
        has_changed = any(properties.get(name) not in (None, *plain) for name, plain in _PLAIN_PROPERTIES.items())
        clustering = snapshot.getClusteringColumnInfos()
        columns = [info.getLogicalColumn().getNames() for info in clustering.get()] if clustering.isPresent() else []
        if has_changed or any(len(names) != 1 or names[0] not in self._layout.statistics for names in columns):
            return False
        self._transaction(snapshot).build(self._engine)
        return not list(snapshot.getPartitionColumnNames())

    def _snapshot(self) -> Any:
        return self._kernel.TableManager.loadSnapshot(self.folder).build(self._engine)

    def _transaction(self, snapshot: Any) -> Any:
        return snapshot.buildUpdateTableTransaction(ENGINE_INFO, self._kernel.Operation.STREAMING_UPDATE)

    def _add(self, snapshot: Any, files: Sequence[WrittenFile], application: str, version: int) -> None:
        kernel, engine = self._kernel, self._engine
        transaction = self._transaction(snapshot).withTransactionId(application, version).build(engine)
        state = transaction.getTransactionState(engine)
        context = kernel.Transaction.getWriteContext(engine, state, self._jvm.java.util.HashMap())
        statuses = self._jvm.java.util.ArrayList()
        for file in files:
            info = os.stat(file.path)
            statistics = kernel.statistics.DataFileStatistics.deserializeFromJson(
                file.statistics, transaction.getSchema(engine)
            )
            # Kernel stores the path relative to the folder, if both start with the same text.
            path = f"{context.getTargetDirectory().rstrip('/')}/{os.path.basename(file.path)}"
            statuses.add(kernel.utils.DataFileStatus(path, info.st_size, info.st_mtime_ns // 1_000_000, statistics))
        iterator = kernel.internal.util.Utils.toCloseableIterator(statuses.iterator())
        actions = kernel.Transaction.generateAppendActions(engine, state, iterator, context)
        result = transaction.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))
        log, made = f"{self.folder}/{DELTA_LOG}", int(result.getVersion())
        sync_commit(log, made)
        for hook in result.getPostCommitHooks():
            try:
                hook.threadSafeInvoke(engine)
            except SPARK_ERRORS:
                # A checkpoint that another run writes at the same time; the commit is done.
                continue
        sync_commit(log, made)


def find_kernel_table(spark: SparkSession, table: ArchiveTable) -> KernelTable | None:
    """The table, if files that Spark did not write can be added to it; else None, and Spark must write the rows."""
    if not table.is_local or _SPECIAL.search(table.name) or not writes_bloom_filters():
        return None
    if not (Location.resolve(table.name) / DELTA_LOG).is_directory:  # Spark has another default filesystem
        return None
    try:
        from py4j.protocol import Py4JError
    except ImportError:  # Spark Connect without py4j
        return None
    try:
        found = KernelTable(spark, table)
        return found if found.is_plain() else None
    except (PySparkException, Py4JError, AttributeError, TypeError):  # no table, or no JVM, or a JVM without Kernel
        return None


def new_file_name() -> str:
    """A name that no other file has."""
    return f"part-{uuid.uuid4()}.snappy.parquet"


def writes_bloom_filters() -> bool:
    """Whether the installed pyarrow can write Bloom filters."""
    return "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


class TableFile:
    """A new file, which exists once a row was added, and is complete once it is closed."""

    def __init__(self, path: str, layout: Layout) -> None:
        self.rows = 0
        self._path = path
        self._layout = layout
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the layout. A row group is written when it is large enough."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= (self._layout.row_group_size or 128 << 20):
            self._write_group()

    def close(self, note: str = "") -> None:
        """Complete the file, with a note in it."""
        self._write_group()
        if self._writer is not None:
            self._writer.add_key_value_metadata({_NOTE: note})
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        """Remove the file, which is not complete."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                os.unlink(self._path)

    def _write_group(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                group.schema,
                store_schema=False,
                write_page_index=True,
                # A Bloom filter is of use only beside values without a dictionary, which would tell the same.
                use_dictionary=[path for path in _parquet_paths(group.schema) if path not in self._layout.blooms],
                write_statistics=[field.name for field in group.schema if not pa.types.is_binary(field.type)],
                bloom_filter_options={name: {"ndv": group.num_rows, "fpp": 0.01} for name in self._layout.blooms},
            )
        self._writer.write_table(group, row_group_size=group.num_rows)


def _parquet_paths(schema: pa.Schema) -> list[str]:
    """The paths of all columns in Parquet, also those within lists and maps."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return _paths(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)


def _paths(schema: pq.ParquetSchema) -> list[str]:
    return [schema.column(index).path for index in range(len(schema.names))]


@dataclass(frozen=True)
class WrittenFile:
    """A complete file."""

    path: str
    rows: int
    statistics: str
    note: str


def read_written_file(path: str, layout: Layout) -> WrittenFile | None:
    """The file at `path`; None if it is not there, or another program wrote it."""
    try:
        metadata = pq.read_metadata(path)
    except FileNotFoundError:
        return None
    note = (metadata.metadata or {}).get(_NOTE)
    if note is None:
        return None
    return WrittenFile(path, metadata.num_rows, _delta_statistics(metadata, layout), note.decode())


def _delta_statistics(metadata: pq.FileMetaData, layout: Layout) -> str:
    """The statistics of a file in Delta's JSON: without the bounds of a column that Parquet has not for all values."""
    paths = _paths(metadata.schema)
    least, greatest, nulls = {}, {}, {}
    for name in layout.statistics:
        index = paths.index(name)
        groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
        nulls[name] = sum(group.null_count for group in groups)
        known = [group for group in groups if group.has_min_max]
        if known and all(group.has_min_max or not group.num_values for group in groups):
            least[name] = _bound(min(group.min for group in known), "")
            greatest[name] = _bound(max(group.max for group in known), _LAST_CHARACTER)
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _bound(value: Any, more: str) -> Any:
    """A bound in Delta's JSON: of a long text only the start, which `more` makes the upper bound."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT] + more
    return value
