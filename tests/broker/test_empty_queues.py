"""Real brokers go on at the next offset of a queue without messages whose file was written here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_mq.io.location import Location
from spark_mq.restorer.finish import write_empty_queues
from tests.broker import harness
from tests.support.soak import cases
from tests.support.stores import STORES

pytestmark = pytest.mark.broker

V5, V4 = harness.VERSIONS
TOPIC = "DirectTopic"
UNITS_PER_FILE = 100
NEXT_OFFSETS = {(TOPIC, 1): 1, (TOPIC, 2): 250, (TOPIC, 3): 200, ("gone", 0): 57}
"""One unit; an offset in a file; the end of a file; a queue that gets no message."""


@pytest.mark.parametrize(
    ("version", "name"), cases([(V4, "workload-49x")], [(V5, "workload-533"), (V4, "workload-49x")])
)
def test_a_queue_without_messages_goes_on_at_its_next_offset(version: str, name: str, tmp_path: Path) -> None:
    packed, settings = STORES[name], STORES[name].broker_conf
    store = STORES[name].unpack(tmp_path)
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    log_start, (said,) = int(second.name), packed.facts("store")
    assert all(fact["offset"] < log_start for fact in packed.facts("msg") if fact["topic"] == TOPIC)
    shutil.rmtree(store / "consumequeue" / TOPIC)
    folder = Location.resolve(str(store / "consumequeue"))
    assert said["mappedFileSizeConsumeQueue"] == 20 * UNITS_PER_FILE
    written, _ = write_empty_queues(folder, NEXT_OFFSETS, 20 * UNITS_PER_FILE, log_start, 0)
    assert set(written) == set(NEXT_OFFSETS)

    def ends(facts: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, int], tuple[int, int]]:
        queues = {(fact["topic"], fact["queueId"]): (fact["min"], fact["max"]) for fact in facts["queue"]}
        return {queue: queues[queue] for queue in NEXT_OFFSETS}

    before = harness.facts(store, settings, version)
    assert ends(before) == {queue: (offset if version == V5 else 0, offset) for queue, offset in NEXT_OFFSETS.items()}
    gets = [fact for fact in before["get"] if (fact["topic"], fact["queueId"]) in NEXT_OFFSETS]
    assert gets
    assert all(fact["offsets"] == [] for fact in gets)

    harness.append(store, settings, 5, version)
    after = harness.facts(store, settings, version)
    for (topic, queue_id), offset in NEXT_OFFSETS.items():
        new = [
            fact["queueOffset"]
            for fact in after["msg"]
            if (fact["topic"], fact["queueId"]) == (topic, queue_id) and fact["offset"] >= said["maxPhyOffset"]
        ]
        assert bool(new) == (topic == TOPIC)
        assert new == list(range(offset, offset + len(new)))
        assert ends(after)[topic, queue_id][1] == offset + len(new)
        if new:
            # A boot looks into the first file only; one of expired units stays until the broker deletes old files.
            assert ends(after)[topic, queue_id][0] == (0 if offset % UNITS_PER_FILE == 0 else offset)
