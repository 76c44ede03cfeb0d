"""The metadata tables of a store: its segments, queues and topics, and what `config/` and `checkpoint` contain.

Spark and the commands use the same rows. Timestamps are in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.format.timestamp import NANOS_PER_MICRO, micros
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint, checkpoint_problem
from spark_mq.store.config.config_file import DELAY_OFFSETS as DELAY_OFFSETS_FILE
from spark_mq.store.config.config_file import as_integer, load_config, load_consumer_offsets, parse_delay_offsets
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.file_states import QueueState, QueueStateName, QueueStates, queue_states, segment_states
from spark_mq.store.file_tables import index_file_rows
from spark_mq.store.index.folder import index_layout
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.config import CONSUMER_FILTERS, CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from spark_mq.tables.store_files import CHECKPOINT, QUEUES, SEGMENTS

_LAST = "last_store_timestamp"


def segments(store: MessageStore) -> pa.Table:
    """The files of `commitlog/` that have the name of a segment, by name."""
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
    return table_of(rows, SEGMENTS.schema)


def queues(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The consume queues, by topic and queue id."""
    return table_of(_queue_rows(store, queue_states(store, topic)), QUEUES.schema)


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
    """The topics of `config/topics.json`, and other topics that have a queue, by name."""
    rows = load_config(store.location, "topics.json", _topic_rows) or {}
    states = queue_states(store)
    for row in rows.values():
        row |= {"queue_count": 0, "message_count": 0, "problem": states.behind}
    for queue in _queue_rows(store, states):
        row = rows.setdefault(queue["topic"], {"topic": queue["topic"], "queue_count": 0, "message_count": 0})
        if queue["problem"] is not None:
            problem = f"queue {queue['queue_id']} is {queue['state']}: {queue['problem']}"
            has_other = row.get("problem") not in (None, states.behind)
            row["problem"] = f"{row['problem']}; {problem}" if has_other else problem
        if queue["state"] == QueueStateName.LOST:
            continue
        row["queue_count"] += 1
        row["message_count"] += queue["max_offset"] - queue["min_offset"]
        times = [time for time in (row.get(_LAST), queue.get(_LAST)) if time is not None]
        row[_LAST] = max(times, default=None)
    return table_of([rows[name] for name in sorted(rows)], TOPICS.schema)


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
    """The offsets of consumer groups, by group, topic and queue id (`config/consumerOffset.json`)."""
    offsets = load_consumer_offsets(store.location)
    states = queue_states(store, topic)
    rows = []
    for committed in offsets:
        if topic not in (None, committed.topic) or consumer_group not in (None, committed.consumer_group):
            continue
        min_offset = store.get_min_offset_in_queue(committed.topic, committed.queue_id)
        max_offset = store.get_max_offset_in_queue(committed.topic, committed.queue_id)
        queue = store.queues.get((committed.topic, committed.queue_id))
        state = _offset_state(committed.offset, min_offset, max_offset, queue is not None)
        problem = _offset_problem(state, states, (committed.topic, committed.queue_id), max_offset)
        row: Row = {
            "consumer_group": committed.consumer_group,
            "topic": committed.topic,
            "queue_id": committed.queue_id,
            "consumer_offset": committed.offset,
            "min_offset": min_offset,
            "max_offset": max_offset,
            "lag": max_offset - committed.offset if problem is None else None,
            "state": state,
            "problem": problem,
        }
        if queue is not None and min_offset < committed.offset <= max_offset:
            row["last_consumed_timestamp"] = _stored(store, *queue.unit(committed.offset - 1)[:2])
        rows.append(row)
    return table_of(rows, CONSUMER_OFFSETS.schema)


def _offset_problem(state: str, states: QueueStates, queue: tuple[str, int], max_offset: int) -> str | None:
    """Why the lag of a group cannot be known; None if it can."""
    if state == "NO_QUEUE":
        return "there is no such queue: it was lost, or its topic was deleted"
    if state == "TOO_LARGE":
        return f"the queue ends at queue offset {max_offset}: it lost its end, or its topic was deleted and made again"
    queue_state = states.by_queue.get(queue)
    if queue_state is None:
        return states.behind
    return None if queue_state.problem is None else f"the queue is {queue_state.name}: {queue_state.problem}"


def _offset_state(offset: int, min_offset: int, max_offset: int, has_queue: bool) -> str:
    if not has_queue and offset > 0:
        return "NO_QUEUE"
    if offset < min_offset:
        return "TOO_SMALL"
    return "TOO_LARGE" if offset > max_offset else "IN_RANGE"


def subscription_groups(store: MessageStore, consumer_group: str | None = None) -> pa.Table:
    """The consumer groups of `config/subscriptionGroup.json`, by name (`SubscriptionGroupConfig`@5.3.3)."""
    return load_subscription_groups(store.location, consumer_group)


def load_subscription_groups(store: Location, consumer_group: str | None = None) -> pa.Table:
    """The same as `subscription_groups`, by the folder that contains `config/`."""
    rows = load_config(store, "subscriptionGroup.json", _group_rows) or []
    return table_of(
        [row for row in rows if consumer_group in (None, row["consumer_group"])], SUBSCRIPTION_GROUPS.schema
    )


def _group_rows(content: Mapping[str, Any]) -> list[Row]:
    groups = content.get("subscriptionGroupTable") or {}
    return [{"consumer_group": str(name)} | _group_settings(groups[name]) for name in sorted(groups)]


def _group_settings(config: Mapping[str, Any]) -> Row:
    def flag(name: str) -> bool | None:
        if not isinstance(config.get(name), bool | None):
            raise TypeError(f"{name} is {config[name]!r}, not true or false")
        return config.get(name)

    def integer(name: str, bits: int) -> int | None:
        return None if config.get(name) is None else as_integer(config[name], bits)

    attributes = config.get("attributes")
    return {
        "consume_enable": flag("consumeEnable"),
        "consume_broadcast_enable": flag("consumeBroadcastEnable"),
        "consume_from_min_enable": flag("consumeFromMinEnable"),
        "consume_message_orderly": flag("consumeMessageOrderly"),
        "retry_queue_nums": integer("retryQueueNums", 32),
        "retry_max_times": integer("retryMaxTimes", 32),
        "consume_timeout_minute": integer("consumeTimeoutMinute", 32),
        "broker_id": integer("brokerId", 64),
        "which_broker_when_consume_slowly": integer("whichBrokerWhenConsumeSlowly", 64),
        "notify_consumer_ids_changed_enable": flag("notifyConsumerIdsChangedEnable"),
        "group_sys_flag": integer("groupSysFlag", 32),
        "attributes": None if attributes is None else {str(key): str(value) for key, value in attributes.items()},
    }


def consumer_filters(store: MessageStore, topic: str | None = None, consumer_group: str | None = None) -> pa.Table:
    """The SQL92 filters of consumer groups, by group and topic (`config/consumerFilter.json`)."""
    rows = [
        _filter_row(one)
        for one in load_consumer_filters(store.location)
        if topic in (None, one.topic) and consumer_group in (None, one.consumer_group)
    ]
    return table_of(rows, CONSUMER_FILTERS.schema)


def _filter_row(one: ConsumerFilter) -> Row:
    return {
        "consumer_group": one.consumer_group,
        "topic": one.topic,
        "expression": one.expression,
        "expression_type": one.expression_type,
        "is_dead": one.is_dead,
        "born_timestamp": micros(one.born_time),
        "dead_timestamp": micros(one.dead_time) if one.dead_time else None,
        "client_version": one.client_version,
        "bit_count": one.bit_count,
        "bit_positions": one.bit_positions,
        "problem": one.problem,
    }


def delay_offsets(store: MessageStore) -> pa.Table:
    """The offsets up to which delayed messages were delivered, by delay level (`config/delayOffset.json`)."""
    offsets = load_config(store.location, DELAY_OFFSETS_FILE, _delay_offsets) or {}
    states = queue_states(store, SCHEDULE_TOPIC)
    rows = []
    for level, offset in sorted(offsets.items()):
        queue = (SCHEDULE_TOPIC, level - 1)
        min_offset, max_offset = store.get_min_offset_in_queue(*queue), store.get_max_offset_in_queue(*queue)
        state = _offset_state(offset, min_offset, max_offset, queue in store.queues)
        problem = _offset_problem(state, states, queue, max_offset)
        rows.append(
            {
                "delay_level": level,
                "topic": SCHEDULE_TOPIC,
                "queue_id": level - 1,
                "delay_offset": offset,
                "min_offset": min_offset,
                "max_offset": max_offset,
                "lag": max_offset - offset if problem is None else None,
                "state": state,
                "problem": problem,
            }
        )
    return table_of(rows, DELAY_OFFSETS.schema)


def _delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    offsets = parse_delay_offsets(content)
    if min(offsets, default=1) < 1:
        raise ValueError(f"delay level {min(offsets)} is below 1")
    return offsets


def index_files(store: MessageStore) -> pa.Table:
    """The headers of the index files, oldest first."""
    return index_file_rows(store.location, index_layout(store.location, store.broker_conf))


def checkpoint(store: MessageStore) -> pa.Table:
    """The file `checkpoint`, one row: up to which store times log, queues and index were flushed."""
    found = Checkpoint.load(store.location)
    row: Row = {
        "physic_msg_timestamp": _time_or_null(found.physic_msg_timestamp),
        "logics_msg_timestamp": _time_or_null(found.logics_msg_timestamp),
        "index_msg_timestamp": _time_or_null(found.index_msg_timestamp),
        "min_timestamp": _time_or_null(found.min_timestamp),
        "master_flushed_offset": found.master_flushed_offset,
        "confirm_phy_offset": found.confirm_phy_offset,
        "logics_physical_offset": found.logics_physical_offset,
        "is_clean": not (store.location / ABORT).is_file,
        "problem": checkpoint_problem(store.location),
    }
    return table_of([row], CHECKPOINT.schema)


def _time_or_null(millis: int) -> int | None:
    return micros(millis) if millis else None
