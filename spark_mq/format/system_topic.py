"""The topics that a broker creates for itself (`TopicValidator.isSystemTopic`@5.3.3), and that of left-out records."""

from __future__ import annotations

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of delayed messages; its queue id is the delay level minus 1."""

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of half messages. The bodies of op messages contain their queue offsets."""

OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The topic of op messages, which say which half messages are settled."""

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
"""The topic of left-out records (`kernels.gaps`). In a gap of less than 108 bytes, the name is cut."""

_PREFIX = "rmq_sys_"
_NAMES = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        DISCARD_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)


def is_system_topic(topic: str) -> bool:
    """Whether the topic is one of a broker's own.

    Retry topics and dead letter topics (`%RETRY%`, `%DLQ%`) are not. The topics that have the names of the cluster and
    of the broker are not recognized, because a store does not contain these names.

    Example:
        >>> is_system_topic("SCHEDULE_TOPIC_XXXX"), is_system_topic("%RETRY%billing")
        (True, False)
    """
    return topic in _NAMES or topic.startswith(_PREFIX)
