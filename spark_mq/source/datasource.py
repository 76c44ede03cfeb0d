"""Reads of the data source `rocketmq`; `spark_mq.datasource` adds the writes, and registers it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_mq.source.messages import MessagesByKeyReader, MessagesReader
from spark_mq.source.options import ReadOptions, parse_options, parse_stream_options
from spark_mq.source.schema import column_names, columns_of_one_store, default_schema, names_store
from spark_mq.source.store_choice import StoreChoice
from spark_mq.tables.messages import MESSAGES, MESSAGES_BY_KEY
from spark_mq.tables.store_files import CONSUME_QUEUE, INDEX_ENTRIES
from spark_mq.tables.tiered import TIERED_MESSAGES


class StoreReads(DataSource):
    """Batch and stream reads of a store: the part of the data source that all layers above may use."""

    def schema(self) -> StructType:
        """The default columns of the table. Raises `OptionError` for invalid options."""
        choice = StoreChoice.of(self.options)
        return default_schema(choice.table(), choice.is_of_several)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the table. Raises `OptionError` for invalid options or unknown columns."""
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
        choice = StoreChoice.of(self.options)
        names = column_names(MESSAGES.name, schema)
        if choice.is_of_several or names_store(names):
            from spark_mq.source.several_stores_stream import SeveralStoresStreamReader

            return SeveralStoresStreamReader.of(choice, names)
        from spark_mq.source.message_stream import MessagesStreamReader

        return MessagesStreamReader(parse_stream_options(self.options), names)


def _reader(options: ReadOptions, names: list[str]) -> DataSourceReader:
    """The batch reader of a table of one store. Most workers plan reads of messages, and need no other reader."""
    if options.table == MESSAGES.name and options.tiered_storage is None:
        return MessagesReader(options, names)
    if options.table == MESSAGES_BY_KEY.name:
        return MessagesByKeyReader(options, names)
    if options.table in (MESSAGES.name, TIERED_MESSAGES.name):
        from spark_mq.source.tiered_messages import TieredMessagesReader

        return TieredMessagesReader(options, names)
    from spark_mq.source.table_readers import ConsumeQueueReader, IndexEntriesReader, TableReader

    of_parts = {CONSUME_QUEUE.name: ConsumeQueueReader, INDEX_ENTRIES.name: IndexEntriesReader}
    return of_parts.get(options.table, TableReader)(options, names)
