"""What messages mean: transactions, delays, what consumers did, traces; and tables that count messages."""

from __future__ import annotations

from spark_mq.tables.table import BROKER_VERSION, CONSUMER_GROUP, TOPIC, Column, Option, Table, at, broker_conf

TRANSACTIONS = Table(
    "transactions",
    summary="the transactions: what became of each half message",
    row=(
        "a transaction: committed, rolled back, discarded, or pending and checked how often; where its half "
        "messages are"
    ),
    about="""\
state: PENDING, the broker asks the producer; COMMITTED and ROLLED_BACK, the producer decided; DISCARDED, the broker
gave up, and stored the message in TRANS_CHECK_MAX_TIME_TOPIC; UNKNOWN, and reason says what is missing: damage,
expired copies, files of `config/`. An op message whose half message has expired gives no row. One task reads the
whole log.
""",
    columns=(
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)", 1),
        Column("topic", "STRING", "the topic for which the message was sent", 3),
        Column("queue_id", "INT", "the queue for which the message was sent", 17),
        Column("producer_group", "STRING", "the producer group, which the broker asks about the transaction", 9),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 2),
        Column("reason", "STRING", "what is missing if the state is UNKNOWN, else NULL", 6),
        Column("checks", "INT", "property TRANSACTION_CHECK_TIMES of the newest copy of the half message", 4),
        Column("born_timestamp", "TIMESTAMP", "the time at which the producer made the message", 10),
        Column("end_timestamp", "TIMESTAMP", "the store time of the message that ended the transaction", 11),
        Column("age_millis", "BIGINT", "milliseconds from born_timestamp to end_timestamp, or to option at", 5),
        Column("next_check_timestamp", "TIMESTAMP", "the earliest time of the broker's next step", 7),
        Column("next_step", "STRING", "CHECK (the broker asks the producer) or DISCARD", 8),
        Column("half_queue_id", "INT", "the queue of the half message in RMQ_SYS_TRANS_HALF_TOPIC", 18),
        Column("half_queue_offsets", "ARRAY<BIGINT>", "the queue offsets of all copies of the half message", 12),
        Column("half_offsets", "ARRAY<BIGINT>", "the commit log offsets of all copies of the half message", 14),
        Column("op_offsets", "ARRAY<BIGINT>", "the commit log offsets of op messages that name one of the copies", 15),
        Column(
            "commit_offsets",
            "ARRAY<BIGINT>",
            "the commit log offsets of the committed message, which can be stored more than once",
            13,
        ),
        Column("discard_offset", "BIGINT", "the commit log offset of the discarded message", 16),
    ),
    options=(
        at("to which age_millis refers"),
        broker_conf("transactionTimeOut, transactionCheckInterval, transactionCheckMax and fileReservedTime"),
        BROKER_VERSION,
    ),
    rows="spark_mq.lifecycle.transactions.transaction_rows",
    archived_rows="spark_mq.lifecycle.transactions.transaction_rows",
    noun="transaction",
    example="""\
+---------------+---------+------+------------------+--------------+
|topic          |state    |checks|half_queue_offsets|commit_offsets|   ...
+---------------+---------+------+------------------+--------------+
|TransactionDemo|COMMITTED|0     |[0]               |[128985]      |
|TransactionDemo|DISCARDED|2     |[4, 22, 32]       |[]            |
""",
)

DELAYED = Table(
    "delayed",
    summary="the delayed messages: when each is due, and where it was delivered",
    row="a delayed message, by delay level or timer: when it is due, and where it was delivered",
    about="""\
Messages of a delay level wait in SCHEDULE_TOPIC_XXXX, those of the timer of 5.x in rmq_sys_wheel_timer. state:
WAITING; DELIVERED, the delivered message is in the log; OVERDUE, it is due and not delivered; CANCELLED, a message
with TIMER_DEL_UNIQKEY cancels it; UNKNOWN, and reason says what is missing. A broker delivers the message of a
timer up to one second after due_timestamp. delivered_offsets has several offsets if the broker delivered the
message again after it was killed. A message that cancels another has no row. One task reads the whole log.
""",
    columns=(
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)", 1),
        Column("topic", "STRING", "the topic to which the message is delivered", 3),
        Column("queue_id", "INT", "the queue to which the message is delivered", 17),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 2),
        Column("reason", "STRING", "what is missing if the state is UNKNOWN, else NULL", 7),
        Column("delayed_by", "STRING", "DELAY_LEVEL or TIMER", 16),
        Column("delay_level", "INT", "the delay level, from 1 on", 5),
        Column("due_timestamp", "TIMESTAMP", "when the message is due; of a timer, TIMER_OUT_MS", 4),
        Column("delivered_timestamp", "TIMESTAMP", "the store time of the delivered message", 8),
        Column("rolls", "INT", "how often the timer stored the message again because its time was far away", 9),
        Column("born_timestamp", "TIMESTAMP", "the time at which the producer made the message", 13),
        Column("store_timestamp", "TIMESTAMP", "the time at which the broker stored the message", 12),
        Column("waiting_queue_id", "INT", "the queue in which the message waits", 18),
        Column("waiting_queue_offsets", "ARRAY<BIGINT>", "the queue offsets where the message and its rolls wait", 10),
        Column("waiting_offsets", "ARRAY<BIGINT>", "the commit log offsets where the message and its rolls wait", 11),
        Column("slot_timestamp", "TIMESTAMP", "when the timer takes the newest of them", 15),
        Column("delivered_offsets", "ARRAY<BIGINT>", "the commit log offsets of the delivered message", 6),
        Column("cancel_offset", "BIGINT", "the commit log offset of the message that cancels it", 14),
    ),
    options=(at("at which messages are due or not"), broker_conf("messageDelayLevel, if the consume queue is lost")),
    rows="spark_mq.lifecycle.delayed.delayed_rows",
    archived_rows="spark_mq.lifecycle.delayed.delayed_rows",
    noun="delayed message",
    example="""\
+---------+---------+-----------+-----------+-----------------------+-----------------+
|topic    |state    |delayed_by |delay_level|due_timestamp          |delivered_offsets|   ...
+---------+---------+-----------+-----------+-----------------------+-----------------+
|DelayDemo|DELIVERED|DELAY_LEVEL|1          |2026-11-21 11:01:10.256|[165335]         |
|TimerDemo|WAITING  |TIMER      |NULL       |2026-11-21 12:01:09    |[]               |
""",
)

CONSUMER_PROGRESS = Table(
    "consumer_progress",
    summary="how far each consumer group is in each topic (mqadmin consumerProgress)",
    row=(
        "a consumer group in a topic: its lag in messages and time, its oldest message that is not consumed, its "
        "retries and dead letters"
    ),
    about="""\
A group has a row for each topic in which it has an offset (`config/consumerOffset.json`), and for its retry topics.
state: CAUGHT_UP; LAGGING; NO_OFFSET, the group has no offset in the topic; UNKNOWN, reason says why, and lag is
NULL. lag is max offset minus consumer offset, in the queues that consumers can read (`readQueueNums`), and 0 stands
for a missing offset, as in `mqadmin consumerProgress`. As there, a message that a group popped counts as consumed,
whether the group acknowledged it or not. group_retries is the number in all retry topics of the group.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("topic", "STRING", "the topic", 2),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 3),
        Column("lag", "BIGINT", "the number of messages that the group has not consumed; NULL if not certain", 4),
        Column("lag_millis", "BIGINT", "milliseconds since the oldest message that is not consumed was stored", 5),
        Column("expired_messages", "BIGINT", "the part of lag whose messages the store no longer has"),
        Column("queue_count", "INT", "the number of queues that consumers can read"),
        Column("queues_without_offset", "INT", "the number of queues in which the group has no offset"),
        Column("too_small_offsets", "INT", "the number of offsets before the queue's first message"),
        Column("too_large_offsets", "INT", "the number of offsets after the queue's end"),
        Column("last_consumed_timestamp", "TIMESTAMP", "the latest store time of a message before an offset"),
        Column("oldest_queue_id", "INT", "the queue of the oldest message that is not consumed"),
        Column("oldest_queue_offset", "BIGINT", "the queue offset of the oldest message that is not consumed"),
        Column("oldest_commit_log_offset", "BIGINT", "the commit log offset of the oldest message not consumed"),
        Column("oldest_store_timestamp", "TIMESTAMP", "the store time of the oldest message that is not consumed"),
        Column("group_retries", "BIGINT", "the number of the group's retries that it has not consumed", 6),
        Column("group_dead_letters", "BIGINT", "the number of the group's dead letters", 7),
        Column("reason", "STRING", "what is missing if the state is UNKNOWN, else NULL", 8),
    ),
    options=(TOPIC, CONSUMER_GROUP, at("to which lag_millis refers"), BROKER_VERSION),
    rows="spark_mq.lifecycle.consumer_progress.consumer_progress_rows",
    archived_rows="spark_mq.archive.archived_tables.archived_progress",
    noun="consumer group",
    example="""\
+--------------+---------+---------+---+----------+-------------+------------------+
|consumer_group|topic    |state    |lag|lag_millis|group_retries|group_dead_letters|   ...
+--------------+---------+---------+---+----------+-------------+------------------+
|GID_failing   |RetryDemo|CAUGHT_UP|0  |0         |0            |5                 |
""",
)

RETRIES = Table(
    "retries",
    summary="the attempts to consume messages that consumer groups returned, and their states",
    row=(
        "an attempt to consume a message that a group returned: when it is due, and whether it was consumed, "
        "popped, retried, or is dead"
    ),
    about="""\
state: WAITING, the copy is not due yet; OVERDUE, it is due, and was not delivered; READY, it is in the retry topic,
and the group's offset there is not past it; CONSUMED, the offset is past it, and the group did not return it again;
RETRIED, there is a later attempt; DEAD, the message is in the dead letter topic; POPPED, the offset is past it
because the group popped it, and the notes of the broker show that it has not acknowledged it; UNKNOWN, reason says
why.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("retry_topic", "STRING", "the topic to which the message goes, or went, after its delay"),
        Column("attempt", "INT", "the number of the retry, from 1 on", 3),
        Column("retry_max_times", "INT", "the largest number of attempts by the group's settings"),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 4),
        Column("final_state", "STRING", "the state of the message: that of its last attempt", 5),
        Column("delay_level", "INT", "the delay level of the attempt"),
        Column("due_timestamp", "TIMESTAMP", "when the message is due; of a timer, TIMER_OUT_MS", 6),
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)", 2),
        Column("origin_topic", "STRING", "the topic of the message that was returned first", 7),
        Column("origin_message_id", "STRING", "the offset message id of the message that was returned first"),
        Column("origin_commit_log_offset", "BIGINT", "the commit log offset of the message that was returned first"),
        Column("delay_commit_log_offset", "BIGINT", "the commit log offset of the copy in SCHEDULE_TOPIC_XXXX"),
        Column("delay_store_timestamp", "TIMESTAMP", "the store time of the copy in SCHEDULE_TOPIC_XXXX"),
        Column("retry_queue_id", "INT", "the queue of the retry topic"),
        Column("retry_queue_offset", "BIGINT", "the queue offset in the retry topic"),
        Column("retry_commit_log_offset", "BIGINT", "the commit log offset of the copy in the retry topic"),
        Column("retry_store_timestamp", "TIMESTAMP", "the store time of the copy in the retry topic"),
        Column("reason", "STRING", "what is missing if the state is UNKNOWN, else NULL", 8),
    ),
    options=(CONSUMER_GROUP, at("to which WAITING and OVERDUE refer")),
    rows="spark_mq.lifecycle.retries.retries_rows",
    archived_rows="spark_mq.lifecycle.retries.retries_rows",
    noun="attempt",
    example="""\
+--------------+-------+-------+-----------+-----------------------+------------+
|consumer_group|attempt|state  |final_state|due_timestamp          |origin_topic|   ...
+--------------+-------+-------+-----------+-----------------------+------------+
|GID_failing   |1      |RETRIED|DEAD       |2026-11-21 11:01:11.232|RetryDemo   |
|GID_failing   |2      |DEAD   |DEAD       |2026-11-21 11:01:31.232|RetryDemo   |
""",
)

DEAD_LETTERS = Table(
    "dead_letters",
    summary="the messages that consumer groups gave up",
    row="a message of a dead letter topic, `%DLQ%GROUP`, that a group gave up, and the message that it comes from",
    about="""\
retries_found is smaller than reconsume_times if some retries expired.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("topic", "STRING", "the dead letter topic"),
        Column("queue_id", "INT", "the queue of the topic"),
        Column("queue_offset", "BIGINT", "the offset in the queue"),
        Column("commit_log_offset", "BIGINT", "the commit log offset at which the message starts"),
        Column("store_timestamp", "TIMESTAMP", "the time at which the broker stored the message", 3),
        Column("reconsume_times", "INT", "how often the message was consumed in vain", 4),
        Column("retries_found", "BIGINT", "the number of retries that the log has"),
        Column("tags", "STRING", "property TAGS"),
        Column("unique_key", "STRING", "the message id that the producer got (property UNIQ_KEY)", 2),
        Column("origin_topic", "STRING", "the topic of the message that was returned first", 5),
        Column("origin_message_id", "STRING", "the offset message id of the message that was returned first", 6),
        Column("origin_commit_log_offset", "BIGINT", "the commit log offset of the message that was returned first"),
    ),
    options=(CONSUMER_GROUP,),
    rows="spark_mq.lifecycle.retries.dead_letters_rows",
    archived_rows="spark_mq.lifecycle.retries.dead_letters_rows",
    noun="dead letter",
    example="""\
+--------------+---------------+-------------+------------+------------------------+
|consumer_group|reconsume_times|retries_found|origin_topic|origin_commit_log_offset|   ...
+--------------+---------------+-------------+------------+------------------------+
|GID_failing   |3              |2            |RetryDemo   |143685                  |
""",
)

TRACES = Table(
    "traces",
    summary=(
        "the events that clients traced: messages sent, consumed, recalled, ends of transactions (mqadmin "
        "queryMsgTraceById)"
    ),
    row="an event that a client with message trace wrote: sent, consumed, recalled, or the end of a transaction",
    about="""\
event_type: Pub, a message was sent; SubBefore and SubAfter, a consumer group began and ended to consume it, with
the same request_id; EndTransaction; Recall. topic, unique_key, tags, keys and body_length are those of the traced
message. A value that the client did not have is NULL; events of older clients have fewer. An event that cannot be
read has only a problem.
""",
    columns=(
        Column("event_number", "INT", "the number of the event in its trace message, from 0 on"),
        Column("event_type", "STRING", "Pub, SubBefore, SubAfter, EndTransaction or Recall", 2),
        Column("event_timestamp", "TIMESTAMP", "the time of the event", 3),
        Column("group_name", "STRING", "the producer group, or the consumer group of SubBefore and SubAfter", 4),
        Column("topic", "STRING", "the topic", 7),
        Column("unique_key", "STRING", "the unique key of the traced message", 1),
        Column("tags", "STRING", "property TAGS"),
        Column("keys", "ARRAY<STRING>", "property KEYS, split at spaces"),
        Column("is_success", "BOOLEAN", "whether the message was sent, consumed or recalled", 5),
        Column("cost_millis", "INT", "how long that took, in milliseconds", 6),
        Column("retry_times", "INT", "how often the message had been consumed before"),
        Column("return_type", "STRING", "what the consumer's listener returned"),
        Column("message_type", "STRING", "the type of the message, such as Normal_Msg"),
        Column("body_length", "INT", "bytes of the body"),
        Column("offset_message_id", "STRING", "the id that a broker makes of its address and the commit log offset"),
        Column("store_host", "STRING", "the broker's address"),
        Column("client_host", "STRING", "the client's address, as it says"),
        Column("region_id", "STRING", "the broker's region"),
        Column("request_id", "STRING", "the same of a SubBefore and its SubAfter"),
        Column("transaction_id", "STRING", "the id of the transaction"),
        Column("transaction_state", "STRING", "how the producer ended the transaction"),
        Column("is_from_check", "BOOLEAN", "whether the broker had asked for that"),
        Column("problem", "STRING", "why the event cannot be read, else NULL", 8),
        Column("commit_log_offset", "BIGINT", "the commit log offset of the trace message"),
        Column("queue_id", "INT", "the queue of the trace message"),
        Column("queue_offset", "BIGINT", "the queue offset of the trace message"),
        Column("store_timestamp", "TIMESTAMP", "the store time of the trace message"),
        Column("born_host", "STRING", "the address of the client that sent the trace message"),
    ),
    options=(Option("topic", "the trace topic; by default RMQ_SYS_TRACE_TOPIC", "TOPIC"),),
    rows="spark_mq.lifecycle.traces.traces_rows",
    archived_rows="spark_mq.lifecycle.traces.traces_rows",
    noun="trace event",
    example="""\
+----------+-----------------------+----------+---------+----------+-----------+
|event_type|event_timestamp        |group_name|topic    |is_success|cost_millis|   ...
+----------+-----------------------+----------+---------+----------+-----------+
|Pub       |2026-11-23 04:09:46.658|PID_traced|TraceDemo|true      |12         |
""",
)

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
    rows="spark_mq.lifecycle.statistics.duplicates_rows",
    archived_rows="spark_mq.archive.archived_tables.duplicates_of",
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
    rows="spark_mq.lifecycle.statistics.hot_keys_rows",
    archived_rows="spark_mq.archive.archived_tables.hot_keys_of",
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
    rows="spark_mq.lifecycle.statistics.rates_rows",
    archived_rows="spark_mq.archive.archived_tables.rates_of",
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
    rows="spark_mq.lifecycle.statistics.skew_rows",
    archived_rows="spark_mq.archive.archived_tables.skew_of",
    noun="message",
    example="""\
>>> spark.read.format("rocketmq").option("table", "skew").option("topic", "OrderEvents").load(store).show()
+-----------+--------+-------------------+-------------+---------+
|topic      |queue_id|minute             |message_count|log_bytes|   ...
+-----------+--------+-------------------+-------------+---------+
|OrderEvents|0       |2026-11-21 11:01:00|62           |25476    |
""",
)
