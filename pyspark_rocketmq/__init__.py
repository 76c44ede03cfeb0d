"""Lets Spark find the `rocketmq` format by itself.

Spark imports every top-level module named `pyspark_*` and looks for `DefaultSource`
(`pyspark.sql.worker.lookup_data_sources`). One that fails hides all others, so this one only imports.
"""

from spark_mq.source.datasource import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
