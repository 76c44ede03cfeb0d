"""The queues of a topic that consumers share out, and what is in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.store import metadata_tables
from spark_mq.store.lost_queues import lost_queues
from spark_mq.store.message_store import MessageStore
from spark_mq.store.topic_bytes import queue_bytes

_READABLE = 1 << 2
"""The bit of `perm` that lets consumers read a topic (`PermName.PERM_READ`@5.3.3)."""
_MOST_QUEUES = 1 << 20
"""More queues than any topic has: a larger `readQueueNums` is damage."""
# Only these columns: a time as a Python object would need pandas.
_SETTINGS = ["topic", "perm", "read_queue_nums"]
_STATE = ["queue_id", "state", "problem"]
_LAG = ["queue_id", "lag", "problem"]


@dataclass(frozen=True)
class TopicQueue:
    """A queue of a topic, and how much is in it.

    Attributes:
        messages: The number of messages that the queue offers; None if that is not certain.
        log_bytes: Bytes of their records; None if that is not certain.
        lag: The number of messages that the consumer group has not consumed; None without a group, or if that is not
            certain.
        problem: Why a value is not certain; None if all are.
    """

    queue_id: int
    messages: int | None
    log_bytes: int | None
    lag: int | None
    problem: str | None


def topic_queues(store: MessageStore, topic: str, consumer_group: str | None = None) -> list[TopicQueue]:
    """The queues that consumers of a topic share out, by queue id.

    These are the queues below `readQueueNums` of `config/topics.json`, also those without a message
    (`MQClientInstance.topicRouteData2TopicSubscribeInfo`@5.3.3). If the file does not name the topic, they are the
    queues that have files.

    Args:
        consumer_group: The group whose lag is returned; None for no group.
    """
    ids = readable_queue_ids(store, topic)
    rows = {row["queue_id"]: row for row in metadata_tables.queues(store, topic).select(_STATE).to_pylist()}
    lost = lost_queues(store, [(topic, queue_id) for queue_id in ids if queue_id not in rows])
    rows |= {queue_id: {"state": "LOST", "problem": problem} for (_, queue_id), problem in lost.items()}
    lags = None if consumer_group is None else _lags(store, topic, consumer_group)
    return [_queue(store, topic, queue_id, rows.get(queue_id), lags) for queue_id in ids]


def is_readable(config: Mapping[str, Any]) -> bool:
    """Whether consumers may read a topic, of which this is the row of table `topics`; true if nothing is known."""
    return config["perm"] is None or bool(config["perm"] & _READABLE)


def topic_settings(store: MessageStore) -> list[dict[str, Any]]:
    """The rows of table `topics`, with only the columns of `_SETTINGS`; it has the errors of that table."""
    settings: list[dict[str, Any]] = metadata_tables.topics(store).select(_SETTINGS).to_pylist()
    return settings


def readable_queue_ids(store: MessageStore, topic: str) -> list[int]:
    """The ids of the queues that `topic_queues` returns; it has the same errors."""
    config = next((row for row in topic_settings(store) if row["topic"] == topic), None)
    if config is None:
        raise OptionError(store.why_no_topic(topic) or f"there is no topic {topic}")
    if not is_readable(config):
        raise OptionError(f"consumers may not read topic {topic}: its perm in config/topics.json is {config['perm']}")
    return queue_ids_of(store, config)


def queue_ids_of(store: MessageStore, config: Mapping[str, Any]) -> list[int]:
    """The ids of the queues of a topic, of which this is the row of `topic_settings`."""
    count = config["read_queue_nums"]
    if count is None:
        return store.queue_ids(config["topic"])
    if not 0 <= count <= _MOST_QUEUES:
        raise OptionError(f"readQueueNums of topic {config['topic']} in config/topics.json is {count}")
    return list(range(count))


def _queue(
    store: MessageStore,
    topic: str,
    queue_id: int,
    row: Mapping[str, Any] | None,
    lags: dict[int, tuple[int | None, str | None]] | None,
) -> TopicQueue:
    problem = None if row is None or row["problem"] is None else f"the queue is {row['state']}: {row['problem']}"
    messages, log_bytes = (None, None) if problem is not None else queue_bytes(store, topic, queue_id)
    lag = None
    if lags is not None:
        lag, unknown = lags.get(queue_id, (None, "the group has no offset in the queue"))
        problem = problem or unknown
    return TopicQueue(queue_id, messages, log_bytes, lag, problem)


def _lags(store: MessageStore, topic: str, consumer_group: str) -> dict[int, tuple[int | None, str | None]]:
    """The group's lag by queue id, and why it is not certain."""
    rows = metadata_tables.consumer_offsets(store, topic, consumer_group).select(_LAG).to_pylist()
    if not rows:
        raise OptionError(f"group {consumer_group} has no offset in topic {topic}: `spark-mq lag` lists the groups")
    return {row["queue_id"]: (row["lag"], row["problem"]) for row in rows}
