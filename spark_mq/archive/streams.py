"""The two streams that fill an archive from one store: messages into one table, and from there keys into another.

Each stream has a checkpoint for each store. Delta writes the id of the stream and the number of the batch into each
commit (`txn`), so a repeated batch is not appended again. If a checkpoint was lost, the messages table shows where the
stream must continue, and the keys are written again from the messages table, of which they need only a few columns.

There are two ways to write, which have the same offsets, ids and rows, so each can continue what the other began. If
the tables are local and Delta Kernel is at hand, tasks write files of messages and keys in one read of the log, and
each stream commits its files. The keys stream finds the file of keys by the name of the file of messages. For files of
messages without one, and in all other cases, Spark writes the rows.

Of the files, `ArchiveFilesSource` is a stream over a store or a running broker: its tasks write messages and keys as
files, which its rows name. The offsets are those of the stream `rocketmq`, so both continue from the same checkpoint. A
file is not in a table before a commit names it (`table_file`). What a killed task leaves adds no row to a table; VACUUM
removes it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from spark_mq._compat import register_source, session_has_read_limits
from spark_mq.archive.archive_tables import (
    KEYS,
    KEYS_SCHEMA,
    MESSAGES,
    MESSAGES_SCHEMA,
    ArchiveTable,
    BrokerArchive,
    StoreArchive,
    StoreIdentity,
)
from spark_mq.archive.delta_log import is_empty, sync_newest_commits, version_of
from spark_mq.archive.last_run import KEYS_STREAM, MESSAGES_STREAM, Checkpoint
from spark_mq.archive.table_file import KernelTable, TableFile, WrittenFile, find_kernel_table, new_file_name
from spark_mq.errors import LogCutError, SparkMqError, StoreChangedError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.io.local import flush_to_disk
from spark_mq.live.cluster import LiveBroker
from spark_mq.live.message_stream import LiveMessagesStreamReader, QueueKey
from spark_mq.live.options import parse_live_stream_options
from spark_mq.remoting.pull import QueueRange
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import names_cluster, parse_stream_options
from spark_mq.store.message_store import MessageStore

TIMES = {"born_timestamp_millis": "born_timestamp", "store_timestamp_millis": "store_timestamp"}
READ_COLUMNS = (*MESSAGE_SCHEMA.names, "properties_bytes", "encoded_body", *TIMES)
"""The columns that the archive reads from a store."""
FORMAT = "rocketmq_archive_files"
STARTS = "archiveStarts"
"""The option with the offsets at which a new stream of a broker starts, by topic and queue id: a JSON object."""
PLACE = "archivePlace"
"""The option with the folders of both tables, and the names of the store in each row: a JSON array."""
_FIRST_LIMIT = 10


def message_rows(messages: pa.RecordBatch, identity: StoreIdentity) -> pa.RecordBatch:
    """The rows of the messages table, for messages with `READ_COLUMNS`."""
    columns = dict(zip(messages.schema.names, messages.columns, strict=True))
    columns["stored_body"] = columns.pop("encoded_body")
    for name, moment in TIMES.items():
        columns[name] = pc.if_else(pc.is_null(columns[moment]), columns[name], None)
    return _batch(columns, messages.num_rows, identity, MESSAGES_SCHEMA)


def key_rows(messages: pa.RecordBatch, identity: StoreIdentity) -> pa.RecordBatch:
    """The rows of the keys table: a row for each distinct key in KEYS, and a row for the unique key."""
    keys, unique_keys = messages.column("keys"), messages.column("unique_key")
    pieces, rows = pc.list_flatten(keys), pc.list_parent_indices(keys).cast(pa.int64())
    # The first piece of each key of each message.
    codes = pieces.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _, first = np.unique(rows.to_numpy() * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
    pieces, rows = pieces.take(pa.array(first)), rows.take(pa.array(first))
    unique_rows = pc.indices_nonzero(pc.is_valid(unique_keys)).cast(pa.int64())
    types = [pa.repeat(pa.scalar(name), len(part)) for name, part in (("KEYS", rows), ("UNIQ_KEY", unique_rows))]
    all_rows = pa.concat_arrays([rows, unique_rows])
    order = pc.sort_indices(all_rows)
    of_messages = messages.select([name for name in KEYS_SCHEMA.names if name in messages.schema.names])
    taken = of_messages.take(all_rows.take(order))
    columns = dict(zip(taken.schema.names, taken.columns, strict=True))
    columns["key"] = pa.concat_arrays([pieces, unique_keys.take(unique_rows)]).take(order)
    columns["key_type"] = pa.concat_arrays(types).take(order)
    return _batch(columns, len(all_rows), identity, KEYS_SCHEMA)


def _batch(columns: dict[str, pa.Array], count: int, identity: StoreIdentity, schema: pa.Schema) -> pa.RecordBatch:
    columns |= {name: pa.repeat(pa.scalar(value), count) for name, value in dataclasses.asdict(identity).items()}
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


def source_schema() -> StructType:
    """The columns that the archive reads from a store."""
    return from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in READ_COLUMNS]))


def archive_rows(messages: DataFrame, identity: StoreIdentity) -> DataFrame:
    """Messages of `source_schema`, with the columns of the archive's messages table."""
    millis = [F.when(F.col(moment).isNull(), F.col(name)).alias(name) for name, moment in TIMES.items()]
    stored_body = F.col("encoded_body").alias("stored_body")
    return messages.select(*identity.columns(), *MESSAGE_SCHEMA.names, "properties_bytes", stored_body, *millis)


def archive_keys(messages: DataFrame) -> DataFrame:
    """A row for each distinct key of each message."""
    # F.transform with a lambda takes three times as long, because Spark does not compile lambdas.
    pieces = F.coalesce(F.array_distinct("keys"), F.array().cast("array<string>"))
    all_keys = F.concat(pieces, F.array("unique_key"))
    exploded = messages.withColumn("piece_count", F.size(pieces)).select(
        "*", F.posexplode(all_keys).alias("position", "key")
    )
    key_type = F.when(F.col("position") < F.col("piece_count"), "KEYS").otherwise("UNIQ_KEY")
    return exploded.where("key IS NOT NULL").withColumn("key_type", key_type).select(*KEYS_SCHEMA.names)


class ArchiveFilesSource(DataSource):
    """The stream; its one column has the name of a file, which is the same in both folders."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns."""
        return "name STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader."""
        own = {PLACE.lower(), STARTS.lower()}
        options = {name: value for name, value in self.options.items() if name.lower() not in own}
        place = json.loads(self.options[PLACE])
        if names_cluster(options):
            return BrokerFilesReader(*place, starts=json.loads(self.options[STARTS]), options=options)
        return ArchiveFilesReader(*place, options=options)


@dataclass
class FailedPartition(InputPartition):
    """A batch that cannot be planned. It may be archived already, so the error is raised when a task reads it."""

    error: SparkMqError


class FilesReader(DataSourceStreamReader):
    """What a stream reader of messages needs besides, to write files: `place` is the value of `PLACE`."""

    place: tuple[str, ...]

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of the batch, or one that has the error."""
        try:
            return super().partitions(dict(start), dict(end))
        except SparkMqError as error:
            return [FailedPartition(error)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the files of one partition; returns their name, or nothing if there are no messages."""
        if isinstance(partition, FailedPartition):
            raise partition.error
        of_messages, of_keys, *names = self.place
        name, identity = new_file_name(), StoreIdentity(*names)
        messages, keys = TableFile(f"{of_messages}/{name}", MESSAGES), TableFile(f"{of_keys}/{name}", KEYS)
        try:
            for batch in super().read(partition):
                messages.add(message_rows(batch, identity))
                keys.add(key_rows(batch, identity))
            keys.close()
            messages.close(note=str(keys.rows))
        except BaseException:
            messages.discard()
            keys.discard()
            raise
        if messages.rows:
            yield pa.RecordBatch.from_pydict({"name": [name]})


class ArchiveFilesReader(FilesReader, MessagesStreamReader):
    """The stream reader of a store, whose tasks write files."""

    def __init__(self, *place: str, options: Mapping[str, str]) -> None:
        """Prepare the reader; `options` are those of the stream `rocketmq`."""
        super().__init__(parse_stream_options(options), list(READ_COLUMNS))
        self.place = place


class BrokerFilesReader(FilesReader, LiveMessagesStreamReader):
    """The stream reader of one broker of a running cluster, whose tasks write files.

    The broker has the name in `place`. A new stream starts in each queue at its offset in `starts`, by topic and queue
    id, or else at its first message.
    """

    def __init__(self, *place: str, starts: Mapping[str, Mapping[str, int]], options: Mapping[str, str]) -> None:
        """Prepare the reader; `options` are those of a stream of a running cluster."""
        super().__init__(parse_live_stream_options(options), list(READ_COLUMNS))
        self.place, self._starts = place, starts
        self._names = StoreIdentity(*place[2:])

    def _queues(self, brokers: Iterable[LiveBroker], needs_all: bool = True) -> dict[QueueKey, QueueRange]:
        names = self._names.cluster, self._names.broker
        of_names = [one for one in brokers if (one.broker.cluster, one.broker.name) == names]
        return super()._queues(of_names, needs_all=True)

    def _lose(self, what: str, queue: QueueRange, position: int) -> None:
        if position > queue.stop:  # the archive would have the messages of the queue twice
            raise LogCutError(
                f"{queue.address}: GET_MAX_OFFSET: {queue} was archived up to {position}, and ends at {queue.stop}: "
                "the broker lost its end, or the topic was deleted and made again. Archive it into another TABLE"
            )
        super()._lose(what, queue, position)

    def _without_deleted(self, queues: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        return dict(queues)  # a topic that is made again would have other messages at offsets that are archived

    def _start(self, broker: LiveBroker, queue: QueueRange) -> int:
        return self._starts.get(queue.topic, {}).get(str(queue.queue_id), queue.start)


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
        messages = find_kernel_table(archive.spark, archive.tables.messages)
        keys = find_kernel_table(archive.spark, archive.tables.keys)
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
        checkpoint = self._checkpoint(MESSAGES_STREAM)
        options |= self._start_options(checkpoint)
        if self._kernel_tables is None:
            reader = self._spark.readStream.format("rocketmq").schema(source_schema()).options(**options)
            rows = archive_rows(reader.load(archive.source), archive.identity)
            writer = rows.writeStream.format("delta").outputMode("append")
            return self._start(writer, checkpoint, seconds, archive.tables.messages)
        messages, keys = self._kernel_tables
        place = json.dumps([messages.folder, keys.folder, *dataclasses.astuple(archive.identity)])
        files = self._spark.readStream.format(FORMAT).options(**options).option(PLACE, place).load(archive.source)
        append = partial(self._append_messages, messages, keys, checkpoint)
        return self._start(files.writeStream.foreachBatch(append), checkpoint, seconds)

    def start_keys(self, seconds: float | None = None, renamed_to: StoreIdentity | None = None) -> StreamingQuery:
        """The running stream from the messages table into the keys table.

        If the keys are written again, those are deleted, too, to which a killed run gave the name `renamed_to`.
        """
        tables, identity = self._archive.tables, self._archive.identity
        checkpoint = self._checkpoint(KEYS_STREAM)
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

    def retire_keys(self) -> None:
        """Let the stream of keys begin again with the first message of the table."""
        self._checkpoint(KEYS_STREAM).retire()

    def _checkpoint(self, stream: str) -> Checkpoint:
        """The checkpoint of a stream, without what a power loss left incomplete."""
        checkpoint = Checkpoint(self._archive.tables, self._archive.identity, stream)
        tables = dict(zip((MESSAGES_STREAM, KEYS_STREAM), self._kernel_tables or (None, None), strict=True))
        table = tables[stream]
        checkpoint.mend(lambda batch: table is None or table.has_committed(checkpoint.stream_id, batch))
        return checkpoint

    def _append_messages(
        self, table: KernelTable, keys: KernelTable, checkpoint: Checkpoint, files: DataFrame, batch: int
    ) -> None:
        """Commit the files of a batch, unless the table has the batch already; then it is not read."""
        query_id = checkpoint.stream_id
        if table.has_committed(query_id, batch):
            return
        checkpoint.sync(batch)
        written = []
        for row in files.collect():
            file = table.written(row.name)
            if file is None:
                raise StoreChangedError(
                    f"{table.folder}/{row.name}: the file was removed before it was committed: run again"
                )
            written.append(file)
            if file.note != "0":
                flush_to_disk(f"{keys.folder}/{row.name}")  # the keys stream takes it for complete after this commit
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
        checkpoint.sync(batch)
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
        sync_newest_commits(self._archive.tables.keys)
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
        rows = self._archive.rows(self._archive.tables.messages)
        end = F.max(F.col("commit_log_offset") + F.col("store_size")).alias("end")
        for start in (log_start, 0):
            (row,) = rows.where(F.col("commit_log_offset") >= start).select(end).collect()
            if row.end is not None:
                return int(row.end)
        return -1


def _keys_file(messages: KernelTable, keys: KernelTable, name: str) -> WrittenFile | None:
    """The file with the keys of a file of messages; None if Spark must write the keys."""
    of_messages = messages.written(name)
    if of_messages is None:
        return None
    return WrittenFile("", 0, "", "") if of_messages.note == "0" else keys.written(name)
