"""The two streams that fill an archive from one store: messages into one table, and from there keys into another.

Each stream has a checkpoint for each store. Delta writes the id of the stream and the number of the batch into each
commit (`txn`), so a repeated batch is not appended again. If a checkpoint was lost, the messages table shows where the
stream must continue, and the keys are written again from the messages table, of which they need only a few columns.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_mq._compat import session_has_read_limits
from spark_mq.archive.archive_tables import ArchiveTable, StoreIdentity
from spark_mq.archive.checkpoints import KEYS, MESSAGES, checkpoint_of, has_begun
from spark_mq.archive.delta_log import is_empty
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.tables import KEYS_SCHEMA
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.store.message_store import MessageStore

TIMES = {"born_timestamp_millis": "born_timestamp", "store_timestamp_millis": "store_timestamp"}
READ_COLUMNS = (*MESSAGE_SCHEMA.names, "properties_bytes", "encoded_body", *TIMES)


class ArchiveStreams:
    """The streams of one store. A stream without `seconds` ends after the messages that existed at its start."""

    def __init__(self, archive: StoreArchive, options: dict[str, str]) -> None:
        """Create the streams; `options` are further options of the stream over the store."""
        self._archive = archive
        self._spark = archive.spark
        self._options = options
        self.query_ids: set[str] = set()
        """The ids of all streaming queries that were started."""

    def start_messages(self, seconds: float | None = None) -> StreamingQuery:
        """The running stream from the store into the messages table; a batch starts every `seconds` seconds."""
        options = dict(self._options)
        if not session_has_read_limits(self._spark):
            options.pop("maxBytesPerTrigger", None)
        archive = self._archive
        checkpoint = checkpoint_of(archive.tables, archive.identity, MESSAGES)
        if not has_begun(checkpoint) and (end := self.archived_end()) >= 0:
            options["startingOffsets"] = str(end)
        reader = self._spark.readStream.format("rocketmq").schema(source_schema()).options(**options)
        rows = archive_rows(reader.load(archive.store.uri), archive.identity)
        return self._start(rows, archive.tables.messages, checkpoint, seconds)

    def start_keys(self, seconds: float | None = None, renamed_to: StoreIdentity | None = None) -> StreamingQuery:
        """The running stream from the messages table into the keys table.

        Args:
            seconds: A batch starts every `seconds` seconds; None for one run over what is there.
            renamed_to: The name that a killed run gave to keys, and to no message. If the keys are written again, the
                rows with this name are deleted, too.
        """
        tables, identity = self._archive.tables, self._archive.identity
        checkpoint = checkpoint_of(tables, identity, KEYS)
        if not has_begun(checkpoint) and not is_empty(tables.keys):
            # The stream starts with the first message of the table.
            for name in (identity,) if renamed_to is None else (identity, renamed_to):
                self._spark.sql(f"DELETE FROM {tables.keys.sql_name} WHERE {name.sql_condition()}")
        reader = self._spark.readStream.format("delta").option("skipChangeCommits", "true")
        stream = reader.load(tables.name) if tables.is_path else reader.table(tables.name)
        return self._start(_keys(stream.where(identity.condition())), tables.keys, checkpoint, seconds)

    def _start(self, rows: DataFrame, table: ArchiveTable, checkpoint: str, seconds: float | None) -> StreamingQuery:
        writer = rows.writeStream.format("delta").outputMode("append").option("checkpointLocation", checkpoint)
        if seconds is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{seconds} seconds")
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
