"""`spark-mq retention`: the answer, and the form for programs. `tests/store/test_retention.py` judges the rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_mq.store.disk_use import DiskPressure
from tests.support.said import Run
from tests.support.stores import WORKLOAD, Unpack

LATER = ("--at", "2026-11-24T11:01:15.958Z")
"""The second segment expires at this moment, with 72 hours."""


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("spark_mq.store.retention.disk_pressure", lambda *_: DiskPressure(50, 75, 85, True))
    return Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))


def lines_of(run: Run, *words: str) -> list[str]:
    return run("retention", *words).lines


def test_the_answer_comes_first(store: Path, run: Run) -> None:
    offsets = {"offsetTable": {"SequenceDemo@slow": {"0": 0}, "OrderEvents@slow": {"0": 0}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    lines = lines_of(run, str(store), *LATER)
    queues = {("SequenceDemo", 0), ("OrderEvents", 0)}
    unread = [fact for fact in WORKLOAD.facts("msg") if (fact["topic"], fact["queueId"]) in queues]
    count = sum(fact["offset"] < 262_144 for fact in unread)
    assert lines[:3] == [
        "2 of 5 segments have expired at 2026-11-24 11:01:15,958 +0000.",
        "With 3 queue files and 3 index files, 292.4 KiB are freed. A broker that runs deletes them at 2026-11-25 "
        "04:00:00,000 +0000.",
        f"1 consumer group loses {count} unread messages by that.",
    ]
    assert "unread messages that groups lose" in lines
    first = lines_of(run, str(store), "--at", "2026-11-21T12:00:00Z")[:2]
    assert first[0].startswith("No segment has expired")
    assert first[1].endswith("A broker that runs deletes it at 2026-11-25 04:00:00,000 +0000.")


def test_a_program_gets_one_object(store: Path, run: Run) -> None:
    (line,) = lines_of(run, str(store), *LATER, "--json", "--by-topic")
    fields: dict[str, Any] = json.loads(line)
    assert fields["expired"] == ["00000000000000000000", "00000000000000131072"]
    assert fields["at_timestamp"] == "2026-11-24T11:01:15.958Z"
    assert [segment["is_expired"] for segment in fields["segments"]] == [True, True, False, False, False]
    assert fields["segments"][1]["expire_timestamp"] == "2026-11-24T11:01:15.958Z"
    assert fields["segments"][4]["expire_timestamp"] is None
    assert fields["segments"][0]["files"][0] == "consumequeue/SequenceDemo/0/00000000000000000000"
    assert fields["disk"]["deletion"] == "NONE"
    assert {topic["topic"] for topic in fields["topics"]} >= {"OrderEvents", "SequenceDemo"}


def test_settings_of_the_broker_change_the_answer(store: Path, tmp_path: Path, run: Run) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text("fileReservedTime=1\ndeleteWhen=99\n")
    lines = lines_of(run, str(store), *LATER, "--broker-conf", str(conf))
    assert lines[0].startswith("4 of 5 segments")
    assert lines[1].endswith("A broker never deletes them: deleteWhen names no hour of a day.")
    assert f"  kept for        1 hours after the last change of a segment ({conf})" in lines


@pytest.mark.parametrize(
    ("used", "said"),
    [(80, "at once, because the disk of commitlog/ is 80 % full"), (90, "whether they have expired or not")],
)
def test_a_full_disk_is_said(used: int, said: str, store: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("spark_mq.store.retention.disk_pressure", lambda *_: DiskPressure(used, 75, 85, True))
    assert said in "\n".join(lines_of(run, str(store), *LATER)[:4])


def test_a_copy_with_new_file_times_is_said(store: Path, run: Run) -> None:
    assert "file times" not in "\n".join(lines_of(run, str(store)))
    (store / "commitlog" / f"{131_072:020d}").touch()
    assert "  file times      1 segment was changed at another time" in "\n".join(lines_of(run, str(store)))


def test_a_store_whose_broker_has_just_begun(tmp_path: Path, run: Run) -> None:
    (tmp_path / "commitlog").mkdir()
    assert lines_of(run, str(tmp_path))[0] == "The log has no message."


def test_an_archive_that_spark_must_be_asked_about(store: Path, tmp_path: Path, run: Run) -> None:
    lines = lines_of(run, str(store), "--archive", str(tmp_path / "lake"))
    assert f"  {tmp_path / 'lake'}: not known without Spark. `spark-mq archive" in "\n".join(lines)


def test_what_is_not_archived(store: Path, run: Run) -> None:
    with mock.patch("spark_mq.archive.last_run.archived_to", return_value=200_000):
        lines = lines_of(run, str(store), *LATER, "--archive", "/lake/messages")
        (line,) = lines_of(run, str(store), "--archive", "/lake/messages", "--json")
    text = "\n".join(lines)
    assert "  not archived    332.5 KiB of the log, in 4 segments from 00000000000000131072 on" in text
    assert "  at risk         segment 00000000000000131072 has expired" in text
    assert json.loads(line)["archive"]["archived_to"] == 200_000
