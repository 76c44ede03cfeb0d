"""The topics that a broker creates for itself (`TopicValidator.isSystemTopic`@5.3.3)."""

from __future__ import annotations

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of delayed messages; its queue id is the delay level minus 1."""

_PREFIX = "rmq_sys_"
_NAMES = frozenset(
    {
        "TBW102",
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
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
