"""What the files of `config/` have, with the offsets of the queues that they name."""

from __future__ import annotations

from spark_mq.tables.table import BROKER_VERSION, CONSUMER_GROUP, TOPIC, Column, Option, Table

TOPICS = Table(
    "topics",
    summary="the topics, their settings, number of messages and problems (mqadmin topicList)",
    row="a topic: its settings, queues and messages, and its problem",
    about="""\
A topic is in `config/topics.json` (or its `.bak`), or has a queue; settings of a topic that is not configured are
NULL. problem names the queues of the topic that have a problem in table queues; then message_count is not certain.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("perm", "INT", "permissions: 2 write, 4 read, 6 both", 6),
        Column("read_queue_nums", "INT", "the number of queues for consumers", 7),
        Column("write_queue_nums", "INT", "the number of queues for producers", 8),
        Column("topic_filter_type", "STRING", "how consumers filter by tags", 11),
        Column("topic_sys_flag", "INT", "the broker's flags of the topic", 12),
        Column("is_order", "BOOLEAN", "whether the topic is ordered", 10),
        Column("attributes", "MAP<STRING, STRING>", "the attributes of the topic, such as its message type", 9),
        Column("queue_count", "INT", "the number of queues that have files", 4),
        Column("message_count", "BIGINT", "the number of messages that the queues offer", 2),
        Column("last_store_timestamp", "TIMESTAMP", "the store time of the last message", 3),
        Column("problem", "STRING", "the problem that a quick check finds, else NULL", 5),
    ),
    options=(BROKER_VERSION,),
    rows="spark_mq.store.metadata_tables.topics",
    noun="topic",
    remedy="`spark-mq repair` plans what to do",
    example="""\
+------------+----+----------------+-----------+-------------+
|topic       |perm|write_queue_nums|queue_count|message_count|   ...
+------------+----+----------------+-----------+-------------+
|OrderEvents |6   |4               |4          |248          |
|SequenceDemo|6   |3               |3          |330          |
""",
)

CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    summary="the offsets of consumer groups, and their lag (mqadmin consumerProgress)",
    row="a consumer group's offset in a queue: its lag, and whether it is in range",
    about="""\
The offsets are in `config/consumerOffset.json` (or its `.bak`). state: IN_RANGE; TOO_SMALL, below min_offset:
messages expired before the group consumed them; TOO_LARGE, above max_offset; NO_QUEUE, above 0, and the queue does
not exist. problem is the reason why lag is NULL: the queue does not exist, or ends before consumer_offset, or has a
problem in table queues.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("topic", "STRING", "the topic", 2),
        Column("queue_id", "INT", "the queue of the topic", 3),
        Column("consumer_offset", "BIGINT", "the queue offset of the next message of the group", 6),
        Column("min_offset", "BIGINT", "the first queue offset that a broker offers", 10),
        Column("max_offset", "BIGINT", "the queue offset after the last message", 7),
        Column("lag", "BIGINT", "max_offset minus consumer_offset; NULL if it is not certain", 4),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 5),
        Column("last_consumed_timestamp", "TIMESTAMP", "the store time of the last message that the group consumed", 9),
        Column("problem", "STRING", "the problem that a quick check finds, else NULL", 8),
    ),
    options=(TOPIC, CONSUMER_GROUP, BROKER_VERSION),
    rows="spark_mq.store.metadata_tables.consumer_offsets",
    own_command="lag",
    noun="consumer offset",
    nothing="config/consumerOffset.json has no offset of any group, or does not exist",
    remedy="`spark-mq repair` plans what to do",
    example="""\
+-----------------+------------------------+--------+---------------+----------+---+--------+
|consumer_group   |topic                   |queue_id|consumer_offset|max_offset|lag|state   |   ...
+-----------------+------------------------+--------+---------------+----------+---+--------+
|CID_RMQ_SYS_TRANS|RMQ_SYS_TRANS_HALF_TOPIC|0       |36             |39        |3  |IN_RANGE|
""",
)

SUBSCRIPTION_GROUPS = Table(
    "subscription_groups",
    summary="the consumer groups and their settings",
    row="a consumer group: its settings",
    about="""\
The groups are in `config/subscriptionGroup.json` (or its `.bak`). A setting that the file does not have is NULL:
4.9 has no consume_message_orderly, consume_timeout_minute, group_sys_flag and attributes.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("consume_enable", "BOOLEAN", "whether the group may consume", 2),
        Column("consume_broadcast_enable", "BOOLEAN", "whether the group may consume by broadcast", 5),
        Column("consume_from_min_enable", "BOOLEAN", "whether the group may begin with the smallest offset"),
        Column("consume_message_orderly", "BOOLEAN", "whether the group consumes in order", 4),
        Column("retry_queue_nums", "INT", "the number of queues of the group's retry topic", 7),
        Column("retry_max_times", "INT", "how often a message is retried before it is a dead letter", 3),
        Column("consume_timeout_minute", "INT", "minutes after which a consumer returns an unfinished message", 6),
        Column("broker_id", "BIGINT", "the id of the broker from which the group consumes, 0 for the master", 9),
        Column("which_broker_when_consume_slowly", "BIGINT", "the id of the broker for a group that is far back", 10),
        Column("notify_consumer_ids_changed_enable", "BOOLEAN", "whether consumers are told of a change among them"),
        Column("group_sys_flag", "INT", "the broker's flags of the group"),
        Column("attributes", "MAP<STRING, STRING>", "the attributes of the group", 8),
    ),
    options=(CONSUMER_GROUP,),
    rows="spark_mq.store.metadata_tables.subscription_groups",
    noun="consumer group",
    nothing="config/subscriptionGroup.json has no group, or does not exist",
    example="""\
+-----------------+--------------+----------------+---------------+
|consumer_group   |consume_enable|retry_queue_nums|retry_max_times|   ...
+-----------------+--------------+----------------+---------------+
|CID_RMQ_SYS_TRANS|true          |1               |16             |
""",
)

CONSUMER_FILTERS = Table(
    "consumer_filters",
    summary="the SQL92 filters of consumer groups, and the bits that their messages must have",
    row="a consumer group's SQL92 filter of a topic, and the bits that a message must have",
    about="""\
The filters are in `config/consumerFilter.json` (or its `.bak`). A message that was stored after born_timestamp must
have the bits bit_positions in its filter_bit_map (table consume_queue), else the broker skips it. Subscriptions to
tags are in no file of a store.
""",
    columns=(
        Column("consumer_group", "STRING", "the consumer group", 1),
        Column("topic", "STRING", "the topic", 2),
        Column("expression", "STRING", "the SQL92 expression", 3),
        Column("expression_type", "STRING", "SQL92", 11),
        Column("is_dead", "BOOLEAN", "whether the group has no consumer", 4),
        Column("born_timestamp", "TIMESTAMP", "when the broker got the expression", 6),
        Column("dead_timestamp", "TIMESTAMP", "when the group's last consumer left", 7),
        Column("client_version", "BIGINT", "when the client subscribed, milliseconds since the epoch", 10),
        Column("bit_count", "INT", "the number of bits of a message's bit map", 9),
        Column("bit_positions", "ARRAY<INT>", "the bits that a message must have", 8),
        Column("problem", "STRING", "why the filter does not work, else NULL", 5),
    ),
    options=(TOPIC, CONSUMER_GROUP),
    rows="spark_mq.store.metadata_tables.consumer_filters",
    noun="consumer filter",
    nothing="config/consumerFilter.json has none; a store does not know subscriptions to tags",
    example="""\
+--------------+----------+----------------------------+-------+-------------+
|consumer_group|topic     |expression                  |is_dead|bit_positions|   ...
+--------------+----------+----------------------------+-------+-------------+
|GID_rich      |FilterDemo|price > 50 AND region = 'eu'|true   |[6, 37, 75]  |
""",
)

DELAY_OFFSETS = Table(
    "delay_offsets",
    summary="the delay levels: how many delayed messages were delivered, and how many wait",
    row="a delay level: how many delayed messages were delivered, and how many wait",
    about="""\
The offsets are in `config/delayOffset.json` (or its `.bak`), and are queue offsets in topic SCHEDULE_TOPIC_XXXX;
queue_id is the delay level minus 1. lag is the number of messages that wait. state and problem: as in
consumer_offsets.
""",
    columns=(
        Column("delay_level", "INT", "the delay level, from 1 on", 1),
        Column("topic", "STRING", "the topic", 9),
        Column("queue_id", "INT", "the queue of the topic", 8),
        Column("delay_offset", "BIGINT", "the queue offset of the next delayed message to deliver", 3),
        Column("min_offset", "BIGINT", "the first queue offset that a broker offers", 7),
        Column("max_offset", "BIGINT", "the queue offset after the last message", 4),
        Column("lag", "BIGINT", "max_offset minus delay_offset; NULL if it is not certain", 2),
        Column("state", "STRING", "the state; help(spark_mq.RocketMQDataSource) explains the values", 5),
        Column("problem", "STRING", "the problem that a quick check finds, else NULL", 6),
    ),
    options=(BROKER_VERSION,),
    rows="spark_mq.store.metadata_tables.delay_offsets",
    noun="delay level",
    nothing="config/delayOffset.json has no delay level, or does not exist",
    remedy="`spark-mq repair` plans what to do",
    example="""\
+-----------+-------------------+--------+------------+----------+---+--------+
|delay_level|topic              |queue_id|delay_offset|max_offset|lag|state   |   ...
+-----------+-------------------+--------+------------+----------+---+--------+
|1          |SCHEDULE_TOPIC_XXXX|0       |9           |9         |0  |IN_RANGE|
""",
)

BEGIN_OFFSETS = Table(
    "begin_offsets",
    summary="where a new or reset consumer group would begin in each queue",
    row="a queue that consumers can read: where a group begins that has no offset yet, and what a reset would set",
    about="""\
A time counts in whole seconds, as in `consumeTimestamp`. In a retry topic, `last` begins with the first message, and
a time after the last one. A broker refuses a reset for a group that does not exist, and one of 4.9 for a group
without an offset in each queue. Nothing is changed.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("queue_id", "INT", "the queue of the topic", 2),
        Column("min_offset", "BIGINT", "the first queue offset that a broker offers", 10),
        Column("max_offset", "BIGINT", "the queue offset after the last message", 11),
        Column("begin_offset", "BIGINT", "the first queue offset that a group without an offset consumes", 3),
        Column("begin_lag", "BIGINT", "the number of messages from there to the queue's end", 4),
        Column(
            "begin_in_memory",
            "BIGINT",
            "0 if the group begins at 0 instead while the broker has the queue's first message in memory, else NULL",
            5,
        ),
        Column("consumer_group", "STRING", "the group of option consumerGroup, else NULL", 12),
        Column("consumer_offset", "BIGINT", "the offset of that group; NULL if it has none", 9),
        Column("reset_offset", "BIGINT", "what mqadmin resetOffsetByTime sets: -s 0, -s now, or the time", 6),
        Column("reset_lag", "BIGINT", "the number of messages from there to the queue's end", 7),
        Column("problem", "STRING", "why the offsets are not certain, else NULL", 8),
    ),
    options=(
        Option("fromWhere", "ConsumeFromWhere of the consumers: first, last (default), or a time", "first|last|TIME"),
        TOPIC,
        Option("consumerGroup", "the group whose offsets are shown beside", "GROUP"),
        BROKER_VERSION,
    ),
    rows="spark_mq.sharing.shares.begin_offsets",
    noun="queue",
    remedy="`spark-mq repair` plans what to do",
    example="""\
+-----------+--------+----------+----------+------------+---------+------------+
|topic      |queue_id|min_offset|max_offset|begin_offset|begin_lag|reset_offset|   ...
+-----------+--------+----------+----------+------------+---------+------------+
|OrderEvents|0       |0         |62        |62          |0        |62          |
""",
)
