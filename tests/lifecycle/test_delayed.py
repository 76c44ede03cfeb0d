"""Delayed messages, against what the producer asked for, and the facts of the Java classes."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq import MessageStore
from spark_mq.io.location import Location
from spark_mq.lifecycle.delayed import RECORDS, DelayedRecords, TimerUnits, delayed, delayed_rows, timer_units
from spark_mq.lifecycle.outcomes import DeliveryProgress
from spark_mq.lifecycle.selected_messages import LogSource, ReadableLog
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.tables.lifecycle import DELAYED
from tests.support.stores import OWN_STORES, WORKLOADS, Fact, RealStore, Unpack, stores_in, version_stores

Row = dict[str, Any]
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HOUR = 3_600_000
MILLIS = {1: 1_000, 2: 5_000, 18: 2 * HOUR}
"""The levels that `ProducerWorkload.delays` uses, and their delays."""
TIMER_PRECISION = 1_000
"""`timerPrecisionMs`: a timer is due at a multiple of it (`HookUtils.transformTimerMessage`@5.3.3)."""


def rows_of(path: Path, at: int | None = None) -> list[Row]:
    with MessageStore(str(path)) as store:
        rows: list[Row] = delayed_rows(store, at).to_pylist()
    return rows


def waiting_facts(packed: RealStore) -> list[Fact]:
    facts = [fact for fact in packed.facts("msg") if fact["topic"] in (SCHEDULE, TIMER)]
    return sorted(facts, key=lambda fact: int(fact["offset"]))


def stopped(packed: RealStore) -> int:
    """A time after the last message of the store, and before the messages that wait are due."""
    return max(int(fact["storeTimestamp"]) for fact in packed.facts("msg")) + 10_000


def millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def expected_state(fact: Fact) -> str:
    """What the producer asked for: two hours (level 18) or one hour (a timer) were not over when the broker stopped."""
    properties = fact["properties"]
    is_long = properties.get("DELAY") == "18" or properties.get("TIMER_DELAY_MS") == str(HOUR)
    return "WAITING" if is_long else "DELIVERED"


def delivery_of(packed: RealStore, fact: Fact) -> list[int]:
    """The offsets of messages in the real queue that have the key and the number of attempts of a delayed one."""
    properties = fact["properties"]
    return [
        one["offset"]
        for one in packed.facts("msg")
        if (one["topic"], str(one["queueId"])) == (properties["REAL_TOPIC"], properties["REAL_QID"])
        and (one["uniqKey"], one["reconsumeTimes"]) == (fact["uniqKey"], fact["reconsumeTimes"])
    ]


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_rows_are_those_of_the_facts(packed: RealStore, unpacked: Unpack) -> None:
    rows, facts = rows_of(unpacked(packed), stopped(packed)), waiting_facts(packed)
    assert len(rows) == len(facts)
    for row, fact in zip(rows, facts, strict=True):
        properties = fact["properties"]
        assert row["unique_key"] == fact["uniqKey"]
        assert (row["topic"], str(row["queue_id"])) == (properties["REAL_TOPIC"], properties["REAL_QID"])
        assert row["waiting_offsets"] == [fact["offset"]]
        assert row["waiting_queue_offsets"] == [fact["queueOffset"]]
        assert millis(row["store_timestamp"]) == fact["storeTimestamp"]
        assert row["delivered_offsets"] == delivery_of(packed, fact)
        assert (row["state"], row["reason"]) == (expected_state(fact), None)
        if fact["topic"] == SCHEDULE:
            level = int(properties["DELAY"])
            assert (row["delayed_by"], row["delay_level"], row["rolls"]) == ("DELAY_LEVEL", level, None)
            assert millis(row["due_timestamp"]) == fact["storeTimestamp"] + MILLIS[level]
        else:
            assert (row["delayed_by"], row["delay_level"], row["rolls"]) == ("TIMER", None, 0)
            assert millis(row["due_timestamp"]) == int(properties["TIMER_OUT_MS"])
            assert millis(row["slot_timestamp"]) == int(properties["TIMER_OUT_MS"])
    kinds = {(row["delayed_by"], row["state"]) for row in rows}
    levels = {("DELAY_LEVEL", "WAITING"), ("DELAY_LEVEL", "DELIVERED")}
    assert kinds == (
        levels if packed.broker_version == "4.9" else {*levels, ("TIMER", "WAITING"), ("TIMER", "DELIVERED")}
    )


@pytest.mark.parametrize("packed", version_stores("p"))
def test_brokers_of_many_versions_deliver_when_the_producer_said(packed: RealStore, unpacked: Unpack) -> None:
    at = stopped(packed)
    told = {key: ("DELAY_LEVEL", value) for key, value in packed.told("delay")}
    told |= {key: ("TIMER", value) for key, value in packed.told("timer")}
    # Copies for a retry have the key of their message.
    sent = (row for row in rows_of(unpacked(packed), at) if not row["topic"].startswith("%"))
    rows = {row["unique_key"]: row for row in sent if row["unique_key"] in told}
    assert rows.keys() == told.keys()
    delivered: dict[str, list[int]] = {key: [] for key in told}
    for fact in packed.facts("msg"):
        if fact["uniqKey"] in told and fact["topic"] == rows[fact["uniqKey"]]["topic"]:
            delivered[fact["uniqKey"]].append(fact["offset"])
    for key, (delayed_by, value) in told.items():
        row, (name, _, amount) = rows[key], value.partition("=")
        stored, due = millis(row["store_timestamp"]), millis(row["due_timestamp"])
        assert row["delayed_by"] == delayed_by
        if delayed_by == "DELAY_LEVEL":
            assert (row["delay_level"], due) == (int(value), stored + MILLIS[int(value)])
        else:
            asked = int(amount) if name == "TIMER_DELIVER_MS" else stored + 1000 * int(amount)
            assert asked - TIMER_PRECISION <= due <= asked
        assert (row["state"], row["reason"]) == ("DELIVERED" if due < at else "WAITING", None)
        assert row["delivered_offsets"] == delivered[key]
        assert len(delivered[key]) == (due < at)


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_what_waits_is_overdue_later(packed: RealStore, unpacked: Unpack) -> None:
    rows = rows_of(unpacked(packed), stopped(packed) + 3 * HOUR)
    assert [row["state"] for row in rows] == [
        {"WAITING": "OVERDUE"}.get(expected_state(fact), "DELIVERED") for fact in waiting_facts(packed)
    ]


def parts_of(path: Path) -> tuple[pa.Table, ReadableLog, DeliveryProgress, TimerUnits]:
    with MessageStore(str(path)) as store:
        (found,) = LogSource(store).selections_of(RECORDS)
        return found.messages, ReadableLog.of(found), DeliveryProgress.of(store.location), timer_units(store.location)


def changed_states(
    records: pa.Table,
    log: ReadableLog,
    progress: DeliveryProgress,
    units: TimerUnits,
    at: int,
    lost_end: str | None = None,
) -> list[Row]:
    found = DelayedRecords(records)
    due = found.stored + 2 * HOUR
    rows: list[Row] = delayed(found, due, log, progress, units, lost_end, at).to_pylist()
    return rows


def test_what_makes_a_state_unknown(unpacked: Unpack) -> None:
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    records, log, progress, units = parts_of(unpacked(packed))
    at = stopped(packed)

    def kinds(rows: list[Row], reason: str) -> set[tuple[str, str]]:
        for row in rows:
            assert row["state"] != "UNKNOWN" or reason in row["reason"], row
        return {(row["delayed_by"], row["state"]) for row in rows}

    waits = pc.is_in(records["topic"], value_set=pa.array([SCHEDULE, TIMER]))
    undelivered = records.filter(waits)
    levels, timers = pc.equal(undelivered["topic"], SCHEDULE), pc.equal(undelivered["topic"], TIMER)
    both = {("DELAY_LEVEL", "WAITING"), ("DELAY_LEVEL", "UNKNOWN")}
    assert kinds(changed_states(undelivered.filter(levels), log, progress, units, at), "delayOffset.json") == both
    both = {("TIMER", "WAITING"), ("TIMER", "UNKNOWN")}
    assert kinds(changed_states(undelivered.filter(timers), log, progress, units, at), "timercheck is after") == both
    damaged = ReadableLog(log.log, [CorruptRange("0", log.log.stop - 10, 10, "ZEROS", "zeros")])
    unknown = {("DELAY_LEVEL", "UNKNOWN"), ("DELAY_LEVEL", "DELIVERED"), ("TIMER", "UNKNOWN"), ("TIMER", "DELIVERED")}
    assert kinds(changed_states(records, damaged, progress, units, at), "damaged range") == unknown
    assert kinds(changed_states(records, log, progress, units, at, "the end is lost"), "the end is lost") == unknown


def test_cancelled_rolled_and_delivered_twice(unpacked: Unpack) -> None:
    """Records as `RecallMessageProcessor`, a roll, and a killed broker write them."""
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    records, log, progress, units = parts_of(unpacked(packed))
    rows = changed_states(records, log, progress, units, stopped(packed))
    cancelled, rolled = [row for row in rows if row["state"] == "WAITING" and row["delayed_by"] == "TIMER"][:2]
    twice = next(row for row in rows if row["state"] == "DELIVERED")
    stop = log.log.stop

    def copy_of(offset: int, number: int, **values: Any) -> pa.Table:
        row = records.filter(pc.equal(records["commit_log_offset"], offset))
        for name, value in {"commit_log_offset": stop + number, "store_timestamp_millis": 1, **values}.items():
            index = records.schema.get_field_index(name)
            row = row.set_column(index, name, pa.array([value], records.schema.field(name).type))
        return row

    key = f"{cancelled['topic']}+{cancelled['unique_key']}"
    more = [
        copy_of(cancelled["waiting_offsets"][0], 0, TIMER_DEL_UNIQKEY=key, born_timestamp_millis=7, body_crc=1),
        copy_of(rolled["waiting_offsets"][0], 1, TIMER_ROLL_TIMES="1", queue_offset=1_000),
        copy_of(twice["delivered_offsets"][0], 2),
    ]
    again = {
        row["unique_key"]: row for row in changed_states(pa.concat_tables([records, *more]), log, progress, units, 0)
    }
    row = again[cancelled["unique_key"]]
    assert (row["state"], row["cancel_offset"]) == ("CANCELLED", stop)
    row = again[rolled["unique_key"]]
    assert (row["state"], row["rolls"]) == ("WAITING", 1)
    assert row["waiting_offsets"] == [*rolled["waiting_offsets"], stop + 1]
    row = again[twice["unique_key"]]
    assert (row["state"], row["delivered_offsets"]) == ("DELIVERED", [*twice["delivered_offsets"], stop + 2])
    other_time = copy_of(cancelled["waiting_offsets"][0], 0, TIMER_DEL_UNIQKEY=key, TIMER_OUT_MS="5000", body_crc=1)
    again = {
        row["unique_key"]: row
        for row in changed_states(pa.concat_tables([records, other_time]), log, progress, units, 0)
    }
    assert again[cancelled["unique_key"]]["state"] == "WAITING"


def test_units_of_the_timer_log_are_those_of_the_timer_messages(unpacked: Unpack) -> None:
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    units = timer_units(Location.resolve(str(unpacked(packed))))
    facts = [fact for fact in waiting_facts(packed) if fact["topic"] == TIMER]
    assert units.commit_log_offset.tolist() == [fact["offset"] for fact in facts]
    assert units.slot_time.tolist() == [int(fact["properties"]["TIMER_OUT_MS"]) for fact in facts]
    assert units.newest(np.array([facts[3]["offset"], 1])).tolist() == [3, -1]


def test_a_timer_that_the_timer_log_lost_is_unknown(unpacked: Unpack, tmp_path: Path) -> None:
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    path = packed.unpack(tmp_path)
    shutil.rmtree(path / "timerlog")
    rows = [row for row in rows_of(path, stopped(packed)) if row["delayed_by"] == "TIMER"]
    assert {row["state"] for row in rows} == {"DELIVERED", "UNKNOWN"}
    assert all("timer log" in row["reason"] for row in rows if row["state"] == "UNKNOWN")


def test_due_times_are_those_of_the_units(unpacked: Unpack, tmp_path: Path) -> None:
    """A broker whose messageDelayLevel differs wrote the units; without them, the settings say what a level means."""
    packed = next(store for store in WORKLOADS if store.name == "workload-49x")
    path = packed.unpack(tmp_path)
    conf = BrokerConf({"messageDelayLevel": "7s 8s 9s"})
    with MessageStore(str(path)) as store:
        rows = delayed_rows(store, 0, conf).to_pylist()
    delays = {millis(row["due_timestamp"]) - millis(row["store_timestamp"]) for row in rows}
    assert delays == set(MILLIS.values())
    shutil.rmtree(path / "consumequeue")
    with MessageStore(str(path)) as store:
        rows = delayed_rows(store, 0, conf).to_pylist()
    by_level = {(row["delay_level"], millis(row["due_timestamp"]) - millis(row["store_timestamp"])) for row in rows}
    assert by_level == {(1, 7_000), (2, 8_000), (18, 9_000)}


def test_a_store_without_delays_has_no_rows(unpacked: Unpack) -> None:
    packed = next(store for store in stores_in(OWN_STORES) if store.name == "stale-533")
    with MessageStore(str(unpacked(packed))) as store:
        table = delayed_rows(store, int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000))
    assert (table.num_rows, table.schema) == (0, DELAYED.schema)
