"""Odd notes about popped messages; those that a broker wrote are in `tests/broker/test_consumption.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle.delivery.popped import Pops, find_pops
from tests.support.log_writer import LogWriter
from tests.support.rebuilt import rebuild_here

START = 1_700_000_000_000
REVIVE = b"rmq_sys_REVIVE_LOG_DefaultCluster"


def note(**values: Any) -> bytes:
    """A note in the form of `PopCheckPoint` and `AckMsg`@5.3.3."""
    return json.dumps({"bn": "broker", "c": "g", "q": 0, "t": "T", "so": 0, "pt": START, **values}).encode()


NOTES = [
    (b"ck", note(n=2, d=[0, 2], it=5000)),
    (b"ack", note(ao=2)),
    (b"ck", note(so=5, n=2, it=9000, pt=START + 10)),  # of an older broker: without differences
    (b"bAck", note(so=5, aol=[5], pt=START + 10)),
    (b"ck", note(c="other", n=9, it=1)),
    (b"ck", note(q=1, n=9, it=1)),
    (b"ck", note(t="U", n=9, it=1)),
    (b"ck", b"not JSON"),
    (b"ck", b"[" * 5000),
    (b"ck", b'["ck"]'),
    (b"ck", note(so="x", n=None, d={}, it=[], pt=1e999)),
    (b"bAck", note(aol=5)),
    (b"other", note(n=9, it=1)),
    # The group asked for more time: the broker notes an acknowledgement, and another pop.
    (b"ck", note(so=7, n=1, d=[0], it=1000)),
    (b"ack", note(so=7, ao=7)),
    (b"ck", note(so=7, n=1, d=[0], it=60_000, pt=START + 20)),
    (b"ack", note(ao=3)),  # acknowledged, and the check point was only in memory
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    folder: Path = tmp_path_factory.mktemp("popped") / "store"
    writer = LogWriter(1 << 20)
    for offset in range(8):
        writer.append(START, b"body", b"T", 0, offset)
    for offset, (tag, body) in enumerate(NOTES):
        writer.append(START + 1, body, REVIVE, 0, offset, b"TAGS\1" + tag + b"\2")
    writer.write(folder)
    rebuild_here(folder)
    with MessageStore(str(folder)) as opened:
        yield opened


def pops(store: MessageStore, offset: int, group: str = "g") -> Pops:
    return find_pops(store, group, ("T", 0, offset), 0, START + 100)


def test_pops_and_acknowledgements(store: MessageStore) -> None:
    found = {offset: pops(store, offset).last for offset in range(8)}
    assert [offset for offset, last in found.items() if last is not None] == [0, 2, 3, 5, 6, 7]
    acknowledged = {offset for offset, last in found.items() if last is not None and last.is_acknowledged}
    assert acknowledged == {2, 3, 5}
    first, later, again = found[0], found[6], found[7]
    assert first is not None
    assert later is not None
    assert again is not None
    assert (again.pop_time, again.invisible_until) == (START + 20, START + 60_020)
    assert (first.pop_time, first.invisible_until) == (START, START + 5000)
    assert (later.pop_time, later.invisible_until) == (START + 10, START + 9010)
    assert "can acknowledge it until" in first.text
    assert pops(store, 0, "other").last is not None
    assert pops(store, 0, "nobody") == Pops(None)


def test_a_pop_after_the_notes_is_not_seen(store: MessageStore) -> None:
    assert find_pops(store, "g", ("T", 0, 0), store.get_max_phy_offset(), START) == Pops(None)
