"""The names of the topics in `config/topics.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.system_topic import is_system_topic
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import load_config


def configured_topics(store: Location) -> frozenset[str] | None:
    """The topics; None if there is no file, or if it cannot be read: table `topics` reports that."""
    try:
        return load_config(store, "topics.json", _names)
    except (ConfigError, UnsupportedStoreError):
        return None


def is_configured(topic: str, topics: frozenset[str] | None) -> bool:
    """Whether a topic was not deleted, as far as `topics`, the configured ones, tell. A broker makes its own again."""
    return topics is None or topic in topics or is_system_topic(topic)


def _names(content: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(str, content.get("topicConfigTable") or ()))
