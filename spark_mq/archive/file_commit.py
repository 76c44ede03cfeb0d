"""Adding files that are ready to a local Delta table, and appending a few rows as such a file.

Delta Lake for Spark has no public way to commit a file that Spark did not write. Delta Kernel has, and it is among the
jars of delta-spark. The package `deltalake` (1.6) refuses to write to a table with clustering. Kernel needs a JVM that
this process can call, so with Spark Connect, and for tables that are not local, Spark writes the rows.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq._compat import SPARK_ERRORS
from spark_mq.archive.archive_tables import ArchiveTable, StoreArchive
from spark_mq.archive.delta_log import ENGINE_INFO, retry_on_conflict
from spark_mq.archive.table_file import TableFile, WrittenFile, new_file_name, read_written_file, writes_bloom_filters
from spark_mq.archive.tables import Layout
from spark_mq.format.message_row import Row
from spark_mq.io.location import Location

_PLAIN_PROPERTIES = {"delta.columnMapping.mode": ("none",), "delta.enableDeletionVectors": ("false",)}
"""Properties with which a file has other columns, or more rows, than the table."""
_GLOB = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark would not take as they are when it reads a file by its path."""
_TRIES = 10
_CONFLICTS = ("ConcurrentWriteException", "ConcurrentTransactionException", "MetadataChanged", "ProtocolChanged")


def append_rows(
    archive: StoreArchive, table: ArchiveTable, layout: Layout, rows: Sequence[Row], once: str | None = None
) -> None:
    """Append rows of a store to a table.

    Args:
        rows: The rows, without the columns of the store's identity.
        once: A name that only one append to the table may have; a second append with this name changes nothing.
    """
    application = str(uuid.uuid4()) if once is None else once
    kernel = find_kernel_table(archive.spark, table, layout)
    if kernel is None:
        frame = archive.spark.createDataFrame(archive.named(rows, layout.schema))
        options = {"txnAppId": application, "txnVersion": "0"}
        writer = frame.write.format("delta").mode("append").options(**options)
        retry_on_conflict(lambda: writer.saveAsTable(table.sql_name))
        return
    path = f"{kernel.folder}/{new_file_name()}"
    file = TableFile(path, layout)
    for batch in archive.named(rows, layout.schema).to_batches():
        file.add(batch)
    file.close()
    written = read_written_file(path, layout)
    if written is not None:
        # A file that is not committed is no row of the table; VACUUM removes it.
        kernel.commit([written], application, 0)


class KernelTable:
    """A local Delta table to which files can be added."""

    def __init__(self, spark: SparkSession, table: ArchiveTable) -> None:
        """Prepare the table; `is_plain` says whether it can be used."""
        self.folder = Location.resolve(table.name).path
        self._jvm = cast("Any", spark._jvm)
        self._kernel = self._jvm.io.delta.kernel
        self._engine = self._kernel.defaults.engine.DefaultEngine.create(spark._jsc.hadoopConfiguration())

    def has_committed(self, application: str, version: int) -> bool:
        """Whether the table has this version of the application, or a later one (`txn`)."""
        return self._has_committed(self._snapshot(), application, version)

    def commit(self, files: Sequence[WrittenFile], application: str, version: int) -> bool:
        """Whether the files were added; false if the table has this version of the application already."""
        for number in range(1, _TRIES + 1):
            snapshot = self._snapshot()
            if self._has_committed(snapshot, application, version):
                return False
            try:
                self._add(snapshot, files, application, version)
            except SPARK_ERRORS as error:
                if number == _TRIES or not any(name in str(error) for name in _CONFLICTS):
                    raise
            else:
                return True
        return False

    def is_plain(self, layout: Layout) -> bool:
        """Whether a file with the layout's columns and statistics is all that the table needs for new rows."""
        snapshot = self._snapshot()
        properties = snapshot.getTableProperties()
        has_changed = any(properties.get(name) not in (None, *plain) for name, plain in _PLAIN_PROPERTIES.items())
        clustering = snapshot.getClusteringColumnInfos()
        columns = [info.getLogicalColumn().getNames() for info in clustering.get()] if clustering.isPresent() else []
        if has_changed or any(len(names) != 1 or names[0] not in layout.statistics for names in columns):
            return False
        self._transaction(snapshot).build(self._engine)
        return not list(snapshot.getPartitionColumnNames())

    def _snapshot(self) -> Any:
        return self._kernel.TableManager.loadSnapshot(self.folder).build(self._engine)

    def _has_committed(self, snapshot: Any, application: str, version: int) -> bool:
        last = snapshot.getLatestTransactionVersion(self._engine, application)
        return bool(last.isPresent() and last.get() >= version)

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
        for hook in result.getPostCommitHooks():
            try:
                hook.threadSafeInvoke(engine)
            except SPARK_ERRORS:
                # A checkpoint that another run writes at the same time; the commit is done.
                continue


def find_kernel_table(spark: SparkSession, table: ArchiveTable, layout: Layout) -> KernelTable | None:
    """The table, if files that Spark did not write can be added to it; else None, and Spark must write the rows."""
    if not table.is_local or _GLOB.search(table.name) or not writes_bloom_filters():
        return None
    if not (Location.resolve(table.name) / "_delta_log").is_directory:  # Spark has another default filesystem
        return None
    try:
        from py4j.protocol import Py4JError
    except ImportError:  # Spark Connect without py4j
        return None
    try:
        found = KernelTable(spark, table)
        return found if found.is_plain(layout) else None
    except (PySparkException, Py4JError, AttributeError, TypeError):  # no table, or no JVM, or a JVM without Kernel
        return None
