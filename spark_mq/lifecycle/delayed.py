"""The delayed messages of a store: due when, and delivered where.

A broker delays a message in one of two ways:

- By a delay level (`ScheduleMessageService`@5.3.3 and @4.9.7). The message waits in SCHEDULE_TOPIC_XXXX, in queue
  level minus 1. `config/delayOffset.json` has the next queue offset of each level. The tags code of a unit of that
  queue is the due time.
- By the timer of 5.x (`TimerMessageStore`@5.3.3). The message waits in rmq_sys_wheel_timer until TIMER_OUT_MS. A
  message whose time is far away is stored there again (a roll, TIMER_ROLL_TIMES). `config/timercheck` says up to which
  slot of the timer wheel the broker has delivered. A message with TIMER_DEL_UNIQKEY cancels the message that has this
  real topic and unique key, and the same TIMER_OUT_MS.

A delivered message is a new one in the real topic and queue (`ScheduleMessageService.messageTimeUp`,
`TimerMessageStore.convertMessage`@5.3.3). It has the unique key, born time, born host, reconsume times, body and
properties of the delayed message, and follows it in the log. The stored properties still contain REAL_TOPIC, because
the broker clears the property only after it has put the properties into bytes.

The timer log of 5.x has which timer messages are enqueued, and when the broker takes each of them next. A unit has 52
bytes, big-endian: size, position of the slot's previous unit, magic, write time, delay, commit log offset and size of
the message, hash of its topic, and a reserved number (`TimerLog`, `TimerMessageStore.doEnqueue`@5.3.3). The timer wheel
(file `timerwheel`) only links the units of a slot; a broker checks it against the timer log at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s, leading
from spark_mq.format.arrow_array import timestamps
from spark_mq.format.system_topic import SCHEDULE_TOPIC, TIMER_TOPIC, delay_level_millis
from spark_mq.io.location import Location
from spark_mq.lifecycle.message_arrays import (
    Groups,
    by_number,
    first_cases,
    flags,
    integers,
    numbered,
    numbers,
    optional,
    positions_of,
    ranks,
)
from spark_mq.lifecycle.outcomes import SLOT_IS_READ, TIMER_PRECISION, DeliveryProgress, delivery_cases
from spark_mq.lifecycle.selected_messages import (
    POSITION_COLUMNS,
    LogSource,
    ReadableLog,
    Selection,
    TopicRule,
    sound_messages,
)
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import TIMER_LOG
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import DELAYED

DELAY_LEVEL, TIMER = "DELAY_LEVEL", "TIMER"

RECORDS = Selection(
    TopicRule(names=frozenset({SCHEDULE_TOPIC, TIMER_TOPIC}), properties=("REAL_TOPIC", "TIMER_OUT_MS")),
    (
        *POSITION_COLUMNS,
        *("born_timestamp_millis", "born_host", "store_timestamp_millis", "reconsume_times", "body_crc"),
    ),
    ("REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY"),
)
"""The delayed messages of a store, and those that can be deliveries of them."""

_NONE = -1
UNIT_SIZE = 52

_UNIT = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("commit_log_offset", ">i8"),
        ("store_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
_PASSED = "the offset of its level in delayOffset.json is after it, but no delivered message of it is in the log"
_NO_UNIT = "timercheck says that it is in the timer log, but the timer log has no unit of it"


@dataclass(frozen=True)
class TimerUnits:
    """The units of a timer log, in its order."""

    commit_log_offset: Int64s
    slot_time: Int64s

    def newest(self, commit_log_offset: Int64s) -> Int64s:
        """The number of the last unit of each message; -1 if it has none."""
        found = positions_of(commit_log_offset, self.commit_log_offset[::-1])
        return np.where(found >= 0, self.commit_log_offset.size - 1 - found, -1)


def timer_units(store: Location) -> TimerUnits:
    """The units of the timer log of a store; none if it has no timer log.

    A file is read up to its first bytes that are not a unit: zeros, or the filler at its end.
    """
    folder = store / TIMER_LOG
    files = [(folder / info.base_name).read_bytes() for info in folder.entries() if info.base_name.isdecimal()]
    units = np.concatenate([np.empty(0, _UNIT), *map(_units, files)])
    slot_time = units["write_time"].astype(np.int64) + units["delay"]
    return TimerUnits(units["commit_log_offset"].astype(np.int64), slot_time)


def _units(data: bytes) -> npt.NDArray[np.void]:
    units = np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], _UNIT)
    is_unit = (units["size"] == UNIT_SIZE) & ((units["magic"] & 1) != 0)
    return units[: leading(is_unit)]


def delayed_rows(store: MessageStore | LogSource, at: int | None = None, conf: BrokerConf | None = None) -> pa.Table:
    """The rows of table `delayed`, in the order of the log; messages are due or not at `at`, in milliseconds.

    `messageDelayLevel` of `conf` counts if no unit of the consume queue has the due time. A source without a timer log
    gives no `slot_timestamp`, and a state for which no timer log is needed.
    """
    source = LogSource.of(store)
    moment = source.moment(at)
    progress = DeliveryProgress.of(source.location)  # before the log, which is then at least as new
    units = None if source.timer_location is None else timer_units(source.timer_location)
    (found,) = source.selections_of(RECORDS)
    sound, damaged = sound_messages(found)
    # Half messages and commits have the property REAL_TOPIC, too: only those count that have the key of one that waits.
    waits = pc.is_in(sound["topic"], pa.array([SCHEDULE_TOPIC, TIMER_TOPIC]))
    keys = sound["unique_key"].filter(waits).combine_chunks()
    records = DelayedRecords(sound.filter(pc.or_(waits, pc.is_in(sound["unique_key"], keys.unique()))))
    levels = np.flatnonzero(records.is_level)
    offset, queue_id, queue_offset, stored = records.offset, records.queue_id, records.queue_offset, records.stored
    by_unit, is_known = source.due_times(offset[levels], queue_id[levels], queue_offset[levels], stored[levels])
    due = due_by_level(queue_id, stored, conf or source.conf)  # any number for messages of the timer
    due[levels[is_known]] = by_unit[is_known]
    log = ReadableLog.of(found, *damaged)
    return delayed(records, due, log, progress, units, source.lost_end(found.newest_timestamp), moment)


def due_by_level(queue_id: Int64s, stored: Int64s, conf: BrokerConf) -> Int64s:
    """When messages of SCHEDULE_TOPIC_XXXX are due by the settings `messageDelayLevel`, in milliseconds."""
    delays = np.array(delay_level_millis(conf.message_delay_level), np.int64)
    due: Int64s = stored + delays[np.clip(queue_id, 0, delays.size - 1)]
    return due


class DelayedRecords:
    """The delayed messages and their deliveries, paired; `groups` has a group for each delayed message.

    Arrays with an element for each message: `offset`, `queue_id`, `queue_offset`, `stored`, `is_level`, `is_timer`,
    `is_cancel`. `newest` has the number of the newest record of each delayed message, which waits; `first` the oldest.
    """

    def __init__(self, records: pa.Table) -> None:
        self.records = records = records.combine_chunks()
        self.offset = integers(records["commit_log_offset"])
        self.queue_id, self.queue_offset = integers(records["queue_id"]), integers(records["queue_offset"])
        self.stored = integers(records["store_timestamp_millis"])
        self.out_time = numbers(records["TIMER_OUT_MS"], 18, _NONE, _NONE)
        self.is_level: Flags = flags(pc.equal(records["topic"], SCHEDULE_TOPIC))
        in_timer = flags(pc.equal(records["topic"], TIMER_TOPIC))
        self.is_cancel: Flags = in_timer & flags(pc.is_valid(records["TIMER_DEL_UNIQKEY"]))
        self.is_timer: Flags = in_timer & ~self.is_cancel
        self.waits: Flags = self.is_level | self.is_timer
        is_delivered = ~self.is_level & ~in_timer
        self.real_topic = pc.if_else(pa.array(is_delivered), records["topic"], records["REAL_TOPIC"])
        self.real_queue = np.where(is_delivered, self.queue_id, numbers(records["REAL_QID"], 9, _NONE, _NONE))
        number, self.is_ambiguous = self._numbers()
        self.groups = Groups(number)
        self.waiting = self.groups.members(self.waits)
        self.deliveries = self.groups.members(~self.waits)
        self.first, self.newest = self.groups.first(self.waiting), self.groups.last(self.waiting)
        self.cancel = self._cancels()

    def _numbers(self) -> tuple[Int64s, Flags]:
        """The number of each record's delayed message, -1 for none; and which cannot be told apart."""
        records = self.records
        key = records["unique_key"]
        group = numbered(
            key,
            pa.array(np.where(flags(pc.is_null(key)) & self.is_cancel, self.offset, _NONE)),
            records["born_timestamp_millis"],
            records["born_host"],
            records["reconsume_times"],
            records["body_crc"],
            records["TIMER_OUT_MS"],
            self.real_topic,
            pa.array(self.real_queue),
        )
        size = group.size
        is_original = self.waits & flags(pc.is_null(records["TIMER_ROLL_TIMES"]))
        originals = np.bincount(group[is_original], minlength=size + 1)[group]
        rolled = np.bincount(group[self.waits & ~is_original], minlength=size + 1)[group] > 0
        several = originals > 1
        waiting, delivered = np.flatnonzero(self.waits), np.flatnonzero(~self.waits & ~self.is_cancel)
        # Several delayed messages are the same in everything: the first of them is delivered first.
        rank = np.zeros(size, np.int64)
        for chosen in (waiting[several[waiting]], delivered[several[delivered]]):
            rank[chosen] = np.minimum(ranks(group[chosen]), originals[chosen] - 1)
        pair = numbered(pa.array(group), pa.array(rank))
        first = np.full(size, np.iinfo(np.int64).max)
        first[pair[waiting[::-1]]] = self.offset[waiting[::-1]]
        is_used = self.waits.copy()
        is_used[delivered] = self.offset[delivered] > first[pair[delivered]]
        number = np.full(size, _NONE)
        if is_used.any():
            number[is_used] = numbered(pa.array(pair[is_used]))
        return number, several & rolled

    def _cancels(self) -> Int64s:
        """The first record that cancels each delayed message; -1 if there is none."""
        key = pc.binary_join_element_wise(self.real_topic, self.records["unique_key"], "+")
        texts = pc.if_else(pa.array(self.is_cancel), self.records["TIMER_DEL_UNIQKEY"], key)
        group = numbered(texts, pa.array(self.out_time))
        cancels = np.flatnonzero(self.is_cancel)
        first = np.append(cancels, _NONE)[positions_of(group[self.newest], group[cancels])]
        return np.where(self.is_timer[self.newest] & flags(pc.is_valid(texts))[self.newest], first, _NONE)


def delayed(
    found: DelayedRecords,
    level_due: Int64s,
    log: ReadableLog,
    progress: DeliveryProgress,
    units: TimerUnits | None,
    end_problem: str | None,
    at: int,
) -> pa.Table:
    """The delayed messages in the messages of a log; `delayed_rows` describes the table."""
    newest, records, groups = found.newest, found.records, found.groups
    is_level = found.is_level[newest]
    due = np.where(is_level, level_due[newest], found.out_time[newest])
    first_delivery = groups.first(found.deliveries)
    unit = np.full(newest.size, _NONE) if units is None else units.newest(found.offset[newest])
    level_offset = by_number(found.queue_id[newest] + 1, progress.delay_offsets, np.iinfo(np.int64).min)
    is_enqueued = ~is_level & (found.queue_offset[newest] < progress.enqueued)
    damage = log.damage_reasons("the delivered message can have been in a damaged range", found.offset[newest])
    cases = delivery_cases(
        is_delivered=first_delivery >= 0,
        is_cancelled=found.cancel >= 0,
        is_due=np.where(is_level, due, due + TIMER_PRECISION) <= at,
        ambiguous=(found.is_ambiguous[newest], "several delayed messages are the same, and some of them were rolled"),
        damage=(log.is_damaged_after(found.offset[newest]), damage),
        lost_end=(end_problem is not None, end_problem),
        passed=(is_level & (found.queue_offset[newest] < level_offset), _PASSED),
        no_time=(~is_level & (due == _NONE), "property TIMER_OUT_MS is not a time"),
        read=((due < progress.read_time) & is_enqueued, SLOT_IS_READ),
        not_read=(
            (is_level & (progress.level_problem is not None), progress.level_problem),
            (~is_level & (progress.timer_problem is not None), progress.timer_problem),
            (is_enqueued & (unit < 0) & (units is not None), _NO_UNIT),
        ),
    )
    state, reason = first_cases(cases)
    some = records.take(pa.array(newest))
    rolls = numbers(some["TIMER_ROLL_TIMES"], 9, 0, _NONE)
    has_unit = (unit >= 0) & ~is_level
    slots = units.slot_time[unit] if units is not None and units.slot_time.size else np.zeros(newest.size, np.int64)
    queue_id = found.real_queue[newest]
    columns = {
        "unique_key": some["unique_key"],
        "topic": found.real_topic.take(pa.array(newest)),
        "queue_id": optional(queue_id, queue_id >= 0, pa.int32()),
        "state": state,
        "reason": reason,
        "delayed_by": pa.array([TIMER, DELAY_LEVEL]).take(pa.array(is_level.astype(np.int8))),
        "delay_level": optional(found.queue_id[newest] + 1, is_level, pa.int32()),
        "due_timestamp": timestamps(due, due != _NONE),
        "delivered_timestamp": timestamps(found.stored[first_delivery], first_delivery >= 0),
        "rolls": optional(rolls, ~is_level & (rolls >= 0), pa.int32()),
        "born_timestamp": timestamps(integers(some["born_timestamp_millis"])),
        "store_timestamp": timestamps(found.stored[found.first]),
        "waiting_queue_id": some["queue_id"],
        "waiting_queue_offsets": groups.lists(found.waiting, found.queue_offset),
        "waiting_offsets": groups.lists(found.waiting, found.offset),
        "slot_timestamp": timestamps(slots, has_unit),
        "delivered_offsets": groups.lists(found.deliveries, found.offset),
        "cancel_offset": optional(found.offset[found.cancel], found.cancel >= 0),
    }
    return pa.table(columns, schema=DELAYED.schema)
