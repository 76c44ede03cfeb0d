"""Stores of a few segments that a test changes as a broker does, and the places of their messages."""

from __future__ import annotations

from pathlib import Path

from spark_mq.testing import LogWriter

NOW = 1_700_000_000_000

Place = tuple[str, int]
"""A store's name, and a commit log offset."""


def log_of(count: int, segment_size: int = 16 << 10) -> LogWriter:
    """A log of messages of three queues."""
    writer = LogWriter(segment_size)
    for number in range(count):
        writer.append(NOW + 10 * number, b"x" * (number % 300), queue_id=number % 3)
    return writer


def put(writer: LogWriter, store: Path) -> list[int]:
    """Make the store's log that of `writer`; returns its offsets."""
    version = store.with_name(f"{store.name}-{sum(1 for _ in store.parent.glob(f'{store.name}-*'))}")
    writer.write(version)
    link = store.with_name("link")
    link.symlink_to(version)
    link.replace(store)
    return writer.offsets


def places(**offsets: list[int]) -> list[Place]:
    return sorted((name, offset) for name, found in offsets.items() for offset in found)
