"""The logs of real replicas, compared; and one repaired from the other: a master and its slave, and DLedger's nodes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from spark_mq import compare, repair_from
from spark_mq.io.location import Location
from spark_mq.repairer.comparison import Comparison, PartState
from spark_mq.store.config.epochs import Epoch, EpochFile
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from tests.broker import harness
from tests.broker.controller import Controller
from tests.support import dledger
from tests.support.own_servers import free_ports
from tests.support.rebuilt import rebuild_here
from tests.support.replicas import log_of
from tests.support.soak import SOAKS
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


def damage(node: Path, *numbers: int) -> None:
    """Damage the record of an entry, and the head of the one after it, for each number."""
    (data,), entries = node.glob("dledger-*/data"), dledger.heads(node)
    for number in numbers:
        for at, (offset, *_) in zip((58, 5), entries[number : number + 2], strict=True):
            file = sorted(data.iterdir())[offset // dledger.SEGMENT]
            content = bytearray(file.read_bytes())
            content[offset % dledger.SEGMENT + at] ^= 0xFF
            file.write_bytes(content)


def test_a_broker_serves_a_repaired_node_of_dledger(tmp_path: Path) -> None:
    store = dledger.STORE.unpack(tmp_path)
    replica = Path(shutil.copytree(store, tmp_path / "replica"))
    with MessageStore(str(store)) as opened:
        messages = sum(opened.get_max_offset_in_queue("b1_Main", queue_id) for queue_id in range(3))
    damage(store, 10, 200)
    assert repair_from(str(store), str(replica), apply=True).is_complete
    settings = dict(line.split("=", 1) for line in dledger.CONF.read_text().splitlines() if "=" in line)
    with harness.Broker("5.3.3", store, settings) as broker, harness.PullConsumer(broker, "b1_Main", 32) as consumer:
        assert consumer.read()[0] == messages == 150
    assert compare(str(store), str(replica)).is_same


@pytest.mark.skipif(not SOAKS, reason="a soak")
def test_two_members_of_a_group(tmp_path: Path) -> None:
    """Both have the same bytes. One is repaired from the other, and both go on together: nothing is lost or twice."""
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(free_ports(2)))
    base = {"enableDLegerCommitLog": "true", "dLegerGroup": "group", "dLegerPeers": peers}
    base |= {"autoCreateTopicEnable": "true", "maxHashSlotNum": "99", "maxIndexNum": "500"}
    base |= {"mappedFileSizeCommitLog": str(dledger.SEGMENT), "mappedFileSizeConsumeQueue": "2000"}
    nodes = [tmp_path / f"n{number}" for number in range(2)]
    members = [harness.Broker("5.3.3", node, base | {"dLegerSelfId": node.name}) for node in nodes]

    def leader() -> harness.Broker:
        latest = time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < latest
            votes = {file.read_text().split("voteLeader=")[-1].split()[0] for file in tmp_path.glob("n?/*/currterm")}
            if len(votes) == 1 and votes < {"n0", "n1"}:
                return members[int(votes.pop()[1])]
            time.sleep(0.5)

    for first in (0, 1000):
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(harness.Broker.start, members))
        try:
            harness.send(leader(), "sequence", 1, 1000, first=first)
            time.sleep(3)  # a follower learns with the next request what is committed
            with harness.PullConsumer(leader(), "SequenceDemo", 32) as consumer:
                assert consumer.read()[0] == first + 1000
        finally:
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(harness.Broker.stop, members))
        found = compare(*map(str, nodes))
        assert found.is_same
        assert found.store.end == found.replica.end == found.store.committed == found.replica.committed
        damage(nodes[1], 20, 700)
        assert len(compare(*map(str, nodes)).of(PartState.REPLICA_DAMAGED)) == 2
        assert repair_from(str(nodes[1]), str(nodes[0]), apply=True).is_complete
        assert compare(*map(str, nodes)).is_same


def until(is_reached: Callable[[], bool], what: str) -> None:
    latest = time.monotonic() + SECONDS
    while not is_reached():
        assert time.monotonic() < latest, what
        time.sleep(0.1)


def epochs_of(store: Path) -> list[Epoch]:
    return list(EpochFile.of(Location.resolve(str(store))).epochs)


@pytest.mark.skipif(not SOAKS, reason="a soak")
@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_master_that_is_replaced_in_controller_mode(version: str, tmp_path: Path) -> None:
    """Alone it gets messages that the next master lacks. It cuts them off where the comparison says, and follows."""
    old, new = tmp_path / "old", tmp_path / "new"
    sizes = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxIndexNum": "500"}

    def has_role(store: Path) -> bool:
        return bool(epochs_of(store))

    with Controller(version, tmp_path / "servers") as controller, ExitStack() as brokers:
        settings = {**controller.settings(), **sizes, "maxHashSlotNum": "99"}
        first, second = (harness.Broker(version, store, settings, keeps_ports=True) for store in (old, new))
        for broker in (first, second):
            brokers.callback(broker.kill)
            broker.start()
            until(partial(has_role, broker.store), "the broker has a role")
        harness.send(first, "sequence", 1, 200)
        assert when(old, new, "the slave has all messages").is_same
        os.kill(second.process_id, signal.SIGSTOP)
        harness.send(first, "sequence", 2, 20, first=200)
        first.kill()
        os.kill(second.process_id, signal.SIGCONT)
        until(lambda: len(epochs_of(new)) == 2, "the other one is the master")
        harness.send(second, "sequence", 3, 60, first=300)
        began = epochs_of(new)[-1].start_offset
        found = compare(str(old), str(new))
        assert (found.has_parted, found.consistent_offset, found.parts[0].start) == (True, began, began)
        assert found.replica.only[0].topics == {"SequenceDemo": 60}
        conf = tmp_path / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        assert next_recovery(str(old), version, str(conf)).loses_no_message
        first.start()
        until(lambda: epochs_of(old) == epochs_of(new), "it follows")
        assert when(old, new, "it has all messages").is_same
        first.stop()
        second.stop()
    assert grave(check(new, conf)[1]) == []
    # A broker cuts log and queues, and not the index, which still leads to messages that are gone.
    assert {one.code for one in grave(check(old, conf)[1])} <= {"INDEX_ENTRY_WRONG", "INDEX_ENTRY_MISSING"}
    rebuild_here(old, only="index", broker_conf=str(conf), replace=True, backup=False)
    assert grave(check(old, conf)[1]) == []

    # A segment of one is lost, and the other one gives it.
    wanted = log_of(old)
    (old / "commitlog" / sorted(wanted)[0]).write_bytes(bytes(65536))
    assert repair_from(str(old), str(new), apply=True).is_complete
    assert log_of(old) == wanted
