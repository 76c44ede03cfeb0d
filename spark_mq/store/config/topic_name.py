"""Which topics can be the name of a folder: a topic in a store may be anything."""

from __future__ import annotations

from spark_mq.errors import UnsafeNameError

_MAX_NAME_BYTES = 255


def check_topic_name(topic: str) -> str:
    """Return `topic` unchanged if it can be the name of a folder in `consumequeue/`, where the broker uses it as is.

    Raises:
        UnsafeNameError: The topic would lead outside of the folder or is not a name: it is empty, `.`, `..`, contains
            `/`, a backslash or a NUL, or is longer than a file name may be (255 bytes).

    """
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
