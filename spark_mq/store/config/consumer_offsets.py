"""`config/consumerOffset.json`: the offsets of consumer groups (`ConsumerOffsetManager`@5.3.3).

`{"offsetTable": {"topic@group": {0: 5, 1: 6}}}`: for each queue id, the queue offset that the group consumes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import as_integer, load_config

CONSUMER_OFFSETS = "consumerOffset.json"


@dataclass(frozen=True, order=True)
class ConsumerOffset:
    """The queue offset that a consumer group consumes next in one queue."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int


def load_consumer_offsets(store: Location) -> list[ConsumerOffset]:
    """Every offset in the file (or in its `.bak`), sorted; an empty list if there is no file."""
    return sorted(load_config(store, CONSUMER_OFFSETS, _decode) or [])


def _decode(content: dict[str, Any]) -> list[ConsumerOffset]:
    consumer_offsets = []
    for topic_and_group, offsets in (content.get("offsetTable") or {}).items():
        topic, _, group = topic_and_group.partition("@")
        for queue_id, offset in offsets.items():
            consumer_offsets.append(ConsumerOffset(group, topic, as_integer(queue_id, 32), as_integer(offset, 63)))
    return consumer_offsets


def consumed_offsets(store: Location) -> dict[tuple[str, int], int]:
    """The highest offset of any consumer group by (topic, queue id); empty if no file can be read."""
    highest: dict[tuple[str, int], int] = {}
    try:
        consumer_offsets = load_consumer_offsets(store)
    except (ConfigError, UnsupportedStoreError):
        return {}
    for consumer_offset in consumer_offsets:
        queue = (consumer_offset.topic, consumer_offset.queue_id)
        highest[queue] = max(highest.get(queue, 0), consumer_offset.offset)
    return highest
