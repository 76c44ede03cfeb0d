"""`spark-mq state`: the answer, and the form for programs. `tests/store/test_boot.py` judges what it says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_mq.io.location import Location
from spark_mq.store.store_lock import store_lock
from tests.support.said import Run
from tests.support.stores import STORES, Unpack


def text_of(run: Run, *arguments: str) -> tuple[str, str]:
    """The first lines, which are the answer, and everything after them."""
    answer, _, rest = run("state", *arguments).out.partition("\n\n")
    return answer, rest


def fields_of(run: Run, *arguments: str) -> dict[str, Any]:
    fields = run("state", *arguments, "--json").report
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize(
    ("name", "version", "answer"),
    [
        (
            "workload-533",
            "5.3.3",
            "Stopped cleanly.\nThe next boot of 5.3.3 starts at segment 00000000000000524288 and loses nothing.",
        ),
        (
            "killed-49x",
            "4.9.7",
            "Not stopped cleanly: the file abort is there, and no broker runs on it.\n"
            "The next boot of 4.9.7 starts at segment 00000000000000000000 and loses nothing.",
        ),
        (
            "lagging-533",
            "5.3.3",
            "Stopped cleanly.\n"
            "The next boot of 5.3.3 starts at segment 00000000000000000000, loses 1 message for all "
            "consumers (LastQueue 1) and gives 2 messages a wrong queue offset (LastQueue 2).",
        ),
        (
            "lagging-533",
            "5.3.1",
            "Stopped cleanly.\n"
            "The next boot of 5.3.1 starts at segment 00000000000000000000 and loses 3 messages for all "
            "consumers (LastQueue 3).",
        ),
    ],
)
def test_the_answer_comes_first(name: str, version: str, answer: str, unpacked: Unpack, run: Run) -> None:
    assert text_of(run, str(unpacked(STORES[name])), "--broker-version", version)[0] == answer


def test_a_loss_has_a_remedy_that_works(tmp_path: Path, run: Run) -> None:
    folder = str(STORES["lagging-533"].unpack(tmp_path))
    _, rest = text_of(run, folder, "--broker-version", "5.3.3")
    assert f"`spark-mq repair {folder} --apply`" in rest
    assert f"`touch {folder}/abort`" in rest
    Path(folder, "abort").touch()
    answer, rest = text_of(run, folder, "--broker-version", "5.3.3")
    assert answer.endswith("loses nothing.")
    assert "3 messages in their queues" in rest


def test_a_program_gets_one_object(unpacked: Unpack, run: Run) -> None:
    folder = str(unpacked(STORES["lagging-533"]))
    fields = fields_of(run, folder)
    assert fields["store"] == folder
    assert [boot["lost"] for boot in fields["boots"]] == [3, 1, 1, 1]
    assert [boot["loses_nothing"] for boot in fields["boots_with_abort"]] == [True] * 4
    assert fields["last_stop"] == {"is_clean": True, "started_timestamp": None, "is_running": False}
    assert fields["checkpoint"]["physic_msg_timestamp"] == "2026-11-21T11:13:42.857Z"
    assert fields["queues"]["lacking_messages"] == 3
    assert {use["tree"] for use in fields["disk"]} == {"commitlog", "consumequeue", "index", "config", "other"}


def test_a_store_that_somebody_writes_is_said(tmp_path: Path, run: Run) -> None:
    folder = STORES["killed-533"].unpack(tmp_path)
    with store_lock(Location.resolve(str(folder))):
        answer, rest = text_of(run, str(folder), "--broker-version", "5.3.3")
    assert answer.startswith("A broker runs on this store, or a job writes into it")
    assert "If the broker crashes now, the next boot" in answer
    assert "Nothing. After the broker has stopped, ask again." in rest


def test_settings_of_the_broker_change_the_answer(unpacked: Unpack, tmp_path: Path, run: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{STORES['lagging-533'].broker_conf.read_text()}\nrecheckReputOffsetFromCq=true\n")
    arguments = (str(unpacked(STORES["lagging-533"])), "--broker-version", "5.2", "--broker-conf", str(conf))
    assert fields_of(run, *arguments)["boots"][0]["completed"] == 3
    assert f"recheckReputOffsetFromCq=true ({conf})" in text_of(run, *arguments)[1]


def test_hostile_names_steer_no_terminal(tmp_path: Path, run: Run) -> None:
    folder = STORES["lagging-533"].unpack(tmp_path)
    evil = "\x1b]0;evil\x07"
    (folder / "commitlog" / evil).touch()
    shutil.copytree(folder / "consumequeue" / "LastQueue", folder / "consumequeue" / evil)
    os.truncate(next((folder / "consumequeue" / evil / "0").iterdir()), 40)
    answer, rest = text_of(run, str(folder))
    assert "\x1b" not in answer + rest
    assert "\\x1b]0;evil\\x07 is not a segment" in answer
