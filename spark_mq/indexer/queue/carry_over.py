"""Queues without a live message: their files are all that knows their next offset.

A broker keeps the last file of such a queue, whose units are all expired, and goes on numbering from its end. A rebuild
finds nothing of it in the log. So the existing files are copied; where there are none, consumers' offsets tell
what is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.queue.folders import QueueFolder

Queue = tuple[str, int]


def carry_over(
    existing: Iterable[QueueFolder], live: Mapping[Queue, int], folder: Location, file_size: int
) -> tuple[list[str], list[str]]:
    """Copy the files of queues that are not in `live` below `folder`, file times kept.

    Returns the queues that were copied, and those that could not be because their files have another size.
    """
    copied, lost = [], []
    for queue in existing:
        if (queue.topic, queue.queue_id) in live:
            continue
        name = f"{queue.topic}/{queue.queue_id}"
        if any(info.size != file_size for info in queue.files):
            lost.append(f"{name}: its files have another size than {file_size} bytes and were left out")
            continue
        for info in queue.files:
            content = (queue.location / info.base_name).read_bytes()
            target = folder / queue.topic / str(queue.queue_id) / info.base_name
            publish(target, content, len(content), info.mtime_ns // 1_000_000)
        copied.append(name)
    return copied, lost


def lost_offsets(consumed: Mapping[Queue, int], next_offsets: Mapping[Queue, int], copied: Iterable[str]) -> list[str]:
    """Queues in which consumers are further than the rebuilt queue: their next offset falls back."""
    kept = set(copied)
    lost = []
    for (topic, queue_id), offset in sorted(consumed.items()):
        name = f"{topic}/{queue_id}"
        next_offset = next_offsets.get((topic, queue_id), 0)
        if offset > next_offset and name not in kept:
            lost.append(f"{name}: consumers hold offset {offset}, the rebuilt queue ends at {next_offset}")
    return lost
