"""The module by which Spark finds the format `rocketmq` without `spark_mq.register`.

Spark imports every top-level module named `pyspark_*` and looks for `DefaultSource` in it
(`pyspark.sql.worker.lookup_data_sources`). If one of these modules fails, Spark finds no data source at all. So this
module does nothing but import.
"""

from spark_mq.datasource import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
