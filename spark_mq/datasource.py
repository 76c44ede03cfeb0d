"""The data source `rocketmq`: reads, streams and writes of message stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_mq._compat import register_source
from spark_mq.errors import OptionError
from spark_mq.live import datasource as live
from spark_mq.live.options import is_live
from spark_mq.source.datasource import StoreReads
from spark_mq.source.lookup_function import register_lookup
from spark_mq.source.options import parse_write_options
from spark_mq.tables.manual import manual

if TYPE_CHECKING:
    from spark_mq.producer.writer import TopicWriter


class RocketMQDataSource(StoreReads):
    """The data source `rocketmq`; `manual` makes its docstring from the declarations of the tables."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The default columns of the table. Raises `OptionError` for invalid options."""
        return live.schema(self.options) if is_live(self.options) else super().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the table. Raises `OptionError` for invalid options or unknown columns."""
        return live.reader(self.options, schema) if is_live(self.options) else super().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The stream reader of table `messages`. Raises the same errors as `reader`."""
        return live.stream_reader(self.options, schema) if is_live(self.options) else super().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame.

        Raises:
            OptionError: An option is not valid, or contradicts another one.
            SparkMqError: The errors of `store_writer` or `topic_writer`.
        """
        if is_live(self.options):
            return self._topic_writer(schema, overwrite)
        from spark_mq.restorer.writer import store_writer

        return store_writer(parse_write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer of a stream to topics of a live cluster. Raises the same errors as `writer`."""
        if not is_live(self.options):
            raise OptionError(
                "a stream is written to topics of a live cluster, rocketmq://HOST:9876; a store is written by "
                "foreachBatch and option appendId"
            )
        from spark_mq.producer.writer import TopicStreamWriter

        return TopicStreamWriter(self._topic_writer(schema, overwrite))

    def _topic_writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        from spark_mq.producer.options import parse_topic_write_options
        from spark_mq.producer.writer import topic_writer

        return topic_writer(parse_topic_write_options(self.options), schema.fieldNames(), overwrite)


RocketMQDataSource.__doc__ = manual()


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
    register_source(spark, RocketMQDataSource)
    register_lookup(spark)
