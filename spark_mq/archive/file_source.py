"""A stream over a store or a running broker. Its tasks write messages and keys as files, which its rows name.

The offsets are those of the stream `rocketmq`, so both continue from the same checkpoint. A file is not in a table
before a commit names it (`table_file`). What a killed task leaves adds no row to a table; VACUUM removes it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.archive.archive_tables import KEYS, KEYS_SCHEMA, MESSAGES, MESSAGES_SCHEMA, StoreIdentity
from spark_mq.archive.table_file import TableFile, new_file_name
from spark_mq.errors import LogCutError, SparkMqError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.live.cluster import LiveBroker
from spark_mq.live.message_stream import LiveMessagesStreamReader
from spark_mq.live.options import is_live, parse_live_stream_options
from spark_mq.live.stream_offset import QueueKey
from spark_mq.remoting.pull import QueueRange
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options

TIMES = {"born_timestamp_millis": "born_timestamp", "store_timestamp_millis": "store_timestamp"}
READ_COLUMNS = (*MESSAGE_SCHEMA.names, "properties_bytes", "encoded_body", *TIMES)
"""The columns that the archive reads from a store."""
FORMAT = "rocketmq_archive_files"
STARTS = "archiveStarts"
"""The option with the offsets at which a new stream of a broker starts, by topic and queue id: a JSON object."""
PLACE = "archivePlace"
"""The option with the folders of both tables, and the names of the store in each row: a JSON array."""


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
        if is_live(options):
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
