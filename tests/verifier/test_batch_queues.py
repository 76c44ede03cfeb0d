"""Batch consume queues: each damage of a unit is found at the unit, and made good; judged by a broker's own files."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of
from tests.support.verified import check, grave

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
TREE = "batchconsumequeue"
UNITS = 35
"""Units of each of the two queues."""
TRIES = 500 if SOAKS else 40
SMALL = 10 * BATCH_UNIT_SIZE


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Settings with files of ten units."""
    file = tmp_path / "broker.conf"
    file.write_text(STORE.broker_conf.read_text() + f"mapperFileSizeBatchConsumeQueue={SMALL}\n")
    return file


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path, conf: Path) -> Path:
    """The store with small files, which have the units of the broker's ones (`tests/indexer/test_batch_queues.py`)."""
    folder = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    shutil.rmtree(folder / TREE)
    rebuild_here(folder, tmp_path / "rebuilt", only="consumequeue", broker_conf=str(conf))
    shutil.move(tmp_path / "rebuilt" / TREE, folder / TREE)
    return folder


def found(store: Path, conf: Path) -> set[tuple[str, str | None, int | None]]:
    findings = grave(check(store, conf)[1])
    return {(one.code, one.file, one.position) for one in findings if (one.file or "").startswith(TREE)}


def differing(data: bytes | bytearray, other: bytes) -> set[int]:
    """Where units are that differ."""
    places = range(0, len(data), BATCH_UNIT_SIZE)
    return {at for at in places if data[at : at + BATCH_UNIT_SIZE] != other[at : at + BATCH_UNIT_SIZE]}


def name(number: int, queue_id: int = 0) -> str:
    return f"{TREE}/b1bcq/{queue_id}/{number * SMALL:020d}"


def test_a_brokers_files_are_sound(unpacked: Unpack) -> None:
    report, findings = check(unpacked(STORE), STORE.broker_conf)
    assert grave(findings) == []
    assert not [one for one in findings if one.code == "NOT_CHECKED"]
    assert (report.queues, report.units) == (18, 326)


@pytest.mark.parametrize("size", [0, 30, BATCH_UNIT_SIZE + 4])
def test_a_cut_file_does_not_say_how_long_the_others_are(size: int, unpacked: Unpack, tmp_path: Path) -> None:
    store = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    files = sorted((store / TREE).rglob("0*0"))
    with files[0].open("r+b") as file:
        file.truncate(size)
    findings = grave(check(store, STORE.broker_conf)[1])
    assert {(one.code, one.file) for one in findings if one.code == "QUEUE_FILE_SIZE"} == {
        ("QUEUE_FILE_SIZE", str(files[0].relative_to(store)))
    }
    assert {one.file for one in findings} == {str(files[0].relative_to(store))}


def test_a_file_that_is_shorter_than_a_unit_is_refused_as_a_setting(unpacked: Unpack, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mapperFileSizeBatchConsumeQueue=45\n")
    with pytest.raises(OptionError, match="mapperFileSizeBatchConsumeQueue=45 is too small: a unit has 46 bytes"):
        check(unpacked(STORE), conf)


def test_every_damaged_unit_is_named_and_repaired(store: Path, conf: Path) -> None:
    before = tree_of(store / TREE)
    for seed in range(TRIES):
        chance = random.Random(seed)
        files = sorted((store / TREE).rglob("0*0"))
        damaged: dict[str, set[int]] = {}
        for _ in range(chance.randrange(1, 3)):
            file = chance.choice([file for file in files if file.is_file()])
            original = before[str(file.relative_to(store / TREE))]
            data = bytearray(file.read_bytes())
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            file.write_bytes(data)
            damaged[str(file.relative_to(store))] = differing(data, original)
        expected = {(file, position) for file, places in damaged.items() for position in places}
        assert {(file, position) for _, file, position in found(store, conf)} == expected, seed
        if seed % 10 == 0:
            repair_here(store, conf, apply=True)
        else:
            for path, content in before.items():
                (store / TREE / path).write_bytes(content)
        assert tree_of(store / TREE) == before, seed


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_lost_file_is_found_and_made_again(store: Path, conf: Path, number: int) -> None:
    before = tree_of(store / TREE)
    (store / name(number)).unlink()
    codes = {code for code, _, _ in found(store, conf)}
    assert codes == {"QUEUE_LAGS_CLEAN" if number == 3 else "QUEUE_UNIT_MISSING"}
    repair_here(store, conf, apply=True)
    assert tree_of(store / TREE) == before
    assert found(store, conf) == set()


def test_a_file_with_the_name_of_a_far_one_is_put_aside(store: Path, conf: Path) -> None:
    """A check that made room for all units before it would need petabytes."""
    before = tree_of(store / TREE)
    far = f"{TREE}/b1bcq/0/{SMALL << 50:020d}"
    shutil.copy(store / name(3), store / far)
    assert found(store, conf) == {("QUEUE_FILE_NAME", far, None)}
    repair_here(store, conf, apply=True)
    assert tree_of(store / TREE) == before


def test_the_command_repairs_and_says_what_a_boot_does(
    store: Path, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree_of(store / TREE)
    (store / name(1)).unlink()
    assert main(["repair", str(store), "--broker-conf", str(conf), "--apply"]) == 0
    assert "The next boot of 5.3.2 to 5.3.3 starts at segment 00000000000000302765 and loses nothing" in (
        capsys.readouterr().out
    )
    assert tree_of(store / TREE) == before


def test_lost_queues_and_a_lost_end(store: Path, conf: Path) -> None:
    before = tree_of(store / TREE)
    last = store / name(3)
    last.write_bytes(last.read_bytes()[: 3 * BATCH_UNIT_SIZE].ljust(SMALL, b"\0"))
    assert found(store, conf) == {("QUEUE_LAGS_CLEAN", name(3), 3 * BATCH_UNIT_SIZE)}
    (store / "abort").touch()
    assert {code for code, _, _ in found(store, conf)} == {"QUEUE_LAGS"}
    (store / "abort").unlink()
    shutil.rmtree(store / TREE)
    files = {name(number, queue_id) for number in range(4) for queue_id in (0, 1)}
    assert found(store, conf) == {("QUEUE_MISSING", file, 0) for file in files}
    repair_here(store, conf, apply=True)
    assert tree_of(store / TREE) == before


def test_units_of_expired_records_stay(store: Path, conf: Path) -> None:
    before = tree_of(store / TREE)
    (store / f"commitlog/{0:020d}").unlink()
    all_expired = store / TREE / "old/0"
    all_expired.mkdir(parents=True)
    shutil.copy(store / name(0), all_expired)
    assert found(store, conf) == set()
    shutil.rmtree(all_expired.parent)
    expired = store / name(1)
    data = bytearray(expired.read_bytes())
    data[7] ^= 1 << 7  # offset 92,820 becomes another one, which is before that of the unit before it
    data[0] ^= 1
    expired.write_bytes(data)
    assert found(store, conf) == {("QUEUE_EXPIRED_ORDER", name(1), 0)}
    last = store / name(3)
    last.write_bytes(last.read_bytes()[: 2 * BATCH_UNIT_SIZE].ljust(SMALL, b"\0"))  # none of a record of the log
    repair_here(store, conf, apply=True)
    after = tree_of(store / TREE)
    path = f"b1bcq/0/{SMALL:020d}"
    assert after.pop(path) == bytes(BATCH_UNIT_SIZE) + before[path][BATCH_UNIT_SIZE:]
    assert after == {path: content for path, content in before.items() if path in after}


def test_units_of_a_damaged_part_of_the_log_are_named_and_stay(store: Path, conf: Path) -> None:
    before = tree_of(store / TREE)
    segment = store / f"commitlog/{0:020d}"
    data = bytearray(segment.read_bytes())
    data[36932 + 4] ^= 1  # the magic number of the record of unit 5
    segment.write_bytes(data)
    lost = {(code, file, position) for code, file, position in found(store, conf) if file == name(0)}
    assert lost == {("QUEUE_NO_MESSAGE", name(0), 5 * BATCH_UNIT_SIZE)}
    damaged = store / name(2)
    damaged.write_bytes(bytes(SMALL))
    assert {code for code, file, _ in found(store, conf) if file == name(2)} == {"QUEUE_UNIT_MISSING"}
    repair_here(store, conf, apply=True)
    assert tree_of(store / TREE) == before


def test_offsets_of_consumers_are_compared_with_the_end(store: Path, conf: Path) -> None:
    for offset, wrong in ((67, False), (68, True)):
        (store / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": {"b1bcq@readers": {"0": offset}}}))
        codes = {one.code for one in grave(check(store, conf)[1])}
        assert codes == ({"OFFSET_PAST_END"} if wrong else set())
