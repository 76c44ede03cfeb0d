"""A real broker's boot does to a store what `spark-mq state` said before it.

One boot only, of the versions that lose messages. `tests/store/test_boot.py` has what other boots did.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from spark_mq.store.store_state import store_state
from tests.broker import harness

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

NAME = "lagging-533"
_UNIT = struct.Struct(">qiq")


def unit_offsets(store: Path) -> list[int]:
    """The commit log offsets of the units of the queue that lags."""
    data = (store / "consumequeue" / "LastQueue" / "0" / f"{0:020d}").read_bytes()
    return [offset for offset, size, _ in _UNIT.iter_unpack(data) if size > 0]


def test_a_clean_boot_of_5_3_3_loses_the_message_that_is_named(tmp_path: Path) -> None:
    store, conf = harness.unpack_store(NAME, tmp_path), harness.STORES / f"{NAME}.conf"
    settings = dict(line.split("=", 1) for line in conf.read_text().splitlines())
    before = store_state(str(store), "5.3.3", str(conf))
    (boot,) = before.boots
    assert before.lacking is not None
    lacking = [message.commit_log_offset for message in before.lacking.messages]
    had = unit_offsets(store)
    with harness.Broker("5.3.3", store, settings):
        pass
    assert unit_offsets(store) == had + lacking[1:]
    assert (boot.lost, boot.shifted, boot.queues[0].first_lost_offset) == (1, 2, lacking[0])
