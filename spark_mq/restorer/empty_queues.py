"""Queues that have no message in the restored store, but a next offset that must stay.

A broker numbers the messages of a queue from the end of its last file on. A queue whose messages all expired keeps that
file. So such a queue gets one file, which ends at its next offset. Its last unit looks like that of an expired message,
and pre-blank units are before it, as in a queue of which only that message was left:

- The commit log offset of the last unit, 1, is before the first segment. So every version takes the unit for expired,
  and finds no message there (`ConsumeQueue.correctMinOffset`, `DefaultMessageStore.getMessage`@4.9.7 and @5.3.3). At
  offset 0 a broker would return the first bytes of the log (`MappedFileQueue.findMappedFileByOffset(0, true)`).
- Its size is 1. A boot takes offset and size of the last unit for the end of what the queue has from the log, and
  ignores messages before that end (`ConsumeQueue.recover`, `putMessagePositionInfo`). With a pre-blank unit
  (0, 0x7FFFFFFF, 0) as the last one, it would ignore all messages in the first 2 GiB of the log.
- A file has at least one unit: a boot of 5.3.3 fails at a last file without one (`correctMinOffset` reads the unit
  before the end). So a queue that ends at the end of a file has this file, full, and not an empty next one.

This works only in a log whose first segment is not at offset 0: there is no expired offset in such a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import UNIT_SIZE, pre_blank, queue_file_name
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.topic_name import is_topic_name

_LAST_UNIT = (1, 1, 0)
"""Commit log offset, size and tags code."""


@dataclass(frozen=True)
class EmptyQueueFile:
    """The file of a queue without a message.

    Attributes:
        content: Its units; zeros follow them.
    """

    name: str
    content: bytes


@dataclass(frozen=True)
class EmptyQueues:
    """The queues without a message.

    Attributes:
        left_out: The queues that did not: their next message gets offset 0 again.
    """

    written: tuple[Queue, ...]
    left_out: tuple[Queue, ...]


def empty_queue_file(next_offset: int, file_size: int) -> EmptyQueueFile:
    """The one file of a queue that has no message, and whose next message gets an offset."""
    units_per_file, rest = divmod(file_size, UNIT_SIZE)
    if rest or units_per_file < 1:
        raise OptionError(f"mappedFileSizeConsumeQueue={file_size}: queue files consist of units of {UNIT_SIZE} bytes")
    file_number = (next_offset - 1) // units_per_file
    if next_offset < 1 or (file_number + 1) * file_size > np.iinfo(np.int64).max:
        raise OptionError(f"a queue file cannot end at queue offset {next_offset}")
    units = pre_blank(next_offset - file_number * units_per_file)
    units[-1] = _LAST_UNIT
    return EmptyQueueFile(queue_file_name(file_number, file_size), units.tobytes())


def write_empty_queues(
    folder: Location, next_offsets: Mapping[Queue, int], file_size: int, log_start: int, modified_millis: int
) -> EmptyQueues:
    """Write the files of queues that have no message.

    Args:
        folder: The folder `consumequeue` of the new store.
        next_offsets: The next offset of each queue without a message, by topic and queue id. A queue with offset 0 is
            no queue yet.
        log_start: The commit log offset of the first segment of the new store.
        modified_millis: The modification time of the files, in milliseconds: that of the last message, for example.

    Returns:
        The queues that were written, and those that were left out: the log begins at 0, or a name or an offset is not
        valid.
    """
    written, left_out = [], []
    for (topic, queue_id), next_offset in sorted(next_offsets.items()):
        if next_offset == 0:
            continue
        try:
            file = empty_queue_file(next_offset, file_size)
        except OptionError:
            left_out.append((topic, queue_id))
            continue
        if sum(_LAST_UNIT[:2]) > log_start or not is_topic_name(topic) or not 0 <= queue_id < 1 << 31:
            left_out.append((topic, queue_id))
            continue
        publish(folder / topic / str(queue_id) / file.name, file.content, file_size, modified_millis)
        written.append((topic, queue_id))
    return EmptyQueues(tuple(written), tuple(left_out))
