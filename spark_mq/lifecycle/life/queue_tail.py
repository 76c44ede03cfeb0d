"""The messages of a queue after an offset of the log, found by the units of the queue.

A message that was looked up can be decided by a later message in a queue of the broker that has no key: op messages
of transactions, notes that cancel timers, and notes about messages that were popped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.store.config.config_file import consumed_offsets
from spark_mq.store.config.topics import configured_topics
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import InQueue, scan
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueCover

MAX_MESSAGES = 50_000
"""Messages of a queue that are looked at."""


@dataclass(frozen=True)
class Cut:
    """Why messages of the queue can be missing, as text for a person."""

    reason: str


def messages_after(store: MessageStore, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
    """The messages of a queue that are after an offset of the log, in the order of the queue.

    The log is read only for units that do not lead to messages, and after the last unit if the queue can lack messages
    there: if it has no files, if its units end where a file ends, if a consumer was already further, or if newer
    messages of the log are in no queue at all.
    """
    for number, part in enumerate(_parts(store, store.queue_cover(topic, queue_id), commit_log_offset)):
        if number == MAX_MESSAGES:
            yield Cut(f"more than {MAX_MESSAGES:,} messages of {topic}/{queue_id} follow")
            return
        if isinstance(part, CorruptRange):
            yield Cut(part.describe())
        elif part.commit_log_offset > commit_log_offset:
            yield part


def revive_messages(store: MessageStore, commit_log_offset: int) -> Iterator[Record | Cut]:
    """The messages of the timer and of the revive topics that are after an offset of the log.

    The notes about a message that was popped are among them (`consumption.popped_messages`); a message can come twice.
    """
    queues = [name for name in store.queue_names if name[0] == TIMER_TOPIC or name[0].startswith(REVIVE_PREFIX)]
    for topic, queue_id in queues:
        yield from messages_after(store, topic, queue_id, commit_log_offset)
    configured = configured_topics(store.location)
    if configured is not None and not any(name.startswith(REVIVE_PREFIX) for name in configured):
        return
    # A queue can be without files because its first message is among those that are in no queue yet.
    log_end = store.get_max_phy_offset()
    dispatched = _dispatched_to(store)
    if dispatched >= log_end:
        return
    topics = {TIMER_TOPIC, *(name for name in configured or () if name.startswith(REVIVE_PREFIX))}
    if configured is None:
        yield Cut(
            "config/topics.json does not name the topics of notes, and queues lack the newest messages of the log"
        )
    for topic in sorted(topics):
        rest = LogRange(max(dispatched, commit_log_offset), log_end)
        for part in scan(store.location, store.records, rest, InQueue(topic)):
            yield Cut(part.describe()) if isinstance(part, CorruptRange) else part


def _parts(store: MessageStore, cover: QueueCover, commit_log_offset: int) -> Iterator[Record | CorruptRange]:
    before, _ = cover.around(lambda record: record.commit_log_offset > commit_log_offset)
    start, stop = cover.first_unit if before is None else before.queue_offset + 1, cover.end_of_units
    yield from cover.messages_and_damage(start, stop)
    if not _has_all_units(store, cover.topic, cover.queue_id):
        yield from cover.messages_and_damage(max(start, stop))


def _has_all_units(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether the queue's units certainly include its newest message."""
    queue = store.find_queue(topic, queue_id)
    if queue is None or not queue.files:
        return False
    end, last = queue.written_end, queue.files[-1]
    if end <= last.first or end >= last.first + last.count:
        return False
    if consumed_offsets(store.location).get((topic, queue_id), 0) > end:
        return False
    return _dispatched_to(store) >= store.get_max_phy_offset()


def _dispatched_to(store: MessageStore) -> int:
    """The commit log offset after the newest message that a queue leads to. Queues are written in the order of the log.

    (`ReputMessageService`@5.3.3.)
    """
    reached = -1
    log_end = store.get_max_phy_offset()
    for name in store.queue_names:
        queue = store.find_queue(*name)
        if queue is not None:
            offset, size, _ = queue.unit(queue.written_end - 1)
            if offset + size <= log_end and store.records.is_at(offset, size):
                reached = max(reached, offset + size)
    return reached
