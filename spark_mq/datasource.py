"""The data source `rocketmq`: reads, streams and writes of message stores."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from spark_mq.source.datasource import StoreReads
from spark_mq.source.write_options import parse_write_options
from spark_mq.tables.manual import manual


class RocketMQDataSource(StoreReads):
    """The data source `rocketmq`; `manual` makes its docstring from the declarations of the tables."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "rocketmq"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame.

        Raises:
            OptionError: An option is not valid, or contradicts another one.
            SparkMqError: The errors of `store_writer`.
        """
        from spark_mq.restorer.writer import store_writer

        return store_writer(parse_write_options(self.options), schema, overwrite)


RocketMQDataSource.__doc__ = manual()
