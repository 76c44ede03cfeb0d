"""The project's own stores have what other tests need of them, and brokers serve them.

The facts were written by Apache RocketMQ's classes; `tests/test_testing.py` compares them with the bytes of the logs.
"""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_mq.format.index_file import read_entries
from spark_mq.format.record import MAGIC_V1, MAGIC_V2
from tests.broker import harness
from tests.support.index_stores import index_files, layout_of
from tests.support.soak import cases
from tests.support.stores import STORES, WORKLOADS, RealStore, Unpack

MAGICS = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2))
UNIT_BYTES = 20


def named(beginning: str) -> list[RealStore]:
    return [store for name, store in STORES.items() if name.startswith(beginning)]


def version_of(store: RealStore) -> str:
    return harness.VERSIONS[0] if store.name.endswith("-533") else harness.VERSIONS[1]


def half_transactions(messages: list[dict[str, Any]]) -> set[str]:
    """Return the unique keys of transactions that no one decides, and that the broker has not given up on."""
    undecided = {"fate": "UNKNOW", "fateWhenAsked": "UNKNOW"}.items()
    open_ones = {m["uniqKey"] for m in messages if undecided <= m["properties"].items()}
    return open_ones - {m["uniqKey"] for m in messages if m["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC"}


@pytest.mark.parametrize("store", STORES.values(), ids=str)
def test_file_times_come_back_to_the_nanosecond(store: RealStore, tmp_path: Path) -> None:
    times = [path.stat().st_mtime_ns for path in store.unpack(tmp_path).rglob("*") if path.is_file()]
    assert any(time % 1000 for time in times)


@pytest.mark.parametrize("store", WORKLOADS, ids=str)
def test_workload_has_its_kinds(store: RealStore, unpacked: Unpack) -> None:
    messages = store.facts("msg")
    wanted = {"%DLQ%GID_failing", "%RETRY%GID_failing", "BatchIngest", "DelayDemo", "DirectTopic"}
    wanted |= {"MovedQueue", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC"}
    wanted |= {"TransactionDemo"}
    if store.name == "workload-533":
        wanted |= {"TimerDemo", "rmq_sys_wheel_timer"}
        assert any(message["magic"] == MAGIC_V2 for message in messages)
    assert wanted <= {message["topic"] for message in messages}
    flags = {message["sysFlag"] for message in messages}
    assert {0x101, 0x201, 0x301} <= flags
    assert {flag & 0x30 for flag in flags} == {0, 0x10, 0x20, 0x30}
    assert {message["sysFlag"] & 0xC for message in messages} == {0, 0x4, 0x8, 0xC}
    assert min(message["bodyLenRaw"] for message in messages) == 0
    assert min(m["queueOffset"] for m in messages if m["topic"] == "MovedQueue") == 450
    assert half_transactions(messages)
    folder = unpacked(store)
    assert len(list((folder / "consumequeue" / "SequenceDemo" / "0").iterdir())) > 1
    entries = [read_entries(file.read_bytes(), layout_of(store), file.name) for file in index_files(folder)]
    offsets = [set(of_file["commit_log_offset"].tolist()) for of_file in entries]
    assert any(one & other for one, other in pairwise(offsets))  # the entries of a message are in two files


@pytest.mark.parametrize("store", named("stale-"), ids=str)
def test_stale_has_whole_records_behind_its_end(store: RealStore, unpacked: Unpack) -> None:
    end = store.facts("store")[0]["maxPhyOffset"]
    segment = max((unpacked(store) / "commitlog").iterdir())
    first, data = int(segment.name), segment.read_bytes()
    behind = 0
    for at in range(end - first, len(data) - 36):
        behind += data[at + 4 : at + 8] in MAGICS and struct.unpack_from(">q", data, at + 28)[0] == first + at
    assert behind > 10


@pytest.mark.parametrize("store", named("killed-"), ids=str)
def test_killed_has_messages_that_no_queue_knows(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    assert (folder / "abort").exists()
    known = 0
    for file in (folder / "consumequeue").glob("*/*/*"):
        known += sum(size > 0 for _, size, _ in struct.iter_unpack(">qiq", file.read_bytes()))
    assert 0 < known < len(store.facts("msg"))


@pytest.mark.broker
@pytest.mark.parametrize("name", cases(["workload-49x"], [n for n in STORES if n != "lagging-533"]))
def test_broker_serves_a_store_as_it_is(name: str, unpacked: Unpack) -> None:
    store = STORES[name]
    facts = store.folder / f"{name}.facts.jsonl.gz"
    # What a killed broker had not yet indexed is not all indexed again.
    index = name.startswith("workload-")
    report = harness.check_served(unpacked(store), store.broker_conf, index, facts, version_of(store))
    assert report["consumed"] > 0
    assert report["messages"] == len(store.facts("msg"))
    assert report["sent"] > 0


@pytest.mark.broker
@pytest.mark.parametrize("packed", cases(WORKLOADS[-1:], WORKLOADS), ids=str)
def test_changed_units_and_a_missing_queue_file_fail_the_check(packed: RealStore, tmp_path: Path) -> None:
    """A change of one bit in the offset, in the size and in the tags code, each in a unit of its own."""
    store = packed.unpack(tmp_path)
    lost, changed_file = (min((store / "consumequeue/OrderEvents" / queue).iterdir()) for queue in "21")
    lost.unlink()
    changed = {3: 7, 5: 11, 8: 19}
    units = bytearray(changed_file.read_bytes())
    for unit, byte in changed.items():
        units[unit * UNIT_BYTES + byte] ^= 1
    changed_file.write_bytes(units)
    with pytest.raises(harness.ServingError) as error:
        harness.check_served(store, packed.broker_conf, version=version_of(packed))
    problems = error.value.report["problems"]
    units_found = [found[1] for text in problems if (found := re.search(r"OrderEvents/1 has .* as unit (\d+) ", text))]
    assert units_found == [str(unit) for unit in changed]
    assert [text for text in problems if text.startswith("OrderEvents/2 goes from 0 to 0")]
