"""The states of consume queues, from a quick check: whether they have caught up with the log, and whether damaged.

Only a whole read of the log proves that its queues are complete (`spark-mq rebuild`). This check reads a few units and
record heads of each queue, and at most `TAIL_SIZE` bytes of the log:

- The first and the last unit that a broker would offer must lead to a record of the queue.
- The files of a queue must follow each other, and have one size.
- Each message in the last `TAIL_SIZE` bytes of the log must have its unit (`lacking_messages`).
- A consumer group cannot be past the end of a queue (`config/consumerOffset.json`).
- No unit may lead past the end of the log, except to an old record (`gone_messages`).

So the check does not notice units that were lost or changed in the middle of a queue, nor a lost queue whose last
message is older and that no group consumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spark_mq.format.consume_queue import Queue
from spark_mq.store.config.config_file import consumed_offsets
from spark_mq.store.config.topics import configured_topics
from spark_mq.store.gone_messages import find_gone_messages
from spark_mq.store.lacking_messages import LackingMessage, LackingMessages, find_lacking_messages, leads_to_its_message
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue


class QueueStateName(StrEnum):
    """The values of column `state` of table `queues`."""

    CAUGHT_UP = "CAUGHT_UP"
    """The check found nothing that is missing or damaged."""
    BEHIND = "BEHIND"
    """The queue lacks messages after its end."""
    DAMAGED = "DAMAGED"
    """A file is missing or has another size, or the first or last unit does not lead to its message."""
    AHEAD = "AHEAD"
    """Its units, or a consumer group, are past the last message of it in the log."""
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
    """The states of the queues, or of the queues of one topic."""
    found = find_lacking_messages(store)
    lacking, behind = _by_queue(found.messages), _behind(found)
    consumed = consumed_offsets(store.location)
    configured = configured_topics(store.location) or frozenset()
    names = {*store.queues, *lacking, *(queue for queue in consumed if queue[0] in configured and consumed[queue] > 0)}
    gone = find_gone_messages(store).by_queue
    by_queue = {
        queue: _state(store, queue, lacking.get(queue), consumed.get(queue, 0), gone.get(queue, 0), behind)
        for queue in sorted(names)
        if topic in (None, queue[0])
    }
    return QueueStates(by_queue, behind)


def _state(
    store: MessageStore, queue: Queue, lacking: _Lacking | None, consumed: int, gone: int, behind: str | None
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
    if gone:
        reason = f"its last {gone} units lead past the end of the log, which does not have their messages"
        return QueueState(QueueStateName.AHEAD, reason)
    if consumed > max_offset:
        reason = f"it ends at queue offset {max_offset}, but a consumer group has consumed it up to {consumed}"
        return QueueState(QueueStateName.AHEAD if behind is None else QueueStateName.BEHIND, reason)
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
            if not leads_to_its_message(store, queue, queue_offset):
                yield f"the unit at queue offset {queue_offset} does not lead to its message"


def _by_queue(messages: Iterable[LackingMessage]) -> Mapping[Queue, _Lacking]:
    lacking: dict[Queue, _Lacking] = {}
    for message in messages:
        queue, number = (message.topic, message.queue_id), message.queue_offset
        before = lacking.get(queue, _Lacking(0, number, number))
        first, last = before.first_queue_offset, before.last_queue_offset
        lacking[queue] = _Lacking(before.count + 1, min(first, number), max(last, number))
    return lacking


def _behind(found: LackingMessages) -> str | None:
    """The value of `QueueStates.behind`."""
    if not found.messages or found.is_complete:
        return None
    return f"the log has {found.log_end - found.dispatched_to} bytes after the last message that any queue has"
