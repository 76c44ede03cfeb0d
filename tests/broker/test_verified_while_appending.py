"""A store is checked while a broker appends to it: what is newer than the end at the start is no finding."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.broker import harness
from tests.support.soak import SOAKS, cases
from tests.support.verified import check, grave

pytestmark = pytest.mark.broker

SETTINGS = {
    "autoCreateTopicEnable": "false",
    "timerWheelEnable": "false",  # no message waits, and flushing the wheel takes a quarter of a core
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
CHECKS = 50 if SOAKS else 5


@pytest.mark.parametrize("version", cases(harness.VERSIONS[:1], harness.VERSIONS))
def test_a_store_to_which_a_broker_appends_has_no_warning(version: str, tmp_path: Path) -> None:
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    messages = []
    with harness.Broker(version, store, SETTINGS) as broker:
        harness.send(broker, "sequence", seed=1, count=3)
        senders = [
            harness.Sender(broker, "burst", seed=2, count=40_000),
            harness.Sender(broker, "sequence", seed=3, count=40_000, body=700),
        ]
        first = check(store, conf)[0].messages
        while check(store, conf)[0].messages == first:
            assert any(sender.is_sending for sender in senders), "nothing is sent"
            time.sleep(0.1)
        for number in range(CHECKS):
            checked, findings = check(store, conf)
            assert grave(findings) == [], f"check {number}"
            assert "ABORT" in checked.counts
            messages.append(checked.messages)
        broker.stop()
        for sender in senders:
            with contextlib.suppress(harness.HarnessError):  # the broker is gone
                sender.wait()
    assert len(set(messages)) > CHECKS // 2, "the log did not grow"
    _, findings = check(store, conf)
    assert grave(findings) == []
