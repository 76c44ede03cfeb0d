"""`spark-mq recover`: the answer, and the form for programs. `tests/store/test_recovery.py` judges its rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.store.boot import RECOVERY_SCHEMA
from spark_mq.testing import LogWriter
from tests.support.said import Run
from tests.support.stores import STORES, Unpack


@pytest.mark.parametrize(
    ("name", "version", "answer"),
    [
        (
            "lagging-533",
            "5.3.3",
            "Stopped cleanly.\n"
            "The next boot of 5.3.3 starts at segment 00000000000000000000, loses 1 message for all consumers "
            "(LastQueue 1) and gives 2 messages a wrong queue offset (LastQueue 2).\n"
            "It checks 120 records, and ends the log at commit log offset 43,802 (size and magic number are 0, nothing "
            "was written there).",
        ),
        (
            "crc-533",
            "4.9.7",
            "Stopped cleanly.\n"
            "The next boot of 4.9.7 starts at segment 00000000000000000000 and cuts 208.7 KiB off the log, with 417 "
            "whole messages.\n"
            "It checks 10 records, and ends the log at commit log offset 1,629 (a record of format V2 (a long topic) "
            "is there, which brokers before 5.1 reject).",
        ),
    ],
)
def test_the_answer_comes_first(name: str, version: str, answer: str, unpacked: Unpack, run: Run) -> None:
    conf = str(STORES[name].broker_conf)
    text = run("recover", unpacked(STORES[name]), "--as", version, "--broker-conf", conf).out
    assert text.partition("\n\n")[0] == answer
    assert "Do not start a broker of " in text
    assert f"of a broker of {version} (--as)" in text


def test_many_rows_of_a_kind_are_counted(unpacked: Unpack, run: Run) -> None:
    folder = str(unpacked(STORES["crc-533"]))
    rows = run("recover", folder, "--as", "4.9.7", "--json").report["rows"]
    count = sum((row["action"], row["target"]) == ("truncate", "queue") for row in rows)
    assert all(list(row) == RECOVERY_SCHEMA.names for row in rows)
    assert f"{count - 8:,} more of these (queue); --json prints all" in run("recover", folder, "--as", "4.9.7").out


def test_a_program_gets_one_object(unpacked: Unpack, run: Run) -> None:
    folder = str(unpacked(STORES["lagging-533"]))
    fields = run("recover", folder, "--as", "5.3.3", "--json").report
    assert (fields["store"], fields["broker_version"], fields["rules"]) == (folder, "5.3.3", "5.3.3")
    assert (fields["lost"], fields["shifted"], fields["completed"], fields["doubled_entries"]) == (1, 2, 0, 3)
    assert (fields["log_end"], fields["live_end"], fields["is_harmless"]) == (43802, 43802, False)
    actions = [row["action"] for row in fields["rows"]]
    assert actions == ["start", "check", "end", "dispatch", "shift", "lose", "double"]


def test_hostile_names_steer_no_terminal(tmp_path: Path, run: Run) -> None:
    writer, evil = LogWriter(4096), "\x1b]0;evil\x07"
    writer.append(0, b"a", topic=evil.encode())
    writer.write(tmp_path)
    text = run("recover", tmp_path, "--as", "5.3.1").out
    assert "\x1b" not in text
    assert "\\x1b]0;evil\\x07/0" in text
    shutil.rmtree(tmp_path / "commitlog")
    writer.write(tmp_path)
    (tmp_path / "commitlog" / evil).touch()
    text = run("recover", tmp_path, "--as", "5.3.1").out
    assert "\x1b" not in text
    assert "A broker may not start: commitlog/\\x1b]0;evil\\x07 is not a segment" in text
