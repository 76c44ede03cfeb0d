"""The metadata tables of a store: its segments, queues and topics, and what `config/` and `checkpoint` contain.

Spark and the commands use the same rows. Timestamps are in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.format.timestamp import NANOS_PER_MICRO, micros
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint, checkpoint_problem
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.config.consumer_offsets import load_consumer_offsets
from spark_mq.store.config.delay_offsets import DELAY_OFFSETS, parse_delay_offsets
from spark_mq.store.config.store_paths import ABORT
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
SUBSCRIPTION_GROUPS_SCHEMA = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("consume_enable", pa.bool_()),
        ("consume_broadcast_enable", pa.bool_()),
        ("consume_from_min_enable", pa.bool_()),
        ("consume_message_orderly", pa.bool_()),
        ("retry_queue_nums", pa.int32()),
        ("retry_max_times", pa.int32()),
        ("consume_timeout_minute", pa.int32()),
        ("broker_id", pa.int64()),
        ("which_broker_when_consume_slowly", pa.int64()),
        ("notify_consumer_ids_changed_enable", pa.bool_()),
        ("group_sys_flag", pa.int32()),
        ("attributes", pa.map_(pa.string(), pa.string())),
    ]
)
DELAY_OFFSETS_SCHEMA = pa.schema(
    [
        ("delay_level", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("delay_offset", pa.int64()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("lag", pa.int64()),
        ("state", pa.string()),
        ("problem", pa.string()),
    ]
)
CHECKPOINT_SCHEMA = pa.schema(
    [
        ("physic_msg_timestamp", TIMESTAMP),
        ("logics_msg_timestamp", TIMESTAMP),
        ("index_msg_timestamp", TIMESTAMP),
        ("min_timestamp", TIMESTAMP),
        ("master_flushed_offset", pa.int64()),
        ("confirm_phy_offset", pa.int64()),
        ("logics_physical_offset", pa.int64()),
        ("is_clean", pa.bool_()),
        ("problem", pa.string()),
    ]
)

_LAST = "last_store_timestamp"


def segments(store: MessageStore) -> pa.Table:
    """The files of `commitlog/` that have the name of a segment, by name.

    `end_offset` is the commit log offset after a file's live records. Values of `state`:

    - FULL: all its records are live, and its end is at or before the live end of the log.
    - APPENDING: the live end of the log is in the file.
    - BEHIND: the file is after the live end, because it was created in advance or truncated.
    - EMPTY: the file has no bytes.
    - WRONG_SIZE: most files have another size; a broker does not start with it (`MappedFileQueue.doLoad`@5.3.3).
    - DAMAGED: there is damage at its beginning or its end.
    - STRAY: the file has the name of a segment, but is not one, and has no offsets.

    `problem` describes the damage, or that files before it are missing. It is NULL if the check of the file's edges
    found nothing, see `segment_state`.

    Args:
        store: The store.

    Returns:
        A table with `SEGMENTS_SCHEMA`.

    Example:
        >>> segments(MessageStore("/data/store"))["state"].to_pylist()
        ['FULL', 'APPENDING']
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
    """The consume queues, by topic and queue id.

    `min_offset` and `max_offset` are the queue offsets that a broker offers. The commit log offsets and store times are
    those of the message at `min_offset` and of the message before `max_offset`; NULL if there is no message. Values of
    `state`:

    - CAUGHT_UP: the check found nothing.
    - BEHIND: the log shows that messages after the queue's end are missing.
    - AHEAD: units or a consumer group are past the last message of the queue in the log, which is older than they are.
    - DAMAGED: the queue's files, or its first or last unit, are damaged.
    - LOST: the queue has no files and no offsets, but the log or a consumer group shows that it existed.

    `problem` describes the damage. It is NULL if the check found nothing, see `queue_state`.

    Args:
        store: The store.
        topic: Only the queues of this topic; None for all.

    Returns:
        A table with `QUEUES_SCHEMA`.

    Raises:
        UnsupportedStoreError: The queues are in RocksDB.

    Example:
        >>> queues(MessageStore("/data/store"), "orders")["max_offset"].to_pylist()
        [1532, 1507]
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
    """The topics of `config/topics.json`, and other topics that have a queue, by name.

    The settings of a topic are NULL if the file does not name the topic. `message_count` is the number of messages that
    the topic's queues offer. `problem` names the queues that lack messages, are damaged or lost (`queues`); then
    `message_count` is too small. It is NULL if there is no such queue.

    Args:
        store: The store.

    Returns:
        A table with `TOPICS_SCHEMA`.

    Raises:
        ConfigError: `config/topics.json` and its `.bak` cannot be read.
        UnsupportedStoreError: The queues are in RocksDB.

    Example:
        >>> topics(MessageStore("/data/store"))["topic"].to_pylist()
        ['TBW102', 'orders']
    """
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
    """The offsets of consumer groups, by group, topic and queue id (`config/consumerOffset.json`).

    `consumer_offset` is the next queue offset that the group consumes. `lag` is `max_offset` minus
    `consumer_offset`. `last_consumed_timestamp` is the store time of the message before `consumer_offset`. Values of
    `state`:

    - IN_RANGE: `consumer_offset` is from `min_offset` to `max_offset`.
    - TOO_SMALL: it is below `min_offset`, because messages expired before the group consumed them.
    - TOO_LARGE: it is above `max_offset`.
    - NO_QUEUE: it is above 0, and the store has no such queue.

    `problem` is the reason why `lag` is unknown and NULL: the queue does not exist, ends before `consumer_offset`, or
    is not CAUGHT_UP (`queues`).

    Args:
        store: The store.
        topic: Only the offsets in this topic; None for all.
        consumer_group: Only the offsets of this group; None for all.

    Returns:
        A table with `CONSUMER_OFFSETS_SCHEMA`.

    Raises:
        ConfigError: `config/consumerOffset.json` and its `.bak` cannot be read.
        UnsupportedStoreError: The queues are in RocksDB.

    Example:
        >>> consumer_offsets(MessageStore("/data/store"), "orders", "billing")["lag"].to_pylist()
        [12, 0]
    """
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
    return table_of(rows, CONSUMER_OFFSETS_SCHEMA)


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
    """The consumer groups of `config/subscriptionGroup.json`, by name (`SubscriptionGroupConfig`@5.3.3).

    A setting is NULL if the file does not have it: 4.9 has no `consume_message_orderly`, `consume_timeout_minute`,
    `group_sys_flag` and `attributes`.

    Args:
        store: The store.
        consumer_group: Only this group; None for all.

    Returns:
        A table with `SUBSCRIPTION_GROUPS_SCHEMA`.

    Raises:
        ConfigError: `config/subscriptionGroup.json` and its `.bak` cannot be read.
        UnsupportedStoreError: The broker keeps the groups in RocksDB.

    Example:
        >>> subscription_groups(MessageStore("/data/store"), "billing")["retry_max_times"].to_pylist()
        [16]
    """
    return load_subscription_groups(store.location, consumer_group)


def load_subscription_groups(store: Location, consumer_group: str | None = None) -> pa.Table:
    """The same as `subscription_groups`, by the folder that contains `config/`."""
    rows = load_config(store, "subscriptionGroup.json", _group_rows) or []
    return table_of(
        [row for row in rows if consumer_group in (None, row["consumer_group"])], SUBSCRIPTION_GROUPS_SCHEMA
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


def delay_offsets(store: MessageStore) -> pa.Table:
    """The offsets up to which delayed messages were delivered, by delay level (`config/delayOffset.json`).

    `delay_offset` is the queue offset in topic SCHEDULE_TOPIC_XXXX of the next message to deliver, and `queue_id` is
    the delay level minus 1 (`ScheduleMessageService.delayLevel2QueueId`@5.3.3). `lag` is `max_offset` minus
    `delay_offset`: the number of messages that wait. `state` has the values of table `consumer_offsets`, and `problem`
    the reason why `lag` is NULL.

    Args:
        store: The store.

    Returns:
        A table with `DELAY_OFFSETS_SCHEMA`.

    Raises:
        ConfigError: `config/delayOffset.json` and its `.bak` cannot be read.
        UnsupportedStoreError: The queues, or the offsets, are in RocksDB.

    Example:
        >>> delay_offsets(MessageStore("/data/store"))["lag"].to_pylist()
        [0, 3]
    """
    offsets = load_config(store.location, DELAY_OFFSETS, _delay_offsets) or {}
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
    return table_of(rows, DELAY_OFFSETS_SCHEMA)


def _delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    offsets = parse_delay_offsets(content)
    if min(offsets, default=1) < 1:
        raise ValueError(f"delay level {min(offsets)} is below 1")
    return offsets


def checkpoint(store: MessageStore) -> pa.Table:
    """The file `checkpoint`, one row: up to which store times log, queues and index were flushed.

    A time is NULL if it was never set. `min_timestamp` is the time up to which log and queues are certainly flushed:
    after an unclean stop, a broker dispatches the log again from a segment that begins at or before it. `is_clean` is
    whether there is no file `abort`. `problem` describes what is wrong with the file, and is NULL if nothing was found.

    Args:
        store: The store.

    Returns:
        A table with `CHECKPOINT_SCHEMA`.

    Example:
        >>> checkpoint(MessageStore("/data/store"))["is_clean"].to_pylist()
        [True]
    """
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
    return table_of([row], CHECKPOINT_SCHEMA)


def _time_or_null(millis: int) -> int | None:
    return micros(millis) if millis else None
