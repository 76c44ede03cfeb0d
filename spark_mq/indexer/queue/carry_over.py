"""Queues without a live message: only their files know their next offset.

A broker keeps the last file of such a queue, whose units are all expired, and continues to number messages from its
end. The log has no message of the queue. So the existing files are copied. If there are none, the offsets of consumers
show the loss.
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
    """Copy the files of queues without a live message, with their file times.

    Args:
        folder: The `consumequeue` folder into which files are copied.

    Returns:
        The names of the copied queues, and a text for each queue whose files have another size and are left out.
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
    """A text for each queue whose consumers are past its end: the next offset of such a queue falls back.

    Args:
        consumed: The largest offset that consumers committed, for each queue.
        copied: The names of queues whose files were kept.
    """
    kept = set(copied)
    lost = []
    for (topic, queue_id), offset in sorted(consumed.items()):
        name = f"{topic}/{queue_id}"
        next_offset = next_offsets.get((topic, queue_id), 0)
        if offset > next_offset and name not in kept:
            lost.append(f"{name}: consumers hold offset {offset}, the rebuilt queue ends at {next_offset}")
    return lost
