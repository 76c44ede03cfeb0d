"""A consumer group goes on where it was, with a real client, in a store that was restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.broker import harness
from tests.support.restored import message_batches, restore_here
from tests.support.soak import cases

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS
TOPIC, GROUP = "SequenceDemo", "GID_progress"
SETTINGS = {
    "autoCreateTopicEnable": "false",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}
SENT, CONSUMED, LATER = 600, 250, 30
Keep = Callable[[pa.RecordBatch], pa.RecordBatch]


def two_of_three(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages of a topic without a third of them; all messages of other topics."""
    is_kept = [
        topic != TOPIC or queue_offset % 3 > 0
        for topic, queue_offset in zip(batch["topic"].to_pylist(), batch["queue_offset"].to_pylist(), strict=True)
    ]
    return batch.filter(pa.array(is_kept))


MODES: dict[str, tuple[Keep, dict[str, Any]]] = {
    "faithful": (lambda batch: batch, {}),
    "compact": (two_of_three, {"renumber": True}),
}
USUAL = ((V5, "compact"),)


def consumed_store(version: str, store: Path) -> set[str]:
    """Let a broker make a store; returns the unique keys of the messages that a group has consumed."""
    with harness.Broker(version, store, SETTINGS) as broker:
        assert harness.send(broker, "sequence", 1, SENT) == SENT
        consumed = [message["uniqKey"] for message in harness.consume(broker, GROUP, TOPIC, CONSUMED)]
    assert len(set(consumed)) == len(consumed) == CONSUMED
    return set(consumed)


@pytest.mark.parametrize(("version", "mode"), cases(USUAL, [(version, mode) for version in (V5, V4) for mode in MODES]))
def test_a_group_goes_on(version: str, mode: str, tmp_path: Path) -> None:
    conf, store, new = tmp_path / "broker.conf", tmp_path / "store", tmp_path / "new"
    consumed = consumed_store(version, store)
    keep, options = MODES[mode]
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    restore_here(store, new, conf, keep, **options)
    restored = {
        row["unique_key"]
        for batch in message_batches(store, ("topic", "queue_offset", "unique_key"))
        for row in keep(batch).to_pylist()
        if row["topic"] == TOPIC
    }
    assert len(restored) == SENT if not options else 0 < len(restored) < SENT
    with harness.Broker(version, new, conf) as broker:
        later = harness.send(broker, "sequence", 2, LATER, first=SENT)
        taken = [message["uniqKey"] for message in harness.consume(broker, GROUP, TOPIC, 2 * SENT)]
    assert len(set(taken)) == len(taken) == len(restored - consumed) + later
    assert restored - consumed <= set(taken)
    assert not consumed & set(taken)
