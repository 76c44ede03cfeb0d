"""Topics that a broker creates for itself (`TopicValidator.isSystemTopic`@5.3.3), and delays of delay levels."""

from __future__ import annotations

from spark_mq.errors import OptionError

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""`MessageStoreConfig.messageDelayLevel`@5.3.3."""

_UNIT_MILLIS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_DIGITS = 10
"""A delay of at most ten digits fits into 64 bits in milliseconds."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of delayed messages; its queue id is the delay level minus 1."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of half messages. The bodies of op messages contain their queue offsets."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The topic of op messages, which say which half messages are settled."""

ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
"""The topic of half messages of a broker that keeps transactions in RocksDB only (`transRocksDBEnable` and not
`transWriteOriginTransHalfEnable`@5.4.0)."""

ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""The topic of its op messages."""

TRANS_OFFSET = "TRANS_OFFSET"
"""The property of these op messages that is the commit log offset of the half message
(`TransMessageRocksDBStore.makeOpMessageInner`@5.5.0)."""

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of half messages that the broker gave up, because it had asked too often or they were too old."""

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""The topic of trace messages, by default (`TopicValidator.RMQ_SYS_TRACE_TOPIC`@5.3.3)."""

TRACE_PREFIX = "rmq_sys_TRACE_DATA_"
"""Topics of trace messages of clients in a cloud (`TraceConstants.TRACE_TOPIC_PREFIX`@5.3.3)."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic of the timers of 5.x."""

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Topics in which a broker of 5.x notes which messages were popped: by their queue offsets (`PopReviveService`)."""

LEFT_OUT_TOPIC = "SPARK_MQ_LEFT_OUT"
"""The topic of left-out records (`kernels.encode`). In a gap of less than 108 bytes, the name is cut."""

SYSTEM_PREFIX = "rmq_sys_"
"""How the names of topics begin that a broker of 5.x makes for itself (`TopicValidator.SYSTEM_TOPIC_PREFIX`@5.3.3)."""

RETRY_PREFIX = "%RETRY%"
"""How the name of a consumer group's retry topic begins (`MixAll.RETRY_GROUP_TOPIC_PREFIX`@5.3.3)."""

_NAMES = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        ROCKSDB_OP_TOPIC,
        DISCARD_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
SYSTEM_TOPICS = rf"{SYSTEM_PREFIX}|({'|'.join(sorted(_NAMES))})$"
"""A regular expression, which the beginnings of a broker's own topics match."""


def delay_level_millis(text: str) -> list[int]:
    """The delays of levels 1, 2, ... in milliseconds (`DefaultMessageStore.parseDelayLevel`@5.3.3).

    Args:
        text: The broker's `messageDelayLevel`: delays with unit s, m, h or d, separated by spaces.

    Raises:
        OptionError: `text` is empty, or a piece of it is not a number with one of these units.

    Examples:
        >>> delay_level_millis("1s 5m")
        [1000, 300000]
    """
    delays = []
    for piece in text.split():
        number, unit = piece[:-1], piece[-1]
        if unit not in _UNIT_MILLIS or not number.isdecimal() or len(number) > _MAX_DIGITS:
            raise OptionError(f"messageDelayLevel: {piece!r} is not a delay such as 10s, 5m, 1h or 2d")
        delays.append(int(number) * _UNIT_MILLIS[unit])
    if not delays:
        raise OptionError("messageDelayLevel is empty; it needs a delay such as 10s for each level")
    return delays


def is_system_topic(topic: str) -> bool:
    """Whether the topic is one of a broker's own.

    Retry topics and dead letter topics (`%RETRY%`, `%DLQ%`) are not. The topics that have the names of the cluster and
    of the broker are not recognized, because a store does not contain these names.

    Examples:
        >>> is_system_topic("SCHEDULE_TOPIC_XXXX"), is_system_topic("%RETRY%billing")
        (True, False)
    """
    return topic in _NAMES or topic.startswith(SYSTEM_PREFIX)
