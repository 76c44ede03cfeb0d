"""What a live cluster has: the options of its reads, and table `route`. Its other tables are those of stores."""

from __future__ import annotations

from spark_mq.tables.config import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from spark_mq.tables.lifecycle import CONSUMER_PROGRESS
from spark_mq.tables.messages import MESSAGES, QUEUE_SELECTOR
from spark_mq.tables.store_files import QUEUES
from spark_mq.tables.table import Column, Option, Table, options

CLUSTER_OPTIONS = options("""
    readFrom  `master` (default), or `slave`: the slave with the smallest broker id of each broker
    requestTimeout  seconds within which a broker must answer a request, `10` by default
    pullGroup  the consumer group in whose name messages are pulled, `TOOLS_CONSUMER` by default. No offset of it
        changes. A broker makes a group that it does not know, unless `autoCreateSubscriptionGroup=false`. With access
        control, the user needs the right to subscribe by it
    accessKey  the access key of ACL 1.0, or the user name of ACL 2.0; `secretKey` is then needed
    secretKey  the secret key of ACL 1.0, or the password of ACL 2.0
    securityToken  the security token of ACL 1.0, if the cluster has them
    tls  `true` encrypts connections, `false` by default
    tlsCa  the PEM file of the authorities whose certificates are trusted; those of the machine by default
    tlsCertificate  the PEM file of the client's certificate, for brokers that ask for one
    tlsKey  the PEM file of the key of `tlsCertificate`, without a password
    tlsVerify  `false` accepts any certificate, such as those that brokers make for tests; default `true`
""")
"""The options of each read of a live cluster. Files have the same path on the driver and the workers."""
SECRET_LIVE_OPTIONS = ("accessKey", "secretKey", "securityToken")
"""The options of which nothing is shown."""

TOPIC_LIST = Option("topic", "the topic, or several separated by commas")
TOPIC_PATTERN = Option(
    "topicPattern", "a regular expression: topics whose whole name matches, without the topics of the system"
)
_OF_MESSAGES = ("queueId", "tag", "filter", "conditions", "checkCrc")
LIVE_MESSAGES_OPTIONS = (
    TOPIC_LIST,
    TOPIC_PATTERN,
    *(option for option in MESSAGES.options if option.name in _OF_MESSAGES),
    *options("""
        key  only messages that have this key, as one of KEYS or as unique key, which the brokers' indexes find
        uniqueKey  only messages that have this unique key, which the brokers' indexes find
        offsetMessageId  only the message that has this offset message id. Without `topic`; the address in the id has to
            be that of a broker of this cluster
        queueStarts  where queues are read from, as JSON, which `spark_mq.sql` writes for `history`: a queue offset by
            topic and queue id, `{"orders": {"0": 1200}}`. Other queues are read from their first message on
        startQueueOffset  only messages at this queue offset or after it
        endQueueOffset  only messages at this queue offset or before it
        startTimestamp  only messages that were stored at this time or after it: epoch milliseconds, ISO 8601 with a
            zone, or a time as the commands print it. Epoch seconds are an error
        endTimestamp  only messages that were stored at this time or before it
        mode  what a message is whose body cannot be read. PERMISSIVE (default) and DROPMALFORMED: a row whose body is
            NULL, and `_corrupt_record` has the reason. FAILFAST: an error
        pullsAtOnce  pulls of a task that may be on the way, `8` by default
        maxBytesPerSecond  bytes that each task pulls in a second at most, such as `20m`; no limit by default
        failOnDataLoss  `true` (default): messages that expire, or whose topic is deleted, before they are read are an
            error; `false`: they are left out
    """),
)

LIVE_STREAM_OPTIONS = options("""
    startingOffsets  where a new stream starts in each queue: `earliest` (default), `latest`, or `committed`, the
        offsets of `consumerGroup`; a queue without one starts at its first message. A queue that appears later is read
        from its first message on
    startingTimestamp  start with the first message of each queue that was stored at this time or later
    consumerGroup  the group whose offsets `startingOffsets=committed` means
    maxMessagesPerTrigger  about the largest number of messages of a batch, before filters. Needs Spark 4.2
    maxBytesPerTrigger  about the bytes of a batch, by the size of the next messages of each queue. Needs Spark 4.2
    commitOffsets GROUP  a consumer group: after each batch, the broker gets its end as the group's offsets, so that
        monitoring shows the stream's lag. Not the default, and the stream itself never uses them
""")
"""The options of a stream of a live cluster that a batch read does not have, or has with another meaning."""
LIVE_WRITE_OPTIONS = (
    Option("topic", "the topic of rows that have no value in column `topic`"),
    QUEUE_SELECTOR,
    *options("""
        producerGroup  the producer group, `spark_mq_producer` by default
        batchSize  about the bytes of the messages of one request, `512k` by default, `4m` at most
    """),
)
"""The options of a write to a topic of a live cluster."""
_NOT_OF_STREAMS = (
    *("key", "uniqueKey", "offsetMessageId", "startQueueOffset", "endQueueOffset", "endTimestamp", "conditions"),
    *("startTimestamp", "queueStarts"),
)
LIVE_READ_OPTIONS_OF_STREAMS = tuple(option for option in LIVE_MESSAGES_OPTIONS if option.name not in _NOT_OF_STREAMS)
"""The options of a batch read that a stream has, too."""

ROUTE = Table(
    "route",
    summary="the topics of a live cluster, and the brokers that have them (mqadmin topicRoute)",
    row="a topic in a broker of a live cluster: its queues there, and the addresses of the broker",
    about="""\
Only a live cluster has this table: `load("rocketmq://namesrv:9876")`. addresses has the members of a broker by broker
id: the master's id is 0.
""",
    columns=(
        Column("topic", "STRING", "the topic", 1),
        Column("perm", "INT", "permissions: 2 write, 4 read, 6 both", 4),
        Column("read_queue_nums", "INT", "the number of queues for consumers", 2),
        Column("write_queue_nums", "INT", "the number of queues for producers", 3),
        Column("addresses", "MAP<STRING, STRING>", "the addresses of the broker's members, by broker id", 5),
    ),
    options=(TOPIC_LIST,),
    rows="spark_mq.live.tables.route",
    example="""\
>>> spark.read.format("rocketmq").option("table", "route").load("rocketmq://127.0.0.1:9876").show()
+--------------+--------+---------------+-----------+----+---------------+----------------+----------------------+
|cluster       |broker  |store          |topic      |perm|read_queue_nums|write_queue_nums|addresses             |
+--------------+--------+---------------+-----------+----+---------------+----------------+----------------------+
|DefaultCluster|broker-a|127.0.0.1:10911|OrderEvents|6   |4              |4               |{0 -> 127.0.0.1:10911}|
""",
)

LIVE_TABLES = {
    table.name: table
    for table in (MESSAGES, QUEUES, TOPICS, CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, CONSUMER_PROGRESS, ROUTE)
}
"""The tables of a live cluster, by name."""

_ROW_OPTIONS = ("topic", "consumerGroup", "at")
"""The options of a store's table that a live cluster has, too."""


def live_options(table: str) -> tuple[Option, ...]:
    """The options of a batch read of a table of a live cluster, without those of all tables."""
    if table == MESSAGES.name:
        return LIVE_MESSAGES_OPTIONS
    return tuple(option for option in LIVE_TABLES[table].options if option.name in _ROW_OPTIONS)
