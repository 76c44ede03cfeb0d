"""Tables that count messages."""

from __future__ import annotations

from spark_mq.tables.common import TOPIC
from spark_mq.tables.table import Column, Option, Table

DUPLICATES = Table(
    "duplicates",
    summary="the copies of messages that are stored more than once, and why",
    row="a copy of a message whose unique key the log has more than once, and why it was stored",
    about="""\
cause: SENT, a producer sent it; RESENT, a producer sent it again; BATCH, another message of the same batch, to
whose messages 5.3.3 gives one unique key; DELAY_DELIVERY, the delayed message was delivered; TIMER_ROLL, a timer
was written again; RECALL, a message that cancels a timer; COMMIT, the transaction was committed; CHECK, the half
message was written again for a check; DISCARD, the broker gave up checking; RETRY, a consumer group returned it;
DEAD_LETTER, it did so too often. The log is read twice.
""",
    columns=(
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)", 1),
        Column("copy_number", "INT", "the number of the copy, from 0 on", 2),
        Column("copy_count", "INT", "the number of copies"),
        Column("cause", "STRING", "why the copy was stored; help(spark_mq.RocketMQDataSource) explains the values", 3),
        Column("topic", "STRING", "the topic", 4),
        Column("queue_id", "INT", "the queue of the topic", 5),
        Column("queue_offset", "BIGINT", "the offset in the queue", 6),
        Column("commit_log_offset", "BIGINT", "the commit log offset at which the message starts"),
        Column("store_size", "INT", "bytes of the record"),
        Column("born_timestamp", "TIMESTAMP", "the time at which the producer made the message"),
        Column("store_timestamp", "TIMESTAMP", "the time at which the broker stored the message", 7),
        Column("reconsume_times", "INT", "how often a consumer asked for the message again"),
    ),
    rows="spark_mq.lifecycle.statistics.duplicates.duplicates_rows",
    archived_rows="spark_mq.archive.lifecycle.statistics.duplicates_of",
    command="duplicates",
    noun="duplicate",
    example="""\
+-----------+----------+--------------+------------------------+------------+
|copy_number|copy_count|cause         |topic                   |queue_offset|   ...
+-----------+----------+--------------+------------------------+------------+
|0          |2         |SENT          |RMQ_SYS_TRANS_HALF_TOPIC|0           |
|1          |2         |COMMIT        |TransactionDemo         |0           |
""",
)

HOT_KEYS = Table(
    "hot_keys",
    summary="the keys of most messages and bytes",
    row="a key, one of property KEYS, in a topic: one of the keys of most messages, or of most bytes",
    about="""\
The keys of most messages are the first rows. A message counts once for a key that it has twice. The broker's own
topics do not count, except one that is given.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("key", "STRING", "one key of the message", 2),
        Column("message_count", "BIGINT", "the number of messages that have the key", 3),
        Column("log_bytes", "BIGINT", "bytes of the records", 4),
        Column("first_store_timestamp", "TIMESTAMP", "the store time of the first message", 6),
        Column("last_store_timestamp", "TIMESTAMP", "the store time of the last message", 5),
    ),
    options=(
        Option("topic", "only keys of this topic, which can be one of the broker's own", "TOPIC"),
        Option("mostKeys", "how many keys of most messages, and of most bytes, 1,000 by default; 0 is all keys", "N"),
    ),
    rows="spark_mq.lifecycle.statistics.hot_keys.hot_keys_rows",
    archived_rows="spark_mq.archive.lifecycle.statistics.hot_keys_of",
    command="hot-keys",
    noun="key",
    example="""\
+-----------+-------+-------------+---------+
|topic      |key    |message_count|log_bytes|   ...
+-----------+-------+-------------+---------+
|DirectTopic|shared |96           |13824    |
|DirectTopic|direct0|16           |2304     |
""",
)

RATES = Table(
    "rates",
    summary="the messages and bytes of each topic, tag and minute",
    row="messages and bytes of a topic, a tag and a minute of store times",
    about="""\
tags is NULL for messages without a tag, and minute for a store time outside of years 1 to 9999. All messages of the
log count: a delayed message in SCHEDULE_TOPIC_XXXX, and in its topic when it was delivered.
""",
    columns=(
        Column("topic", "STRING", "the topic", 2),
        Column("tags", "STRING", "property TAGS", 3),
        Column("minute", "TIMESTAMP", "the beginning of the minute of the store time", 1),
        Column("message_count", "BIGINT", "the number of messages", 4),
        Column("log_bytes", "BIGINT", "bytes of the records", 5),
    ),
    options=(TOPIC,),
    rows="spark_mq.lifecycle.statistics.rates.rates_rows",
    archived_rows="spark_mq.archive.lifecycle.statistics.rates_of",
    command="rates",
    noun="message",
    example="""\
+-----------------+----+-------------------+-------------+---------+
|topic            |tags|minute             |message_count|log_bytes|
+-----------------+----+-------------------+-------------+---------+
|%DLQ%GID_failing |Aa  |2026-11-21 11:01:00|2            |1092     |
""",
)

SKEW = Table(
    "skew",
    summary="the messages, bytes and born hosts of each queue and minute",
    row="messages, bytes and born hosts of a queue and a minute of store times",
    about="""\
A born host is an address without its port; of equal ones, top_born_host is the first by its text. All messages of
the log count; a queue without a message in a minute has no row.
""",
    columns=(
        Column("topic", "STRING", "the topic", 2),
        Column("queue_id", "INT", "the queue of the topic", 3),
        Column("minute", "TIMESTAMP", "the beginning of the minute of the store time", 1),
        Column("message_count", "BIGINT", "the number of messages", 4),
        Column("log_bytes", "BIGINT", "bytes of the records", 5),
        Column("born_host_count", "BIGINT", "the number of addresses that sent the messages", 6),
        Column("top_born_host", "STRING", "the address that sent most of them", 7),
        Column("top_born_host_messages", "BIGINT", "the number of messages from that address", 8),
    ),
    options=(TOPIC,),
    rows="spark_mq.lifecycle.statistics.skew.skew_rows",
    archived_rows="spark_mq.archive.lifecycle.statistics.skew_of",
    command="skew",
    noun="message",
    example="""\
>>> spark.read.format("rocketmq").option("table", "skew").option("topic", "OrderEvents").load(store).show()
+-----------+--------+-------------------+-------------+---------+
|topic      |queue_id|minute             |message_count|log_bytes|   ...
+-----------+--------+-------------------+-------------+---------+
|OrderEvents|0       |2026-11-21 11:01:00|62           |25476    |
""",
)
