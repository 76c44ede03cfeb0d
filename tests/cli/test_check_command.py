"""`spark-mq check`: the answer and its exit status. `tests/store/test_boot_losses.py` judges what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock
from tests.support.boots import CLEAN
from tests.support.said import Run
from tests.support.stores import OWN_STORES, STORES, RealStore, Unpack


def answer_of(capsys: pytest.CaptureFixture[str], folder: Path, store: RealStore, *more: str) -> tuple[int, Any]:
    status = main(["check", str(folder), "--broker-conf", str(store.broker_conf), "--json", *more])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("store", [store for store in CLEAN if store.folder == OWN_STORES], ids=str)
def test_a_sound_store_may_be_started(store: RealStore, unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = answer_of(capsys, unpacked(store), store)
    assert (status, found["answer"]) == (0, "yes"), found
    assert all(one["next"] == "start the broker" and not one["losses"] for one in found["answers"])


def test_losses_have_a_number_a_topic_an_end_and_a_remedy(
    unpacked: Unpack, tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = STORES["workload-533"], tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    shutil.rmtree(folder / "consumequeue" / "PaymentLog")
    count = sum(fact["topic"] == "PaymentLog" for fact in store.facts("msg"))
    status, found = answer_of(capsys, folder, store, "--expect-version", "5.3.3")
    assert (status, found["answer"]) == (4, "yes, with losses")
    (answer,) = found["answers"]
    (loss,) = answer["losses"]
    assert (loss["certainty"], answer["versions"]) == ("certain", "5.3.3")
    assert f"{count} messages for all consumers (PaymentLog {count})" in loss["text"]
    assert "until `spark-mq repair" in loss["until"]
    assert answer["next"] == f"`spark-mq repair {folder} --apply`"
    out = run("check", folder, "--broker-conf", store.broker_conf, status=4).out
    said = f"certain    the boot loses {count} messages for all consumers (PaymentLog {count})"
    assert out.startswith(f"May a broker of 5.2.0 to 5.3.1 start? YES, WITH LOSSES\n  {said}")


def test_losses_are_not_known_with_a_setting_that_is_not_considered(unpacked: Unpack, tmp_path: Path, run: Run) -> None:
    """With `duplicationEnable`, 5.x cuts off what it checks (`CommitLog.checkMessageAndReturnSize`@5.3.3)."""
    store, conf = STORES["workload-533"], tmp_path / "broker.conf"
    conf.write_text(f"{store.broker_conf.read_text()}\nduplicationEnable=true\n")
    out = run("check", unpacked(store), "--broker-conf", conf, "--expect-version", "5.3.3", status=4).out
    said = "with duplicationEnable=true, which is not considered here, a boot can lose more"
    assert out.startswith(f"May a broker of 5.3.3 start? YES, LOSSES ARE NOT KNOWN\n  not known  {said}\n")
    state = run("state", unpacked(store), "--broker-conf", conf, "--full").out
    assert f"W{said[1:]}.\n" in state
    assert "loses nothing" not in state
    assert "Nothing. Start the broker." not in state


def test_a_copy_without_abort_and_checkpoint_is_not_called_stopped_cleanly(
    unpacked: Unpack, tmp_path: Path, run: Run
) -> None:
    """As of a broker that runs, or was killed: a clean stop writes the checkpoint."""
    folder = Path(shutil.copytree(unpacked(STORES["killed-533"]), tmp_path / "copy"))
    for name in ("abort", "checkpoint"):
        (folder / name).unlink()
    said = "ithout a file abort, a boot takes it for stopped cleanly, but there is no file checkpoint"
    words = str(folder), "--broker-conf", STORES["killed-533"].broker_conf
    assert f"  certain    w{said}" in run("check", *words, "--expect-version", "5.3.3", status=4).out
    assert run("state", *words).out.startswith(f"W{said}")


def test_no_broker_is_to_be_started_on_a_filesystem_that_is_mounted_read_only(
    unpacked: Unpack, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is after an error of the disk; the answer stays that for the files, which can be a copy's."""
    store, found = STORES["workload-533"], os.statvfs("/")
    fields = [*found[:8], found.f_flag | os.ST_RDONLY, *found[9:]]
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    words = unpacked(store), "--broker-conf", store.broker_conf
    said = "the store's filesystem is mounted read-only here"
    assert f"  next       {said}" in run("check", *words, "--expect-version", "5.3.3").out
    out = run("state", *words).out
    assert f"  - T{said[1:]}" in out
    assert "Start the broker" not in out


def test_offsets_are_not_past_the_end_of_queues_that_the_boot_completes(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `consumequeue/`, each offset is past the end. 4.9, 5.3.2 and later dispatch the log before they serve."""
    for name, version in (("workload-49x", "4.9.7"), ("workload-533", "5.5.1"), ("workload-533", "5.3.3")):
        store, folder = STORES[name], tmp_path / f"{name}-{version}"
        shutil.copytree(unpacked(store), folder)
        shutil.rmtree(folder / "consumequeue")
        status, found = answer_of(capsys, folder, store, "--expect-version", version)
        assert (status, found["answer"]) == (0, "yes"), found
    (answer,) = answer_of(capsys, folder, store, "--expect-version", "5.3.1")[1]["answers"]
    assert any("OFFSET_PAST_END" in loss["text"] for loss in answer["losses"])
    offsets = folder / "config" / "consumerOffset.json"
    offsets.write_text(json.dumps({"offsetTable": {"OrderEvents@late": {"0": 10**9}}}))
    status, found = answer_of(capsys, folder, store, "--expect-version", "5.3.3")
    (loss,) = found["answers"][0]["losses"]
    assert (status, loss["certainty"]) == (4, "not known")
    assert loss["text"].startswith("OFFSET_PAST_END 1:")


def test_a_lost_timer_log_is_no_yes(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A 5.3.3 broker delivered none of the timers that waited there, and all of them if only timerwheel was lost."""
    store, folder = STORES["workload-533"], tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    (folder / "timerwheel").unlink(missing_ok=True)
    assert answer_of(capsys, folder, store, "--expect-version", "5.3.3")[0] == 0
    shutil.rmtree(folder / "timerlog")
    status, found = answer_of(capsys, folder, store, "--expect-version", "5.3.3")
    assert (status, found["answer"]) == (4, "yes, losses are not known")
    assert "timerlog/ ends at 0, and config/timercheck says" in found["answers"][0]["losses"][0]["text"]
    assert main(["state", str(folder), "--broker-conf", str(store.broker_conf)]) == 0
    said = capsys.readouterr().out
    assert "Timers: timerlog/ ends at 0" in said
    assert "Nothing. Start the broker." not in said
    assert "loses nothing" not in said
    (folder / "config" / "timercheck").unlink()
    assert answer_of(capsys, folder, store, "--expect-version", "5.3.3")[0] == 0


def test_lost_files_of_config_are_no_yes(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker starts without them. It has no topics then, groups begin again, and delayed messages come again."""
    store, folder = STORES["workload-533"], tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    config = folder / "config"

    def missing() -> list[str]:
        status, found = answer_of(capsys, folder, store, "--expect-version", "5.3.3")
        losses = [loss["text"] for loss in found["answers"][0]["losses"]]
        assert (status, found["answer"]) == ((4, "yes, losses are not known") if losses else (0, "yes"))
        return [text.split()[2] for text in losses]

    (config / "topics.json").unlink()
    assert missing() == []  # its .bak is there
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text("")
    assert missing() == ["config/consumerOffset.json"]
    shutil.rmtree(config)
    assert missing() == ["config/topics.json", "config/consumerOffset.json", "config/delayOffset.json"]
    shutil.rmtree(folder / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    assert main(["state", str(folder), "--broker-conf", str(store.broker_conf)]) == 0
    said = capsys.readouterr().out
    assert "The file config/topics.json is missing or empty" in said
    assert "loses nothing" not in said
    assert "For config/: copy the files" in said


def test_nobody_says_start_the_broker_where_one_may_run(
    unpacked: Unpack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another user's broker made `lock` for itself alone."""
    monkeypatch.setattr("spark_mq.store.boot_conditions.is_locked", lambda store: None)
    store = STORES["workload-533"]
    folder = unpacked(store)
    status, found = answer_of(capsys, folder, store)
    assert (status, found["answer"]) == (4, "yes, losses are not known")
    for one in found["answers"]:
        assert [loss["text"] for loss in one["losses"]] == [
            "whether a broker runs on it: the file lock cannot be read by this user"
        ]
        assert one["next"].endswith("as the broker's user")
    main(["state", str(folder)])
    said = capsys.readouterr().out
    assert "Ask again as the broker's user." in said
    assert "Start the broker" not in said


def test_an_index_of_unknown_slots_and_entries_is_not_called_empty(
    unpacked: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only index file of the store shows neither; with the settings, it has all messages."""
    store, folder = RealStore("stale-49x", OWN_STORES), unpacked(RealStore("stale-49x", OWN_STORES))
    with_settings = answer_of(capsys, folder, store)
    assert not any("index" in loss["text"] for one in with_settings[1]["answers"] for loss in one["losses"])
    main(["check", str(folder), "--json"])
    for one in json.loads(capsys.readouterr().out)["answers"]:
        (of_index,) = [loss for loss in one["losses"] if "index" in loss["text"]]
        assert of_index["certainty"] == "not known"
        assert "--broker-conf" in of_index["text"]
    for command in (["state"], ["recover", "--as", "4.9.7"], ["repair"]):
        main([command[0], str(folder), *command[1:]])
        out = capsys.readouterr().out
        assert "without index entries" not in out
        assert "what its index lacks is not known without --broker-conf" in out
        assert "loses nothing" not in out


def test_a_store_without_index_files_can_be_that_of_a_broker_without_them(
    unpacked: Unpack, tmp_path: Path, run: Run
) -> None:
    store = STORES["workload-533"]
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    shutil.rmtree(folder / "index")
    for setting, status in (("", 4), ("\nindexFileWriteEnable=false\n", 0)):
        conf = tmp_path / "broker.conf"
        conf.write_text(store.broker_conf.read_text() + setting)
        said = run("check", folder, "--broker-conf", conf, status=status)
        assert ("no loss if the broker writes no index files" in said.out) == (not setting)


def test_a_downgrade_is_said(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    """Brokers before 5.1.0 cut the log at a record of V2."""
    store = STORES["crc-533"]
    for version in ("4.9.7", "5.0.0"):
        status, found = answer_of(capsys, unpacked(store), store, "--expect-version", version)
        assert status == 4
        (answer,) = found["answers"]
        assert [loss["certainty"] for loss in answer["losses"]] == ["certain", "not known"]
        assert re.search(r"the boot cuts .* off the log, with 4\d\d whole messages", answer["losses"][0]["text"])
        assert "a downgrade to" in answer["losses"][1]["text"]
    assert answer_of(capsys, unpacked(store), store, "--expect-version", "5.3.3")[0] == 0


def test_a_store_with_which_no_broker_starts(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = STORES["workload-533"], tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    with store_lock(Location.resolve(str(folder))):
        status, found = answer_of(capsys, folder, store)
    assert (status, found["answer"]) == (1, "no")
    for file in (folder / "config").glob("topics.json*"):
        file.write_text("{")
    status, found = answer_of(capsys, folder, store)
    assert (status, found["answer"]) == (1, "no")
    assert "it does not start: " in found["answers"][0]["losses"][0]["text"]
    assert found["answers"][0]["next"].startswith("repair what is named")


def test_a_broker_that_never_got_a_message_may_be_started(tmp_path: Path, run: Run) -> None:
    """Its boot finds no segment, as that of a store that lost its log; but there are no queues."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    found = run("check", tmp_path, "--json").report
    assert (found["answer"], {one["next"] for one in found["answers"]}) == ("yes", {"start the broker"})
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(2000))
    assert "a boot deletes all consume queues" in run("check", tmp_path, status=1).out
