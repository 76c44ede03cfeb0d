"""Odd notes about popped messages; those that a broker wrote are in `tests/broker/test_consumption.py`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.lifecycle.life.outcome import find_pops, pop_text
from spark_mq.lifecycle.popped_messages import Popped, PoppedMessages, PopState, parse_pop_note
from spark_mq.lifecycle.retries import popped_messages, retries_rows
from spark_mq.lifecycle.selected_messages import LogSource
from spark_mq.lifecycle.why_not_consumed import why_not_consumed
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.rebuilt import rebuild_here
from tests.support.removed_parts import copies_without_parts

CASES = examples(60)
START = 1_700_000_000_000
REVIVE = b"rmq_sys_REVIVE_LOG_DefaultCluster"


def note(**values: Any) -> bytes:
    """A note in the form of `PopCheckPoint` and `AckMsg`@5.3.3."""
    return json.dumps({"bn": "broker", "c": "g", "q": 0, "t": "T", "so": 0, "pt": START, **values}).encode()


def old_ack(offset: int) -> bytes:
    """An acknowledgement in the form of `AckMsg`@5.0.0, whose fields have no short names."""
    names = {"brokerName": "broker", "consumerGroup": "g", "queueId": 0, "topic": "T", "startOffset": 20}
    return json.dumps({**names, "popTime": START, "ackOffset": offset}).encode()


NOTES = [
    (b"ck", note(n=2, d=[0, 2], it=5000)),
    (b"ack", note(ao=2)),
    (b"ck", note(so=5, n=2, it=9000, pt=START + 10)),  # of an older broker: without differences
    (b"bAck", note(so=5, aol=[5], pt=START + 10, bn=None)),  # a broker leaves out its name
    (b"ck", note(c="other", n=9, it=1)),
    (b"ck", note(q=1, n=9, it=1)),
    (b"ck", note(t="U", n=9, it=1)),
    (b"other", note(n=9, it=1)),
    # The group asked for more time: the broker notes an acknowledgement, and another pop.
    (b"ck", note(so=7, n=1, d=[0], it=1000)),
    (b"ack", note(so=7, ao=7)),
    (b"ck", note(so=7, n=1, d=[0], it=60_000, pt=START + 20)),
    (b"ack", note(so=3, ao=3)),  # acknowledged, and the check point was only in memory
    # Acknowledgements of other pops: of one that began elsewhere, of another time, and of another broker.
    (b"ck", note(so=10, n=3, d=[0, 1, 2], it=1000)),
    (b"ack", note(so=9, ao=10, pt=START - 1)),
    (b"ack", note(so=10, ao=11, pt=START - 1)),
    (b"ack", note(so=10, ao=12, bn="another", pt=START)),
    # A check point whose bit map says what is acknowledged: the first and the third message.
    (b"ck", note(so=14, n=3, d=[0, 2, 3], bm=0b101, it=1000)),
    (b"ck", note(so=20, n=2, d=[0, 1], it=1000)),
    (b"ack", old_ack(21)),
    # The broker could not give a message again, and wrote its check point once more.
    (b"ck", note(so=24, n=2, d=[0, 1], it=1000)),
    (b"ck", note(so=25, n=1, d=[0], it=11_000, rp="1")),
    (b"ack", note(so=24, ao=25)),
]
POPPED = {0, 6, 7, 10, 11, 12, 16, 20, 24, 25}
CONSUMED = {2, 3, 5, 14, 17, 21}
UNREADABLE = [
    b"not JSON",
    b"[" * 5000,
    b'["ck"]',
    b"\xff{}",
    note(so="x"),
    note(it=[]),
    note(pt=1e999),
    note(n=200),
    note(n=True),
    note(d={}),
    note(d=[1 << 63]),
    note(c=None),
    note(t=7),
]


def store_of(folder: Path, notes: list[tuple[bytes, bytes]]) -> Path:
    writer = LogWriter(1 << 20)
    for offset in range(30):
        writer.append(START, b"body", b"T", 0, offset)
    for offset, (tag, body) in enumerate(notes):
        writer.append(START + 1, body, REVIVE, 0, offset, b"TAGS\1" + tag + b"\2")
    writer.write(folder)
    rebuild_here(folder, assume_defaults=True)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore(str(store_of(tmp_path_factory.mktemp("popped") / "store", NOTES))) as opened:
        yield opened


def looked_up(store: MessageStore, after: int = 0) -> tuple[PoppedMessages, tuple[str, ...]]:
    return find_pops(LifeStore(store), {("T", 0, offset): after for offset in range(30)})


def states(pops: PoppedMessages, group: str = "g") -> dict[PopState, set[int]]:
    found: dict[PopState, set[int]] = {}
    for offset in range(30):
        last = pops.last(group, ("T", 0, offset))
        if last is not None:
            found.setdefault(last.state, set()).add(offset)
    return found


def test_pops_and_acknowledgements(store: MessageStore) -> None:
    pops, cuts = looked_up(store)
    assert cuts == ()
    assert states(pops) == {PopState.POPPED: POPPED, PopState.CONSUMED: CONSUMED}
    assert states(pops, "other") == {PopState.POPPED: set(range(9))}
    assert states(pops, "nobody") == {}
    assert pops.last("g", ("T", 0, 0)) == Popped(START, START + 5000, is_acknowledged=False)
    assert pops.last("g", ("T", 0, 6)) == Popped(START + 10, START + 9010, is_acknowledged=False)
    again = pops.last("g", ("T", 0, 7))
    assert again == Popped(START + 20, START + 60_020, is_acknowledged=False)
    assert "from 2023-11-14T22:14:20.020Z on" in pop_text(again)


def test_one_read_of_the_log_says_the_same(store: MessageStore) -> None:
    pops = popped_messages(LogSource(store), ["T"])
    assert pops.damage == ()
    assert states(pops) == {PopState.POPPED: POPPED, PopState.CONSUMED: CONSUMED}
    assert popped_messages(LogSource(store), ["U"]).last("g", ("U", 0, 3)) is not None
    assert states(popped_messages(LogSource(store), ["U"])) == {}


@pytest.mark.parametrize("body", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_note_that_cannot_be_read(body: bytes) -> None:
    assert parse_pop_note("ck", body) is None


def test_notes_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    bodies = [b"[" * 5000, note(it=[]), note(ao=0, so=0)]
    path = store_of(tmp_path / "store", [(tag, body) for tag, body in zip((b"ck", b"ck", b"ack"), bodies, strict=True)])
    with MessageStore(str(path)) as store:
        pops, cuts = looked_up(store)
        assert len(cuts) == 2
        assert all("cannot be read" in cut for cut in cuts)
        assert states(pops) == {PopState.CONSUMED: {0}}
        assert len(popped_messages(LogSource(store), ["T"]).damage) == 2
        # Notes that are certainly not about retry topics do not matter.
        assert popped_messages(LogSource(store), ["%RETRY%g_T"]).damage == ()
    segment = next((path / "commitlog").iterdir())
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"TAGS\1ack", b"TAGS\1\0\0\0"))
    with MessageStore(str(path)) as store:
        pops, cuts = looked_up(store)
        assert (states(pops), len(cuts)) == ({}, 3)
        assert len(popped_messages(LogSource(store), ["T"]).damage) == 3
    segment.write_bytes(content.replace(b'"ao": 0', b'"ao": 9'))
    with MessageStore(str(path)) as store:  # the CRC of the body is wrong
        assert states(popped_messages(LogSource(store), ["T"])) == {}
    (path / "kvStore").mkdir()
    with MessageStore(str(path)) as store:
        assert "RocksDB" in looked_up(store)[1][0]


RETRY_TOPIC = "%RETRY%g_T"
COUNT = 14
PAST = 12
"""The number of messages in the topic and in the retry topic, and the offset of the group in both."""


def popping_store(folder: Path) -> Path:
    """A group that pops: of each four messages and retries, one is popped, one acknowledged, both, or without notes."""
    writer = LogWriter(4096)
    check_points, acknowledgements = [], []
    places = [(topic, offset) for offset in range(COUNT) for topic in ("T", RETRY_TOPIC)]
    for number, (topic, offset) in enumerate(places):
        writer.append(
            START + number, b"body", topic.encode(), 0, offset, b"UNIQ_KEY\1%s-%d\2" % (topic.encode(), offset)
        )
        if offset < PAST and offset % 4 in (0, 1):
            check_points.append((b"ck", note(t=topic, so=offset, n=1, d=[0], it=1000)))
        if offset < PAST and offset % 4 in (1, 2):
            acknowledgements.append((b"ack", note(t=topic, so=offset, ao=offset)))
    end = START + len(places)
    for offset, (tag, body) in enumerate(check_points + acknowledgements):
        end += 1
        writer.append(end, body, REVIVE, 0, offset, b"TAGS\1" + tag + b"\2")
    writer.write(folder)
    config = folder / "config"
    config.mkdir()
    offsets = {f"{topic}@g": {"0": PAST} for topic in ("T", RETRY_TOPIC)}
    topics = {name: {"readQueueNums": 1} for name in ("T", RETRY_TOPIC, REVIVE.decode())}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"g": {}}}))
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {}}))
    (folder / "checkpoint").write_bytes(Checkpoint(physic_msg_timestamp=end).encode())
    rebuild_here(folder, assume_defaults=True)
    return folder


def states_of_retries(path: Path) -> dict[int, str]:
    with MessageStore(str(path)) as store:
        return {row["retry_commit_log_offset"]: row["state"] for row in retries_rows(store, at=START).to_pylist()}


def reasons_of_messages(path: Path, step: int) -> dict[int, str]:
    with MessageStore(str(path)) as store:
        found = [why_not_consumed(store, "g", "T", 0, offset, at=START) for offset in range(0, COUNT, step)]
        assert all(one.text for one in found)
        return {one.queue_offset: one.reason.value for one in found}


def test_a_store_without_some_parts_never_gives_a_wrong_state(tmp_path: Path) -> None:
    path = popping_store(tmp_path / "store")
    retried, reasons = states_of_retries(path), reasons_of_messages(path, 1)
    expected = [("POPPED", "CONSUMED", "CONSUMED", "CONSUMED")[offset % 4] for offset in range(PAST)] + ["READY"] * 2
    assert list(retried.values()) == expected
    assert list(reasons.values()) == [*expected[:PAST], "NOT_YET", "NOT_YET"]
    seen = Counter[str]()
    for copy, done in copies_without_parts(path, tmp_path, CASES):
        for offset, state in states_of_retries(copy).items():
            assert state in (retried[offset], "UNKNOWN"), (done, offset)
            seen[state] += 1
        for offset, reason in reasons_of_messages(copy, 3).items():
            lost = {"EXPIRED", "OUT_OF_RANGE", "NO_OFFSET", "UNKNOWN"}
            assert reason in {reasons[offset], *lost}, (done, offset)
            seen[reason] += 1
    assert {"UNKNOWN", "CONSUMED", "POPPED"} <= seen.keys()


def test_a_pop_before_the_message_is_not_seen(store: MessageStore) -> None:
    pops, cuts = looked_up(store, store.get_max_phy_offset())
    assert (states(pops), cuts) == ({}, ())
