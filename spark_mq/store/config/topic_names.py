"""The names of the topics in `config/topics.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import load_config


def configured_topics(store: Location) -> frozenset[str] | None:
    """The topics; None if there is no file, or if it cannot be read: table `topics` reports that.

    Args:
        store: The store's directory.

    """
    try:
        return load_config(store, "topics.json", _names)
    except (ConfigError, UnsupportedStoreError):
        return None


def _names(content: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(str, content.get("topicConfigTable") or ()))
