"""The logs of a real master and its slave, compared; and one repaired from the other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_mq import compare, repair_from
from spark_mq.repairer.comparison import Comparison, PartState
from tests.broker import harness
from tests.support.replicas import log_of
from tests.support.stores import WORKLOAD
from tests.support.verified import check, grave

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]
SECONDS = 30.0


def settings_of(**more: str) -> dict[str, str]:
    conf = dict(line.split("=", 1) for line in WORKLOAD.broker_conf.read_text().split())
    return conf | more


def when(store: Path, replica: Path, is_reached: str) -> Comparison:
    """The comparison, once the replica has all that its master has."""
    latest = time.monotonic() + SECONDS
    while (found := compare(str(store), str(replica))).store.end != found.replica.end:
        assert time.monotonic() < latest, (is_reached, found.store, found.replica)
        time.sleep(0.1)
    return found


def test_a_master_and_its_slave(tmp_path: Path) -> None:
    """Both run while they are compared. The slave has the master's bytes; alone, it parts from it as a master."""
    master = WORKLOAD.unpack(tmp_path / "master")
    slave = WORKLOAD.unpack(tmp_path / "slave")
    start = compare(str(master), str(slave)).store.end
    with harness.Broker("5.3.3", master, settings_of(brokerRole="SYNC_MASTER")) as first:
        as_slave = settings_of(brokerRole="SLAVE", brokerId="1", namesrvAddr=first.name_server)
        with harness.Broker("5.3.3", slave, as_slave):
            harness.send(first, "sequence", 1, 300)
            found = when(master, slave, "the slave has all messages")
            assert (found.parts, found.is_same) == ((), True)
            assert found.compared_bytes == found.store.end > start
        harness.send(first, "sequence", 2, 20, first=300)
    found = compare(str(master), str(slave))
    assert found.is_same
    (only,) = found.store.only
    assert (only.topics, found.replica.only) == ({"SequenceDemo": 20}, ())

    # A segment of the slave is lost, and the master gives it.
    wanted = log_of(slave)
    lost = sorted(wanted)[1]
    (slave / "commitlog" / lost).unlink()
    assert repair_from(str(slave), str(master), apply=True).is_complete
    assert log_of(slave) == wanted
    _, findings = check(slave, WORKLOAD.broker_conf)
    assert grave(findings) == []

    # Without its master, it is started as one.
    end = compare(str(master), str(slave)).replica.end
    with harness.Broker("5.3.3", slave, settings_of()) as alone:
        harness.send(alone, "sequence", 3, 50, first=900)
    found = compare(str(master), str(slave))
    assert found.has_parted
    (part,) = found.parts
    assert (part.start, part.state) == (end, PartState.DIFFERENT)
    assert part.of_store is not None
    assert part.of_replica is not None
    assert part.of_store["unique_key"] != part.of_replica["unique_key"]
    assert found.replica.only[0].topics["SequenceDemo"] == 50
