"""Queues without the units that follow their end: those of records that a recovery cut off the log.

A recovery does not clear such units, and new records take the place of the old ones in the log. Then a start of a
broker takes the units for live ones (`ConsumeQueue.recover`@5.3.3 and @4.9.7 stop only at zeros).
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.folders import QueueFolder, queue_folders


def write_without_stale_units(store: Location, ends: Mapping[tuple[str, int], int], output: Location) -> list[Location]:
    """Write the files in which queues end, with zeros after the end. The time of a file stays.

    Args:
        store: The store.
        ends: The next queue offset of each queue, by topic and queue id.
        output: The `consumequeue` folder that gets the files.

    Returns:
        The files of the store that have only stale units.

    """
    removed: list[Location] = []
    for folder in queue_folders(store / CONSUME_QUEUE) if ends else ():
        if (folder.topic, folder.queue_id) in ends:
            removed += _write(folder, ends[folder.topic, folder.queue_id] * UNIT_SIZE, output)
    return removed


def _write(folder: QueueFolder, end: int, output: Location) -> list[Location]:
    """Write the file that contains byte `end` of the queue; returns the files after that one."""
    removed = []
    for number, info in enumerate(folder.files):
        start = int(info.base_name)
        if end >= start + info.size:
            continue
        # Without any file, a queue that begins above 0 would begin at 0 again.
        if end > start or (number == 0 and start > 0):
            content = (folder.location / info.base_name).read_bytes()[: end - start]
            target = output / folder.topic / str(folder.queue_id) / info.base_name
            publish(target, content, info.size, info.mtime_ns // 1_000_000)
        else:
            removed.append(folder.location / info.base_name)
    return removed
