"""`config/consumerOffset.json`: how far consumer groups have got (`ConsumerOffsetManager`@5.3.3).

`{"offsetTable": {"topic@group": {0: 5, 1: 6}}}`: the next queue offset to consume, by queue id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import as_integer, load_config


@dataclass(frozen=True, order=True)
class ConsumerOffset:
    """The queue offset that a group consumes next."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int


def load_consumer_offsets(store: Location) -> list[ConsumerOffset]:
    """All that the file (or its `.bak`) holds, sorted; none where there is no file.

    Raises `ConfigError` for a file that cannot be read.
    """
    return sorted(load_config(store, "consumerOffset.json", _decode) or [])


def _decode(content: dict[str, Any]) -> list[ConsumerOffset]:
    found = []
    for topic_and_group, offsets in (content.get("offsetTable") or {}).items():
        topic, _, group = topic_and_group.partition("@")
        for queue_id, offset in offsets.items():
            found.append(ConsumerOffset(group, topic, as_integer(queue_id, 32), as_integer(offset, 63)))
    return found


def consumed_offsets(store: Location) -> dict[tuple[str, int], int]:
    """The highest offset that any group holds, by (topic, queue id); empty where there is no readable file."""
    highest: dict[tuple[str, int], int] = {}
    try:
        offsets = load_consumer_offsets(store)
    except (ConfigError, UnsupportedStoreError):
        return {}
    for one in offsets:
        queue = (one.topic, one.queue_id)
        highest[queue] = max(highest.get(queue, 0), one.offset)
    return highest
