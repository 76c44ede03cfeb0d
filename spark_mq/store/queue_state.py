"""The states of consume queues, from a quick check: whether they have caught up with the log, and whether damaged.

Only a whole read of the log proves that its queues are complete (`spark-mq rebuild`). This check reads a few units and
record heads of each queue, and at most `TAIL_SIZE` bytes of the log:

- The first and the last unit that a broker would offer must lead to a record of the queue.
- The files of a queue must follow each other, and have one size.
- Each message in the last `TAIL_SIZE` bytes of the log must have its unit. If no queue leads that far, `TAIL_SIZE`
  bytes of the log are read from the end of the last message that a queue has.
- A consumer group cannot be past the end of a queue (`config/consumerOffset.json`).

So the check does not notice units that were lost or changed in the middle of a queue, nor a lost queue whose last
message is older and that no group consumed. Messages that have no unit are skipped: those of transaction types PREPARED
and ROLLBACK (`CommitLogDispatcherBuildConsumeQueue`@5.3.3), and those of batch consume queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spark_mq.errors import ConfigError, CorruptLogError, UnsafeNameError, UnsupportedStoreError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import HEADER, HEADER_SIZE, Record
from spark_mq.format.sys_flag import INNER_BATCH_FLAG, TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK
from spark_mq.store.config.config_file import load_config
from spark_mq.store.config.consumer_offsets import consumed_offsets
from spark_mq.store.config.topic_name import check_topic_name
from spark_mq.store.log.log_range import LogRange, iterate_records
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue

TAIL_SIZE = 256 << 10
"""Bytes of the log that are read: about a thousand messages, or a few hundredths of a second in plain Python."""

_LOOKED_AT_QUEUES = 8
_LOOKED_AT_UNITS = 1024
_LIGHT_PREFIX = "%LMQ%"

Queue = tuple[str, int]
"""A topic and a queue id."""


class QueueStateName(StrEnum):
    """The values of column `state` of table `queues`."""

    CAUGHT_UP = "CAUGHT_UP"
    """The check found nothing that is missing or damaged."""
    BEHIND = "BEHIND"
    """The queue lacks messages after its end."""
    DAMAGED = "DAMAGED"
    """A file is missing or has another size, or the first or last unit does not lead to its message."""
    LOST = "LOST"
    """The queue had messages, and has no files."""


@dataclass(frozen=True)
class QueueState:
    """The state of one queue; `problem` is None if the check found nothing."""

    name: QueueStateName
    problem: str | None = None


@dataclass(frozen=True)
class _Lacking:
    """Messages of one queue in the log that have no unit, or a unit that does not lead to them."""

    count: int
    first_queue_offset: int
    last_queue_offset: int


@dataclass(frozen=True)
class QueueStates:
    """The states of all queues.

    Attributes:
        by_queue: The state of each queue that has files, or is known to have had some, in the order of their names.
        behind: Text for a person if no queue leads to the end of the log. Then any queue can lack messages, even an
            unknown one. None if the last part of the log was checked.

    """

    by_queue: Mapping[Queue, QueueState]
    behind: str | None


def queue_states(store: MessageStore, topic: str | None = None) -> QueueStates:
    """The states of the queues, or of the queues of one topic.

    Raises:
        UnsupportedStoreError: The queues are in RocksDB.

    """
    lacking, behind = _lacking_messages(store)
    consumed = consumed_offsets(store.location)
    configured = _configured_topics(store)
    names = {*store.queues, *lacking, *(queue for queue in consumed if queue[0] in configured and consumed[queue] > 0)}
    by_queue = {
        queue: _state(store, queue, lacking.get(queue), consumed.get(queue, 0), behind)
        for queue in sorted(names)
        if topic in (None, queue[0])
    }
    return QueueStates(by_queue, behind)


def _state(
    store: MessageStore, queue: Queue, lacking: _Lacking | None, consumed: int, behind: str | None
) -> QueueState:
    files = store.queues.get(queue)
    if files is None:
        said = [] if lacking is None else [f"the log has at least {_messages(lacking.count)} of it"]
        said += [f"a consumer group has consumed it up to queue offset {consumed}"] if consumed else []
        return QueueState(QueueStateName.LOST, f"it has no files, but {' and '.join(said)}")
    max_offset = store.get_max_offset_in_queue(*queue)
    damage = list(_damage(store, files))
    if lacking is not None and lacking.first_queue_offset < max_offset:
        damage.append(f"at least {_messages(lacking.count)} of the log have no unit that leads to them")
    if damage:
        return QueueState(QueueStateName.DAMAGED, "; ".join(damage))
    if lacking is not None:
        reason = f"it lacks at least {_messages(lacking.count)}, up to queue offset {lacking.last_queue_offset}"
        return QueueState(QueueStateName.BEHIND, f"{reason}, which the log has")
    if consumed > max_offset:
        reason = f"it ends at queue offset {max_offset}, but a consumer group has consumed it up to {consumed}"
        return QueueState(QueueStateName.BEHIND, reason)
    if behind is not None:
        return QueueState(QueueStateName.BEHIND, behind)
    return QueueState(QueueStateName.CAUGHT_UP)


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _damage(store: MessageStore, queue: ConsumeQueue) -> Iterator[str]:
    sizes = {info.size for info in queue.folder.files}
    if len(sizes) > 1:
        yield f"its files have different sizes: {', '.join(map(str, sorted(sizes)))} bytes"
    for before, after in pairwise(queue.files):
        end = before.first + before.count
        if end < after.first:
            yield f"no file has the queue offsets {end} to {after.first - 1}"
    min_offset = store.get_min_offset_in_queue(queue.topic, queue.queue_id)
    max_offset = store.get_max_offset_in_queue(queue.topic, queue.queue_id)
    if min_offset < max_offset:
        for queue_offset in sorted({min_offset, max_offset - 1}):
            if not _leads_to_its_message(store, queue, queue_offset):
                yield f"the unit at queue offset {queue_offset} does not lead to its message"


def _leads_to_its_message(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the unit leads to a record whose head has its size, commit log offset, queue id and queue offset."""
    commit_log_offset, store_size, _ = queue.unit(queue_offset)
    if store_size == PRE_BLANK_SIZE:
        return True
    head = store.records.read(commit_log_offset, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return False
    size, _, _, queue_id, _, own_queue_offset, own_offset, _, _ = HEADER.unpack(head)
    if (size, own_offset) != (store_size, commit_log_offset):
        return False
    # A message is also in light message queues, at queue offsets of their own.
    return queue.topic.startswith(_LIGHT_PREFIX) or (queue_id, own_queue_offset) == (queue.queue_id, queue_offset)


def _configured_topics(store: MessageStore) -> set[str]:
    """The topics of `config/topics.json`; none if it cannot be read."""
    try:
        found = load_config(store.location, "topics.json", lambda content: set(content.get("topicConfigTable") or {}))
    except (ConfigError, UnsupportedStoreError):
        return set()
    return found or set()


def _lacking_messages(store: MessageStore) -> tuple[Mapping[Queue, _Lacking], str | None]:
    """The messages at the log's end that queues lack, and the value of `QueueStates.behind`.

    A broker that runs can be about to dispatch its newest messages, so units are read after the log's end was found.
    """
    end = store.get_max_phy_offset()
    start, dispatched_to = _tail_start(store, end)
    lacking: dict[Queue, _Lacking] = {}
    stop = min(end, start + TAIL_SIZE)
    try:
        for record in iterate_records(store.records, LogRange(start, stop)):
            queue = decode_utf8(record.topic), record.queue_id
            if _has_unit(record) and not _is_in_queue(store, queue, record):
                number = record.queue_offset
                before = lacking.get(queue, _Lacking(0, number, number))
                first, last = before.first_queue_offset, before.last_queue_offset
                lacking[queue] = _Lacking(before.count + 1, min(first, number), max(last, number))
    except CorruptLogError:
        pass  # table `segments` reports damage of the log
    if not lacking or (stop == end and dispatched_to >= start):
        return lacking, None
    return lacking, f"the log has {end - dispatched_to} bytes after the last message that any queue has"


def _tail_start(store: MessageStore, end: int) -> tuple[int, int]:
    """The offset of the first record that is checked, and the end of the last message that a queue has."""
    floor = max(store.get_min_phy_offset(), end - TAIL_SIZE)
    last_units = []
    for queue in store.queues.values():
        max_offset = store.get_max_offset_in_queue(queue.topic, queue.queue_id)
        commit_log_offset, store_size, _ = queue.unit(max_offset - 1)
        if store_size != PRE_BLANK_SIZE and store.records.is_at(commit_log_offset, store_size):
            last_units.append((commit_log_offset, store_size, max_offset, queue))
    if not last_units:
        first_of_last = max((segment.base for segment in store.records.segments if segment.base < end), default=0)
        return first_of_last, store.get_min_phy_offset()
    last_units.sort(key=lambda unit: unit[0], reverse=True)
    newest, newest_size, _, _ = last_units[0]
    if newest < floor:
        return newest + newest_size, newest + newest_size
    starts = {commit_log_offset for commit_log_offset, *_ in last_units}
    for _, _, max_offset, queue in last_units[:_LOOKED_AT_QUEUES]:
        units = queue.units(max(max_offset - _LOOKED_AT_UNITS, 0), max_offset)
        starts.update(units["commit_log_offset"].tolist())
    start = next((at for at in sorted(starts) if at >= floor and _is_record(store, at)), newest)
    return start, newest + newest_size


def _is_record(store: MessageStore, commit_log_offset: int) -> bool:
    try:
        store.records.record(commit_log_offset)
    except CorruptLogError:
        return False
    return True


def _has_unit(record: Record) -> bool:
    kind = record.sys_flag & TRANSACTION_TYPE_MASK
    return kind in (0, TRANSACTION_COMMIT_TYPE) and not record.sys_flag & INNER_BATCH_FLAG


def _is_in_queue(store: MessageStore, queue: Queue, record: Record) -> bool:
    files = store.queues.get(queue)
    if files is None:
        return _is_plain_name(queue[0]) and (store.location / "batchconsumequeue" / queue[0]).is_directory
    return files.unit(record.queue_offset)[:2] == (record.commit_log_offset, record.size)


def _is_plain_name(topic: str) -> bool:
    try:
        check_topic_name(topic)
    except UnsafeNameError:
        return False
    return True
