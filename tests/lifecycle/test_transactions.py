"""Transactions, against what the producer decided, which it wrote into the properties of its messages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.outcomes import DecidedHalves, half_queue_offsets
from spark_mq.lifecycle.selected_messages import LogSource, ReadableLog
from spark_mq.lifecycle.transactions import (
    OPS,
    RECORDS,
    TransactionRecords,
    TransactionSettings,
    transaction_rows,
    transactions,
)
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.tables.lifecycle import TRANSACTIONS
from tests.support.in_process import read_rows
from tests.support.stores import OWN_STORES, WORKLOADS, Fact, RealStore, Unpack, stores_in, version_stores

Rows = dict[str, dict[str, Any]]
HALF, OP, DISCARDS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
DISCARDED_COUNT = 4
"""`TransactionWorkload.PER_FATE`: the first undecided transactions are given up, and the last are left half."""
STATES = {"COMMIT_MESSAGE": "COMMITTED", "ROLLBACK_MESSAGE": "ROLLED_BACK"}


def rows_of(path: Path, **arguments: Any) -> Rows:
    with MessageStore(str(path)) as store:
        rows = transaction_rows(store, **arguments).to_pylist()
    assert len({row["unique_key"] for row in rows}) == len(rows)
    return {row["unique_key"]: row for row in rows}


def expected_states(packed: RealStore) -> dict[str, str]:
    """The state of each transaction by unique key, as the producer decided."""
    states: dict[str, str] = {}
    undecided = 0
    for fact in sorted(packed.facts("msg"), key=lambda fact: int(fact["offset"])):
        if fact["topic"] != HALF or fact["uniqKey"] in states:
            continue
        fates = fact["properties"]["fate"], fact["properties"]["fateWhenAsked"]
        decisions = [STATES[fate] for fate in fates if fate in STATES]
        undecided += not decisions
        open_state = "DISCARDED" if undecided <= DISCARDED_COUNT else "PENDING"
        states[fact["uniqKey"]] = decisions[0] if decisions else open_state
    return states


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_states_are_those_that_the_producer_decided(packed: RealStore, unpacked: Unpack) -> None:
    rows = rows_of(unpacked(packed))
    expected = expected_states(packed)
    assert set(expected.values()) == {"COMMITTED", "ROLLED_BACK", "DISCARDED", "PENDING"}
    assert {key: row["state"] for key, row in rows.items()} == expected
    assert {row["reason"] for row in rows.values()} == {None}


def test_in_rocksdb_the_log_shows_what_the_producer_decided(unpacked: Unpack) -> None:
    """`transRocksDBEnable` without `transWriteOriginTransHalfEnable`: a 5.5.0 broker gave up the undecided ones."""
    folder = unpacked(RealStore("fTrans550", OWN_STORES / "forms"))
    expected, checks = {}, {}
    for row in read_rows(path=str(folder)):
        fates = [dict(row["properties"]).get(name) for name in ("fate", "fateWhenAsked")]
        if any(fates):
            decisions = [STATES[fate] for fate in fates if fate in STATES]
            expected[row["unique_key"]] = decisions[0] if decisions else "UNKNOWN"
            checks[row["unique_key"]] = int(fates[0] not in STATES) if decisions == ["COMMITTED"] else None
    rows = rows_of(folder)
    assert sorted(expected.values()) == ["COMMITTED"] * 6 + ["ROLLED_BACK"] * 6 + ["UNKNOWN"] * 3
    assert {key: row["state"] for key, row in rows.items()} == expected
    assert {key: row["checks"] for key, row in rows.items()} == checks
    assert {row["reason"] is None for row in rows.values() if row["state"] != "UNKNOWN"} == {True}
    with MessageStore(str(folder)) as store:
        for key, row in rows.items():
            (found,) = life(store, key).lives
            ops = [one.commit_log_offset for one in found.events if one.kind == "DECIDED"]
            assert (found.topic, found.state, ops) == ("tx", expected[key], row["op_offsets"]), key


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_offsets_and_properties_are_those_of_the_facts(packed: RealStore, unpacked: Unpack) -> None:
    rows = rows_of(unpacked(packed))
    facts: dict[str, list[Fact]] = {}
    for fact in packed.facts("msg"):
        facts.setdefault(fact["uniqKey"], []).append(fact)
    for key, row in rows.items():
        halves = sorted(
            (fact for fact in facts[key] if fact["topic"] == HALF), key=lambda fact: int(fact["queueOffset"])
        )
        assert row["half_offsets"] == [fact["offset"] for fact in halves]
        assert row["half_queue_offsets"] == [fact["queueOffset"] for fact in halves]
        commits = [fact["offset"] for fact in facts[key] if fact["sysFlag"] & 0xC == 8]
        assert row["commit_offsets"] == commits
        assert [row["discard_offset"]] == [fact["offset"] for fact in facts[key] if fact["topic"] == DISCARDS] or [None]
        properties = halves[-1]["properties"]
        assert row["topic"] == properties["REAL_TOPIC"] == "TransactionDemo"
        assert row["queue_id"] == int(properties["REAL_QID"])
        assert row["producer_group"] == "producer-transactions"
        assert row["checks"] == int(properties.get("TRANSACTION_CHECK_TIMES", 0))
        assert row["born_timestamp"].timestamp() * 1000 == pytest.approx(halves[0]["bornTimestamp"], abs=0.01)


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_op_messages_are_those_that_name_the_half_message(packed: RealStore, unpacked: Unpack) -> None:
    rows = rows_of(unpacked(packed))
    ops = {fact["offset"]: fact for fact in packed.facts("msg") if fact["topic"] == OP}
    named: dict[int, list[int]] = {}
    for row in rows.values():
        has_ended = row["state"] in ("COMMITTED", "ROLLED_BACK")
        assert len(row["op_offsets"]) == has_ended
        for op in row["op_offsets"]:
            assert op > row["half_offsets"][-1]
            named.setdefault(op, []).append(row["half_queue_offsets"][-1])
    assert named.keys() == ops.keys()
    if packed.broker_version == "4.9":
        bodies = {op: hashlib.md5(str(queue_offsets[0]).encode()).hexdigest() for op, queue_offsets in named.items()}
        assert bodies == {op: fact["bodyMd5"] for op, fact in ops.items()}
    else:
        sizes = {op: sum(len(f"{one},") for one in queue_offsets) for op, queue_offsets in named.items()}
        assert sizes == {op: fact["bodyLen"] for op, fact in ops.items()}


def test_age_and_next_step_follow_the_settings(unpacked: Unpack) -> None:
    """The workload's brokers have transactionTimeOut=1000, transactionCheckInterval=1000, transactionCheckMax=2."""
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    path = unpacked(packed)
    conf = BrokerConf.of(str(packed.broker_conf))
    pending = [row for row in rows_of(path, conf=conf, at=2_000_000_000_000).values() if row["state"] == "PENDING"]
    facts = {fact["uniqKey"]: fact for fact in packed.facts("msg")}
    for row in pending:
        born = facts[row["unique_key"]]["bornTimestamp"]
        assert row["age_millis"] == 2_000_000_000_000 - born
        assert round(row["next_check_timestamp"].timestamp() * 1000) == born + 1000
        assert row["next_step"] == "CHECK"
    ended = [row for row in rows_of(path, at=0).values() if row["state"] == "DISCARDED"]
    for row in ended:
        discard = next(fact for fact in packed.facts("msg") if fact["offset"] == row["discard_offset"])
        assert row["age_millis"] == discard["storeTimestamp"] - discard["bornTimestamp"]
        assert row["next_check_timestamp"] is row["next_step"] is None


def records_of(path: Path) -> tuple[pa.Table, pa.Table, ReadableLog, DecidedHalves]:
    with MessageStore(str(path)) as store:
        records, ops = LogSource(store).selections_of(RECORDS, OPS)
        return records.messages, ops.messages, ReadableLog.of(records), DecidedHalves.of(store.location)


def states_of(
    records: pa.Table, ops: pa.Table, log: ReadableLog, decided: DecidedHalves, lost_end: str | None = None
) -> Rows:
    found = TransactionRecords(records, ops, log)
    rows = transactions(found, decided, lost_end, TransactionSettings(), 0).to_pylist()
    return {row["unique_key"]: row for row in rows}


def unknown_since(rows: Rows, expected: dict[str, str], changed: str) -> set[str]:
    """The expected states of rows that are UNKNOWN now, for a reason that contains `changed`; others are the same."""
    for key, row in rows.items():
        assert row["state"] in (expected[key], "UNKNOWN")
        assert row["state"] != "UNKNOWN" or changed in row["reason"]
    return {expected[key] for key, row in rows.items() if row["state"] == "UNKNOWN"}


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_what_makes_a_state_unknown(packed: RealStore, unpacked: Unpack) -> None:
    records, ops, log, decided = records_of(unpacked(packed))
    expected = expected_states(packed)
    no_ops = ops.slice(0, 0)
    rows = states_of(records, no_ops, log, decided)
    assert unknown_since(rows, expected, "CID_RMQ_SYS_TRANS") == {"ROLLED_BACK"}
    copies = pc.fill_null(pc.greater(records["TRANSACTION_CHECK_TIMES"].cast(pa.int32()), 0), False)
    originals_gone = records.filter(copies)
    rows = states_of(originals_gone, ops, log, decided)
    assert unknown_since(rows, expected, "older copies") == {"ROLLED_BACK"}
    assert {row["state"] for row in rows.values()} == {"COMMITTED", "UNKNOWN", "DISCARDED"}
    first, last = ops["commit_log_offset"][0].as_py(), ops["commit_log_offset"][-1].as_py()
    after_ops = ReadableLog(log.log, [damage(last + 1, log.log.stop - last - 1)])
    assert unknown_since(states_of(records, ops, after_ops, decided), expected, "damaged range") == {"PENDING"}
    before_ops = ReadableLog(log.log, [damage(first - 1, 1)])
    assert unknown_since(states_of(records, ops, before_ops, decided), expected, "damaged range") == {"ROLLED_BACK"}
    rows = states_of(records, ops, log, decided, "the end is lost")
    assert unknown_since(rows, expected, "the end is lost") == {"PENDING"}
    rows = states_of(records, ops, log, DecidedHalves({}, "no such file"))
    assert unknown_since(rows, expected, "no such file") == {"PENDING"}


def test_a_copy_that_an_op_message_names_is_not_the_newest(unpacked: Unpack) -> None:
    """An older copy was rolled back, and the broker asks about the newest: the op messages of copies are removed."""
    records, ops, log, _ = records_of(unpacked(WORKLOADS[0]))
    expected = expected_states(WORKLOADS[0])
    original = ops.slice(0, 1).set_column(ops.schema.get_field_index("body"), "body", pa.array([b"3,"]))
    late = original.set_column(0, "commit_log_offset", pa.array([log.log.stop - 1]))
    row = next(
        row for row in states_of(records, late, log, DecidedHalves({})).values() if 3 in row["half_queue_offsets"]
    )
    assert expected[row["unique_key"]] == "ROLLED_BACK"
    assert (row["state"], row["op_offsets"]) == ("PENDING", [log.log.stop - 1])
    assert "older copy was rolled back" in row["reason"]


def test_a_copy_that_is_given_up_after_a_rollback_is_rolled_back(unpacked: Unpack) -> None:
    """The broker had made a copy for a check before the producer answered: it gives that copy up later."""
    records, ops, log, decided = records_of(unpacked(WORKLOADS[0]))
    given_up = next(row for row in states_of(records, ops, log, decided).values() if row["state"] == "DISCARDED")
    assert (given_up["op_offsets"], len(given_up["half_offsets"]) > 1) == ([], True)
    body = f"{given_up['half_queue_offsets'][0]},".encode()
    rollback = ops.slice(0, 1).set_column(ops.schema.get_field_index("body"), "body", pa.array([body]))
    rollback = rollback.set_column(0, "commit_log_offset", pa.array([given_up["half_offsets"][-1] + 1]))
    row = states_of(records, rollback, log, decided)[given_up["unique_key"]]
    assert (row["state"], row["op_offsets"]) == ("ROLLED_BACK", [given_up["half_offsets"][-1] + 1])
    assert row["discard_offset"] == given_up["discard_offset"]


@pytest.mark.parametrize("packed", version_stores("p"))
def test_brokers_of_many_versions_end_transactions_as_their_producers_say(packed: RealStore, unpacked: Unpack) -> None:
    path = unpacked(packed)
    answers = {"commit": "COMMITTED", "rollback": "ROLLED_BACK", "none": "DISCARDED", "-": "DISCARDED"}
    expected = {key: answers[rest[0] if rest[0] != "none" else rest[1]] for key, *rest in packed.told("tx")}
    assert {key: row["state"] for key, row in rows_of(path).items()} == expected
    with MessageStore(str(path)) as store:
        lives = {key: life(store, key).lives for key in expected}
    assert {key: [one.state.value for one in of_key] for key, of_key in lives.items()} == {
        key: [state] for key, state in expected.items()
    }


def test_the_same_key_at_the_same_time_is_paired_by_offsets_only(unpacked: Unpack) -> None:
    packed = next(store for store in WORKLOADS if store.name == "workload-533")
    records, ops, log, decided = records_of(unpacked(packed))
    same = {"unique_key": "same", "born_timestamp_millis": 1, "born_host": "1.2.3.4:5"}
    for name, value in same.items():
        index = records.schema.get_field_index(name)
        column = pa.array([value] * records.num_rows, records.schema.field(name).type)
        records = records.set_column(index, name, column)
    rows = transactions(TransactionRecords(records, ops, log), decided, None, TransactionSettings(), 0).to_pylist()
    assert len(rows) == sum(fact["topic"] == HALF for fact in packed.facts("msg"))
    named = [row for row in rows if row["op_offsets"]]
    assert {row["state"] for row in named if row["checks"] == 0} == {"COMMITTED", "ROLLED_BACK"}
    assert all(bool(row["commit_offsets"]) == (row["state"] == "COMMITTED") for row in rows)
    assert {row["state"] for row in rows if not row["op_offsets"]} == {"UNKNOWN", "PENDING"}


def damage(start: int, size: int) -> CorruptRange:
    return CorruptRange("00000000000000000000", start, size, "ZEROS", "zeros instead of a record")


def test_a_store_without_transactions_has_no_rows(unpacked: Unpack) -> None:
    packed = next(store for store in stores_in(OWN_STORES) if store.name == "stale-533")
    with MessageStore(str(unpacked(packed))) as store:
        table = transaction_rows(store)
    assert (table.num_rows, table.schema) == (0, TRANSACTIONS.schema)


def test_bodies_of_op_messages() -> None:
    assert half_queue_offsets(b"12") == [12]
    assert half_queue_offsets(b"1,20,300,") == [1, 20, 300]
    assert half_queue_offsets(b",-1,x,\xff,1" + b"0" * 30) == []
