"""The messages of a store, and the keys of messages."""

from __future__ import annotations

from spark_mq.tables.table import TOPIC, Column, Option, Table, options

_OPTIONS = options("""
    topic  only messages of this topic. If it has a small part of the log, its messages are found by consume queues,
        and only those parts of the log are scanned whose messages are not in queues
    queueId  only messages of queues with this id
    tag  only messages with these tags: `paid`, or one of several, `paid || shipped`
    key  only messages that have this key, as one of KEYS or as unique key. If `topic` is given too, the reader finds
        them in the index files, and reads only the parts of the log that no index file covers. Without `topic`, every
        topic that has a queue is looked up, and the parts of the log are read whose messages are in no queue; if that
        costs as much as reading the log, the log is read. The index does not contain messages of transaction type
        ROLLBACK, so such messages are never found by key
    uniqueKey  only messages that have this unique key; read in the same way as `key`
    offsetMessageId  only the message that has this offset message id, which consists of a store host and a commit log
        offset. An id of another broker finds nothing. In a store that moved, find the message by `startOffset` and
        `endOffset`
    startOffset  only rows at this commit log offset or after it
    endOffset  only rows at this commit log offset or before it
    startQueueOffset  only messages at this queue offset or after it. If `topic` and `queueId` are given too, and the
        range has at most 65,536 offsets, the reader finds the messages by the units of the queue. The part of the log
        before the queue's first message is read too, unless all units account for it, because a deleted topic can have
        had the same name. Queues do not contain messages of transaction types PREPARED and ROLLBACK
    endQueueOffset  only messages at this queue offset or before it
    startTimestamp  only messages that were stored at this time or after it: epoch milliseconds, ISO 8601 with a zone,
        or a time as the commands print it. Epoch seconds are an error. Segments and splits outside of the range are
        not read
    endTimestamp  only messages that were stored at this time or before it
    filter  only messages for which this SQL92 expression of RocketMQ is TRUE, such as `price > 5 AND region = 'eu'`.
        `spark_mq.filters` explains the expressions, which are not Spark SQL. Damage has no row then
    conditions  conditions as JSON, which `spark_mq.sql` writes: `[["topic", "in", ["orders"]]]`, with in, <, <=, > and
        >= for the columns topic, queue_id, tags, unique_key, offset_message_id, commit_log_offset, queue_offset,
        store_timestamp and transaction_type
    brokerConf FILE  the file of the broker's settings, for maxHashSlotNum and maxIndexNum. Without it, index files that
        do not have the default size are not used
    splitSize  bytes of the log that one task reads, `128m` by default
    splitBy  `queue` gives each queue of the topic to one partition, whose rows are in the order of the queue (`log` by
        default: parts of the log). `topic` is needed. Messages of transaction types PREPARED and ROLLBACK are in no
        queue: they are among the rows of the queue id that they have, at their places in the log. If the log has a
        message twice, both rows are there. If units do not account for much of the log, and with mode FAILFAST, all
        queues are in one partition
    mode  how damage is handled. PERMISSIVE (default): a corrupt range is a row with commit_log_offset, store_size and
        `_corrupt_record`. DROPMALFORMED: it has no row. FAILFAST: it is an error with file and offset. Bytes between
        two segments that no segment has are one row; if they are more than fit in an INT, store_size is NULL, and
        `_corrupt_record` has the length. A file with the name of a segment that is not a valid segment (a copy under
        another name) is a row without commit_log_offset and store_size, because its name is not an offset of the log.
        A message whose body cannot be read (it does not decompress, or has a wrong CRC) is a row in modes PERMISSIVE
        and DROPMALFORMED: body is NULL, and `_corrupt_record` has the reason. So the columns that a query reads never
        change its rows
    checkCrc  `true` checks the CRCs of messages, `false` by default: the CRC of the body (reason `BODY_CRC`, body
        NULL) and, if the broker added one (`enabledAppendPropCRC`), of the whole record (reason `PROPERTIES_CRC`).
        FAILFAST checks every message that is read. The other modes check only if the query reads body or
        `_corrupt_record`
""")

UNWRAP_BATCHES = Option(
    "unwrapBatches",
    "`true` gives a row for each message of an inner batch, as a consumer gets them; `false` by default: a row for the "
    "record. A topic with `queue.type=BatchCQ` has such records. A message has a queue offset, body, body_crc, flag "
    "and properties of its own; commit_log_offset, offset_message_id and store_size are those of the record. A body "
    "that is not a batch, or has a wrong CRC, stays the one row of its record. Look-ups by key or offset read the log",
)

TIERED_STORAGE = Option(
    "tieredStorage",
    "the folder of tiered storage, tieredStoreFilePath of a broker with TieredMessageStore. In `messages`, the "
    "messages that only tiered storage has are rows, too, so each queue offset is there once: if both have it, the row "
    "is the store's. Such rows have no commit_log_offset and no offset_message_id: they are not in the commit log",
    "DIR",
)

MESSAGES = Table(
    "messages",
    summary="the messages of the commit log",
    row="a message of the commit log, with every field of the record and the decompressed body",
    about="""\
encoded_body is the stored body if body differs from it, because the stored body is compressed or cannot be read;
else NULL. If the last record of the log is not whole or has a wrong CRC, the log ends before it: the broker may
still be writing it.
""",
    columns=(
        Column("commit_log_offset", "BIGINT", "the commit log offset at which the message starts"),
        Column("store_size", "INT", "bytes of the record"),
        Column("offset_message_id", "STRING", "the id that a broker makes of its address and the commit log offset"),
        Column("topic", "STRING", "the topic"),
        Column("queue_id", "INT", "the queue of the topic"),
        Column("queue_offset", "BIGINT", "the offset in the queue"),
        Column("tags", "STRING", "property TAGS"),
        Column("keys", "ARRAY<STRING>", "property KEYS, split at spaces"),
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)"),
        Column("flag", "INT", "the producer's flag"),
        Column("sys_flag", "INT", "the broker's flags: compression, transaction type, IPv6 addresses"),
        Column("transaction_type", "STRING", "NONE, PREPARED, COMMIT or ROLLBACK"),
        Column("born_timestamp", "TIMESTAMP", "the time at which the producer made the message"),
        Column("born_host", "STRING", "the producer's address"),
        Column("store_timestamp", "TIMESTAMP", "the time at which the broker stored the message"),
        Column("store_host", "STRING", "the broker's address"),
        Column("reconsume_times", "INT", "how often a consumer asked for the message again"),
        Column("prepared_transaction_offset", "BIGINT", "of a transaction: the commit log offset of its half message"),
        Column("body_crc", "INT", "the CRC-32 of the stored body"),
        Column("body", "BINARY", "the body, decompressed"),
        Column("properties", "MAP<STRING, STRING>", "all properties"),
        Column("_corrupt_record", "STRING", "the problem of a damaged record, else NULL"),
        Column("born_timestamp_millis", "BIGINT", "born_timestamp, milliseconds since 1970", is_extra=True),
        Column("store_timestamp_millis", "BIGINT", "store_timestamp, milliseconds since 1970", is_extra=True),
        Column("properties_bytes", "BINARY", "the bytes of all properties", is_extra=True),
        Column("stored_body", "BINARY", "the body as it is stored, perhaps compressed", is_extra=True),
        Column("encoded_body", "BINARY", "the stored body if body differs from it", is_extra=True),
    ),
    options=(*_OPTIONS, UNWRAP_BATCHES, TIERED_STORAGE),
    example="""\
>>> spark.read.format("rocketmq").option("topic", "OrderEvents").load(store).show()
+-----------------------+--------+------------+----+----------------------+
|store_timestamp        |queue_id|queue_offset|tags|keys                  |   ...
+-----------------------+--------+------------+----+----------------------+
|2026-11-21 11:01:15.682|1       |0           |BB  |[user53, ORD-20, Aa35]|
|2026-11-21 11:01:15.706|3       |0           |TagA|NULL                  |
""",
)

_SHARED = ("filter", "conditions", "splitSize", "mode", "checkCrc")
OF_QUEUE_LOGS = (
    TOPIC,
    Option("queueId", "only queues with this id", column="queue_id"),
    *(option for option in MESSAGES.options if option.name in _SHARED),
)
"""The options of tables whose records are in logs of single queues."""

MESSAGES_BY_KEY = Table(
    "messages_by_key",
    summary="the keys of messages, each with its message; the index files find a key of a topic",
    row="a key of a message, with the message; the index files find it",
    about="""\
Each distinct key of a message has one row. Messages without keys, messages of transaction type ROLLBACK, and damage
have no row. The options are those of messages; `key` gives only rows of this key, and `conditions` can name column
key.
""",
    columns=(
        Column("key", "STRING", "one key of the message"),
        Column("key_type", "STRING", "KEYS or UNIQ_KEY: the property that has the key"),
        *MESSAGES.columns,
    ),
    options=_OPTIONS,
    example="""\
>>> keys = spark.read.format("rocketmq").option("table", "messages_by_key")
>>> keys.options(topic="OrderEvents", key="ORD-20").load(store).show()
+------+--------+-----------+--------+------------+----+----------------------+
|key   |key_type|topic      |queue_id|queue_offset|tags|keys                  |   ...
+------+--------+-----------+--------+------------+----+----------------------+
|ORD-20|KEYS    |OrderEvents|1       |0           |BB  |[user53, ORD-20, Aa35]|
""",
)

STREAM_OPTIONS = options("""
    startingOffsets  the start of a new stream: `earliest` (default), `latest`, or a commit log offset, then the first
        message that starts at or after this offset
    startingTimestamp  start with the first message that was stored at this time or later; same format as
        `startTimestamp`
    maxBytesPerTrigger  the bytes of the log for a batch; the batch has the messages that start in these bytes. Needs
        Spark 4.2
    maxMessagesPerTrigger  the largest number of messages of a batch, counted before options filter them. Needs Spark
        4.2
    failOnDataLoss  how bytes are handled that are gone before they were read, because their segments expired or are
        missing. `true` (default): the stream stops, and names the range. `false`: the stream continues, and counts
        them in the offset's `lost_bytes`; with mode PERMISSIVE they are also a row with `_corrupt_record`
    failOnLogCut  how a log is handled whose end was read, and then lost by the broker in a crash; the broker may have
        written other messages at the same offsets. `true`: the stream stops. `false`: the stream goes back to the
        first message that the broker wrote since, so no message is skipped. The default is the value of
        `failOnDataLoss`
""")
"""The options of a stream that a batch read does not have."""
READ_OPTIONS_OF_STREAMS = ("topic", "tag", "filter", "splitSize", "mode", "checkCrc")
"""The options of a batch read that a stream has, too."""

QUEUE_SELECTOR = Option(
    "queueSelector",
    "`queue_id` (default): the queue that column `queue_id` names; a row without one goes by the hash of its sharding "
    "key, as `SelectMessageQueueByHash` does, and a row without that in turn. `sharding_key`: queue ids are ignored. "
    "`round_robin`: both are",
)
"""The option of writes, to a store and to a live cluster."""
WRITE_OPTIONS = (
    *options("""
        path  the store directory, on a local filesystem that all machines of the cluster share, or a new one on S3
        table  `messages`, the only table that can be written
        brokerConf  the file of the broker's settings, for the sizes of its files and its delay levels
        brokerVersion  such as `5.1.0`, or a line of versions, `4.9` or `5` (default)
        timeZone  the time zone of the names of index files, UTC by default
        renumber  `true` gives new offsets to rows that have offsets
    """),
    QUEUE_SELECTOR,
    *options("""
        storeHost  HOST:PORT, the address of the broker in all messages. Offset message ids contain it
        topicMap  new names of topics, `old=new,old2=new2`; only if rows get new offsets
        offsetMap  the folder for the table of old and new offsets, `STORE_offsets` by default
        appendId  the identity of an append: if the store has one of this id, nothing is appended
    """),
)
