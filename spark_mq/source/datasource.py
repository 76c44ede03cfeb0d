"""The data source `rocketmq`, and its registration in a session."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from spark_mq._compat import register_source
from spark_mq.source.lookup_function import register_lookup
from spark_mq.source.messages import MessagesReader
from spark_mq.source.messages_by_key import MessagesByKeyReader
from spark_mq.source.options import ReadOptions, Table, parse_options, parse_stream_options
from spark_mq.source.schema import column_names, columns_of_one_store, default_schema, names_store
from spark_mq.source.store_choice import StoreChoice
from spark_mq.source.write_options import parse_write_options


class RocketMQDataSource(DataSource):
    """An Apache RocketMQ store directory as tables, without a broker.

    The name of the format is `rocketmq`. Options of every table:

    path : the broker's store directory (`storePathRootDir`): a path, or a URI that pyarrow opens. Required, except for
        several stores: give `load` a list of paths or a pattern (`/data/broker-*`, `s3://bucket/{a,b}`), or option
        `stores`.
    stores : several stores: a file with a JSON list, or the list itself:
        `[{"name": "a", "cluster": "prod", "broker": "broker-a", "path": "/data/a", "broker_conf": "/etc/a.conf"}]`.
        Only `path` is needed in an entry; a relative path is relative to the file's folder; `options` can have more
        options of the read of this store. Each table is then the union of the stores' tables, with columns cluster
        STRING, broker STRING and store STRING before the others. Names that are not given are those of `broker_conf`,
        or `DefaultCluster`, `DEFAULT_BROKER` and the path. A read of one store has these columns if a schema names
        them.
    skipUnreadable : of several stores: `true` leaves out a store that cannot be read, with a warning in the log of the
        driver. By default, such a store is an error that names it. Damage is an error, or not, as `mode` says.
    table : `messages` (default), `messages_by_key`, `consume_queue`, `segments`, `queues`, `topics`,
        `consumer_offsets`, `subscription_groups`, `consumer_filters`, `delay_offsets`, `checkpoint`, `index_files`
        or `index_entries`; and those of what messages mean: `transactions`, `delayed`, `consumer_progress`, `retries`,
        `dead_letters`, `traces`, `duplicates`, `hot_keys`, `rates` or `skew`.

    An option that is unknown, or has no effect on the table, is an error. Spark passes no column list to a Python data
    source. To read only some columns, give them as a schema: `.schema("topic STRING, queue_id INT")`. Without bodies,
    reading `messages` is several times as fast.

    messages
    --------
    One row is a message of the commit log.

    topic, queueId : only messages of this topic; only messages of queues with this id. If the topic has a small part
        of the log, its messages are found by consume queues, and only those parts of the log are scanned whose messages
        are not in queues.
    tag : only messages with these tags: `paid`, or one of several, `paid || shipped`.
    key : only messages that have this key, as one of KEYS or as unique key. If `topic` is given too, the reader finds
        them in the index files, and reads only the parts of the log that no index file covers. Without `topic`, every
        topic that has a queue is looked up, and the parts of the log are read whose messages are in no queue; if that
        costs as much as reading the log, the log is read. The index does not contain messages of transaction type
        ROLLBACK, so such messages are never found by key.
    uniqueKey : only messages that have this unique key; read in the same way as `key`.
    offsetMessageId : only the message that has this offset message id, which consists of a store host and a commit log
        offset. An id of another broker finds nothing. In a store that moved, find the message by `startOffset` and
        `endOffset`.
    startOffset, endOffset : only rows at these commit log offsets, both ends included.
    startQueueOffset, endQueueOffset : only messages at these queue offsets, both ends included. If `topic` and
        `queueId` are given too, and the range has at most 65,536 offsets, the reader finds the messages by the units of
        the queue. Queues do not contain messages of transaction types PREPARED and ROLLBACK.
    startTimestamp, endTimestamp : only messages that were stored in this time range, both ends included: epoch
        milliseconds, ISO 8601 with a zone, or a time as the commands print it. Epoch seconds are an error. Segments and
        splits outside of the range are not read.
    filter : only messages for which this SQL92 expression of RocketMQ is TRUE, such as `price > 5 AND region = 'eu'`.
        `spark_mq.filters` explains the expressions, which are not Spark SQL. Damage has no row then.
    conditions : conditions as JSON, which `spark_mq.sql` writes: `[["topic", "in", ["orders"]]]`, with in, <, <=, > and
        >= for the columns topic, queue_id, tags, unique_key, offset_message_id, commit_log_offset, queue_offset,
        store_timestamp and transaction_type.
    brokerConf : the file of the broker's settings, for `maxHashSlotNum` and `maxIndexNum`. Without it, index files that
        do not have the default size are not used.
    splitSize : bytes of the log that one task reads, `128m` by default.
    splitBy : `queue` gives each queue of the topic to one partition, whose rows are in the order of the queue (`log` by
        default: parts of the log). `topic` is needed. Messages of transaction types PREPARED and ROLLBACK are in no
        queue: they are among the rows of the queue id that they have, at their places in the log. If the log has a
        message twice, both rows are there. If units do not account for much of the log, and with mode FAILFAST, all
        queues are in one partition.
    mode : how damage is handled. PERMISSIVE (default): a corrupt range is a row with commit_log_offset, store_size and
        `_corrupt_record`. DROPMALFORMED: it has no row. FAILFAST: it is an error with file and offset. Bytes between
        two segments that no segment has are one row; if they are more than an INT can hold, store_size is NULL, and
        `_corrupt_record` has the length. A file with the name of a segment that is not a valid segment (a copy under
        another name) is a row without commit_log_offset and store_size, because its name is not an offset of the log.
        A message whose body cannot be read (it does not decompress, or has a wrong CRC) is a row in modes PERMISSIVE
        and DROPMALFORMED: body is NULL, and `_corrupt_record` has the reason. So the columns that a query reads never
        change its rows.
        If the last record of the log is not whole or has a wrong CRC, the log ends before it, in every mode: the broker
        may still be writing it.
    checkCrc : `true` checks the CRCs of messages, `false` by default: the CRC of the body (reason `BODY_CRC`, body
        NULL) and, if the broker added one (`enabledAppendPropCRC`), of the whole record (reason `PROPERTIES_CRC`).
        FAILFAST checks every message that is read. The other modes check only if the query reads body or
        `_corrupt_record`.

    Columns: commit_log_offset BIGINT, store_size INT, offset_message_id STRING, topic STRING, queue_id INT,
    queue_offset BIGINT, tags STRING, keys ARRAY<STRING>, unique_key STRING, flag INT, sys_flag INT, transaction_type
    STRING, born_timestamp TIMESTAMP, born_host STRING, store_timestamp TIMESTAMP, store_host STRING, reconsume_times
    INT, prepared_transaction_offset BIGINT, body_crc INT, body BINARY, properties MAP<STRING, STRING>, _corrupt_record
    STRING. When a schema names them also: born_timestamp_millis BIGINT, store_timestamp_millis BIGINT,
    properties_bytes BINARY, stored_body BINARY, encoded_body BINARY. encoded_body is the stored body if body differs
    from it, because the stored body is compressed or cannot be read; else NULL.

    >>> spark.read.format("rocketmq").option("topic", "OrderEvents").load(store).show()
    +-----------------------+--------+------------+----+----------------------+
    |store_timestamp        |queue_id|queue_offset|tags|keys                  |   ...
    +-----------------------+--------+------------+----+----------------------+
    |2026-11-21 11:01:15.682|1       |0           |BB  |[user53, ORD-20, Aa35]|
    |2026-11-21 11:01:15.706|3       |0           |TagA|NULL                  |

    messages_by_key
    ---------------
    One row is a key of a message, with the message; each distinct key of a message has one row. key_type: UNIQ_KEY for
    the unique key, KEYS for the others. Messages without keys, messages of transaction type ROLLBACK, and damage have
    no row.

    key : only rows of this key; see messages.
    topic, queueId, tag, uniqueKey, offsetMessageId, startOffset, endOffset : as in messages.
    startQueueOffset, endQueueOffset, filter : as in messages.
    startTimestamp, endTimestamp, conditions, brokerConf : as in messages; conditions can name column key.
    splitSize, splitBy, mode, checkCrc : as in messages.

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
    Table `messages` with `spark.readStream`: the messages that a broker appends, or that arrive segment by segment.
    Each message is read once, when its record is whole. An offset of the stream is a commit log offset; the messages
    before it were read.

    topic, tag, filter, splitSize, mode, checkCrc : as in messages.
    startingOffsets : the start of a new stream: `earliest` (default), `latest`, or a commit log offset, then the first
        message that starts at or after this offset.
    startingTimestamp : start with the first message that was stored at this time or later; same format as
        startTimestamp.
    maxBytesPerTrigger : the bytes of the log for a batch; the batch has the messages that start in these bytes.
    maxMessagesPerTrigger : the largest number of messages of a batch, counted before options filter them. Both limits
        need Spark 4.2.
    failOnDataLoss : how bytes are handled that are gone before they were read, because their segments expired or are
        missing. `true` (default): the stream stops, and names the range. `false`: the stream continues, and counts them
        in the offset's `lost_bytes`; with mode PERMISSIVE they are also a row with `_corrupt_record`.
    failOnLogCut : how a log is handled whose end was read, and then lost by the broker in a crash; the broker may have
        written other messages at the same offsets. `true`: the stream stops. `false`: the stream goes back to the first
        message that the broker wrote since, so no message is skipped. The default is the value of failOnDataLoss.

    The columns are those of messages. With `Trigger.AvailableNow`, the stream ends where the log ended when the query
    started.

    >>> stream = spark.readStream.format("rocketmq").option("maxBytesPerTrigger", "1g").load(store)
    >>> stream.writeStream.format("delta").option("checkpointLocation", checkpoint).start(table)

    writing
    -------
    `df.write.format("rocketmq").mode(mode).save(store)` makes a store that a broker boots from, out of rows with
    columns of messages: commit log, consume queues, index files, checkpoint and config files. Only column topic is
    required. Rows that have commit_log_offset, queue_id and queue_offset keep these offsets, and the bytes of their
    records as far as the columns tell them (properties_bytes, stored_body, born_timestamp_millis,
    store_timestamp_millis). Other rows are stored in their order, and get new offsets.

    Save mode `append` makes the store, or appends to the store that exists; rows get new offsets then. Save mode
    `overwrite` sets a store that exists aside as `STORE.backup-TIME`; nothing is deleted. The broker must be stopped.
    Spark knows no other mode for this format, and asks for one of the two if none is given. The store appears when it
    is complete; a write that fails changes nothing. `spark_mq.restore` does the same with more cores and machines:
    here, only the rows are encoded by tasks, and one process on the driver's machine does everything else.

    table : `messages`, the only table that can be written.
    path : the store directory, on a local filesystem that all machines of the cluster share, or a new one on S3.
    brokerConf : the file of the broker's settings, for the sizes of its files and its delay levels.
    brokerVersion : such as `5.1.0`, or a line of versions, `4.9` or `5` (default).
    timeZone : the time zone of the names of index files, UTC by default.
    renumber : `true` gives new offsets to rows that have offsets.
    storeHost : HOST:PORT, the address of the broker in all messages. Offset message ids contain it.
    topicMap : new names of topics, `old=new,old2=new2`; only if rows get new offsets.
    offsetMap : the folder for the table of old and new offsets, `STORE_offsets` by default.
    appendId : the identity of an append: if the store has one of this id, nothing is appended.

    >>> rows = spark.sql("SELECT 'orders' AS topic, array('order-1') AS keys, 'paid' AS body")
    >>> rows.write.format("rocketmq").mode("append").save(store)

    consume_queue
    -------------
    One row is a 20-byte unit in the files of a queue; all units that were written have a row. state: LIVE; EXPIRED, the
    segment of the message is gone; PRE_BLANK, the unit is before the queue's first message; STALE, the unit is after
    the queue's end.

    topic, queueId : only this topic; only queues with this id.

    With `enableConsumeQueueExt`, the tags code in a unit is ext_address, the address of an extension unit. Then
    tags_code, ext_store_timestamp and filter_bit_map are those of the extension unit, and NULL if there is none at the
    address.

    Columns: topic STRING, queue_id INT, queue_offset BIGINT, commit_log_offset BIGINT, store_size INT, tags_code
    BIGINT, state STRING, ext_address BIGINT, ext_store_timestamp TIMESTAMP, filter_bit_map BINARY.

    >>> spark.read.format("rocketmq").option("table", "consume_queue").load(store).show()
    +-----------+--------+------------+-----------------+----------+---------+-----+
    |topic      |queue_id|queue_offset|commit_log_offset|store_size|tags_code|state|
    +-----------+--------+------------+-----------------+----------+---------+-----+
    |OrderEvents|0       |0           |216426           |468       |33309882 |LIVE |
    |OrderEvents|0       |1           |220024           |437       |2598919  |LIVE |

    segments
    --------
    One row is a file of the commit log. end_offset is the commit log offset at which its live records end. state: FULL;
    APPENDING, the file contains the live end; BEHIND, the file is after the live end; EMPTY, the file has no byte;
    WRONG_SIZE, most files have another size (a broker does not start with such a file); DAMAGED, the start or the end
    of the file is damaged; STRAY, the file has the name of a segment, but is not a valid segment, and has no offsets.

    problem describes what is wrong with the file, or that files before it are missing, and is NULL if a quick check
    finds nothing. The check covers the first record of each file, the blank at the end of each full file, sizes and
    gaps. Only a read of `messages` or `spark-mq rebuild` finds damage in the middle of a segment.

    Columns: file STRING, commit_log_offset BIGINT, file_size BIGINT, end_offset BIGINT, state STRING,
    first_store_timestamp TIMESTAMP, modification_timestamp TIMESTAMP, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "segments").load(store).show()
    +--------------------+-----------------+----------+-----+-----------------------+
    |file                |commit_log_offset|end_offset|state|first_store_timestamp  |   ...
    +--------------------+-----------------+----------+-----+-----------------------+
    |00000000000000000000|0                |131072    |FULL |2026-11-21 11:00:42.15 |
    |00000000000000131072|131072           |262144    |FULL |2026-11-21 11:01:09.051|

    retention
    ---------
    One row is a segment with live messages. expire_timestamp is when it expires: `fileReservedTime` hours after the
    last change of its file, and not before the segments before it. delete_timestamp is the first time from then on in
    an hour of `deleteWhen`. Both are NULL for the newest segment, which a broker never deletes.
    expire_by_store_timestamp is the same for the store time of the segment's newest message. queue_files and
    index_files are the numbers of files that a broker deletes because the segment is gone, and freed_bytes has the
    bytes of all these files.

    reservedHours : hours for which a segment is kept; by default `fileReservedTime` of `brokerConf`, or else 72.
    at : the time to which is_expired refers, in the forms of startTimestamp; by default now.
    brokerConf : the file of the broker's settings, for `fileReservedTime` and `deleteWhen`.

    Columns: file STRING, commit_log_offset BIGINT, file_size BIGINT, first_store_timestamp TIMESTAMP,
    last_store_timestamp TIMESTAMP, modification_timestamp TIMESTAMP, expire_timestamp TIMESTAMP, delete_timestamp
    TIMESTAMP, expire_by_store_timestamp TIMESTAMP, is_expired BOOLEAN, queue_files BIGINT, index_files BIGINT,
    freed_bytes BIGINT.

    >>> spark.read.format("rocketmq").option("table", "retention").load(store).show()
    +--------------------+-----------------------+----------+-----------+-----------+-----------+
    |file                |expire_timestamp       |is_expired|queue_files|index_files|freed_bytes|   ...
    +--------------------+-----------------------+----------+-----------+-----------+-----------+
    |00000000000000000000|2026-11-24 11:01:08.942|false     |3          |2          |157952     |
    |00000000000000131072|2026-11-24 11:01:15.958|false     |0          |1          |141512     |

    queues
    ------
    One row is a consume queue; offsets are those that a broker offers. state: CAUGHT_UP; BEHIND, units of messages are
    missing at the queue's end; AHEAD, units or a consumer group are past its last message in the log; DAMAGED, the
    queue's files, or its first or last unit, are damaged; LOST, the queue had messages, but has no files.

    problem describes what is wrong with the queue, and is NULL if a quick check finds nothing. The check covers the
    first and the last unit, the names and sizes of the files, the units of the messages in the last 256 KiB of the log,
    and whether a consumer group is past the queue's end. So the check does not notice a missing last unit of an older
    message, nor missing units in the middle of a queue. `spark-mq rebuild` writes all queues from the log. A queue can
    be BEHIND for a moment while its broker runs.

    topic : only this topic.
    brokerVersion : such as `5.1.0`, or a line of versions, `4.9` or `5`; by default the versions that the store's files
        show. 4.9 and 5 offer a different min_offset if a queue starts with pre-blank units.

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
    One row is a topic that `config/topics.json` (or its `.bak`) names, or that has a queue; settings of a topic that is
    not configured are NULL. message_count is the number of messages that the queues offer. problem names the queues of
    the topic that have a problem in table queues; then message_count is not certain.

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
    One row is a consumer group's offset in a queue, from `config/consumerOffset.json` (or its `.bak`). lag is
    max_offset minus consumer_offset. state: IN_RANGE; TOO_SMALL, below min_offset: messages expired before the group
    consumed them; TOO_LARGE, above max_offset; NO_QUEUE, above 0, and the queue does not exist. last_consumed_timestamp
    is the store time of the message before consumer_offset. problem gives the reason if lag is not known, and lag is
    then NULL: the queue does not exist, or ends before consumer_offset, or has a problem in table queues.

    topic, consumerGroup : only this topic; only this consumer group.
    brokerVersion : as in queues.

    Columns: consumer_group STRING, topic STRING, queue_id INT, consumer_offset BIGINT, min_offset BIGINT, max_offset
    BIGINT, lag BIGINT, state STRING, last_consumed_timestamp TIMESTAMP, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "consumer_offsets").load(store).show()
    +-----------------+------------------------+--------+---------------+----------+---+--------+
    |consumer_group   |topic                   |queue_id|consumer_offset|max_offset|lag|state   |   ...
    +-----------------+------------------------+--------+---------------+----------+---+--------+
    |CID_RMQ_SYS_TRANS|RMQ_SYS_TRANS_HALF_TOPIC|0       |36             |39        |3  |IN_RANGE|

    subscription_groups
    -------------------
    One row is a consumer group, from `config/subscriptionGroup.json` (or its `.bak`). A setting that the file does not
    have is NULL: 4.9 has no consume_message_orderly, consume_timeout_minute, group_sys_flag and attributes.

    consumerGroup : only this consumer group.

    Columns: consumer_group STRING, consume_enable BOOLEAN, consume_broadcast_enable BOOLEAN, consume_from_min_enable
    BOOLEAN, consume_message_orderly BOOLEAN, retry_queue_nums INT, retry_max_times INT, consume_timeout_minute INT,
    broker_id BIGINT, which_broker_when_consume_slowly BIGINT, notify_consumer_ids_changed_enable BOOLEAN,
    group_sys_flag INT, attributes MAP<STRING, STRING>.

    >>> spark.read.format("rocketmq").option("table", "subscription_groups").load(store).show()
    +-----------------+--------------+----------------+---------------+
    |consumer_group   |consume_enable|retry_queue_nums|retry_max_times|   ...
    +-----------------+--------------+----------------+---------------+
    |CID_RMQ_SYS_TRANS|true          |1               |16             |

    consumer_filters
    ----------------
    One row is the SQL92 filter of a consumer group for a topic, from `config/consumerFilter.json` (or its `.bak`).
    born_timestamp is when the broker got the expression, and dead_timestamp when the group's last consumer left.
    is_dead: the group has no consumer. A message that was stored after born_timestamp must have the bits bit_positions
    in its filter_bit_map (table consume_queue), else the broker skips it. problem says why a filter does not work, and
    is NULL if nothing was found. Subscriptions to tags are in no file of a store.

    topic, consumerGroup : only this topic; only this consumer group.

    Columns: consumer_group STRING, topic STRING, expression STRING, expression_type STRING, is_dead BOOLEAN,
    born_timestamp TIMESTAMP, dead_timestamp TIMESTAMP, client_version BIGINT, bit_count INT, bit_positions ARRAY<INT>,
    problem STRING.

    >>> spark.read.format("rocketmq").option("table", "consumer_filters").load(store).show()
    +--------------+----------+----------------------------+-------+-------------+
    |consumer_group|topic     |expression                  |is_dead|bit_positions|   ...
    +--------------+----------+----------------------------+-------+-------------+
    |GID_rich      |FilterDemo|price > 50 AND region = 'eu'|true   |[6, 37, 75]  |

    delay_offsets
    -------------
    One row is a delay level, from `config/delayOffset.json` (or its `.bak`). delay_offset is the queue offset, in topic
    SCHEDULE_TOPIC_XXXX, of the next message to deliver; queue_id is the delay level minus 1. lag is max_offset minus
    delay_offset: the number of messages that wait. state and problem: as in consumer_offsets.

    brokerVersion : as in queues.

    Columns: delay_level INT, topic STRING, queue_id INT, delay_offset BIGINT, min_offset BIGINT, max_offset BIGINT, lag
    BIGINT, state STRING, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "delay_offsets").load(store).show()
    +-----------+-------------------+--------+------------+----------+---+--------+
    |delay_level|topic              |queue_id|delay_offset|max_offset|lag|state   |   ...
    +-----------+-------------------+--------+------------+----------+---+--------+
    |1          |SCHEDULE_TOPIC_XXXX|0       |9           |9         |0  |IN_RANGE|

    checkpoint
    ----------
    The file `checkpoint`, one row: the store times up to which the log, the queues and the full index files were
    flushed; NULL if a time was never set. After an unclean stop, a broker dispatches the log again from a segment that
    begins at or before min_timestamp. is_clean: there is no file `abort`. problem describes what is wrong with the
    file, and is NULL if nothing was found.

    Columns: physic_msg_timestamp TIMESTAMP, logics_msg_timestamp TIMESTAMP, index_msg_timestamp TIMESTAMP,
    min_timestamp TIMESTAMP, master_flushed_offset BIGINT, confirm_phy_offset BIGINT, logics_physical_offset BIGINT,
    is_clean BOOLEAN, problem STRING.

    >>> spark.read.format("rocketmq").option("table", "checkpoint").load(store).show()
    +-----------------------+-----------------------+--------+-------+
    |physic_msg_timestamp   |logics_msg_timestamp   |is_clean|problem|   ...
    +-----------------------+-----------------------+--------+-------+
    |2026-11-21 11:01:48.993|2026-11-21 11:01:48.993|true    |NULL   |

    transactions
    ------------
    One row is a transaction: a half message, its copies, and what became of it. state: PENDING, the broker asks the
    producer; COMMITTED and ROLLED_BACK, the producer decided; DISCARDED, the broker gave up, and stored the message in
    TRANS_CHECK_MAX_TIME_TOPIC; UNKNOWN, and reason says what is missing: damage, expired copies, files of `config/`.
    topic and queue_id are those for which the message was sent. checks is TRANSACTION_CHECK_TIMES of the newest copy.
    age_millis is the time from born_timestamp to end_timestamp, the store time of the message that ended the
    transaction, or else to `at`. next_check_timestamp is the earliest time of the next step of a PENDING transaction,
    and next_step is CHECK or DISCARD. half_offsets, op_offsets, commit_offsets and discard_offset are the commit log
    offsets of all copies of the half message, of the op messages that name one of them, of the committed message, and
    of the discarded one. An op message whose half message has expired gives no row. One task reads the whole log.

    at : the time to which age_millis refers, in the forms of startTimestamp; by default now.
    brokerConf : the file of the broker's settings, for `transactionTimeOut`, `transactionCheckInterval`,
        `transactionCheckMax` and `fileReservedTime`.
    brokerVersion : as in queues; versions before 5.1.1 have another default of `transactionCheckInterval`.

    Columns: unique_key STRING, topic STRING, queue_id INT, producer_group STRING, state STRING, reason STRING, checks
    INT, born_timestamp TIMESTAMP, end_timestamp TIMESTAMP, age_millis BIGINT, next_check_timestamp TIMESTAMP, next_step
    STRING, half_queue_id INT, half_queue_offsets ARRAY<BIGINT>, half_offsets ARRAY<BIGINT>, op_offsets ARRAY<BIGINT>,
    commit_offsets ARRAY<BIGINT>, discard_offset BIGINT.

    >>> spark.read.format("rocketmq").option("table", "transactions").load(store).show()
    +---------------+---------+------+------------------+--------------+
    |topic          |state    |checks|half_queue_offsets|commit_offsets|   ...
    +---------------+---------+------+------------------+--------------+
    |TransactionDemo|COMMITTED|0     |[0]               |[128985]      |
    |TransactionDemo|DISCARDED|2     |[4, 22, 32]       |[]            |

    delayed
    -------
    One row is a delayed message: of a delay level (SCHEDULE_TOPIC_XXXX), or of the timer of 5.x (rmq_sys_wheel_timer).
    state: WAITING; DELIVERED, the delivered message is in the log; OVERDUE, it is due and not delivered; CANCELLED, a
    message with TIMER_DEL_UNIQKEY cancels it; UNKNOWN, and reason says what is missing. topic and queue_id are those to
    which the message is delivered. delayed_by: DELAY_LEVEL or TIMER. due_timestamp of a timer is TIMER_OUT_MS; a broker
    delivers the message up to one second later. waiting_offsets are the commit log offsets of the message and of its
    rolls (a timer stores a message again whose time is far away), and slot_timestamp is when the timer takes the newest
    of them. delivered_offsets has several offsets if the broker delivered the message again after it was killed. A
    message that cancels another has no row. One task reads the whole log.

    at : the time at which messages are due or not, in the forms of startTimestamp; by default now.
    brokerConf : the file of the broker's settings, for `messageDelayLevel`, if the consume queue is lost.

    Columns: unique_key STRING, topic STRING, queue_id INT, state STRING, reason STRING, delayed_by STRING, delay_level
    INT, due_timestamp TIMESTAMP, delivered_timestamp TIMESTAMP, rolls INT, born_timestamp TIMESTAMP, store_timestamp
    TIMESTAMP, waiting_queue_id INT, waiting_queue_offsets ARRAY<BIGINT>, waiting_offsets ARRAY<BIGINT>, slot_timestamp
    TIMESTAMP, delivered_offsets ARRAY<BIGINT>, cancel_offset BIGINT.

    >>> spark.read.format("rocketmq").option("table", "delayed").load(store).show()
    +---------+---------+-----------+-----------+-----------------------+-----------------+
    |topic    |state    |delayed_by |delay_level|due_timestamp          |delivered_offsets|   ...
    +---------+---------+-----------+-----------+-----------------------+-----------------+
    |DelayDemo|DELIVERED|DELAY_LEVEL|1          |2026-11-21 11:01:10.256|[165335]         |
    |TimerDemo|WAITING  |TIMER      |NULL       |2026-11-21 12:01:09    |[]               |

    index_files
    -----------
    One row is the header of an index file, oldest first.

    brokerConf : the file of the broker's settings, for `maxHashSlotNum` and `maxIndexNum`. Required if these are not
        the broker's defaults, because an index file does not contain them.

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
    One row is an entry of an index file. `entry` is the number of the entry, `time_difference` is in whole seconds
    after the file's begin_timestamp, and `previous_entry` is the number of the entry before it in the same slot, 0 if
    there is none.

    brokerConf : as in index_files.

    Columns: file STRING, entry INT, key_hash INT, commit_log_offset BIGINT, time_difference INT, previous_entry INT.

    >>> spark.read.format("rocketmq").option("table", "index_entries").load(store).show()
    +-----------------+-----+----------+-----------------+---------------+--------------+
    |file             |entry|key_hash  |commit_log_offset|time_difference|previous_entry|
    +-----------------+-----+----------+-----------------+---------------+--------------+
    |20261121110042164|1    |547811466 |0                |0              |0             |
    |20261121110042164|2    |1771066142|0                |0              |0             |

    consumer_progress
    -----------------
    One row is a consumer group in a topic: topics in which it has an offset (`config/consumerOffset.json`), and its
    retry topics. state: CAUGHT_UP; LAGGING; NO_OFFSET, the group has no offset in the topic; UNKNOWN, reason says why,
    and lag is NULL. lag is max offset minus consumer offset, in the queues that consumers can read (`readQueueNums`),
    and 0 stands for a missing offset, as in `mqadmin consumerProgress`. As there, a message that a group popped
    counts as consumed, whether the group acknowledged it or not. expired_messages is the part of lag that the store
    no longer has. lag_millis is the age of the oldest message that is not consumed, of which oldest_queue_id,
    oldest_queue_offset, oldest_commit_log_offset and oldest_store_timestamp say where it is. group_retries is the
    number of messages in all retry topics of the group that it has not consumed, group_dead_letters that of its
    dead letters; NULL if not known.

    topic, consumerGroup : only this topic; only this consumer group.
    at : the time to which lag_millis refers, in the forms of startTimestamp; by default now.
    brokerVersion : as in queues.

    Columns: consumer_group STRING, topic STRING, state STRING, lag BIGINT, lag_millis BIGINT, expired_messages BIGINT,
    queue_count INT, queues_without_offset INT, too_small_offsets INT, too_large_offsets INT, last_consumed_timestamp
    TIMESTAMP, oldest_queue_id INT, oldest_queue_offset BIGINT, oldest_commit_log_offset BIGINT, oldest_store_timestamp
    TIMESTAMP, group_retries BIGINT, group_dead_letters BIGINT, reason STRING.

    >>> spark.read.format("rocketmq").option("table", "consumer_progress").load(store).show()
    +--------------+---------+---------+---+----------+-------------+------------------+
    |consumer_group|topic    |state    |lag|lag_millis|group_retries|group_dead_letters|   ...
    +--------------+---------+---------+---+----------+-------------+------------------+
    |GID_failing   |RetryDemo|CAUGHT_UP|0  |0         |0            |5                 |

    retries
    -------
    One row is an attempt to consume a message that a consumer group returned. attempt is the number of the retry, from
    1 on. delay_commit_log_offset and delay_store_timestamp are those of the copy that waits in SCHEDULE_TOPIC_XXXX,
    due_timestamp is when its delay ends, and retry_queue_id, retry_queue_offset, retry_commit_log_offset and
    retry_store_timestamp are those of the copy in the retry topic. origin_topic, origin_message_id and
    origin_commit_log_offset are those of the message that was returned first.

    state: WAITING, the copy is not due yet; OVERDUE, it is due, and was not delivered; READY, it is in the retry topic,
    and the group's offset there is not past it; CONSUMED, the offset is past it, and the group did not return it again;
    RETRIED, there is a later attempt; DEAD, the message is in the dead letter topic; POPPED, the offset is past it
    because the group popped it, and the notes of the broker show that it has not acknowledged it; UNKNOWN, reason says
    why. final_state is the state of the message's last attempt.

    consumerGroup : only this consumer group.
    at : the time to which WAITING and OVERDUE refer, in the forms of startTimestamp; by default now.

    Columns: consumer_group STRING, retry_topic STRING, attempt INT, retry_max_times INT, state STRING, final_state
    STRING, delay_level INT, due_timestamp TIMESTAMP, unique_key STRING, origin_topic STRING, origin_message_id STRING,
    origin_commit_log_offset BIGINT, delay_commit_log_offset BIGINT, delay_store_timestamp TIMESTAMP, retry_queue_id
    INT, retry_queue_offset BIGINT, retry_commit_log_offset BIGINT, retry_store_timestamp TIMESTAMP, reason STRING.

    >>> spark.read.format("rocketmq").option("table", "retries").load(store).show()
    +--------------+-------+-------+-----------+-----------------------+------------+
    |consumer_group|attempt|state  |final_state|due_timestamp          |origin_topic|   ...
    +--------------+-------+-------+-----------+-----------------------+------------+
    |GID_failing   |1      |RETRIED|DEAD       |2026-11-21 11:01:11.232|RetryDemo   |
    |GID_failing   |2      |DEAD   |DEAD       |2026-11-21 11:01:31.232|RetryDemo   |

    dead_letters
    ------------
    One row is a message of a dead letter topic, `%DLQ%GROUP`. reconsume_times is how often it was consumed in vain, and
    retries_found the number of its retries that the log has: fewer if some expired. origin_topic, origin_message_id and
    origin_commit_log_offset are those of the message that was returned first.

    consumerGroup : only this consumer group.

    Columns: consumer_group STRING, topic STRING, queue_id INT, queue_offset BIGINT, commit_log_offset BIGINT,
    store_timestamp TIMESTAMP, reconsume_times INT, retries_found BIGINT, tags STRING, unique_key STRING, origin_topic
    STRING, origin_message_id STRING, origin_commit_log_offset BIGINT.

    >>> spark.read.format("rocketmq").option("table", "dead_letters").load(store).show()
    +--------------+---------------+-------------+------------+------------------------+
    |consumer_group|reconsume_times|retries_found|origin_topic|origin_commit_log_offset|   ...
    +--------------+---------------+-------------+------------+------------------------+
    |GID_failing   |3              |2            |RetryDemo   |143685                  |

    traces
    ------
    One row is an event that a client with message trace wrote. event_type: Pub, a message was sent; SubBefore and
    SubAfter, a consumer group began and ended to consume it, with the same request_id; EndTransaction; Recall. topic,
    unique_key, tags, keys and body_length are those of the traced message; commit_log_offset, queue_id, queue_offset,
    store_timestamp and born_host those of the trace message. A value that the client did not have is NULL; events of
    older clients have fewer. An event that cannot be read has only a problem.

    topic : the trace topic, by default RMQ_SYS_TRACE_TOPIC.

    Columns: event_number INT, event_type STRING, event_timestamp TIMESTAMP, group_name STRING, topic STRING, unique_key
    STRING, tags STRING, keys ARRAY<STRING>, is_success BOOLEAN, cost_millis INT, retry_times INT, return_type STRING,
    message_type STRING, body_length INT, offset_message_id STRING, store_host STRING, client_host STRING, region_id
    STRING, request_id STRING, transaction_id STRING, transaction_state STRING, is_from_check BOOLEAN, problem STRING,
    commit_log_offset BIGINT, queue_id INT, queue_offset BIGINT, store_timestamp TIMESTAMP, born_host STRING.

    >>> spark.read.format("rocketmq").option("table", "traces").load(store).show()
    +----------+-----------------------+----------+---------+----------+-----------+
    |event_type|event_timestamp        |group_name|topic    |is_success|cost_millis|   ...
    +----------+-----------------------+----------+---------+----------+-----------+
    |Pub       |2026-11-23 04:09:46.658|PID_traced|TraceDemo|true      |12         |

    duplicates
    ----------
    One row is a copy of a message whose unique key the log has more than once; copy_number is its number from 0 on, of
    copy_count. cause: SENT, a producer sent it; RESENT, a producer sent it again; BATCH, another message of the same
    batch, to whose messages 5.3.3 gives one unique key; DELAY_DELIVERY, the delayed message was delivered; TIMER_ROLL,
    a timer was written again; RECALL, a message that cancels a timer; COMMIT, the transaction was committed; CHECK, the
    half message was written again for a check; DISCARD, the broker gave up checking; RETRY, a consumer group returned
    it; DEAD_LETTER, it did so too often. The log is read twice.

    Columns: unique_key STRING, copy_number INT, copy_count INT, cause STRING, topic STRING, queue_id INT, queue_offset
    BIGINT, commit_log_offset BIGINT, store_size INT, born_timestamp TIMESTAMP, store_timestamp TIMESTAMP,
    reconsume_times INT.

    >>> spark.read.format("rocketmq").option("table", "duplicates").load(store).show()
    +-----------+----------+--------------+------------------------+------------+
    |copy_number|copy_count|cause         |topic                   |queue_offset|   ...
    +-----------+----------+--------------+------------------------+------------+
    |0          |2         |SENT          |RMQ_SYS_TRANS_HALF_TOPIC|0           |
    |1          |2         |COMMIT        |TransactionDemo         |0           |

    hot_keys
    --------
    One row is a key, one of property KEYS, in a topic: the 1,000 keys of most messages, and the 1,000 of most bytes,
    the most messages first. The broker's own topics do not count, except one that is given.

    topic : only this topic.

    Columns: topic STRING, key STRING, message_count BIGINT, log_bytes BIGINT, first_store_timestamp TIMESTAMP,
    last_store_timestamp TIMESTAMP.

    >>> spark.read.format("rocketmq").option("table", "hot_keys").load(store).show()
    +-----------+-------+-------------+---------+
    |topic      |key    |message_count|log_bytes|   ...
    +-----------+-------+-------------+---------+
    |DirectTopic|shared |96           |13824    |
    |DirectTopic|direct0|16           |2304     |

    rates
    -----
    One row is the messages of a topic with one tag in one minute of their store times. tags is NULL for messages
    without a tag. All messages of the log count: a delayed message in SCHEDULE_TOPIC_XXXX, and in its topic when it was
    delivered.

    topic : only this topic.

    Columns: topic STRING, tags STRING, minute TIMESTAMP, message_count BIGINT, log_bytes BIGINT.

    >>> spark.read.format("rocketmq").option("table", "rates").load(store).show()
    +-----------------+----+-------------------+-------------+---------+
    |topic            |tags|minute             |message_count|log_bytes|
    +-----------------+----+-------------------+-------------+---------+
    |%DLQ%GID_failing |Aa  |2026-11-21 11:01:00|2            |1092     |

    skew
    ----
    One row is the messages of a queue in one minute of their store times. A born host is an address without its port:
    born_host_count is the number of different ones, top_born_host the one of most messages, and top_born_host_messages
    their number. All messages of the log count; a queue without a message in a minute has no row.

    topic : only this topic.

    Columns: topic STRING, queue_id INT, minute TIMESTAMP, message_count BIGINT, log_bytes BIGINT, born_host_count
    BIGINT, top_born_host STRING, top_born_host_messages BIGINT.

    >>> spark.read.format("rocketmq").option("table", "skew").option("topic", "OrderEvents").load(store).show()
    +-----------+--------+-------------------+-------------+---------+
    |topic      |queue_id|minute             |message_count|log_bytes|   ...
    +-----------+--------+-------------------+-------------+---------+
    |OrderEvents|0       |2026-11-21 11:01:00|62           |25476    |

    """

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "rocketmq"

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
        names = column_names(Table.MESSAGES, schema)
        if choice.is_of_several or names_store(names):
            from spark_mq.source.several_stores_stream import SeveralStoresStreamReader

            return SeveralStoresStreamReader.of(choice, names)
        from spark_mq.source.message_stream import MessagesStreamReader

        return MessagesStreamReader(parse_stream_options(self.options), names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a DataFrame. Raises `OptionError` for invalid options, and the errors of `store_writer`."""
        from spark_mq.restorer.writer import store_writer

        return store_writer(parse_write_options(self.options), schema, overwrite)


def _reader(options: ReadOptions, names: list[str]) -> DataSourceReader:
    """The batch reader of a table of one store."""
    if options.table == Table.MESSAGES:
        return MessagesReader(options, names)
    if options.table == Table.MESSAGES_BY_KEY:
        return MessagesByKeyReader(options, names)
    return _reader_of_table(options, names)


def _reader_of_table(options: ReadOptions, names: list[str]) -> DataSourceReader:
    """The reader of another table; imported here, because most workers plan reads of messages."""
    if options.table == Table.CONSUME_QUEUE:
        from spark_mq.source.consume_queue import ConsumeQueueReader

        return ConsumeQueueReader(options, names)
    if options.table == Table.INDEX_ENTRIES:
        from spark_mq.source.index_entries import IndexEntriesReader

        return IndexEntriesReader(options, names)
    from spark_mq.source.metadata_tables import MetadataTableReader

    return MetadataTableReader(options, names)


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
