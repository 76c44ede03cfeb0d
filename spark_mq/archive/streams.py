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

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from spark_mq._compat import register_source, session_has_read_limits
from spark_mq.archive.archive_tables import ArchiveTable, StoreIdentity
from spark_mq.archive.checkpoints import KEYS as KEYS_STREAM
from spark_mq.archive.checkpoints import MESSAGES as MESSAGES_STREAM
from spark_mq.archive.checkpoints import checkpoint_of, has_begun
from spark_mq.archive.delta_log import is_empty
from spark_mq.archive.file_source import FORMAT, ArchiveFilesSource, Place
from spark_mq.archive.row_append import find_kernel_table
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.table_file import WrittenFile, read_written_file
from spark_mq.archive.table_rows import READ_COLUMNS, TIMES
from spark_mq.archive.tables import KEYS, KEYS_SCHEMA, MESSAGES
from spark_mq.errors import StoreChangedError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.store.message_store import MessageStore

if TYPE_CHECKING:
    from spark_mq.archive.kernel_commit import KernelTable

_START_SECONDS = 600.0


class ArchiveStreams:
    """The streams of one store. A stream without `seconds` ends after the messages that existed at its start."""

    def __init__(self, archive: StoreArchive, options: dict[str, str]) -> None:
        """Create the streams; `options` are further options of the stream over the store."""
        self._archive = archive
        self._spark = archive.spark
        self._options = options
        self.query_ids: set[str] = set()
        """The ids of all streaming queries that were started."""
        self.batch_rows: dict[int, int] = {}
        """The messages of each batch whose files tasks wrote: Spark's progress counts files."""
        self._kernel_tables = _kernel_tables(archive)
        if self._kernel_tables is not None:
            register_source(archive.spark, ArchiveFilesSource)

    def start_messages(self, seconds: float | None = None) -> StreamingQuery:
        """The running stream from the store into the messages table; a batch starts every `seconds` seconds."""
        options = dict(self._options)
        if not session_has_read_limits(self._spark):
            options.pop("maxBytesPerTrigger", None)
        archive = self._archive
        checkpoint = checkpoint_of(archive.tables, archive.identity, MESSAGES_STREAM)
        if not has_begun(archive.tables, checkpoint) and (end := self.archived_end()) >= 0:
            options["startingOffsets"] = str(end)
        if self._kernel_tables is None:
            reader = self._spark.readStream.format("rocketmq").schema(source_schema()).options(**options)
            rows = archive_rows(reader.load(archive.store.uri), archive.identity)
            return self._start(rows, archive.tables.messages, checkpoint, seconds)
        messages, keys = self._kernel_tables
        place = Place(messages.folder, keys.folder, archive.identity)
        files = self._spark.readStream.format(FORMAT).options(**options, **place.to_option()).load(archive.store.uri)
        return self._start_batches(files, partial(self._append_messages, messages), checkpoint, seconds)

    def start_keys(self, seconds: float | None = None, renamed_to: StoreIdentity | None = None) -> StreamingQuery:
        """The running stream from the messages table into the keys table.

        Args:
            seconds: A batch starts every `seconds` seconds; None for one run over what is there.
            renamed_to: The name that a killed run gave to keys, and to no message. If the keys are written again, the
                rows with this name are deleted, too.
        """
        tables, identity = self._archive.tables, self._archive.identity
        checkpoint = checkpoint_of(tables, identity, KEYS_STREAM)
        if not has_begun(tables, checkpoint) and not is_empty(tables.keys):
            # The stream starts with the first message of the table.
            for name in (identity,) if renamed_to is None else (identity, renamed_to):
                self._spark.sql(f"DELETE FROM {tables.keys.sql_name} WHERE {name.sql_condition()}")
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        stream = reader.load(tables.name) if tables.is_path else reader.table(tables.name)
        rows = stream.where(identity.condition())
        if self._kernel_tables is None:
            return self._start(_keys(rows), tables.keys, checkpoint, seconds)
        names = rows.select(F.input_file_name().alias("name"))
        append = partial(self._append_keys, *self._kernel_tables)
        return self._start_batches(names, append, checkpoint, seconds)

    def _append_messages(self, table: KernelTable, query_id: str, files: DataFrame, batch: int) -> None:
        """Commit the files of a batch, unless the table has the batch already; then it is not read."""
        if table.has_committed(query_id, batch):
            return
        written = [_written_file(f"{table.folder}/{row.name}") for row in files.collect()]
        self.batch_rows[batch] = sum(file.rows for file in written)
        if written:
            table.commit(written, query_id, batch)

    def _append_keys(
        self, messages: KernelTable, keys: KernelTable, query_id: str, names: DataFrame, batch: int
    ) -> None:
        """Commit the files of keys that belong to the batch's files of messages; without one, Spark writes the keys."""
        if keys.has_committed(query_id, batch):
            return
        names_of_messages = sorted(unquote(row.name.rpartition("/")[2]) for row in names.distinct().collect())
        files = [_keys_file(messages, keys, name) for name in names_of_messages]
        if all(file is not None for file in files):
            with_rows = [file for file in files if file is not None and file.rows]
            if with_rows:
                keys.commit(with_rows, query_id, batch)
            return
        # Files of another writer: of an older version, of a run with Spark Connect, of OPTIMIZE or UPDATE.
        paths = [f"{messages.folder}/{name}" for name in names_of_messages]
        read = self._spark.read.schema(MESSAGES.columns()).parquet(*paths).where(self._archive.identity.condition())
        once = {"txnAppId": query_id, "txnVersion": str(batch)}
        _keys(read).write.format("delta").mode("append").options(**once).save(self._archive.tables.keys.name)

    def _start_batches(
        self, rows: DataFrame, append: Callable[[str, DataFrame, int], None], checkpoint: str, seconds: float | None
    ) -> StreamingQuery:
        """The running stream whose batches `append` gets, with the id of the stream."""
        started: list[str] = []
        has_started = Event()

        def append_batch(frame: DataFrame, batch: int) -> None:
            has_started.wait(_START_SECONDS)
            append(started[0], frame, batch)

        writer = _triggered(rows.writeStream.foreachBatch(append_batch), checkpoint, seconds)
        query = writer.start()
        started.append(str(query.id))
        has_started.set()
        self.query_ids.add(started[0])
        return query

    def _start(self, rows: DataFrame, table: ArchiveTable, checkpoint: str, seconds: float | None) -> StreamingQuery:
        writer = _triggered(rows.writeStream.format("delta").outputMode("append"), checkpoint, seconds)
        query = writer.start(table.name) if table.is_path else writer.toTable(table.name)
        self.query_ids.add(str(query.id))
        return query

    def archived_end(self) -> int:
        """The commit log offset at which the last archived record of the store ends; -1 if there is none."""
        if is_empty(self._archive.tables.messages):
            return -1
        with MessageStore(self._archive.store.uri) as store:
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


def _kernel_tables(archive: StoreArchive) -> tuple[KernelTable, KernelTable] | None:
    """The tables of messages and keys, if files can be added to them without Spark."""
    messages = find_kernel_table(archive.spark, archive.tables.messages, MESSAGES)
    keys = find_kernel_table(archive.spark, archive.tables.keys, KEYS)
    return None if messages is None or keys is None else (messages, keys)


def _triggered(writer: DataStreamWriter, checkpoint: str, seconds: float | None) -> DataStreamWriter:
    """The writer with a checkpoint, of a stream that ends, or whose batches start every `seconds` seconds."""
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True) if seconds is None else writer.trigger(processingTime=f"{seconds} seconds")


def _written_file(path: str) -> WrittenFile:
    """The complete file at `path`."""
    file = read_written_file(path)
    if file is None:
        raise StoreChangedError(f"{path}: the file was removed before it was committed: run again")
    return file


def _keys_file(messages: KernelTable, keys: KernelTable, name: str) -> WrittenFile | None:
    """The file with the keys of a file of messages; None if Spark must write the keys."""
    of_messages = read_written_file(f"{messages.folder}/{name}")
    if of_messages is None:
        return None
    if of_messages.note == "0":
        return WrittenFile("", 0, "", "")
    return read_written_file(f"{keys.folder}/{name}")


def source_schema() -> StructType:
    """The columns that the archive reads from a store."""
    return from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in READ_COLUMNS]))


def archive_rows(messages: DataFrame, identity: StoreIdentity) -> DataFrame:
    """Messages of `source_schema`, with the columns of the archive's messages table."""
    millis = [F.when(F.col(moment).isNull(), F.col(name)).alias(name) for name, moment in TIMES.items()]
    stored_body = F.col("encoded_body").alias("stored_body")
    return messages.select(*identity.columns(), *MESSAGE_SCHEMA.names, "properties_bytes", stored_body, *millis)


def _keys(messages: DataFrame) -> DataFrame:
    """A row for each distinct key of each message."""
    # F.transform with a lambda takes three times as long, because Spark does not compile lambdas.
    pieces = F.coalesce(F.array_distinct("keys"), F.array().cast("array<string>"))
    all_keys = F.concat(pieces, F.array("unique_key"))
    exploded = messages.withColumn("piece_count", F.size(pieces)).select(
        "*", F.posexplode(all_keys).alias("position", "key")
    )
    key_type = F.when(F.col("position") < F.col("piece_count"), "KEYS").otherwise("UNIQ_KEY")
    return exploded.where("key IS NOT NULL").withColumn("key_type", key_type).select(*KEYS_SCHEMA.names)
