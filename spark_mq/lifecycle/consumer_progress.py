"""How far consumer groups are: table `consumer_progress`, a row for each group and topic, from the ends of queues.

The numbers follow `AdminBrokerProcessor.getConsumeStats`@5.3.3, which `mqadmin consumerProgress` prints for each queue:
the queues are those that consumers can read (`readQueueNums`), and a group without an offset in a queue has offset 0
there. A message that a group popped counts as consumed, because the group's offset is past it; whether the group
acknowledged it is in table `retries`, as soon as the broker gives it to the group again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.message_row import Row
from spark_mq.format.system_topic import RETRY_PREFIX, is_system_topic
from spark_mq.format.timestamp import micros
from spark_mq.lifecycle.retry_topic import (
    DLQ_PREFIX,
    ConsumerGroups,
    RetryTopic,
    consumer_groups,
    consumer_offsets,
    parse_retry_topic,
)
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.config.config_file import CONSUMER_OFFSETS, as_integer, load_config
from spark_mq.store.file_states import queue_states
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of
from spark_mq.tables.lifecycle import CONSUMER_PROGRESS

_PRE_BLANK_LIMIT = 1 << 16
"""Units that are read to find a queue's first message after pre-blank units."""


@dataclass(frozen=True)
class QueueMessage:
    """A message of a queue: its offset there, its store time in milliseconds, and its commit log offset."""

    queue_offset: int
    stored: int
    commit_log_offset: int


class QueueSource:
    """The consume queues of a store directory; an archive has them, too (`archive.archived_tables`).

    `behind` says why any queue can lack messages.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.location = store.location
        self._states = queue_states(store)
        self.behind = self._states.behind

    @cached_property
    def problems(self) -> dict[Queue, str | None]:
        """Each queue that has messages or is known to have had some, sorted, with the reason if it is damaged."""
        states = self._states.by_queue
        return {queue: state.problem and f"{state.name}: {state.problem}" for queue, state in states.items()}

    @property
    def problem(self) -> str | None:
        """Why the ends of queues are not certain; None if they are."""
        store = self._store
        end = store.get_max_phy_offset()
        if end > store.get_min_phy_offset() and not store.queues:
            return "the store has no consume queues"
        segments = (segment for segment in reversed(store.records.segments) if segment.base < end)
        newest = next(filter(None, (store.records.newest_in(segment, end) for segment in segments)), None)
        return lost_end(store.location, 0 if newest is None else newest.store_timestamp)

    def moment(self, at: int | None) -> int:
        """The time `at`; now for None."""
        return moment_of(at)

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The first offset of a queue, and the one after the last."""
        return self._store.get_min_offset_in_queue(*queue), self._store.get_max_offset_in_queue(*queue)

    def first_message(self, queue: Queue, start: int, stop: int) -> QueueMessage | int:
        """The first message from an offset of a queue on; the queue offset of its unit if that leads to no message."""
        units = self._store.queues[queue].units(start, min(stop, start + _PRE_BLANK_LIMIT))
        is_message = units["store_size"] != PRE_BLANK_SIZE
        queue_offset = start + int(is_message.argmax())
        proven = self._store.queue_cover(*queue).proven(queue_offset)
        if proven is None:
            return queue_offset
        return QueueMessage(queue_offset, proven.record.store_timestamp, proven.record.commit_log_offset)

    def stored(self, queue: Queue, queue_offset: int) -> int:
        """The store time of a message in milliseconds; -1 if it is not known."""
        found = self._store.queues.get(queue)
        return -1 if found is None else self._store.pickup_store_timestamp(*found.unit(queue_offset)[:2])


@dataclass
class _Progress:
    """What the queues of one topic say of one group; the numbers are those of table `consumer_progress`."""

    lag: int = 0
    expired: int = 0
    queues: int = 0
    without_offset: int = 0
    too_small: int = 0
    too_large: int = 0
    last_consumed: int = -1
    oldest: tuple[int, int, int, int] | None = None
    """Store time, queue id, queue offset and commit log offset of the oldest message that was not consumed."""
    reasons: list[str] = field(default_factory=list)


def consumer_progress_rows(
    store: MessageStore | QueueSource,
    topic: str | None = None,
    consumer_group: str | None = None,
    at: int | None = None,
) -> pa.Table:
    """The rows of table `consumer_progress`, by group and topic; `lag_millis` refers to `at`, in milliseconds."""
    source = QueueSource(store) if isinstance(store, MessageStore) else store
    reader, now = _Reader(source), source.moment(at)
    rows = []
    for group, name, reason in reader.pairs():
        if topic in (None, name) and consumer_group in (None, group):
            rows.append(reader.row(group, name, reason, now))
    return table_of(rows, CONSUMER_PROGRESS.schema)


class _Reader:
    """The facts of one store that the rows of all groups need, each read once."""

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._problem = source.problem
        self._read_queues = load_config(
            source.location,
            "topics.json",
            lambda content: {
                str(name): as_integer(config["readQueueNums"], 32)
                for name, config in (content.get("topicConfigTable") or {}).items()
            },
        )
        committed = consumer_offsets(source.location)
        self._has_offsets = committed is not None  # a broker writes the file every five seconds, even without an offset
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        for (group, name, queue_id), offset in (committed or {}).items():
            self._offsets.setdefault((group, name), {})[queue_id] = offset
        self._queue_ids: dict[str, list[int]] = {}
        for name, queue_id in source.problems:
            self._queue_ids.setdefault(name, []).append(queue_id)
        groups_of: dict[str, list[str]] = {}
        for group, name in self._offsets:
            groups_of.setdefault(name, []).append(group)
        groups = consumer_groups(source.location)
        topics = {*self._queue_ids, *(self._read_queues or ())}
        found = (_retry_topic(name, groups_of.get(name, ()), groups, topics) for name in sorted(topics))
        self._retry_topics = [retry for retry in found if retry is not None]
        self._retry_topics_of: dict[str | None, list[str]] = {}
        for retry in self._retry_topics:
            self._retry_topics_of.setdefault(retry.consumer_group, []).append(retry.name)
        self._of = cache(self._read)
        self._of_group = cache(self._group)

    def pairs(self) -> Iterator[tuple[str | None, str, str | None]]:
        """Each group and topic that has a row, and why the group is not certain, sorted."""
        found: dict[tuple[str, str], tuple[str | None, str, str | None]] = {
            pair: (*pair, None) for pair in self._offsets
        }
        for retry in self._retry_topics:
            pair = retry.consumer_group or "", retry.name
            found.setdefault(pair, (retry.consumer_group, retry.name, retry.reason))
        yield from (found[pair] for pair in sorted(found))

    def row(self, group: str | None, topic: str, reason: str | None, at: int) -> Row:
        """The row of a group and a topic."""
        found = self._of(group, topic)
        reasons = found.reasons if reason is None else [reason, *found.reasons]
        retries, dead_letters = (None, None) if group is None else self._of_group(group)
        row: Row = {
            "consumer_group": group,
            "topic": topic,
            "state": "UNKNOWN",
            "queue_count": found.queues,
            "too_small_offsets": found.too_small,
            "too_large_offsets": found.too_large,
            "group_retries": retries,
            "group_dead_letters": dead_letters,
            "reason": "; ".join(reasons) or None,
        }
        if found.last_consumed >= 0:
            row["last_consumed_timestamp"] = micros(found.last_consumed)
        if reasons:
            return row
        row |= {"lag": found.lag, "expired_messages": found.expired, "queues_without_offset": found.without_offset}
        is_known = (group, topic) in self._offsets
        row["state"] = ("LAGGING" if found.lag else "CAUGHT_UP") if is_known else "NO_OFFSET"
        if not found.lag:
            row["lag_millis"] = 0
        if found.oldest is not None:
            stored, queue_id, queue_offset, commit_log_offset = found.oldest
            row |= {
                "lag_millis": None if micros(stored) is None else max(at - stored, 0),
                "oldest_queue_id": queue_id,
                "oldest_queue_offset": queue_offset,
                "oldest_commit_log_offset": commit_log_offset,
                "oldest_store_timestamp": micros(stored),
            }
        return row

    def _group(self, group: str) -> tuple[int | None, int | None]:
        """The retries that a group has not consumed, and its dead letters; None if that is not known."""
        progress = [self._of(group, name) for name in self._retry_topics_of.get(group, ())]
        uncertain = any(retry.name.startswith(f"{RETRY_PREFIX}{group}") for retry in self._retry_topics if retry.reason)
        is_known = not uncertain and not any(one.reasons for one in progress)
        retries = sum(one.lag for one in progress) if is_known else None
        return retries, self._messages_of(f"{DLQ_PREFIX}{group}")

    def _messages_of(self, topic: str) -> int | None:
        """The number of messages that the queues of a topic offer; None if that is not known."""
        count = 0
        for queue_id in self._queue_ids.get(topic, ()):
            if self._source.problems[topic, queue_id] is not None:
                return None
            first, stop = self._source.ends((topic, queue_id))
            count += stop - first
        return None if self._source.behind is not None or self._problem is not None else count

    def _read(self, group: str | None, topic: str) -> _Progress:
        found = _Progress(reasons=[] if self._problem is None else [self._problem])
        offsets = {} if group is None else self._offsets.get((group, topic), {})
        if not self._has_offsets:
            found.reasons.append(f"config/{CONSUMER_OFFSETS} does not exist")
        queue_count = (self._read_queues or {}).get(topic)
        if topic.startswith(LIGHT_PREFIX):
            queue_count = 1  # no file configures it (`LmqTopicConfigManager`@5.3.3)
        if queue_count is None and self._read_queues is not None and is_system_topic(topic):
            # 4.9 does not configure the topic of op messages.
            queue_count = 1 + max(self._queue_ids.get(topic, ()), default=-1)
        if queue_count is None:
            missing = "does not exist" if self._read_queues is None else "does not name the topic"
            found.reasons.append(f"config/topics.json {missing}, so the queues of the topic are not known")
            queue_ids = sorted({*offsets, *self._queue_ids.get(topic, ())})
        else:
            # A file can have any number; only queues that exist, or that have an offset, have something to say.
            known = {*offsets, *self._queue_ids.get(topic, ())}
            queue_ids = sorted(queue_id for queue_id in known if 0 <= queue_id < queue_count)
            found.without_offset = max(queue_count, 0) - len([one for one in queue_ids if one in offsets])
        found.queues = len(queue_ids) if queue_count is None else max(queue_count, 0)
        if self._source.behind is not None:
            found.reasons.append(self._source.behind)
        for queue_id in queue_ids:
            self._add_queue(found, topic, queue_id, offsets.get(queue_id))
        return found

    def _add_queue(self, found: _Progress, topic: str, queue_id: int, committed: int | None) -> None:
        queue, offset = (topic, queue_id), committed or 0
        first, stop = self._source.ends(queue)
        problem = self._source.problems.get(queue)
        if offset > stop:
            found.too_large += 1
            found.reasons.append(f"the offset in queue {queue_id} is {offset}, and the queue ends at {stop}")
            return
        if problem is not None:
            found.reasons.append(f"queue {queue_id} is {problem}")
            return
        found.too_small += committed is not None and offset < first
        found.lag += stop - offset
        found.expired += max(first - offset, 0)
        if first < offset:
            found.last_consumed = max(found.last_consumed, self._source.stored(queue, offset - 1))
        start = max(first, offset)
        if start >= stop:
            return
        message = self._source.first_message(queue, start, stop)
        if isinstance(message, int):
            found.reasons.append(f"the unit at queue offset {message} of queue {queue_id} leads to no message")
            return
        oldest = message.stored, queue_id, message.queue_offset, message.commit_log_offset
        found.oldest = oldest if found.oldest is None else min(found.oldest, oldest)
        found.expired += message.queue_offset - start


def _retry_topic(
    name: str, offsets_of: Sequence[str], groups: ConsumerGroups, topics: Collection[str]
) -> RetryTopic | None:
    """The meaning of a topic's name; a group that has an offset in a retry topic is the group of this topic."""
    for group in offsets_of if name.startswith(RETRY_PREFIX) else ():
        rest = name.removeprefix(RETRY_PREFIX).removeprefix(group)
        if not rest or (rest[0] in "_+" and len(rest) > 1):
            return RetryTopic(name, group, rest[1:] or None)
    return parse_retry_topic(name, groups, topics)
