"""The two streams that fill an archive from one store: messages into one table, and from there keys into another.

Each stream has a checkpoint for each store. Delta writes the id of the stream and the number of the batch into each
commit (`txn`), so a repeated batch is not appended again. If a checkpoint was lost, the messages table shows where the
stream must continue, and the keys are written again from the messages table, of which they need only a few columns.

There are two ways to write, which have the same offsets, ids and rows, so each can continue what the other began. If
the tables are local and Delta Kernel is at hand, tasks write files of messages and keys in one read of the log, and
each stream commits its files. The keys stream finds the file of keys by the name of the file of messages. For files of
messages without one, and in all other cases, Spark writes the rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Set
from functools import partial
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_mq._compat import register_source, session_has_read_limits
from spark_mq.archive.archive_tables import (
    KEYS,
    MESSAGES,
    ArchiveTable,
    BrokerArchive,
    StoreArchive,
    StoreIdentity,
)
from spark_mq.archive.delta_log import is_empty, version_of
from spark_mq.archive.file_source import FORMAT, PLACE, ArchiveFilesSource, archive_keys, archive_rows, source_schema
from spark_mq.archive.last_run import KEYS_STREAM, MESSAGES_STREAM, Checkpoint
from spark_mq.archive.table_file import KernelTable, WrittenFile, find_kernel_table, read_written_file
from spark_mq.errors import StoreChangedError
from spark_mq.store.message_store import MessageStore

_FIRST_LIMIT = 10


class AppendedRows:
    """The rows that the streams of a run append to a table, and their commits."""

    def __init__(self, spark: SparkSession, table: ArchiveTable, query_ids: Set[str]) -> None:
        """Begin with the table's present version; `query_ids` are the ids of the streams, also of later ones."""
        self.rows = self.commits = 0
        self._spark = spark
        self._table = table
        self._query_ids = query_ids
        self._counted = version_of(table)
        if self._counted < 0:
            self._counted = int(self._history(1)[0].version)

    def add(self, rows: int) -> None:
        """Count a commit of this process."""
        self.rows += rows
        self.commits += 1

    def add_commits_of_spark(self) -> None:
        """Count the commits of Spark since the last call."""
        limit, commits = _FIRST_LIMIT, self._history(_FIRST_LIMIT)
        # Streams may add commits between two queries, so all of them come from one.
        while len(commits) == limit and commits[-1].version > self._counted:
            limit *= 10
            commits = self._history(limit)
        new = [commit for commit in commits if commit.version > self._counted]
        self._counted = max((commit.version for commit in new), default=self._counted)
        for commit in new:
            if {commit.userMetadata, (commit.operationParameters or {}).get("queryId")} & self._query_ids:
                self.add(int((commit.operationMetrics or {}).get("numOutputRows", 0)))

    def _history(self, limit: int) -> list[Row]:
        """The last `limit` commits, newest first. Without a limit, Delta reads all, and `--follow` makes thousands."""
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table.sql_name} LIMIT {limit}")
        return history.select("version", "operationParameters", "operationMetrics", "userMetadata").collect()


class ArchiveStreams:
    """The streams of one store. A stream without `seconds` ends after the messages that existed at its start."""

    def __init__(self, archive: StoreArchive | BrokerArchive, options: dict[str, str]) -> None:
        self._archive = archive
        self._spark = archive.spark
        self._options = options
        self._query_ids: set[str] = set()
        self.messages = AppendedRows(archive.spark, archive.tables.messages, self._query_ids)
        """The messages that were appended."""
        self.keys = AppendedRows(archive.spark, archive.tables.keys, self._query_ids)
        """The keys that were appended."""
        self.batch_rows: dict[int, int] = {}
        """The messages of each batch whose files tasks wrote: Spark's progress counts files."""
        messages = find_kernel_table(archive.spark, archive.tables.messages, MESSAGES)
        keys = find_kernel_table(archive.spark, archive.tables.keys, KEYS)
        self._kernel_tables = None if messages is None or keys is None else (messages, keys)
        if self._kernel_tables is not None:
            register_source(archive.spark, ArchiveFilesSource)

    def count(self) -> None:
        """Make the counts of messages and keys complete."""
        if self._kernel_tables is None:
            self.messages.add_commits_of_spark()
            self.keys.add_commits_of_spark()

    def start_messages(self, seconds: float | None = None) -> StreamingQuery:
        """The running stream from the store into the messages table; a batch starts every `seconds` seconds."""
        options = dict(self._options)
        if not session_has_read_limits(self._spark):
            options.pop("maxBytesPerTrigger", None)
        archive = self._archive
        checkpoint = Checkpoint(archive.tables, archive.identity, MESSAGES_STREAM)
        options |= self._start_options(checkpoint)
        if self._kernel_tables is None:
            reader = self._spark.readStream.format("rocketmq").schema(source_schema()).options(**options)
            rows = archive_rows(reader.load(archive.source), archive.identity)
            writer = rows.writeStream.format("delta").outputMode("append")
            return self._start(writer, checkpoint, seconds, archive.tables.messages)
        messages, keys = self._kernel_tables
        place = json.dumps([messages.folder, keys.folder, *dataclasses.astuple(archive.identity)])
        files = self._spark.readStream.format(FORMAT).options(**options).option(PLACE, place).load(archive.source)
        append = partial(self._append_messages, messages, checkpoint)
        return self._start(files.writeStream.foreachBatch(append), checkpoint, seconds)

    def start_keys(self, seconds: float | None = None, renamed_to: StoreIdentity | None = None) -> StreamingQuery:
        """The running stream from the messages table into the keys table.

        If the keys are written again, those are deleted, too, to which a killed run gave the name `renamed_to`.
        """
        tables, identity = self._archive.tables, self._archive.identity
        checkpoint = Checkpoint(tables, identity, KEYS_STREAM)
        if not checkpoint.has_begun and not is_empty(tables.keys):
            # The stream starts with the first message of the table.
            for name in (identity,) if renamed_to is None else (identity, renamed_to):
                self._spark.sql(f"DELETE FROM {tables.keys.sql_name} WHERE {name.sql_condition()}")
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        stream = reader.load(tables.name) if tables.is_path else reader.table(tables.name)
        rows = stream.where(identity.condition())
        if self._kernel_tables is None:
            writer = archive_keys(rows).writeStream.format("delta").outputMode("append")
            return self._start(writer, checkpoint, seconds, tables.keys)
        names = rows.select(F.input_file_name().alias("name"))
        append = partial(self._append_keys, *self._kernel_tables, checkpoint)
        return self._start(names.writeStream.foreachBatch(append), checkpoint, seconds)

    def _append_messages(self, table: KernelTable, checkpoint: Checkpoint, files: DataFrame, batch: int) -> None:
        """Commit the files of a batch, unless the table has the batch already; then it is not read."""
        query_id = checkpoint.stream_id
        if table.has_committed(query_id, batch):
            return
        written = []
        for row in files.collect():
            path = f"{table.folder}/{row.name}"
            file = read_written_file(path, MESSAGES)
            if file is None:
                raise StoreChangedError(f"{path}: the file was removed before it was committed: run again")
            written.append(file)
        self.batch_rows[batch] = sum(file.rows for file in written)
        if written and table.commit(written, query_id, batch):
            self.messages.add(self.batch_rows[batch])

    def _append_keys(
        self, messages: KernelTable, keys: KernelTable, checkpoint: Checkpoint, names: DataFrame, batch: int
    ) -> None:
        """Commit the files of keys that belong to the batch's files of messages; without one, Spark writes the keys."""
        query_id = checkpoint.stream_id
        if keys.has_committed(query_id, batch):
            return
        names_of_messages = sorted(unquote(row.name.rpartition("/")[2]) for row in names.distinct().collect())
        files = [_keys_file(messages, keys, name) for name in names_of_messages]
        written = [file for file in files if file is not None]
        if len(written) == len(files):
            with_rows = [file for file in written if file.rows]
            if with_rows and keys.commit(with_rows, query_id, batch):
                self.keys.add(sum(file.rows for file in with_rows))
            return
        # Files of another writer: of an older version, of a run with Spark Connect, of OPTIMIZE or UPDATE.
        paths = [f"{messages.folder}/{name}" for name in names_of_messages]
        read = self._spark.read.schema(MESSAGES.columns()).parquet(*paths).where(self._archive.identity.condition())
        once = {"txnAppId": query_id, "txnVersion": str(batch), "userMetadata": query_id}
        archive_keys(read).write.format("delta").mode("append").options(**once).save(self._archive.tables.keys.name)
        self.keys.add_commits_of_spark()

    def _start(
        self, writer: DataStreamWriter, checkpoint: Checkpoint, seconds: float | None, table: ArchiveTable | None = None
    ) -> StreamingQuery:
        """The running stream, which ends, or whose batches start every `seconds` seconds."""
        writer = writer.option("checkpointLocation", checkpoint.folder)
        often = {"availableNow": True} if seconds is None else {"processingTime": f"{seconds} seconds"}
        writer = writer.trigger(**often)
        if table is None:
            query = writer.start()
        else:
            query = writer.start(table.name) if table.is_path else writer.toTable(table.name)
        self._query_ids.add(str(query.id))
        return query

    def _start_options(self, checkpoint: Checkpoint) -> dict[str, str]:
        """The options that say where a stream starts whose checkpoint has no offset."""
        end = -1 if checkpoint.has_begun else self.archived_end()
        return {"startingOffsets": str(end)} if end >= 0 else {}

    def archived_end(self) -> int:
        """The commit log offset at which the last archived record of the store ends; -1 if there is none."""
        if is_empty(self._archive.tables.messages):
            return -1
        with MessageStore(self._archive.source) as store:
            log_start = store.get_min_phy_offset()
        # A long archive has few files after the start of the log, and the end is usually in one of them.
        end = self._end_after(log_start)
        return end if end >= 0 else self._end_after(0)

    def _end_after(self, start: int) -> int:
        """The same as `archived_end`, of the messages that start at commit log offset `start` or later."""
        rows = self._archive.rows(self._archive.tables.messages)
        end = F.max(F.col("commit_log_offset") + F.col("store_size")).alias("end")
        (row,) = rows.where(F.col("commit_log_offset") >= start).select(end).collect()
        return -1 if row.end is None else int(row.end)


def _keys_file(messages: KernelTable, keys: KernelTable, name: str) -> WrittenFile | None:
    """The file with the keys of a file of messages; None if Spark must write the keys."""
    of_messages = read_written_file(f"{messages.folder}/{name}", MESSAGES)
    if of_messages is None:
        return None
    if of_messages.note == "0":
        return WrittenFile("", 0, "", "")
    return read_written_file(f"{keys.folder}/{name}", KEYS)
