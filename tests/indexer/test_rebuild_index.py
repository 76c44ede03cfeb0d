"""The main job's index files against those that brokers wrote, whole, byte for byte; names apart."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, OutputExistsError
from spark_mq.format.index_file import INDEX_COUNT_AT, IndexLayout, decode_header
from spark_mq.indexer.forecast import forecast
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.index.file_names import parse_time_zone
from spark_mq.testing import LogWriter
from spark_mq.testing.plain_index import PlainIndexFile
from tests.support.index_stores import layout_of
from tests.support.rebuilt import rebuild_here
from tests.support.stores import WORKLOAD, RealStore, Unpack, index_of, tree_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rebuilt(store: RealStore, folder: Path, output: Path, **options: object) -> RebuildReport:
    settings = {"broker_conf": str(store.broker_conf), "broker_version": store.broker_version, "only": "index"}
    return rebuild_here(str(folder), str(output), **{**settings, **options})  # type: ignore[arg-type]


def test_both_kinds_are_made_of_one_read(unpacked: Unpack, tmp_path: Path) -> None:
    folder = unpacked(WORKLOAD)
    report = rebuild_here(str(folder), str(tmp_path), broker_conf=str(WORKLOAD.broker_conf))
    assert index_of(tmp_path) == index_of(folder)
    assert tree_of(tmp_path / "consumequeue") == tree_of(folder / "consumequeue")
    segments = len(list((folder / "commitlog").iterdir()))
    assert report.bytes_read <= report.log_bytes + segments * 4096
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["checkpoint", "consumequeue", "index"]


def test_one_kind_leaves_the_other_alone(tmp_path: Path) -> None:
    store = WORKLOAD.unpack(tmp_path)
    conf = str(WORKLOAD.broker_conf)
    before = tree_of(store)
    with pytest.raises(OutputExistsError, match="--replace"):
        rebuild_here(str(store), broker_conf=conf)
    assert tree_of(store) == before
    shutil.rmtree(store / "index")
    rebuild_here(str(store), only="index", broker_conf=conf)
    after = tree_of(store)
    others = {name for name in before if not name.startswith(("index/", "checkpoint"))}
    assert {name: after[name] for name in others} == {name: before[name] for name in others}
    assert index_of(store) == [data for name, data in sorted(before.items()) if name.startswith("index/")]


def name_at(millis: int, zone: str) -> str:
    moment = (EPOCH + timedelta(milliseconds=millis)).astimezone(parse_time_zone(zone))
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"


def test_files_are_named_after_their_first_message(unpacked: Unpack, tmp_path: Path) -> None:
    """In UTC, as the broker's own names show, which was run in that zone; or in the zone that is given."""
    folder = unpacked(WORKLOAD)
    for zone, options in (("UTC", {}), ("Asia/Shanghai", {"time_zone": "Asia/Shanghai"})):
        output = tmp_path / zone
        rebuilt(WORKLOAD, folder, output, **options)
        names = sorted(path.name for path in (output / "index").iterdir())
        begins = [decode_header(data, layout_of(WORKLOAD), "").begin_timestamp for data in index_of(output)]
        assert names[0] == name_at(begins[0], zone)
        assert [name >= name_at(begin, zone) for name, begin in zip(names, begins, strict=True)] == [True] * len(names)
        own = sorted(path.name for path in (folder / "index").iterdir())
        if zone == "UTC":
            assert [name[:12] for name in names] == [name[:12] for name in own]


def test_messages_without_keys_make_a_file_too(tmp_path: Path) -> None:
    """`IndexService.buildIndex` makes the file before it looks for keys."""
    writer = LogWriter(4096)
    writer.append(1_795_258_842_150)
    writer.write(tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=7\nmaxIndexNum=9\n")
    rebuild_here(str(tmp_path / "store"), str(tmp_path / "out"), only="index", broker_conf=str(conf))
    assert index_of(tmp_path / "out") == [PlainIndexFile.after(IndexLayout(7, 9), 0, 0).encode()]
    assert [path.name for path in (tmp_path / "out" / "index").iterdir()] == ["20261121110042150"]
    rebuild_here(
        str(tmp_path / "store"), str(tmp_path / "4.9"), only="index", broker_conf=str(conf), broker_version="4.9.7"
    )
    (empty,) = index_of(tmp_path / "4.9")
    assert decode_header(empty, IndexLayout(7, 9), "").index_count == 0


def test_full_files_show_slots_and_entries(unpacked: Unpack, tmp_path: Path) -> None:
    """The last file can have room left, so it alone does not show them. A file that is not full shows nothing."""
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    rebuild_here(str(store), str(tmp_path / "out"), only="index")
    assert index_of(tmp_path / "out") == index_of(store)
    first, *_, last = sorted((store / "index").iterdir())
    with first.open("r+b") as full:
        full.seek(INDEX_COUNT_AT)
        full.write((499).to_bytes(4, "big"))
    rebuild_here(str(store), str(tmp_path / "again"), only="index")
    assert index_of(tmp_path / "again") == index_of(tmp_path / "out")
    for file in (store / "index").iterdir():
        if file != last:
            file.unlink()
    with pytest.raises(OptionError, match=f"{last.name}.* maxHashSlotNum and maxIndexNum"):
        rebuild_here(str(store), str(tmp_path / "no"), only="index")
    with pytest.raises(OptionError, match="--time-zone"):
        rebuild_here(str(unpacked(WORKLOAD)), str(tmp_path / "no"), time_zone="Nowhere/Land")
    assert not (tmp_path / "no").exists()


def test_an_index_is_not_made_from_a_guess(unpacked: Unpack, tmp_path: Path) -> None:
    """A broker with other slots and entries would find nothing in it, and notice nothing."""
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    shutil.rmtree(store / "index")
    output = str(tmp_path / "out")
    with pytest.raises(OptionError, match="or --assume-defaults if"):
        forecast(RebuildRequest.of(str(store), output))
    told = forecast(RebuildRequest.of(str(store), output, assume_defaults=True)).settings
    assert any(setting.startswith("index files: 5,000,000 slots") for setting in told)
    assert forecast(RebuildRequest.of(str(store), output, only="consumequeue")).trees == ["consumequeue"]


@pytest.mark.parametrize("setting", ["messageIndexEnable", "indexFileWriteEnable"])
def test_a_broker_that_keeps_no_index_gets_none(setting: str, unpacked: Unpack, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{WORKLOAD.broker_conf.read_text()}\n{setting}=false\n")
    report = rebuild_here(str(unpacked(WORKLOAD)), str(tmp_path / "out"), broker_conf=str(conf))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoint", "consumequeue"]
    assert any(setting in note for note in report.notes)
    with pytest.raises(OptionError, match=setting):
        rebuild_here(str(unpacked(WORKLOAD)), str(tmp_path / "no"), only="index", broker_conf=str(conf))


@pytest.mark.parametrize("only", [None, "index", "consumequeue"])
def test_the_checkpoint_speaks_of_what_was_rebuilt(tmp_path: Path, only: str | None) -> None:
    store = WORKLOAD.unpack(tmp_path)
    own = Checkpoint.load(Location.resolve(str(store)))
    report = rebuild_here(str(store), str(tmp_path / "out"), only=only, broker_conf=str(WORKLOAD.broker_conf))
    made = Checkpoint.load(Location.resolve(str(tmp_path / "out")))
    last = max(fact["storeTimestamp"] for fact in WORKLOAD.facts("msg"))
    (newest,) = index_of(store)[-1:]
    index_end = decode_header(newest, layout_of(WORKLOAD), "").end_timestamp
    assert made.physic_msg_timestamp == last
    assert made.logics_msg_timestamp == (own.logics_msg_timestamp if only == "index" else last)
    assert made.index_msg_timestamp == (own.index_msg_timestamp if only == "consumequeue" else index_end)
    assert made.confirm_phy_offset == own.confirm_phy_offset
    assert (tmp_path / "out" / "checkpoint").stat().st_size == 4096
    assert "as they are" in report.next_boot
    (store / "abort").touch()
    again = rebuild_here(
        str(store), str(tmp_path / "out"), only=only, broker_conf=str(WORKLOAD.broker_conf), replace=True
    )
    assert "abort" in again.next_boot
    assert again.next_boot in again.to_text()
