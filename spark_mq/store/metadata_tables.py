"""The metadata tables of a store: its segments, queues and topics, and what `config/` and `checkpoint` contain.

Spark and the commands use the same rows. Timestamps are in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from spark_mq.format.amounts import counted
from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import Queue
from spark_mq.format.message_row import Row
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.format.timestamp import NANOS_PER_MICRO, micros
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint, checkpoint_problem
from spark_mq.store.config.config_file import DELAY_OFFSETS as DELAY_OFFSETS_FILE
from spark_mq.store.config.config_file import as_integer, load_config, load_consumer_offsets, parse_delay_offsets
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.config.epochs import EpochFile
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.file_states import QueueState, QueueStateName, QueueStates, queue_states, segment_states
from spark_mq.store.file_tables import index_file_rows
from spark_mq.store.index.folder import index_layout
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.config import CONSUMER_FILTERS, CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from spark_mq.tables.store_files import CHECKPOINT, EPOCHS, QUEUES, SEGMENTS

_LAST = "last_store_timestamp"
_NAMED_QUEUES = 3
"""Queues that the problem of a topic names; the rest is a number."""
_GROUP_SETTINGS = {
    "consume_enable": ("consumeEnable", 0),
    "consume_broadcast_enable": ("consumeBroadcastEnable", 0),
    "consume_from_min_enable": ("consumeFromMinEnable", 0),
    "consume_message_orderly": ("consumeMessageOrderly", 0),
    "retry_queue_nums": ("retryQueueNums", 32),
    "retry_max_times": ("retryMaxTimes", 32),
    "consume_timeout_minute": ("consumeTimeoutMinute", 32),
    "broker_id": ("brokerId", 64),
    "which_broker_when_consume_slowly": ("whichBrokerWhenConsumeSlowly", 64),
    "notify_consumer_ids_changed_enable": ("notifyConsumerIdsChangedEnable", 0),
    "group_sys_flag": ("groupSysFlag", 32),
}
"""The JSON name of each column, and the bits of its integers; 0 for true or false."""


def segments(store: MessageStore) -> pa.Table:
    """The rows of table `segments`: the files of the log that have the name of a segment, by name."""
    live_end = store.get_max_phy_offset()
    rows = []
    for segment in segment_states(store):
        info, base, first = segment.info, segment.base, segment.first
        row: Row = {"file": info.base_name, "commit_log_offset": base, "file_size": info.size, "state": segment.name}
        row["end_offset"] = None if base is None else max(base, min(base + info.size, live_end))
        row["first_store_timestamp"] = None if first is None else micros(first.store_timestamp)
        row |= {"modification_timestamp": (info.mtime_ns or 0) // NANOS_PER_MICRO, "problem": segment.problem}
        rows.append(row)
    return table_of(rows, SEGMENTS.schema)


def queues(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The rows of table `queues`: the consume queues, or those of a topic, by topic and queue id."""
    return table_of(_queue_rows(store, queue_states(store, topic)), QUEUES.schema)


def _queue_rows(store: MessageStore, states: QueueStates) -> list[Row]:
    return [_queue_row(store, *queue, state) for queue, state in states.by_queue.items()]


def _queue_row(store: MessageStore, topic: str, queue_id: int, state: QueueState) -> Row:
    row: Row = {"topic": topic, "queue_id": queue_id, "state": state.name.value, "problem": state.problem}
    queue = store.queues.get((topic, queue_id))
    if queue is None:
        return row | {"file_count": 0}
    min_offset, max_offset = _ends(store, (topic, queue_id))
    row |= {"min_offset": min_offset, "max_offset": max_offset, "file_count": len(queue.files)}
    if min_offset < max_offset:
        for end, offset in (("first", min_offset), ("last", max_offset - 1)):
            commit_log_offset, store_size, _ = queue.unit(offset)
            row[f"{end}_commit_log_offset"] = commit_log_offset
            row[f"{end}_store_timestamp"] = _stored(store, commit_log_offset, store_size)
    return row


def _ends(store: MessageStore, queue: Queue) -> tuple[int, int]:
    return store.get_min_offset_in_queue(*queue), store.get_max_offset_in_queue(*queue)


def _stored(store: MessageStore, commit_log_offset: int, store_size: int) -> int | None:
    time = store.pickup_store_timestamp(commit_log_offset, store_size)
    return None if time < 0 else micros(time)


def topics(store: MessageStore) -> pa.Table:
    """The rows of table `topics`: the topics of `config/topics.json`, and others that have a queue, by name."""
    rows = load_config(store.location, "topics.json", topic_rows) or {}
    states, problems = queue_states(store), dict[str, list[str]]()
    for row in rows.values():
        row |= {"queue_count": 0, "message_count": 0, "problem": states.behind}
    for queue in _queue_rows(store, states):
        row = rows.setdefault(queue["topic"], {"topic": queue["topic"], "queue_count": 0, "message_count": 0})
        if queue["problem"] is not None:
            problem = f"queue {queue['queue_id']} is {queue['state']}: {queue['problem']}"
            problems.setdefault(queue["topic"], []).append(problem)
        if queue["state"] == QueueStateName.LOST:
            continue
        row["queue_count"] += 1
        row["message_count"] += queue["max_offset"] - queue["min_offset"]
        times = [time for time in (row.get(_LAST), queue.get(_LAST)) if time is not None]
        row[_LAST] = max(times, default=None)
    for name, found in problems.items():
        more = [f"and {counted(len(found) - _NAMED_QUEUES, 'more queue')}"] if len(found) > _NAMED_QUEUES else []
        rows[name]["problem"] = "; ".join([*found[:_NAMED_QUEUES], *more])
    return table_of([rows[name] for name in sorted(rows)], TOPICS.schema)


def topic_rows(content: Mapping[str, Any]) -> dict[str, Row]:
    """The settings of each topic of `config/topics.json`, for `load_config`."""
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
    """The rows of table `consumer_offsets`: the offsets of groups, by group, topic and queue id."""
    states = queue_states(store, topic)
    rows = []
    for committed in load_consumer_offsets(store.location):
        if topic not in (None, committed.topic) or consumer_group not in (None, committed.consumer_group):
            continue
        queue, offset = (committed.topic, committed.queue_id), committed.offset
        row: Row = {"consumer_group": committed.consumer_group, "consumer_offset": offset}
        row |= _progress(store, states, queue, offset)
        if queue in store.queues and row["min_offset"] < offset <= row["max_offset"]:
            row["last_consumed_timestamp"] = _stored(store, *store.queues[queue].unit(offset - 1)[:2])
        rows.append(row)
    return table_of(rows, CONSUMER_OFFSETS.schema)


def _progress(store: MessageStore, states: QueueStates, queue: Queue, offset: int) -> Row:
    """The columns about a reader of a queue that reads on at an offset."""
    min_offset, max_offset = _ends(store, queue)
    state = offset_state(offset, min_offset, max_offset, queue in store.queues)
    problem = _offset_problem(state, states, queue, max_offset)
    row: Row = {"topic": queue[0], "queue_id": queue[1], "min_offset": min_offset, "max_offset": max_offset}
    return row | {"lag": max_offset - offset if problem is None else None, "state": state, "problem": problem}


def _offset_problem(state: str, states: QueueStates, queue: Queue, max_offset: int) -> str | None:
    """Why the lag of a group cannot be known; None if it can."""
    if state == "NO_QUEUE":
        return "there is no such queue: it was lost, or its topic was deleted"
    if state == "TOO_LARGE":
        return f"the queue ends at queue offset {max_offset}: it lost its end, or its topic was deleted and made again"
    queue_state = states.by_queue.get(queue)
    if queue_state is None:
        return states.behind
    return None if queue_state.problem is None else f"the queue is {queue_state.name}: {queue_state.problem}"


def offset_state(offset: int, min_offset: int, max_offset: int, has_queue: bool) -> str:
    """The state of a group's offset in a queue (table `consumer_offsets`)."""
    if not has_queue and offset > 0:
        return "NO_QUEUE"
    if offset < min_offset:
        return "TOO_SMALL"
    return "TOO_LARGE" if offset > max_offset else "IN_RANGE"


def subscription_groups(store: MessageStore, consumer_group: str | None = None) -> pa.Table:
    """The rows of table `subscription_groups`: groups of `config/subscriptionGroup.json`, by name."""
    return load_subscription_groups(store.location, consumer_group)


def load_subscription_groups(store: Location, consumer_group: str | None = None) -> pa.Table:
    """The same as `subscription_groups`, by the folder that contains `config/`."""
    rows = load_config(store, "subscriptionGroup.json", _group_rows) or []
    kept = [row for row in rows if consumer_group in (None, row["consumer_group"])]
    return table_of(kept, SUBSCRIPTION_GROUPS.schema)


def _group_rows(content: Mapping[str, Any]) -> list[Row]:
    groups = content.get("subscriptionGroupTable") or {}
    return [{"consumer_group": str(name)} | _group_settings(groups[name]) for name in sorted(groups)]


def _group_settings(config: Mapping[str, Any]) -> Row:
    """The settings of a group (`SubscriptionGroupConfig`@5.3.3)."""
    row: Row = {}
    for column, (name, bits) in _GROUP_SETTINGS.items():
        value = config.get(name)
        if not bits and not isinstance(value, bool | None):
            raise TypeError(f"{name} is {value!r}, not true or false")
        row[column] = as_integer(value, bits) if bits and value is not None else value
    attributes = config.get("attributes")
    row["attributes"] = None if attributes is None else {str(key): str(value) for key, value in attributes.items()}
    return row


def consumer_filters(store: MessageStore, topic: str | None = None, consumer_group: str | None = None) -> pa.Table:
    """The rows of table `consumer_filters`: the SQL92 filters of groups, by group and topic."""
    rows = [
        {name: getattr(one, name, None) for name in CONSUMER_FILTERS.schema.names}
        | {"born_timestamp": micros(one.born_time), "dead_timestamp": micros(one.dead_time) if one.dead_time else None}
        for one in load_consumer_filters(store.location)
        if topic in (None, one.topic) and consumer_group in (None, one.consumer_group)
    ]
    return table_of(rows, CONSUMER_FILTERS.schema)


def delay_offsets(store: MessageStore) -> pa.Table:
    """The rows of table `delay_offsets`: the offsets up to which delayed messages were delivered, by delay level."""
    offsets = load_config(store.location, DELAY_OFFSETS_FILE, _delay_offsets) or {}
    states = queue_states(store, SCHEDULE_TOPIC)
    rows = [
        {"delay_level": level, "delay_offset": offset} | _progress(store, states, (SCHEDULE_TOPIC, level - 1), offset)
        for level, offset in sorted(offsets.items())
    ]
    return table_of(rows, DELAY_OFFSETS.schema)


def _delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    offsets = parse_delay_offsets(content)
    if min(offsets, default=1) < 1:
        raise ValueError(f"delay level {min(offsets)} is below 1")
    return offsets


def index_files(store: MessageStore) -> pa.Table:
    """The rows of table `index_files`: the headers of the index files, oldest first."""
    return index_file_rows(store.location, index_layout(store.location, store.broker_conf))


def checkpoint(store: MessageStore) -> pa.Table:
    """The row of table `checkpoint`: up to which store times log, queues and index were flushed."""
    found = Checkpoint.load(store.location)
    row: Row = {name: getattr(found, name, None) for name in CHECKPOINT.schema.names}
    times = [name for name in row if name.endswith("timestamp")]
    row |= {name: micros(row[name]) if row[name] else None for name in times}
    row["is_clean"] = not (store.location / ABORT).is_file
    row["problem"] = checkpoint_problem(store.location)
    return table_of([row], CHECKPOINT.schema)


def epochs(store: MessageStore) -> pa.Table:
    """The rows of table `epochs`: the masters of a replica, in the order of the file."""
    found = EpochFile.of(store.location)
    problems = dict(found.problems(store.get_max_phy_offset()))
    rows = []
    for one, stop in zip_longest(found.epochs, (after.start_offset for after in found.epochs[1:])):
        record = store.find_record(one.start_offset)
        time = None if isinstance(record, NoRecord) else micros(record.store_timestamp)
        row = {"end_offset": stop, "first_store_timestamp": time, "problem": problems.get(one)}
        rows.append({**vars(one), **row})
    return table_of(rows, EPOCHS.schema)
