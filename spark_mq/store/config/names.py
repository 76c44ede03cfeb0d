"""Names inside a store: those of its files, and those that become paths."""

from __future__ import annotations

import re

from spark_mq.errors import UnsafeNameError

MAPPED_FILE_NAME = re.compile(r"[0-9]{20}")
"""A segment of a commit log or a queue file: the offset of its first byte (`UtilAll.offset2FileName`@5.3.3)."""

_MAX_NAME_BYTES = 255


def check_topic_name(topic: str) -> str:
    """`topic`, if it can be a folder's name below `consumequeue/`.

    The broker uses a topic as it is. Raises `UnsafeNameError` for one that would lead elsewhere, or is no name:
    `..`, one with `/` or a NUL, an empty one, one longer than a file name may be.
    """
    if topic in ("", ".", "..") or any(character in topic for character in "/\\\0"):
        raise UnsafeNameError(f"topic {topic!r} cannot be a folder: it would lead outside of consumequeue/")
    if len(topic.encode("utf-8")) > _MAX_NAME_BYTES:
        raise UnsafeNameError(f"topic {topic[:40]!r}... cannot be a folder: its name is longer than 255 bytes")
    return topic
