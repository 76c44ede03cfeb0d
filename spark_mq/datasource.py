"""The data source `rocketmq`: reads, streams and writes of message stores."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from spark_mq._compat import register_source
from spark_mq.source.datasource import StoreReads
from spark_mq.source.lookup_function import register_lookup
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


def register(spark: SparkSession) -> None:
    """Register the format `rocketmq` and the table function `rocketmq_lookup` in a session.

    If the package is installed, Spark also finds the format by itself, in the package `pyspark_rocketmq`. If the
    package came with `--py-files`, Spark does not, and this call is necessary.

    Args:
        spark: The session.

    Example:
        >>> register(spark)
        >>> spark.read.format("rocketmq").load("/data/store")
    """
    register_source(spark, RocketMQDataSource)
    register_lookup(spark)
