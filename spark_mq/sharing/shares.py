"""What each consumer gets of a topic's queues, how uneven that is, which queues move, and where a new group begins.

A consumer asks the broker for the group's offset (`ConsumerManageProcessor.queryConsumerOffset`@5.3.3). If there is
none, the broker answers 0 for a queue from whose beginning nothing was deleted, and whose first message is in memory:
in the page cache (5.x), or near enough to the end of the log (4.9). No file shows that. Otherwise, the consumer's
ConsumeFromWhere decides (`RebalancePushImpl.computePullFromWhereWithException`@5.3.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_mq.errors import CorruptQueueError, OptionError
from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import Queue
from spark_mq.format.message_row import Row
from spark_mq.format.record import Record
from spark_mq.format.system_topic import RETRY_PREFIX
from spark_mq.sharing.strategies import MessageQueue, Strategy, allocate
from spark_mq.store import metadata_tables
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.store.disk_use import queue_bytes
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import InQueue, scan
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import log_cover
from spark_mq.tables.config import BEGIN_OFFSETS

FIRST = "first"
"""CONSUME_FROM_FIRST_OFFSET."""
LAST = "last"
"""CONSUME_FROM_LAST_OFFSET."""

_SECOND = 1000
_MERGE_DISTANCE = 64 << 10
_READABLE = 1 << 2
"""The bit of `perm` that lets consumers read a topic (`PermName.PERM_READ`@5.3.3)."""
_MOST_QUEUES = 1 << 20
"""More queues than any topic has: a larger `readQueueNums` is damage."""
MEASURES = ("queues", "messages", "log_bytes", "lag")
"""What shares are measured by."""


def begin_offsets(
    store: MessageStore, from_where: str | int = LAST, topic: str | None = None, consumer_group: str | None = None
) -> pa.Table:
    """Where a new or reset group would begin, by topic and queue id; nothing is changed."""
    if topic is not None:
        ids_by_topic = {topic: _readable_queue_ids(store, topic)}
    else:
        ids_by_topic = {row["topic"]: _queue_ids_of(store, row) for row in _topic_settings(store) if _is_readable(row)}
    names = [(name, queue_id) for name, queue_ids in ids_by_topic.items() for queue_id in queue_ids]
    problems = _problems(store, topic, names)
    committed = {
        (one.topic, one.queue_id): one.offset
        for one in (load_consumer_offsets(store.location) if consumer_group is not None else ())
        if one.consumer_group == consumer_group
    }
    rows = []
    for queue in names:
        row: Row = {"topic": queue[0], "queue_id": queue[1], "consumer_group": consumer_group}
        row["consumer_offset"] = committed.get(queue)
        try:
            row |= {"problem": problems[queue]} if queue in problems else _offsets(store, *queue, from_where)
        except CorruptQueueError as error:
            row["problem"] = str(error)
        rows.append(row)
    return table_of(rows, BEGIN_OFFSETS.schema)


def _offsets(store: MessageStore, topic: str, queue_id: int, from_where: str | int) -> Mapping[str, Any]:
    first = store.get_min_offset_in_queue(topic, queue_id)
    end = store.get_max_offset_in_queue(topic, queue_id)
    if isinstance(from_where, str):
        reset = first if from_where == FIRST else end
        begin = first if topic.startswith(RETRY_PREFIX) else reset
    else:
        reset = store.get_offset_in_queue_by_time(topic, queue_id, from_where)
        whole = from_where // _SECOND * _SECOND
        by_time = end if topic.startswith(RETRY_PREFIX) else store.get_offset_in_queue_by_time(topic, queue_id, whole)
        # A broker corrects an offset that is too small (`DefaultMessageStore.getMessage`@5.3.3).
        begin = max(by_time, first)
    return {
        "min_offset": first,
        "max_offset": end,
        "begin_offset": begin,
        "begin_lag": end - begin,
        "begin_in_memory": 0 if first <= 0 < begin else None,
        "reset_offset": reset,
        "reset_lag": end - max(reset, first),
    }


def _problems(store: MessageStore, topic: str | None, queues: Sequence[Queue]) -> dict[Queue, str]:
    """Why the ends of queues are not certain, also of those that lost their files; a queue without a problem is absent.

    The units of all queues show which messages of the log have one. Only the rest of the log is read.
    """
    rows = metadata_tables.queues(store, topic).select(["topic", "queue_id", "state", "problem"]).to_pylist()
    problems = {
        (row["topic"], row["queue_id"]): f"the queue is {row['state']}: {row['problem']}"
        for row in rows
        if row["problem"] is not None
    }
    without = set(queues) - problems.keys() - store.queues.keys()
    log = LogRange(max(store.get_min_phy_offset(), 0), store.get_max_phy_offset())
    if not without or log.size <= 0:
        return problems
    covers = [(queue, store.queue_cover(*name)) for name, queue in store.queues.items()]
    found: Counter[Queue] = Counter()
    for part in log_cover(covers, store.records, log, _MERGE_DISTANCE).uncovered:
        for name in {name for name, _ in without}:
            for record in scan(store.records, part, InQueue(name)):
                if isinstance(record, Record):
                    found[name, record.queue_id] += 1
    lost = "the queue is LOST: it has no files that can be read, but the log has {:,} messages of it"
    return problems | {queue: lost.format(found[queue]) for queue in without if found[queue]}


@dataclass(frozen=True)
class TopicQueue:
    """A queue of a topic, and how much is in it."""

    queue_id: int
    messages: int | None
    log_bytes: int | None
    lag: int | None
    problem: str | None


def topic_queues(store: MessageStore, topic: str, consumer_group: str | None = None) -> list[TopicQueue]:
    """The queues that consumers of a topic share out, by queue id.

    These are the queues below `readQueueNums` of `config/topics.json`, also those without a message
    (`MQClientInstance.topicRouteData2TopicSubscribeInfo`@5.3.3). If the file does not name the topic, they are the
    queues that have files.
    """
    ids = _readable_queue_ids(store, topic)
    problems = _problems(store, topic, [(topic, queue_id) for queue_id in ids])
    lags = None if consumer_group is None else _lags(store, topic, consumer_group)
    queues = []
    for queue_id in ids:
        problem = problems.get((topic, queue_id))
        messages, log_bytes = (None, None) if problem is not None else queue_bytes(store, topic, queue_id)
        no_lag = None, None if lags is None else "the group has no offset in the queue"
        lag, unknown = (lags or {}).get(queue_id, no_lag)
        queues.append(TopicQueue(queue_id, messages, log_bytes, lag, problem or unknown))
    return queues


def _is_readable(config: Mapping[str, Any]) -> bool:
    """Whether consumers may read a topic, of which this is the row of table `topics`; true if nothing is known."""
    return config["perm"] is None or bool(config["perm"] & _READABLE)


def _topic_settings(store: MessageStore) -> list[dict[str, Any]]:
    # Only these columns: a time as a Python object would need pandas.
    found: list[dict[str, Any]] = metadata_tables.topics(store).select(["topic", "perm", "read_queue_nums"]).to_pylist()
    return found


def _readable_queue_ids(store: MessageStore, topic: str) -> list[int]:
    config = next((row for row in _topic_settings(store) if row["topic"] == topic), None)
    if config is None:
        raise OptionError(store.why_no_topic(topic) or f"there is no topic {topic}")
    if not _is_readable(config):
        raise OptionError(f"consumers may not read topic {topic}: its perm in config/topics.json is {config['perm']}")
    return _queue_ids_of(store, config)


def _queue_ids_of(store: MessageStore, config: Mapping[str, Any]) -> list[int]:
    count = config["read_queue_nums"]
    if count is None:
        return store.queue_ids(config["topic"])
    if not 0 <= count <= _MOST_QUEUES:
        raise OptionError(f"readQueueNums of topic {config['topic']} in config/topics.json is {count}")
    return list(range(count))


def _lags(store: MessageStore, topic: str, consumer_group: str) -> dict[int, tuple[int | None, str | None]]:
    """The group's lag by queue id, and why it is not certain."""
    rows = (
        metadata_tables.consumer_offsets(store, topic, consumer_group)
        .select(["queue_id", "lag", "problem"])
        .to_pylist()
    )
    if not rows:
        raise OptionError(f"group {consumer_group} has no offset in topic {topic}: `spark-mq lag` lists the groups")
    return {row["queue_id"]: (row["lag"], row["problem"]) for row in rows}


@dataclass(frozen=True)
class Share:
    """The queues of one consumer."""

    consumer: str
    queue_ids: tuple[int, ...]
    messages: int | None
    log_bytes: int | None
    lag: int | None

    @property
    def queues(self) -> int:
        """The number of queues."""
        return len(self.queue_ids)


@dataclass(frozen=True)
class Unevenness:
    """How uneven shares are by one measure."""

    measure: str
    least: int
    most: int
    mean: float
    most_to_mean: float | None


@dataclass(frozen=True)
class Allocation:
    """How the queues of a topic are shared out."""

    strategy: str
    shares: tuple[Share, ...]
    unevenness: tuple[Unevenness, ...]
    nobody: tuple[int, ...]

    @property
    def owners(self) -> dict[int, tuple[str, ...]]:
        """The consumers of each queue; more than one only by strategy CONFIG."""
        owners: dict[int, tuple[str, ...]] = {}
        for share in self.shares:
            for queue_id in share.queue_ids:
                owners[queue_id] = (*owners.get(queue_id, ()), share.consumer)
        return owners


@dataclass(frozen=True)
class Move:
    """A queue that another consumer gets."""

    queue_id: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def allocation(
    strategy: Strategy, topic: str, broker_name: str, queues: Sequence[TopicQueue], consumers: Sequence[str]
) -> Allocation:
    """How a strategy shares out the queues of a topic."""
    by_id = {queue.queue_id: queue for queue in queues}
    allocated = allocate(strategy, [MessageQueue(topic, broker_name, queue_id) for queue_id in by_id], consumers)
    has_lag = any(queue.lag is not None for queue in queues)
    shares = []
    for client_id, share in allocated.items():
        own = [by_id[queue.queue_id] for queue in share]
        measured = ([queue.messages for queue in own], [queue.log_bytes for queue in own], [queue.lag for queue in own])
        messages, log_bytes, lag = (None if None in one else sum(filter(None, one)) for one in measured)
        ids = tuple(queue.queue_id for queue in own)
        shares.append(Share(client_id, ids, messages, log_bytes, lag if has_lag else None))
    taken = {queue_id for share in shares for queue_id in share.queue_ids}
    uneven = (_unevenness(measure, [getattr(share, measure) for share in shares]) for measure in MEASURES)
    return Allocation(
        strategy.name,
        tuple(shares),
        tuple(one for one in uneven if one is not None),
        tuple(queue_id for queue_id in by_id if queue_id not in taken),
    )


def moves(before: Allocation, after: Allocation) -> list[Move]:
    """The queues that have other consumers after a change, by queue id.

    A consumer loses a queue and another one gets it: what the first has not committed is consumed twice.
    """
    old, new = before.owners, after.owners
    changed = [queue_id for queue_id in old.keys() | new.keys() if old.get(queue_id) != new.get(queue_id)]
    return [Move(queue_id, old.get(queue_id, ()), new.get(queue_id, ())) for queue_id in sorted(changed)]


def _unevenness(measure: str, values: Sequence[int | None]) -> Unevenness | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    mean = sum(known) / len(known)
    return Unevenness(measure, min(known), max(known), mean, max(known) / mean if mean else None)
