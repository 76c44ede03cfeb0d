"""Which topics a message can have, as a folder or for clients, and which are in `config/topics.json`.

A topic in a store may be anything. A broker refuses most of it (`TopicValidator.validateTopic`,
`HookUtils.checkBeforePutMessage`@5.3.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from spark_mq.errors import ConfigError, UnsafeNameError, UnsupportedStoreError
from spark_mq.format.system_topic import is_system_topic
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import load_config

_MAX_NAME_BYTES = 255
_MAX_NAME_CHARACTERS = 127
_CHARACTERS = re.compile(r"[%|a-zA-Z0-9_-]+")
_RETRY_PREFIX = "%RETRY%"


def check_topic_name(topic: str) -> str:
    """Return `topic` unchanged if it can be the name of a folder in `consumequeue/`, where the broker uses it as is."""
    if topic in ("", ".", "..") or any(character in topic for character in "/\\\0"):
        raise UnsafeNameError(f"topic {topic!r} cannot be a folder: it would lead outside of consumequeue/")
    if len(topic.encode("utf-8")) > _MAX_NAME_BYTES:
        raise UnsafeNameError(f"topic {topic[:40]!r}... cannot be a folder: its name is longer than 255 bytes")
    return topic


def is_topic_name(topic: str) -> bool:
    """Whether `topic` can be the name of a folder: `check_topic_name` without an error."""
    try:
        check_topic_name(topic)
    except UnsafeNameError:
        return False
    return True


def new_topic_fault(topic: str) -> str | None:
    """Why a broker takes no message for `topic`, as the end of a sentence; None if it does.

    Topics of a broker's own are allowed.
    """
    if not topic:
        return "is empty"
    if not _CHARACTERS.fullmatch(topic):
        return "has other characters than letters, digits, and % | - _"
    longest = _MAX_NAME_BYTES if topic.startswith(_RETRY_PREFIX) else _MAX_NAME_CHARACTERS
    return f"has more than {longest} characters" if len(topic) > longest else None


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
