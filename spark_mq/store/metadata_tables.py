"""The small tables of a store: one row for each segment, queue, topic, and consumer's offset.

The same rows for Spark, for `MessageStore` and for the commands. Timestamps are in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.timestamp import NANOS_PER_MICRO, micros
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.config.consumer_offsets import load_consumer_offsets
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue_state import QueueState, QueueStateName, QueueStates, queue_states
from spark_mq.store.segment_state import segment_states

SEGMENTS_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("commit_log_offset", pa.int64()),
        ("file_size", pa.int64()),
        ("end_offset", pa.int64()),
        ("state", pa.string()),
        ("first_store_timestamp", TIMESTAMP),
        ("modification_timestamp", TIMESTAMP),
        ("problem", pa.string()),
    ]
)
QUEUES_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("first_commit_log_offset", pa.int64()),
        ("last_commit_log_offset", pa.int64()),
        ("first_store_timestamp", TIMESTAMP),
        ("last_store_timestamp", TIMESTAMP),
        ("file_count", pa.int32()),
        ("state", pa.string()),
        ("problem", pa.string()),
    ]
)
TOPICS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("perm", pa.int32()),
        ("read_queue_nums", pa.int32()),
        ("write_queue_nums", pa.int32()),
        ("topic_filter_type", pa.string()),
        ("topic_sys_flag", pa.int32()),
        ("is_order", pa.bool_()),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("queue_count", pa.int32()),
        ("message_count", pa.int64()),
        ("last_store_timestamp", TIMESTAMP),
        ("problem", pa.string()),
    ]
)
CONSUMER_OFFSETS_SCHEMA = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("consumer_offset", pa.int64()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("lag", pa.int64()),
        ("state", pa.string()),
        ("last_consumed_timestamp", TIMESTAMP),
        ("problem", pa.string()),
    ]
)


_LAST = "last_store_timestamp"


def segments(store: MessageStore) -> pa.Table:
    """The files of `commitlog/` that are named as segments, by name.

    `end_offset` is where a file's live records end. `state`: FULL; APPENDING, the file has the live end of the log;
    BEHIND, after the live end, made in advance or cut off; EMPTY, without a byte; WRONG_SIZE, of another size than
    most: a broker does not start with it (`MappedFileQueue.doLoad`@5.3.3); DAMAGED, damage shows at its beginning or
    its end; STRAY, it is named as a segment, but is none, and has no offsets. `problem` says what is wrong, also if
    files before it are missing; NULL if the look at the edges found nothing, see `segment_state`.
    """
    live_end = store.get_max_phy_offset()
    rows = []
    for segment in segment_states(store):
        info, base, first = segment.info, segment.base, segment.first
        rows.append(
            {
                "file": info.base_name,
                "commit_log_offset": base,
                "file_size": info.size,
                "end_offset": None if base is None else max(base, min(base + info.size, live_end)),
                "state": segment.name,
                "first_store_timestamp": None if first is None else micros(first.store_timestamp),
                "modification_timestamp": (info.mtime_ns or 0) // NANOS_PER_MICRO,
                "problem": segment.problem,
            }
        )
    return table_of(rows, SEGMENTS_SCHEMA)


def queues(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The consume queues, by topic and queue id; of one topic, if given.

    Offsets are those that a broker offers; commit log offsets and store times are those of the messages at
    `min_offset` and before `max_offset`, NULL where there is none. `state`: CAUGHT_UP; BEHIND, the log or a consumer
    group shows that messages after its end are missing; DAMAGED, the queue's files or ends are; LOST, it has no files
    (and no offsets), but the log or a consumer group shows that it had. `problem` says what is wrong; NULL if the look
    found nothing, see `queue_state`.
    """
    return table_of(_queue_rows(store, queue_states(store, topic)), QUEUES_SCHEMA)


def _queue_rows(store: MessageStore, states: QueueStates) -> list[Row]:
    return [_queue_row(store, *queue, state) for queue, state in states.by_queue.items()]


def _queue_row(store: MessageStore, topic: str, queue_id: int, state: QueueState) -> Row:
    row: Row = {"topic": topic, "queue_id": queue_id, "state": state.name.value, "problem": state.problem}
    queue = store.queues.get((topic, queue_id))
    if queue is None:
        return row | {"file_count": 0}
    min_offset = store.get_min_offset_in_queue(topic, queue_id)
    max_offset = store.get_max_offset_in_queue(topic, queue_id)
    row |= {"min_offset": min_offset, "max_offset": max_offset, "file_count": len(queue.files)}
    if min_offset < max_offset:
        for end, offset in (("first", min_offset), ("last", max_offset - 1)):
            commit_log_offset, store_size, _ = queue.unit(offset)
            row[f"{end}_commit_log_offset"] = commit_log_offset
            row[f"{end}_store_timestamp"] = _stored(store, commit_log_offset, store_size)
    return row


def _stored(store: MessageStore, commit_log_offset: int, store_size: int) -> int | None:
    time = store.pickup_store_timestamp(commit_log_offset, store_size)
    return None if time < 0 else micros(time)


def topics(store: MessageStore) -> pa.Table:
    """The topics of `config/topics.json` and those that have a queue, by name.

    What the broker is set to do with a topic is NULL where the file does not name it. `message_count` is what its
    queues offer. `problem` names the queues that lack messages, are damaged or lost (`queues`): then it is too small;
    NULL if there is none. Raises `ConfigError` where the file and its `.bak` cannot be read.
    """
    rows = load_config(store.location, "topics.json", _topic_rows) or {}
    states = queue_states(store)
    for row in rows.values():
        row |= {"queue_count": 0, "message_count": 0, "problem": states.behind}
    for queue in _queue_rows(store, states):
        row = rows.setdefault(queue["topic"], {"topic": queue["topic"], "queue_count": 0, "message_count": 0})
        if queue["problem"] is not None:
            said = f"queue {queue['queue_id']} is {queue['state']}: {queue['problem']}"
            row["problem"] = f"{row['problem']}; {said}" if row.get("problem") not in (None, states.behind) else said
        if queue["state"] == QueueStateName.LOST:
            continue
        row["queue_count"] += 1
        row["message_count"] += queue["max_offset"] - queue["min_offset"]
        times = [time for time in (row.get(_LAST), queue.get(_LAST)) if time is not None]
        row[_LAST] = max(times, default=None)
    return table_of([rows[name] for name in sorted(rows)], TOPICS_SCHEMA)


def _topic_rows(content: Mapping[str, Any]) -> dict[str, Row]:
    return {
        str(name): {
            "topic": str(name),
            "perm": as_integer(config["perm"], 32),
            "read_queue_nums": as_integer(config["readQueueNums"], 32),
            "write_queue_nums": as_integer(config["writeQueueNums"], 32),
            "topic_filter_type": str(config.get("topicFilterType", "SINGLE_TAG")),
            "topic_sys_flag": as_integer(config.get("topicSysFlag", 0), 32),
            "is_order": bool(config.get("order", False)),
            "attributes": {str(key): str(value) for key, value in (config.get("attributes") or {}).items()},
        }
        for name, config in (content.get("topicConfigTable") or {}).items()
    }


def consumer_offsets(store: MessageStore, topic: str | None = None, consumer_group: str | None = None) -> pa.Table:
    """How far consumer groups have got, by group, topic and queue id (`config/consumerOffset.json`).

    `consumer_offset` is the next queue offset that the group consumes, `lag` how far that is from `max_offset`.
    `state`: IN_RANGE; TOO_SMALL, below `min_offset`: messages expired before the group had them; TOO_LARGE, above
    `max_offset`; NO_QUEUE, above 0 where the store has no such queue. `last_consumed_timestamp` is the store time of
    the message before `consumer_offset`. `problem`: why `lag` cannot be known, and is NULL: the queue is not there, or
    ends before `consumer_offset`, or is not CAUGHT_UP (`queues`). Raises `ConfigError` where the file and its `.bak`
    cannot be read.
    """
    offsets = load_consumer_offsets(store.location)
    states = queue_states(store, topic)
    rows = []
    for one in offsets:
        if topic not in (None, one.topic) or consumer_group not in (None, one.consumer_group):
            continue
        min_offset = store.get_min_offset_in_queue(one.topic, one.queue_id)
        max_offset = store.get_max_offset_in_queue(one.topic, one.queue_id)
        queue = store.queues.get((one.topic, one.queue_id))
        state = _offset_state(one.offset, min_offset, max_offset, queue is not None)
        problem = _offset_problem(state, states, (one.topic, one.queue_id), max_offset)
        row: Row = {
            "consumer_group": one.consumer_group,
            "topic": one.topic,
            "queue_id": one.queue_id,
            "consumer_offset": one.offset,
            "min_offset": min_offset,
            "max_offset": max_offset,
            "lag": max_offset - one.offset if problem is None else None,
            "state": state,
            "problem": problem,
        }
        if queue is not None and min_offset < one.offset <= max_offset:
            row["last_consumed_timestamp"] = _stored(store, *queue.unit(one.offset - 1)[:2])
        rows.append(row)
    return table_of(rows, CONSUMER_OFFSETS_SCHEMA)


def _offset_problem(state: str, states: QueueStates, queue: tuple[str, int], max_offset: int) -> str | None:
    """Why the lag of a group cannot be known; None if it can."""
    if state == "NO_QUEUE":
        return "there is no such queue: it was lost, or its topic was deleted"
    if state == "TOO_LARGE":
        return f"the queue ends at queue offset {max_offset}: it lost its end, or its topic was deleted and made again"
    found = states.by_queue.get(queue)
    if found is None:
        return states.behind
    return None if found.problem is None else f"the queue is {found.name}: {found.problem}"


def _offset_state(offset: int, min_offset: int, max_offset: int, has_queue: bool) -> str:
    if not has_queue and offset > 0:
        return "NO_QUEUE"
    if offset < min_offset:
        return "TOO_SMALL"
    return "TOO_LARGE" if offset > max_offset else "IN_RANGE"
