"""Repairs of real stores: what lags is completed as a broker's recovery does; what is sound stays as it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from spark_mq.errors import NoRoomError, OptionError, OutputExistsError
from spark_mq.io.location import Location
from spark_mq.repairer.changes import ChangeKind, undo_repair
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import parse_fastjson
from spark_mq.store.file_states import QueueStateName, queue_states
from spark_mq.store.index.folder import find_index_layout
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_state import store_state
from tests.support.index_damages import EditedIndexFile
from tests.support.repaired import repair_here
from tests.support.stores import OWN_STORES, RealStore, Unpack, files_of, index_of, tree_of, usual_stores
from tests.support.verified import Bench, check, grave

LAGGING = {"lagging-533": "rebuilt", "killed-533": "recovered", "killed-49x": "recovered"}


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_plan_is_for_stores_that_are_not_sound(store: RealStore, unpacked: Unpack) -> None:
    report = repair_here(unpacked(store), store.broker_conf)
    assert report.left == ()
    assert bool(report.actions) == store.name.startswith(("lagging", "killed", "stale", "abort"))
    assert report.before.is_sound == (not report.actions)


@pytest.mark.parametrize("name", LAGGING)
def test_what_lags_is_completed_as_by_a_broker(name: str, unpacked: Unpack, tmp_path: Path) -> None:
    store = RealStore(name, OWN_STORES)
    copy = Path(shutil.copytree(unpacked(store), tmp_path / "copy"))
    recovered = store.unpack(tmp_path / "recovered", LAGGING[name])
    before = files_of(copy)
    report = repair_here(copy, store.broker_conf, apply=True)
    assert report.left == ()
    assert tree_of(copy / "consumequeue") == tree_of(recovered / "consumequeue")
    changed = {action.change.file for action in report.actions}
    assert {file: data for file, data in files_of(copy).items() if file not in changed} == {
        file: data for file, data in before.items() if file not in changed
    }
    _, findings = check(copy, store.broker_conf)
    assert grave(findings) == []


def test_an_index_without_a_file_that_shows_its_layout_is_made_with_the_settings(bench: Bench) -> None:
    expected = index_of(bench.path)
    shutil.rmtree(bench.path / "index")
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert index_of(bench.path) == expected
    assert {action.change.kind for action in report.actions} == {ChangeKind.CREATE}


def test_an_index_is_not_made_from_a_guess(bench: Bench) -> None:
    """A broker with other slots would find nothing in it, and notice nothing."""
    shutil.rmtree(bench.path / "index")
    file, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(file, position + 6)
    report = repair_here(bench.path, None)
    assert [(left.code, "--assume-defaults" in left.reason) for left in report.left] == [("INDEX_MISSING", True)]
    assert ([action.change.file for action in report.actions], report.is_complete) == ([file], False)
    told = repair_here(bench.path, None, assume_defaults=True)
    assert [setting.name for setting in told.assumed] == ["index files", "names of index files"]
    assert told.verdict.endswith("if the broker has the assumed settings")


def test_a_file_without_settings_tells_the_defaults(bench: Bench, tmp_path: Path) -> None:
    """A broker that is started with it has them."""
    shutil.rmtree(bench.path / "index")
    shutil.rmtree(bench.path / "consumequeue/SCHEDULE_TOPIC_XXXX")
    conf = tmp_path / "empty.conf"
    conf.touch()
    report = repair_here(bench.path, conf)
    assert report.left == ()
    assert "INDEX_MISSING" in {code for action in report.actions for code, _ in action.codes}
    assert [setting.name for setting in report.assumed] == ["names of index files"]


def test_settings_that_nothing_tells_are_named(bench: Bench) -> None:
    shutil.rmtree(bench.path / "consumequeue")
    names = {setting.name: setting.value for setting in repair_here(bench.path, None).assumed}
    assert names["queue files"] == "6,000,000 bytes each"
    assert names["messageDelayLevel"].startswith("1s 5s 10s")
    assert repair_here(bench.path, bench.packed.broker_conf).assumed == ()


def test_several_lost_files_between_sound_ones_get_names_in_order(bench: Bench) -> None:
    expected = index_of(bench.path)
    sound = sorted((bench.path / "index").iterdir())
    for lost in sound[2:5]:
        lost.unlink()
    repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert index_of(bench.path) == expected
    names = [file.name for file in sorted((bench.path / "index").iterdir())]
    assert {sound[number].name for number in (0, 1, 5, -1)} <= set(names)


def test_an_entry_that_a_recovery_put_twice_stays_in_its_sound_file(bench: Bench, unpacked: Unpack) -> None:
    """Files after it begin elsewhere than in a new index, and keep their bytes."""
    store = RealStore("killed-533", OWN_STORES)
    copy = store.unpack_as_described(bench.path.parent)
    before = index_of(copy)
    number = len(before) // 2
    damaged = sorted((copy / "index").iterdir())[number]
    damaged.write_bytes(before[number][:-100] + bytes(100))
    repair_here(copy, store.broker_conf, apply=True)
    assert [one for at, one in enumerate(index_of(copy)) if at != number] == [
        one for at, one in enumerate(before) if at != number
    ]
    _, findings = check(copy, store.broker_conf)
    assert grave(findings) == []


@pytest.mark.parametrize("number", [2, -1])
@pytest.mark.parametrize("entry", [0, 40, -1])
def test_an_index_file_that_lacks_an_entry_is_made_again(number: int, entry: int, bench: Bench) -> None:
    """Its slots, chains and header agree with the other entries, so only the log shows that one is missing."""
    expected = index_of(bench.path)
    times = {fact["offset"]: fact["storeTimestamp"] for fact in bench.messages}
    file = EditedIndexFile(bench.path / bench.index_file(number), bench.setting("maxHashSlotNum"), times)
    del file.entries[entry]
    file.save_linked()
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert not report.before.is_sound
    assert (report.is_complete, report.after is not None and report.after.is_sound) == (True, True)
    assert index_of(bench.path) == expected


def test_an_index_file_made_without_lost_messages_hides_no_layout(bench: Bench) -> None:
    """The log lost a message, and an index file that has it is damaged: the new file is not full."""
    file = bench.index_file(3)
    layout = find_index_layout(Location.resolve(str(bench.path)), BrokerConf.of(None))
    (_, lost, _, _), *_, (_, wrong, _, _) = bench.entries(file)[100:200]
    assert lost < wrong
    segment, position = bench.segment(lost)
    bench.write(segment, position, bytes(bench.record(lost).size))
    bench.flip(file, bench.entry(200))
    report = repair_here(bench.path, None, apply=True)
    assert file in {action.change.file for action in report.actions}
    assert len(bench.entries(file)) < layout.value.index_num - 1
    assert find_index_layout(Location.resolve(str(bench.path)), BrokerConf.of(None)) == layout
    assert {boot.unindexed for boot in store_state(str(bench.path)).boots} == {None}


def test_exchanged_queue_folders_need_one_repair(bench: Bench) -> None:
    """Units of another queue do not say that a topic was deleted."""
    queues, before = bench.path / "consumequeue", files_of(bench.path)
    names = ("SequenceDemo", "BatchIngest")
    for one, other in [(names[0], "other"), names[::-1], ("other", names[1])]:
        (queues / one).rename(queues / other)
    states = queue_states(MessageStore(str(bench.path))).by_queue
    assert {states[name, 0].name for name in names} == {QueueStateName.DAMAGED}
    assert {boot.deleted for boot in store_state(str(bench.path)).boots} == {0}
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert report.after is not None
    assert report.after.is_sound
    after = files_of(bench.path)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("is_whole_queue", [False, True])
def test_folders_with_the_names_of_files_are_moved_away(is_whole_queue: bool, bench: Bench) -> None:
    before = files_of(bench.path)
    queue = "DelayDemo/0" if is_whole_queue else "SequenceDemo/0"
    files = [bench.path / f"consumequeue/{queue}/{0:020d}", bench.path / bench.index_file(2)]
    for file in files:
        file.unlink()
        (file / "inside").mkdir(parents=True)
    damaged = sorted(bench.path.rglob("*"))
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert report.after is not None
    assert report.after.is_sound
    assert files_of(bench.path) == before
    undo_repair(str(bench.path))
    assert sorted(path for path in bench.path.rglob("*") if path.name != "lock") == damaged


def test_a_report_never_calls_a_store_sound_that_has_findings(bench: Bench, tmp_path: Path) -> None:
    """The index has another layout than any that its files show."""
    for file in (bench.path / "index").iterdir():
        os.truncate(file, 1000)
    shutil.rmtree(bench.path / "consumequeue/SequenceDemo")
    report = repair_here(bench.path, None)
    assert not report.before.is_sound
    assert "sound" not in report.verdict.replace("not sound", "")


def test_a_repair_that_has_the_lock_does_not_wait_for_a_broker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own lock looks like that of a broker, which it would give time to write units and to size new files."""
    monkeypatch.setattr("spark_mq.verifier.log_bounds.is_locked", Mock(side_effect=AssertionError("waits")))
    monkeypatch.setattr("spark_mq.verifier.folders.is_locked", Mock(side_effect=AssertionError("waits")))
    for folder in ("commitlog", "consumequeue/RetryDemo/0"):
        (bench.path / folder / f"{10**15:020d}").touch()
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert (report.is_complete, report.is_applied) == (True, True)
    assert report.after is not None
    assert report.after.is_sound


def test_due_times_need_the_settings_of_the_broker(bench: Bench) -> None:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SCHEDULE_TOPIC_XXXX")
    file, position = bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])
    bench.flip(file, position + 19)
    report = repair_here(bench.path, None)
    assert (report.actions, [left.code for left in report.left]) == ((), ["QUEUE_DUE_TIME"])
    assert "--broker-conf" in report.left[0].reason


def test_settings_of_another_broker_are_refused(bench: Bench, tmp_path: Path) -> None:
    conf = tmp_path / "other.conf"
    conf.write_text(bench.packed.broker_conf.read_text() + "\nmappedFileSizeConsumeQueue=4000\n")
    with pytest.raises(OptionError, match=r"have 2000 bytes, and 4000 by .*other.conf \(mappedFileSizeConsumeQueue\)"):
        repair_here(bench.path, conf)
    conf.write_text(bench.packed.broker_conf.read_text() + "\nmaxIndexNum=9\n")
    with pytest.raises(OptionError, match=r"have 10440 bytes, and 620 by .*other.conf \(maxHashSlotNum, maxIndexNum\)"):
        repair_here(bench.path, conf)


def test_the_only_index_file_that_was_cut_is_made_again(bench: Bench) -> None:
    """Its size is not that of the settings, which are right."""
    expected = index_of(bench.path)
    first, *others = sorted((bench.path / "index").iterdir())
    for file in others:
        file.unlink()
    os.truncate(first, 1000)
    repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert index_of(bench.path) == expected


def test_a_full_disk_leaves_the_store_as_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    file, position = bench.unit("SequenceDemo", 0, 7)
    bench.flip(file, position + 6)
    before = files_of(bench.path)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spark_mq.repairer.new_files.publish", full)
    with pytest.raises(NoRoomError, match="no file of the store has been changed"):
        repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert files_of(bench.path) == before
    assert not (bench.path / ".spark_mq").exists()


def test_an_output_must_be_new(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OutputExistsError, match="is not empty"):
        repair_here(bench.path, bench.packed.broker_conf, tmp_path / "full")
    with pytest.raises(OptionError, match="is inside"):
        repair_here(bench.path, bench.packed.broker_conf, bench.path / "consumequeue" / "new")


def test_old_records_are_left_out_of_an_output(unpacked: Unpack, tmp_path: Path) -> None:
    store = RealStore("stale-533", OWN_STORES)
    source = unpacked(store)
    repair_here(source, store.broker_conf, tmp_path / "output", apply=True)
    segment = f"commitlog/{131072:020d}"
    copy, (fact,) = (tmp_path / "output" / segment).read_bytes(), store.facts("store")
    end = fact["maxPhyOffset"] - 131072
    original = (source / segment).read_bytes()
    assert (copy[:end], copy[end:].strip(b"\0"), len(copy)) == (original[:end], b"", len(original))
    assert original[end:].strip(b"\0") != b""


def test_backups_stay_when_a_rebuild_clears_its_folder(bench: Bench) -> None:
    from spark_mq.io.location import Location
    from spark_mq.job.output_committer import OutputCommitter

    os.truncate(bench.path / "checkpoint", 100)
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    committer = OutputCommitter(Location.resolve(str(bench.path)), ("index",))
    committer.clear()
    (bench.path / ".spark_mq" / "staged").mkdir()
    committer.abort()
    assert report.backup is not None
    assert (Path(report.backup) / "checkpoint").stat().st_size == 100
    assert [path.name for path in (bench.path / ".spark_mq").iterdir()] == [Path(report.backup).name]


def test_offsets_are_corrected_in_the_file_that_a_broker_reads(bench: Bench) -> None:
    """Also if that is the backup, because the file itself is lost or damaged."""
    file = bench.path / "config/consumerOffset.json"
    queues = {(fact["topic"], fact["queueId"]): fact["max"] for fact in bench.packed.facts("queue")}
    past_end = '{"offsetTable":{"SequenceDemo@readers":{0:99999}}}'
    for damaged in (None, '{"offsetTable":{"a'):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_text(damaged)
        file.with_name(f"{file.name}.bak").write_text(past_end)
        report = repair_here(bench.path, bench.packed.broker_conf, apply=True, offsets=True)
        assert report.is_complete, report.verdict
        assert parse_fastjson(file.read_text()) == {
            "offsetTable": {"SequenceDemo@readers": {"0": queues["SequenceDemo", 0]}}
        }


def test_a_checkpoint_is_not_ahead_of_an_empty_log(bench: Bench) -> None:
    """The index still has a time: nothing shows that it is wrong."""
    for segment in (bench.path / "commitlog").iterdir():
        os.truncate(segment, 0)
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True, offsets=True)
    assert report.is_complete, report.verdict
