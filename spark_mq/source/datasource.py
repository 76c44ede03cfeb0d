"""The data source itself, and how Spark comes to know it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from spark_mq.source.consume_queue import ConsumeQueueReader
from spark_mq.source.messages import MessagesReader
from spark_mq.source.options import Table, parse_options
from spark_mq.source.schema import column_names, default_schema
from spark_mq.source.small_tables import SmallTableReader


class RocketMQDataSource(DataSource):
    """The messages of an Apache RocketMQ store directory, without a broker.

    Name: `rocketmq`. One row is a message of the commit log.

    Options
    -------
    path : the broker's store directory (`storePathRootDir`); a path, or a URI that pyarrow opens. Required.
    table : `messages`.
    topic : only messages of this topic.
    startTimestamp, endTimestamp : only messages stored in this time, both ends included; epoch milliseconds or ISO
        8601 with a zone. Segments and splits outside are not read.
    splitSize : bytes of the log that a task reads, `128m` by default.
    mode : what becomes of damage. PERMISSIVE (default): a row with commit_log_offset, store_size and
        `_corrupt_record`; DROPMALFORMED: no row; FAILFAST: an error with file and offset. A message whose body cannot
        be given (it does not decompress, or has a wrong CRC) is a row in both of the first: body NULL, and the reason
        in `_corrupt_record`. So the columns that a query asks for never change its rows.
    checkCrc : `true` checks messages' CRCs, `false` by default: of the body (reason `BODY_CRC`, body NULL) and, where
        the broker added one (`enabledAppendPropCRC`), of the whole record (reason `PROPERTIES_CRC`). FAILFAST checks
        every message that is read, the other modes only for queries that ask for body or `_corrupt_record`.

    Schema
    ------
    commit_log_offset BIGINT, store_size INT, offset_message_id STRING, topic STRING, queue_id INT, queue_offset
    BIGINT, tags STRING, keys ARRAY<STRING>, unique_key STRING, flag INT, sys_flag INT, transaction_type STRING,
    born_timestamp TIMESTAMP, born_host STRING, store_timestamp TIMESTAMP, store_host STRING, reconsume_times INT,
    prepared_transaction_offset BIGINT, body_crc INT, body BINARY, properties MAP<STRING, STRING>, _corrupt_record
    STRING. On request also: born_timestamp_millis, store_timestamp_millis BIGINT, properties_bytes, stored_body
    BINARY.

    Spark hands no column list to a Python data source: `.schema("topic STRING, queue_id INT")` is how a query reads
    only what it needs, which is several times as fast without bodies.

    Examples
    --------
    >>> spark.read.format("rocketmq").schema("topic STRING").load(store).groupBy("topic").count().show()

    +------+-----+
    | topic|count|
    +------+-----+
    |orders| 1200|
    +------+-----+

    """

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` calls it."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The default columns of the table. Raises `OptionError` for options that cannot be read."""
        return default_schema(parse_options(self.options).table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the table. Raises `OptionError` for options or columns that do not exist."""
        options = parse_options(self.options)
        names = column_names(options.table, schema)
        if options.table == Table.MESSAGES:
            return MessagesReader(options, names)
        if options.table == Table.CONSUME_QUEUE:
            return ConsumeQueueReader(options, names)
        return SmallTableReader(options, names)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("rocketmq")` known to this session.

    Not needed where the package is installed: Spark finds `pyspark_rocketmq` by itself. It is where the package came
    with `--py-files`.
    """
    spark.dataSource.register(RocketMQDataSource)
