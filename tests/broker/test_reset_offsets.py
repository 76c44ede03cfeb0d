"""`mqadmin resetOffsetByTime` sets what `begin_offsets` says, for a group that is not online."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.sharing.begin_offsets import LAST, begin_offsets
from tests.broker import harness
from tests.support.stores import OWN_STORES, stores_in

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]
NAMES = {"5.3.3": "workload-533", "4.9.7": "workload-49x"}
TOPIC = "OrderEvents"


@pytest.mark.parametrize("version", harness.VERSIONS)
def test_a_reset_by_time_is_foreseen(version: str, tmp_path: Path) -> None:
    packed = next(store for store in stores_in(OWN_STORES) if store.name == NAMES[version])
    path = packed.unpack(tmp_path)
    stored = sorted(fact["storeTimestamp"] for fact in packed.facts("msg") if fact["topic"] == TOPIC)
    middle = (stored[len(stored) // 2] + stored[len(stored) // 2 + 1]) // 2
    with MessageStore(str(path)) as store:
        foreseen = {
            word: {row["queue_id"]: row["reset_offset"] for row in begin_offsets(store, where, TOPIC).to_pylist()}
            for word, where in ((str(middle), middle), ("now", LAST))
        }
    assert len(set(foreseen[str(middle)].values()) | set(foreseen["now"].values())) > 1
    # A broker of 4.9 refuses the reset if the group lacks an offset in a queue.
    offsets_file = path / "config" / "consumerOffset.json"
    offsets_file.write_text(json.dumps({"offsetTable": {f"{TOPIC}@GID_failing": dict.fromkeys(range(4), 1)}}))
    with harness.Broker(version, path, packed.broker_conf) as broker:
        for word, offsets in foreseen.items():
            said = harness.mqadmin(broker, ["resetOffsetByTime", "-g", "GID_failing", "-t", TOPIC, "-s", word])
            found = re.findall(r"^\S+ +(\d+)( +-?\d+)* +(-?\d+) *$", said, re.MULTILINE)
            assert {int(queue_id): int(offset) for queue_id, _, offset in found} == offsets, said
