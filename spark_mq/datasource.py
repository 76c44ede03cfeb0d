"""The data source `rocketmq`: reads, streams and writes of message stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_mq._compat import register_source
from spark_mq.errors import OptionError
from spark_mq.source.messages import MessagesByKeyReader, MessagesReader
from spark_mq.source.options import ReadOptions, names_cluster, parse_options, parse_stream_options, parse_write_options
from spark_mq.source.schema import column_names, columns_of_one_store, default_schema, names_store
from spark_mq.source.store_choice import StoreChoice
from spark_mq.tables.manual import manual
from spark_mq.tables.messages import MESSAGES, MESSAGES_BY_KEY
from spark_mq.tables.store_files import COMPACTED_MESSAGES, CONSUME_QUEUE, INDEX_ENTRIES
from spark_mq.tables.tiered import TIERED_MESSAGES

if TYPE_CHECKING:
    from spark_mq.producer.writer import TopicWriter


class RocketMQDataSource(DataSource):
    """The data source `rocketmq`; `manual` makes its docstring from the declarations of the tables."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The default columns of the table. Raises `OptionError` for invalid options."""
        if names_cluster(self.options):
            from spark_mq.live import datasource as live

            return live.schema(self.options)
        choice = StoreChoice.of(self.options)
        return default_schema(choice.table(), choice.is_of_several)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the table. Raises `OptionError` for invalid options or unknown columns."""
        if names_cluster(self.options):
            from spark_mq.live import datasource as live

            return live.reader(self.options, schema)
        choice = StoreChoice.of(self.options)
        names = column_names(choice.table(), schema)
        if not choice.is_of_several and not names_store(names):
            return _reader(parse_options(self.options), names)
        from spark_mq.source.several_stores import SeveralStoresReader

        inner = columns_of_one_store(choice.table(), names)
        readers = [(store, _reader(parse_options(options), inner)) for store, options in choice.each()]
        return SeveralStoresReader(readers, names, choice.skips_unreadable)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream reader of table `messages`. Raises the same errors as `reader`."""
        if names_cluster(self.options):
            from spark_mq.live import datasource as live

            return live.stream_reader(self.options, schema)
        choice = StoreChoice.of(self.options)
        names = column_names(MESSAGES.name, schema)
        if choice.is_of_several or names_store(names):
            from spark_mq.source.several_stores import SeveralStoresStreamReader

            return SeveralStoresStreamReader.of(choice, names)
        from spark_mq.source.message_stream import MessagesStreamReader

        return MessagesStreamReader(parse_stream_options(self.options), names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame. It raises `OptionError`, and the errors of `store_writer` and `topic_writer`."""
        if names_cluster(self.options):
            return self._topic_writer(schema, overwrite)
        from spark_mq.restorer.writer import store_writer

        return store_writer(parse_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream to topics of a live cluster. Raises the same errors as `writer`."""
        if not names_cluster(self.options):
            raise OptionError(
                "a stream is written to topics of a live cluster, rocketmq://HOST:9876; a store is written by "
                "foreachBatch and option appendId"
            )
        from spark_mq.producer.writer import TopicStreamWriter

        return TopicStreamWriter(self._topic_writer(schema, overwrite))

    def _topic_writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        from spark_mq.producer.writer import parse_topic_write_options, topic_writer

        return topic_writer(parse_topic_write_options(self.options), schema.fieldNames(), overwrite)


RocketMQDataSource.__doc__ = manual()


def _reader(options: ReadOptions, names: list[str]) -> DataSourceReader:
    """The batch reader of a table of one store. Most workers plan reads of messages, and need no other reader."""
    if options.table == MESSAGES.name and options.tiered_storage is None:
        return MessagesReader(options, names)
    if options.table == MESSAGES_BY_KEY.name:
        return MessagesByKeyReader(options, names)
    if options.table in (MESSAGES.name, TIERED_MESSAGES.name, COMPACTED_MESSAGES.name):
        from spark_mq.source.queue_logs import CompactedMessagesReader, TieredMessagesReader

        of_copies = options.table == COMPACTED_MESSAGES.name
        return CompactedMessagesReader(options, names) if of_copies else TieredMessagesReader(options, names)
    from spark_mq.source.table_readers import ConsumeQueueReader, IndexEntriesReader, TableReader

    of_parts = {CONSUME_QUEUE.name: ConsumeQueueReader, INDEX_ENTRIES.name: IndexEntriesReader}
    return of_parts.get(options.table, TableReader)(options, names)


def register(spark: SparkSession) -> None:
    """Register the format `rocketmq` and the table function `rocketmq_lookup` in a session.

    If the package is installed, Spark also finds the format by itself, in the package `pyspark_rocketmq`. If the
    package came with `--py-files`, Spark does not, and this call is necessary.

    Args:
        spark: The session.

    Examples:
        >>> register(spark)
        >>> spark.read.format("rocketmq").load("/data/store")
    """
    from spark_mq.source.lookup_function import register_lookup  # no reader needs it

    register_source(spark, RocketMQDataSource)
    register_lookup(spark)
