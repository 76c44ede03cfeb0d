"""Messages of the log that queues lack, and messages that queues or the index show and the log lacks.

The first ones are found at the end of the log, to which no consume queue leads, from a read of at most `TAIL_SIZE`
bytes. If no queue leads that far, `TAIL_SIZE` bytes are read from the end of the last message that a queue has.
Messages that have no unit are skipped: those of transaction types PREPARED and ROLLBACK
(`CommitLogDispatcherBuildConsumeQueue`@5.3.3), and inner batches of topics without batch consume queues.

The others are gone: a log can be copied before its queues, or lose its end with a machine. Then units and index entries
lead past its end. Units of messages that a recovery cut off do so, too: a recovery clears nothing. But it does not
clear the log either, so the old records are still at their places, and such units do not count here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import CorruptLogError, UnsupportedStoreError
from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, Queue
from spark_mq.format.dispatch import LITE_PREFIX, fails_dispatch, light_queues, offset_in_queue
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import INNER_BATCH_FLAG, Record
from spark_mq.store.config.config_file import configured_topics, is_configured
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import index_files
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import folders_of_topic
from spark_mq.store.queue.queue_database import makes_light_queues

_BLOCK = 1024
_LOOKED_AT = 1000
"""Places after the end of the log at which old records are looked for; later units count as the last one of these."""
TAIL_SIZE = 256 << 10
"""Bytes of the log that are read: about a thousand messages, or a few hundredths of a second in plain Python."""

_LOOKED_AT_QUEUES = 8
_LOOKED_AT_UNITS = 1024


@dataclass(frozen=True)
class GoneMessages:
    """What leads past the end of the log, to no record."""

    by_queue: Mapping[Queue, int]
    count: int


def find_gone_messages(store: MessageStore) -> GoneMessages:
    """The messages after the end of the log that queues or the index show.

    A running broker appends before it dispatches, so units are read before the end of the log is asked for again.
    """
    try:
        queues = store.queues
    except UnsupportedStoreError:
        queues = {}
    end = max(store.get_max_phy_offset(), 0)
    found = {name: _after(queue, end) for name, queue in queues.items()}
    found = {name: offsets for name, offsets in found.items() if offsets.size}
    looked_at = sorted({offset for offsets in found.values() for offset in offsets[:_LOOKED_AT].tolist()})[:_LOOKED_AT]
    gone = {offset for offset in looked_at if store.records.find(offset) is None}
    first_unknown = looked_at[-1] + 1 if looked_at else end
    are_later_gone = bool(looked_at) and looked_at[-1] in gone
    counts, chosen = {}, []
    for name, offsets in found.items():
        is_gone = np.isin(offsets, np.array(sorted(gone), np.int64))
        if are_later_gone:
            is_gone |= offsets >= first_unknown
        if is_gone.any():
            counts[name] = int(is_gone.sum())
            chosen.append(offsets[is_gone])
    count = np.unique(np.concatenate(chosen)).size if chosen else 0
    # The last message of the index counts, too, if it was after the end of the log.
    headers = [file.stored_header() for file in index_files(store.location)]
    newest = max((header.end_commit_log_offset for header in headers if header.next_entry > 1), default=-1)
    return GoneMessages(counts, max(count, int(newest >= end and store.records.find(newest) is None)))


def _after(queue: ConsumeQueue, end: int) -> Int64s:
    """The commit log offsets of the last units of a queue, as far back as they lead past the log's end."""
    stop, first = queue.written_end, queue.files[0].first if queue.files else 0
    blocks = []
    while stop > first:
        start = max(first, stop - _BLOCK)
        units = queue.units(start, stop)
        is_after = (units["commit_log_offset"] >= end) & (units["store_size"] > 0)
        is_after &= units["store_size"] != PRE_BLANK_SIZE
        blocks.append(units["commit_log_offset"][is_after].astype(np.int64))
        if not is_after[0]:
            break
        stop = start
    return np.concatenate(blocks[::-1]) if blocks else np.empty(0, np.int64)


def leads_to_its_message(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the unit leads to a record of its size that is the message at this offset of the queue."""
    commit_log_offset, store_size, _ = queue.unit(queue_offset)
    if store_size == PRE_BLANK_SIZE:
        return True
    record = store.records.find(commit_log_offset, store_size)
    if record is None or record.size != store_size:
        return False
    return offset_in_queue(record, queue.topic, queue.queue_id) == queue.record_offset(queue_offset)


@dataclass(frozen=True)
class LackingMessage:
    """A message of the log that has no unit, or a unit that does not lead to it."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int


@dataclass(frozen=True)
class LackingMessages:
    """What a read of a part of the log shows.

    Attributes:
        dispatched_to: The commit log offset after the last message that any queue has.
        fails_at: The commit log offset of the first message whose dispatch to light message queues fails.
    """

    messages: tuple[LackingMessage, ...]
    checked: LogRange
    dispatched_to: int
    last_dispatched: int | None
    log_end: int
    fails_at: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no later message than the ones that were read can lack a unit, and the queues lead into that part."""
        return self.checked.stop == self.log_end and self.dispatched_to >= self.checked.start


def find_lacking_messages(store: MessageStore) -> LackingMessages:
    """The messages at the log's end that queues lack; not those of a topic that was deleted, as far as files show."""
    end = store.get_max_phy_offset()
    start, dispatched_to, last = _tail_start(store, end)
    checked = LogRange(start, min(end, start + TAIL_SIZE))
    lacking, fails_at = list[LackingMessage](), None
    makes_light = makes_light_queues(store.location, store.broker_conf)
    try:
        for record in store.records.iterate(checked):
            topic = decode_utf8(record.topic)
            if record.is_in_queue and not _is_in_queue(store, topic, record):
                at = record.queue_offset, record.commit_log_offset
                lacking.append(LackingMessage(topic, record.queue_id, *at))
            if makes_light and fails_at is None and fails_dispatch(record):
                fails_at = record.commit_log_offset
            for name, queue_offset in light_queues(record).items() if makes_light else ():
                if _is_after(store.queues.get((name, 0)), name, record):
                    lacking.append(LackingMessage(name, 0, queue_offset, record.commit_log_offset))
    except CorruptLogError:
        pass  # table `segments` reports damage of the log
    return LackingMessages(tuple(_of_topics_that_are(store, lacking)), checked, dispatched_to, last, end, fails_at)


def oldest_units(store: MessageStore, topics: Set[str]) -> dict[str, int]:
    """For each of the topics with queue files, the least commit log offset in the first unit of a queue."""
    starts: dict[str, int] = {}
    for queue in store.queues.values() if topics else ():
        if queue.topic in topics and queue.files:
            first = queue.unit(queue.files[0].first)[0]
            starts[queue.topic] = min(first, starts.get(queue.topic, first))
    return starts


def _of_topics_that_are(store: MessageStore, lacking: Sequence[LackingMessage]) -> Iterator[LackingMessage]:
    """Those that are not of a deleted topic, nor of a topic before it was deleted and created again.

    It was deleted if `config/topics.json` does not name it and the queue has no files. It was created again if a queue
    begins with offset 0 after one of its messages, and no queue of the topic has an older unit.
    """
    configured, folder = configured_topics(store.location), store.location / CONSUME_QUEUE
    lacking = [
        message
        for message in lacking
        if (message.topic, message.queue_id) in store.queues
        or is_configured(message.topic, configured)
        or folders_of_topic(folder, message.topic, message.queue_id)
    ]
    starts = oldest_units(store, {message.topic for message in lacking})
    again = set()
    for message in lacking:
        found = store.queues.get((message.topic, message.queue_id))
        is_older = found is not None and found.files and message.commit_log_offset < starts[message.topic]
        if found is not None and is_older and found.files[0].first == 0 and leads_to_its_message(store, found, 0):
            again.add(message.topic)
    for message in lacking:
        if message.topic not in again or message.commit_log_offset >= starts[message.topic]:
            yield message


def _tail_start(store: MessageStore, end: int) -> tuple[int, int, int | None]:
    """The offset of the first record that is checked, the end of the last message that a queue has, and its start."""
    floor = max(store.get_min_phy_offset(), end - TAIL_SIZE)
    last_units = []
    for queue in store.queues.values():
        max_offset = store.get_max_offset_in_queue(queue.topic, queue.queue_id)
        commit_log_offset, store_size, _ = queue.unit(max_offset - 1)
        if store_size != PRE_BLANK_SIZE and store.records.is_at(commit_log_offset, store_size):
            last_units.append((commit_log_offset, store_size, max_offset, queue))
    if not last_units:
        first_of_last = max((segment.base for segment in store.records.segments if segment.base < end), default=0)
        return first_of_last, store.get_min_phy_offset(), None
    last_units.sort(key=lambda unit: unit[0], reverse=True)
    newest, newest_size, _, _ = last_units[0]
    if newest < floor:
        return newest + newest_size, newest + newest_size, newest
    starts = {commit_log_offset for commit_log_offset, *_ in last_units}
    for _, _, max_offset, queue in last_units[:_LOOKED_AT_QUEUES]:
        units = queue.units(max(max_offset - _LOOKED_AT_UNITS, 0), max_offset)
        starts.update(units["commit_log_offset"].tolist())
    start = next((at for at in sorted(starts) if at >= floor and store.records.find(at) is not None), newest)
    return start, newest + newest_size, newest


def _is_after(queue: ConsumeQueue | None, topic: str, record: Record) -> bool:
    """Whether a message is newer than all units of a light message queue. A lite topic without a queue expired."""
    if queue is None or not queue.written_end:
        return queue is not None or not topic.startswith(LITE_PREFIX)
    return record.commit_log_offset > queue.unit(queue.written_end - 1)[0]


def _is_in_queue(store: MessageStore, topic: str, record: Record) -> bool:
    files = store.queues.get((topic, record.queue_id))
    if files is None:
        return bool(record.sys_flag & INNER_BATCH_FLAG) and topic not in store.batch_topics
    return files.unit(record.queue_offset)[:2] == (record.commit_log_offset, record.size)
