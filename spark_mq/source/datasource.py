"""The data source itself, and how Spark comes to know it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_mq._compat import register_source
from spark_mq.source.consume_queue import ConsumeQueueReader
from spark_mq.source.index_entries import IndexEntriesReader
from spark_mq.source.lookup_function import register_lookup
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.messages import MessagesReader
from spark_mq.source.messages_by_key import MessagesByKeyReader
from spark_mq.source.metadata_tables import MetadataTableReader
from spark_mq.source.options import ReadOptions, Table, parse_options, parse_stream_options, parse_table
from spark_mq.source.pushed_filters import (
    PushdownMessagesByKeyReader,
    PushdownMessagesReader,
    is_pushdown_planner,
)
from spark_mq.source.schema import column_names, default_schema


class RocketMQDataSource(DataSource):
    """An Apache RocketMQ store directory as tables, without a broker.

    Name: `rocketmq`. Options of every table:

    path : the broker's store directory (`storePathRootDir`); a path, or a URI that pyarrow opens. Required.
    table : `messages` (default), `messages_by_key`, `consume_queue`, `segments`, `queues`, `topics`,
        `consumer_offsets`, `index_files` or `index_entries`.

    An option that is unknown, or has no effect on the table, is an error. Spark hands no column list to a Python data
    source: `.schema("topic STRING, queue_id INT")` is how a query reads only what it needs, which for `messages` is
    several times as fast without bodies.

    messages
    --------
    One row is a message of the commit log.

    topic, queueId : only messages of this topic; only of this queue.
    key : only messages that have this key, as a piece of KEYS or as unique key. With `topic` too, the index files lead
        to them, and the log is read only where no index file covers it. Messages of transaction type ROLLBACK are in no
        index, and never found by key.
    uniqueKey : only messages that have this unique key; in all else as `key`.
    offsetMessageId : only the message that has this offset message id: its offset and its store host. An id of another
        broker finds nothing; in a store that moved, `startOffset` and `endOffset` find a message by offset alone.
    startOffset, endOffset : only what begins at these commit log offsets, both ends included.
    startQueueOffset, endQueueOffset : only messages at these offsets of queues, both ends included. With `topic` and
        `queueId` too, and not too many offsets, the queue's units lead to them. Messages of transaction types PREPARED
        and ROLLBACK are in no queue.
    startTimestamp, endTimestamp : only messages stored in this time, both ends included: epoch milliseconds, ISO 8601
        with a zone, or a time as the commands print it. Epoch seconds are an error. Segments and splits outside are not
        read.
    pushdown : `true` lets Spark push a query's own filters to the options above: =, IN and ranges of the columns topic,
        queue_id, unique_key, offset_message_id, commit_log_offset, queue_offset, store_timestamp and transaction_type.
        `false` by default, for Spark 4.1 to 4.3 then answer some queries wrongly: use such a DataFrame or view for one
        query with one filter only. `spark_mq.sql` has no such limit.
    conditions : the same filters as JSON, as `spark_mq.sql` gives them: `[["topic", "in", ["orders"]]]`.
    brokerConf : the broker's settings, for `maxHashSlotNum` and `maxIndexNum`; without them, index files of other sizes
        than the default are not used.
    splitSize : bytes of the log that a task reads, `128m` by default.
    mode : what becomes of damage. PERMISSIVE (default): a row with commit_log_offset, store_size and
        `_corrupt_record`; DROPMALFORMED: no row; FAILFAST: an error with file and offset. Bytes that no segment has are
        one row, however many they are: store_size is NULL if an INT cannot hold it, and `_corrupt_record` has the
        length. A file that is named as a segment, but is none (a copy under another name), is a row without
        commit_log_offset and store_size: its number is not an offset of the log. A message whose body cannot
        be given (it does not decompress, or has a wrong CRC) is a row in both of the first: body NULL, and the reason
        in `_corrupt_record`. So the columns that a query asks for never change its rows.
        The log ends before a last record that is not whole or has a wrong CRC, in every mode: it may be being written.
    checkCrc : `true` checks messages' CRCs, `false` by default: of the body (reason `BODY_CRC`, body NULL) and, where
        the broker added one (`enabledAppendPropCRC`), of the whole record (reason `PROPERTIES_CRC`). FAILFAST checks
        every message that is read, the other modes only for queries that ask for body or `_corrupt_record`.

    Columns: commit_log_offset BIGINT, store_size INT, offset_message_id STRING, topic STRING, queue_id INT,
    queue_offset BIGINT, tags STRING, keys ARRAY<STRING>, unique_key STRING, flag INT, sys_flag INT, transaction_type
    STRING, born_timestamp TIMESTAMP, born_host STRING, store_timestamp TIMESTAMP, store_host STRING, reconsume_times
    INT, prepared_transaction_offset BIGINT, body_crc INT, body BINARY, properties MAP<STRING, STRING>, _corrupt_record
    STRING. When a schema names them also: born_timestamp_millis BIGINT, store_timestamp_millis BIGINT,
    properties_bytes BINARY, stored_body BINARY, encoded_body BINARY. encoded_body is the stored body where body is
    another: it was compressed, or cannot be given.

    >>> spark.read.format("rocketmq").option("topic", "OrderEvents").load(store).show()
    +-----------------------+--------+------------+----+----------------------+
    |store_timestamp        |queue_id|queue_offset|tags|keys                  |   ...
    +-----------------------+--------+------------+----+----------------------+
    |2026-11-21 11:01:15.682|1       |0           |BB  |[user53, ORD-20, Aa35]|
    |2026-11-21 11:01:15.706|3       |0           |TagA|NULL                  |

    messages_by_key
    ---------------
    One row is a key of a message: each distinct key once, with the message. key_type: UNIQ_KEY for its unique key, else
    KEYS. Messages without keys, those of transaction type ROLLBACK and damage have no row.

    key : only the rows of this key; see messages.
    topic, queueId, uniqueKey, offsetMessageId, startOffset, endOffset, startQueueOffset, endQueueOffset : as in
        messages.
    startTimestamp, endTimestamp, conditions, brokerConf, splitSize, mode, checkCrc : as in messages.
    pushdown : as in messages; filters on the column key are pushed, too.

    Columns: key STRING, key_type STRING, commit_log_offset BIGINT, store_size INT, offset_message_id STRING, topic
    STRING, queue_id INT, queue_offset BIGINT, tags STRING, keys ARRAY<STRING>, unique_key STRING, flag INT, sys_flag
    INT, transaction_type STRING, born_timestamp TIMESTAMP, born_host STRING, store_timestamp TIMESTAMP, store_host
    STRING, reconsume_times INT, prepared_transaction_offset BIGINT, body_crc INT, body BINARY, properties MAP<STRING,
    STRING>, _corrupt_record STRING. When a schema names them also: born_timestamp_millis BIGINT,
    store_timestamp_millis BIGINT, properties_bytes BINARY, stored_body BINARY, encoded_body BINARY.

    >>> keys = spark.read.format("rocketmq").option("table", "messages_by_key")
    >>> keys.options(topic="OrderEvents", key="ORD-20").load(store).show()
    +------+--------+-----------+--------+------------+----+----------------------+
    |key   |key_type|topic      |queue_id|queue_offset|tags|keys                  |   ...
    +------+--------+-----------+--------+------------+----+----------------------+
    |ORD-20|KEYS    |OrderEvents|1       |0           |BB  |[user53, ORD-20, Aa35]|

    streaming
    ---------
    Table `messages`, `spark.readStream`: what a broker appends, or what arrives segment by segment. Each message comes
    once, when it is whole. An offset of the stream is a commit log offset; the messages before it were given.

    topic, splitSize, mode, checkCrc : as in messages.
    startingOffsets : where a new stream begins: `earliest` (default), `latest`, or a commit log offset (then with the
        first message that starts there or behind it).
    startingTimestamp : begin with the first message stored at this time or later; written as startTimestamp.
    maxBytesPerTrigger : a batch takes the messages that start in the next so many bytes of the log.
    maxMessagesPerTrigger : a batch takes at most so many messages, counted before options filter them. Both limits
        need Spark 4.2.
    failOnDataLoss : what to do if bytes are gone before they were read, because their segments expired or are
        missing. `true` (default): stop, and name the range. `false`: continue, and count them: in the offset's
        `lost_bytes`, and with mode PERMISSIVE as a row with `_corrupt_record`.
    failOnLogCut : what to do if the broker lost the end of its log after it was read, in a crash, and perhaps wrote on
        at the same offsets. `true`: stop. `false`: go back to the first message that the broker wrote since, so that
        none is passed over. As failOnDataLoss by default.

    Columns are those of messages. `Trigger.AvailableNow` ends where the log ended when the query began.

    >>> stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "1g").load(store)
    >>> stream.writeStream.format("delta").option("checkpointLocation", checkpoint).start(table)

    consume_queue
    -------------
    One row is a 20-byte unit of a queue's files, all that were written. state: LIVE; EXPIRED, its message's segment is
    gone; PRE_BLANK, before the queue's first message; STALE, behind the queue's end.

    topic, queueId : only this topic; only the queues with this id.

    Columns: topic STRING, queue_id INT, queue_offset BIGINT, commit_log_offset BIGINT, store_size INT, tags_code
    BIGINT, state STRING.

    >>> spark.read.format("rocketmq").option("table", "consume_queue").load(store).show()
    +-----------+--------+------------+-----------------+----------+---------+-----+
    |topic      |queue_id|queue_offset|commit_log_offset|store_size|tags_code|state|
    +-----------+--------+------------+-----------------+----------+---------+-----+
    |OrderEvents|0       |0           |216426           |468       |33309882 |LIVE |
    |OrderEvents|0       |1           |220024           |437       |2598919  |LIVE |

    segments
    --------
    One row is a file of the commit log. end_offset is where its live records end. state: FULL; APPENDING, it has the
    live end; BEHIND, after the live end; EMPTY, without a byte; WRONG_SIZE, of another size than most (a broker does
    not start with it); DAMAGED, its beginning or its end is damaged; STRAY, it is named as a segment, but is none, and
    has no offsets.

    problem says what is wrong with the file, also that files before it are missing, and is NULL if a quick look finds
    nothing: the first record of each file, the blank at the end of each full one, sizes and gaps are looked at. Damage
    in the middle of a segment only a read of `messages` finds, or `spark-mq rebuild`.

    Columns: file STRING, commit_log_offset BIGINT, file_size BIGINT, end_offset BIGINT, state STRING,
    first_store_timestamp TIMESTAMP, modification_timestamp TIMESTAMP, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "segments").load(store).show()
    +--------------------+-----------------+----------+-----+-----------------------+
    |file                |commit_log_offset|end_offset|state|first_store_timestamp  |   ...
    +--------------------+-----------------+----------+-----+-----------------------+
    |00000000000000000000|0                |131072    |FULL |2026-11-21 11:00:42.15 |
    |00000000000000131072|131072           |262144    |FULL |2026-11-21 11:01:09.051|

    queues
    ------
    One row is a consume queue; offsets are those that a broker offers. state: CAUGHT_UP; BEHIND, messages after its end
    are missing; DAMAGED, its files, or its first or last unit; LOST, it has no files, but had messages.

    problem says what is wrong with the queue, and is NULL if a quick look finds nothing. Looked at are the first and
    the last unit, the names and sizes of the files, the units of the messages in the last 256 KiB of the log, and
    whether a consumer group is past the queue's end. So a queue whose last message is older can have lost it unnoticed,
    and so can the middle of a queue: `spark-mq rebuild` makes all queues from the log. A queue can be BEHIND for a
    moment while its broker runs.

    topic : only this topic.
    brokerVersion : `4.9` or `5`, by default what the config files show; the two offer a different min_offset where a
        queue begins with pre-blank units.

    Columns: topic STRING, queue_id INT, min_offset BIGINT, max_offset BIGINT, first_commit_log_offset BIGINT,
    last_commit_log_offset BIGINT, first_store_timestamp TIMESTAMP, last_store_timestamp TIMESTAMP, file_count INT,
    state STRING, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "queues").load(store).show()
    +-----------+--------+----------+----------+----------------------+-----------------------+
    |topic      |queue_id|min_offset|max_offset|last_commit_log_offset|last_store_timestamp   |   ...
    +-----------+--------+----------+----------+----------------------+-----------------------+
    |OrderEvents|0       |0         |62        |493343                |2026-11-21 11:01:16.443|
    |OrderEvents|1       |0         |62        |492042                |2026-11-21 11:01:16.442|

    topics
    ------
    One row is a topic that `config/topics.json` names (or its `.bak`), or that has a queue; what is not configured is
    NULL. message_count is what the queues offer. problem names the queues of the topic that have one (table queues):
    then message_count is not certain.

    brokerVersion : as in queues.

    Columns: topic STRING, perm INT, read_queue_nums INT, write_queue_nums INT, topic_filter_type STRING,
    topic_sys_flag INT, is_order BOOLEAN, attributes MAP<STRING, STRING>, queue_count INT, message_count BIGINT,
    last_store_timestamp TIMESTAMP, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "topics").load(store).show()
    +------------+----+----------------+-----------+-------------+
    |topic       |perm|write_queue_nums|queue_count|message_count|   ...
    +------------+----+----------------+-----------+-------------+
    |OrderEvents |6   |4               |4          |248          |
    |SequenceDemo|6   |3               |3          |330          |

    consumer_offsets
    ----------------
    One row is a group's offset in a queue, from `config/consumerOffset.json` (or its `.bak`). lag is max_offset less
    consumer_offset. state: IN_RANGE; TOO_SMALL, below min_offset: messages expired before the group had them;
    TOO_LARGE, above max_offset; NO_QUEUE, above 0 where there is no queue. last_consumed_timestamp is the store time of
    the message before consumer_offset. problem says why lag cannot be known, and is NULL: there is no such queue, or it
    ends before consumer_offset, or table queues has a problem of it.

    topic, consumerGroup : only this topic; only this group.
    brokerVersion : as in queues.

    Columns: consumer_group STRING, topic STRING, queue_id INT, consumer_offset BIGINT, min_offset BIGINT, max_offset
    BIGINT, lag BIGINT, state STRING, last_consumed_timestamp TIMESTAMP, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "consumer_offsets").load(store).show()
    +-----------------+------------------------+--------+---------------+----------+---+--------+
    |consumer_group   |topic                   |queue_id|consumer_offset|max_offset|lag|state   |   ...
    +-----------------+------------------------+--------+---------------+----------+---+--------+
    |CID_RMQ_SYS_TRANS|RMQ_SYS_TRANS_HALF_TOPIC|0       |36             |39        |3  |IN_RANGE|

    index_files
    -----------
    One row is the header of an index file, oldest first.

    brokerConf : the broker's settings, for `maxHashSlotNum` and `maxIndexNum`; needed where they are not the broker's
        defaults, for a file does not tell them.

    Columns: file STRING, file_size BIGINT, begin_timestamp TIMESTAMP, end_timestamp TIMESTAMP,
    begin_commit_log_offset BIGINT, end_commit_log_offset BIGINT, hash_slot_count INT, index_count INT.

    >>> spark.read.format("rocketmq").option("table", "index_files").load(store).show()
    +-----------------+-----------------------+---------------------+---------------+-----------+
    |file             |begin_timestamp        |end_commit_log_offset|hash_slot_count|index_count|   ...
    +-----------------+-----------------------+---------------------+---------------+-----------+
    |20261121110042164|2026-11-21 11:00:42.15 |51963                |96             |500        |
    |20261121110049397|2026-11-21 11:00:49.397|106416               |98             |500        |

    index_entries
    -------------
    One row is an entry of an index file; the file, its number, and what it says. `time_difference` is whole seconds
    from the file's begin; `previous_entry` is the entry before it in its slot, 0 for none.

    brokerConf : as in index_files.

    Columns: file STRING, entry INT, key_hash INT, commit_log_offset BIGINT, time_difference INT, previous_entry INT.

    >>> spark.read.format("rocketmq").option("table", "index_entries").load(store).show()
    +-----------------+-----+----------+-----------------+---------------+--------------+
    |file             |entry|key_hash  |commit_log_offset|time_difference|previous_entry|
    +-----------------+-----+----------+-----------------+---------------+--------------+
    |20261121110042164|1    |547811466 |0                |0              |0             |
    |20261121110042164|2    |1771066142|0                |0              |0             |

    """

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` calls it."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The default columns of the table. Raises `OptionError` for options that cannot be read."""
        return default_schema(parse_table(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader of the table. Raises `OptionError` for options or columns that do not exist."""
        options = parse_options(self.options)
        names = column_names(options.table, schema)
        if options.table in (Table.MESSAGES, Table.MESSAGES_BY_KEY):
            return _messages_reader(options, names)
        if options.table == Table.CONSUME_QUEUE:
            return ConsumeQueueReader(options, names)
        if options.table == Table.INDEX_ENTRIES:
            return IndexEntriesReader(options, names)
        return MetadataTableReader(options, names)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of table `messages` as a stream. Raises `OptionError` as `reader`."""
        options = parse_stream_options(self.options)
        return MessagesStreamReader(options, column_names(Table.MESSAGES, schema))


def _messages_reader(options: ReadOptions, names: list[str]) -> DataSourceReader:
    takes_filters = options.pushdown and is_pushdown_planner()
    if options.table == Table.MESSAGES_BY_KEY:
        return PushdownMessagesByKeyReader(options, names) if takes_filters else MessagesByKeyReader(options, names)
    return PushdownMessagesReader(options, names) if takes_filters else MessagesReader(options, names)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("rocketmq")` and the table function `rocketmq_lookup` known to this session.

    The format is also found without it where the package is installed: Spark looks for `pyspark_rocketmq` by itself. It
    is not where the package came with `--py-files`.
    """
    register_source(spark, RocketMQDataSource)
    register_lookup(spark)
