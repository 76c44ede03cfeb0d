"""Appending a few rows to a table: as one file that this process writes, or by Spark if that is not possible."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_mq.archive.archive_tables import ArchiveTable
from spark_mq.archive.retry import retry_on_conflict
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.table_file import TableFile, new_file_name, read_written_file, writes_bloom_filters
from spark_mq.archive.tables import Layout
from spark_mq.format.message_row import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.kernel_commit import KernelTable


def append_rows(
    archive: StoreArchive, table: ArchiveTable, layout: Layout, rows: Sequence[Row], once: str | None = None
) -> None:
    """Append rows of a store to a table.

    Args:
        archive: The store and its archive.
        table: The table.
        layout: The layout of the table.
        rows: The rows, without the columns of the store's identity.
        once: A name that only one append to the table may have; a second append with this name changes nothing.

    """
    application = str(uuid.uuid4()) if once is None else once
    kernel = find_kernel_table(archive.spark, table, layout)
    if kernel is None:
        frame = archive.dataframe(rows, layout.schema)
        options = {"txnAppId": application, "txnVersion": "0"}
        writer = frame.write.format("delta").mode("append").options(**options)
        retry_on_conflict(lambda: writer.saveAsTable(table.sql_name))
        return
    identity = dataclasses.asdict(archive.identity)
    path = f"{kernel.folder}/{new_file_name()}"
    file = TableFile(path, layout)
    for batch in pa.Table.from_pylist([{**identity, **row} for row in rows], layout.schema).to_batches():
        file.add(batch)
    file.close()
    written = read_written_file(path)
    if written is not None:
        # A file that is not committed is no row of the table; VACUUM removes it.
        kernel.commit([written], application, 0)


def find_kernel_table(spark: SparkSession, table: ArchiveTable, layout: Layout) -> KernelTable | None:
    """The table, if files that Spark did not write can be added to it; else None, and Spark must write the rows."""
    if not writes_bloom_filters():
        return None
    try:
        from spark_mq.archive.kernel_commit import kernel_table
    except ImportError:  # Spark Connect without py4j
        return None
    return kernel_table(spark, table, layout)
