"""Stores of brokers that index tags: restored, appended to and repaired; and the field of the checkpoint of 5.5.0."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.restorer.append_target import AppendTarget
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT, Checkpoint
from spark_mq.store.log.log_range import LogRange
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import delivered, restore_here
from tests.support.stores import OWN_STORES, RealStore, index_of, stores_in, tree_of, version_stores
from tests.support.verified import check, grave

STORES = stores_in(OWN_STORES / "versions")
WORKLOAD = RealStore("workload-550", OWN_STORES / "versions")
UPGRADED = RealStore("upgraded-550", OWN_STORES / "versions")


def last_unit_offset(store: RealStore) -> int:
    """The commit log offset of the last message with a unit; a broker writes it to the checkpoint once a minute."""
    return max(int(fact["offset"]) for fact in store.facts("msg") if fact["sysFlag"] & 0xC in (0, 8))


def keys_of(record: Record) -> int:
    properties = parse_properties(record.properties)
    return (b"UNIQ_KEY" in properties) + len(properties.get(b"KEYS", b"").split())


@pytest.mark.parametrize("store", [*STORES, *version_stores("p5", "p49")], ids=str)
def test_a_restore_makes_the_index_that_was_there(store: RealStore, tmp_path: Path) -> None:
    path = store.unpack(tmp_path)
    restore_here(path, tmp_path / "out", store.broker_conf)
    assert index_of(tmp_path / "out") == index_of(path)
    was, made = (Checkpoint.load(Location.resolve(str(one))) for one in (path, tmp_path / "out"))
    assert made.logics_physical_offset == (last_unit_offset(store) if was.logics_physical_offset else 0)


@pytest.mark.parametrize("store", [*STORES, *version_stores("p54", "p55", "pCrc")], ids=str)
def test_an_archive_keeps_which_tags_have_entries(store: RealStore, tmp_path: Path) -> None:
    """Also of a store that was upgraded: the first message with an entry is in the middle of a file."""
    path = store.unpack(tmp_path)
    restore_here(path, tmp_path / "out", store.broker_conf, archived=True)
    assert index_of(tmp_path / "out") == index_of(path)


def test_with_new_offsets_the_version_says_what_is_indexed(tmp_path: Path) -> None:
    path = UPGRADED.unpack(tmp_path)
    new, old = tmp_path / "new", tmp_path / "old"
    for target, version in ((new, "5.5.0"), (old, "5.3.3")):
        restore_here(path, target, UPGRADED.broker_conf, delivered, broker_version=version, renumber=True)
        assert not grave(check(target, UPGRADED.broker_conf)[1])
    assert [Checkpoint.load(Location.resolve(str(one))).logics_physical_offset > 0 for one in (new, old)] == [
        True,
        False,
    ]
    with MessageStore(str(new)) as store:
        records = list(store.records.iterate(LogRange(0, store.get_max_phy_offset())))
    tags = [b"TAGS" in parse_properties(record.properties) for record in records]
    assert [check(one, UPGRADED.broker_conf)[0].index_entries for one in (new, old)] == [
        sum(map(keys_of, records)) + sum(tags),
        sum(map(keys_of, records)),
    ]


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_damaged_index_file_is_made_again(store: RealStore, tmp_path: Path) -> None:
    path = store.unpack(tmp_path)
    whole = tree_of(path)
    for number in range(len(index_of(path))):
        file = sorted((path / "index").iterdir())[number]
        data = bytearray(file.read_bytes())
        data[400:4400] = bytes(4000)
        file.write_bytes(data)
        repair_here(path, store.broker_conf, apply=True)
        shutil.rmtree(path / ".spark_mq", ignore_errors=True)
        for backup in path.glob("backup-*"):
            shutil.rmtree(backup)
        assert {name: data for name, data in tree_of(path).items() if name.startswith("index/")} == {
            name: data for name, data in whole.items() if name.startswith("index/")
        }


def test_an_offset_of_the_checkpoint_after_the_log_is_set_to_the_last_message(tmp_path: Path) -> None:
    path = WORKLOAD.unpack(tmp_path)
    before = Checkpoint.load(Location.resolve(str(path)))
    data = bytearray((path / CHECKPOINT).read_bytes())
    data[40:48] = (1 << 40).to_bytes(8, "big")
    (path / CHECKPOINT).write_bytes(data)
    assert [finding.code for finding in grave(check(path, WORKLOAD.broker_conf)[1])] == ["CHECKPOINT_AHEAD"]
    repair_here(path, WORKLOAD.broker_conf, apply=True)
    after = Checkpoint.load(Location.resolve(str(path)))
    assert after == dataclasses.replace(before, logics_physical_offset=last_unit_offset(WORKLOAD))


def test_a_rebuild_writes_the_offset_of_the_checkpoint(tmp_path: Path) -> None:
    path, conf = WORKLOAD.unpack(tmp_path), str(WORKLOAD.broker_conf)
    last = last_unit_offset(WORKLOAD)
    for version, offset in ((None, last), ("5.5.0", last), ("5.4.0", 0)):
        folder = tmp_path / str(version)
        rebuild_here(path, folder, broker_conf=conf, broker_version=version)
        assert Checkpoint.load(Location.resolve(str(folder))).logics_physical_offset == offset


def test_the_end_of_the_index_says_what_an_append_indexes(tmp_path: Path) -> None:
    path, conf = UPGRADED.unpack(tmp_path), BrokerConf.of(str(UPGRADED.broker_conf))
    location = Location.resolve(str(path))
    assert AppendTarget(location, conf).index_tags
    rebuild_here(path, None, broker_conf=str(UPGRADED.broker_conf), broker_version="5.3.3", only="index", replace=True)
    assert not AppendTarget(location, conf).index_tags
    shutil.rmtree(path / "index")
    conf_without_index = BrokerConf({**conf.settings, "messageIndexEnable": "false"})
    assert not AppendTarget(location, conf_without_index).index_tags
