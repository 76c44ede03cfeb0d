"""Where a consumer group begins in each queue if it has no offset yet, and what a reset by time would set.

A consumer asks the broker for the group's offset (`ConsumerManageProcessor.queryConsumerOffset`@5.3.3). If there is
none, the broker answers 0 for a queue from whose beginning nothing was deleted, and whose first message is in memory:
in the page cache (5.x), or near enough to the end of the log (4.9). No file shows that. Otherwise, the consumer's
ConsumeFromWhere decides (`RebalancePushImpl.computePullFromWhereWithException`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_mq.errors import CorruptQueueError
from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.sharing.topic_queues import is_readable, queue_ids_of, readable_queue_ids, topic_settings
from spark_mq.store import metadata_tables
from spark_mq.store.config.consumer_offsets import load_consumer_offsets
from spark_mq.store.lost_queues import lost_queues
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.config import BEGIN_OFFSETS

FIRST = "first"
"""CONSUME_FROM_FIRST_OFFSET."""
LAST = "last"
"""CONSUME_FROM_LAST_OFFSET."""

_RETRY_PREFIX = "%RETRY%"
_SECOND = 1000
_STATE = ["topic", "queue_id", "state", "problem"]


def begin_offsets(
    store: MessageStore, from_where: str | int = LAST, topic: str | None = None, consumer_group: str | None = None
) -> pa.Table:
    """Where a new or reset group would begin, by topic and queue id; nothing is changed.

    Args:
        store: The store. Its version selects the rule for a time, see `get_offset_in_queue_by_time`.
        from_where: `first`, `last`, or a time: milliseconds since the epoch.
        topic: Only this topic; None for all that consumers can read.
        consumer_group: Whose offsets are shown beside; None for no group.

    Returns:
        The rows of table `begin_offsets`; `BEGIN_OFFSETS` says what its columns are.
    """
    if topic is not None:
        ids_by_topic = {topic: readable_queue_ids(store, topic)}
    else:
        ids_by_topic = {row["topic"]: queue_ids_of(store, row) for row in topic_settings(store) if is_readable(row)}
    problems = {
        (row["topic"], row["queue_id"]): f"the queue is {row['state']}: {row['problem']}"
        for row in metadata_tables.queues(store, topic).select(_STATE).to_pylist()
        if row["problem"] is not None
    }
    names = [(name, queue_id) for name, queue_ids in ids_by_topic.items() for queue_id in queue_ids]
    lost = lost_queues(store, [queue for queue in names if queue not in problems])
    problems |= {queue: f"the queue is LOST: {problem}" for queue, problem in lost.items()}
    committed = {
        (one.topic, one.queue_id): one.offset
        for one in (load_consumer_offsets(store.location) if consumer_group is not None else ())
        if one.consumer_group == consumer_group
    }
    rows = []
    for name, queue_ids in ids_by_topic.items():
        for queue_id in queue_ids:
            row: Row = {"topic": name, "queue_id": queue_id, "consumer_group": consumer_group}
            row["consumer_offset"] = committed.get((name, queue_id))
            problem = problems.get((name, queue_id))
            try:
                row |= {"problem": problem} if problem is not None else _offsets(store, name, queue_id, from_where)
            except CorruptQueueError as error:
                row["problem"] = str(error)
            rows.append(row)
    return table_of(rows, BEGIN_OFFSETS.schema)


def _offsets(store: MessageStore, topic: str, queue_id: int, from_where: str | int) -> Mapping[str, Any]:
    first = store.get_min_offset_in_queue(topic, queue_id)
    end = store.get_max_offset_in_queue(topic, queue_id)
    if isinstance(from_where, str):
        reset = first if from_where == FIRST else end
        begin = first if topic.startswith(_RETRY_PREFIX) else reset
    else:
        reset = store.get_offset_in_queue_by_time(topic, queue_id, from_where)
        whole = from_where // _SECOND * _SECOND
        by_time = end if topic.startswith(_RETRY_PREFIX) else store.get_offset_in_queue_by_time(topic, queue_id, whole)
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
