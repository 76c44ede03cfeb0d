"""An append that is run again is not there twice, whenever its process was killed. No Spark here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark_mq.errors import OptionError
from spark_mq.restorer.store_job import RestoreReport
from spark_mq.store.config.store_paths import APPENDS
from tests.support.in_process import read_rows
from tests.support.paused_process import environment, kill_session, killed
from tests.support.restored import restore_here
from tests.support.soak import SOAKS
from tests.support.stores import tree_of
from tests.support.written import CONF, rows, save

MOMENTS = {
    "records are staged": "spark_mq.restorer.chunk:Chunk._write_table:1:/.spark_mq/append/",
    "a queue file is made": "spark_mq.io.publish:publish:3:/.spark_mq/append/consumequeue/",
    "files are put in place": "os:replace:5:/store/",
    "the last file is in place": "os:replace:1:/spark_mq_appends.json",
    "everything is in place": "shutil:rmtree:2:/.spark_mq/append",
}
"""By what has happened: a call before which the process is killed."""
KILLS = 200 if SOAKS else 6


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, another one whose messages are appended to it, and the settings of both."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "broker.conf").write_text(CONF)
    save(folder / "store", [rows("bills", 20)], brokerConf=str(folder / "broker.conf"))
    save(folder / "source", [rows("orders", 400)], brokerConf=str(folder / "broker.conf"))
    return folder


def keys_of(store: Path) -> Counter[str]:
    return Counter(key for row in read_rows(path=str(store)) for key in row["keys"])


EXPECTED = Counter([f"bills-{number}" for number in range(20)] + [f"orders-{number}" for number in range(400)])


def command(folder: Path, store: Path) -> list[str]:
    arguments = [str(folder / "source"), str(store), str(folder / "broker.conf"), json.dumps({"append": True})]
    return [sys.executable, "-m", "tests.support.restored", *arguments]


def append(folder: Path, store: Path, **options: Any) -> RestoreReport:
    return restore_here(folder / "source", store, folder / "broker.conf", append=True, **options)


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=list(MOMENTS))
def test_killed_at_a_moment_and_run_again(moment: str, stores: Path, tmp_path: Path) -> None:
    store, not_killed = (Path(shutil.copytree(stores / "store", tmp_path / name)) for name in ("store", "not killed"))
    append(stores, not_killed)
    killed(command(stores, store), moment, tmp_path)
    for _ in range(2):
        append(stores, store)
        assert keys_of(store) == EXPECTED
    files, expected = tree_of(store), tree_of(not_killed)
    assert {name for name in files.keys() | expected if files.get(name) != expected.get(name)} <= {APPENDS}


def test_killed_again_and_again(stores: Path, tmp_path: Path) -> None:
    """At any time after it began: also after its last file was in place, before it ended."""
    random = Random(None if SOAKS else 1)
    longest, done = 1.0, 0
    for number in range(KILLS):
        store = Path(shutil.copytree(stores / "store", tmp_path / f"store-{number}"))
        begun, output = store / ".spark_mq" / "append", tmp_path / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                command(stores, store), env=environment(), start_new_session=True, stdout=file, stderr=file
            )
            while not begun.exists() and not (store / "spark_mq_appends.json").exists():
                assert process.poll() is None, output.read_text()
                time.sleep(0.001)
            started = time.monotonic()
            while time.monotonic() < started + random.uniform(0, longest) and process.poll() is None:
                time.sleep(0.001)
            if process.poll() is None:
                kill_session(process.pid)
            else:
                longest, done = time.monotonic() - started, done + 1
            process.wait()
        append(stores, store)
        assert keys_of(store) == EXPECTED, number
        shutil.rmtree(store)
    assert done < KILLS


def test_an_append_of_the_same_source_is_told_and_adds_nothing(stores: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(stores / "store", tmp_path / "store"))
    first = append(stores, store)
    again = append(stores, store)
    assert (again.messages, again.log_end) == (first.messages, first.log_end)
    assert "nothing was appended now" in again.notes[0]
    assert keys_of(store) == EXPECTED
    for _ in range(2):
        append(stores, store, append_id="twice", offset_map=str(tmp_path / "offsets"))
        assert keys_of(store)["orders-7"] == 2


def test_a_source_that_has_changed_since_then_is_refused(stores: Path, tmp_path: Path) -> None:
    for name in ("store", "source", "broker.conf"):
        copy = shutil.copytree if (stores / name).is_dir() else shutil.copy
        copy(stores / name, tmp_path / name)
    append(tmp_path, tmp_path / "store")
    save(tmp_path / "source", [rows("new", 5)], brokerConf=str(tmp_path / "broker.conf"))
    with pytest.raises(OptionError, match="has changed since then: nothing was appended now"):
        append(tmp_path, tmp_path / "store")
    assert keys_of(tmp_path / "store") == EXPECTED


def test_rows_without_an_id_are_recognized_right_after_they_were_appended(stores: Path, tmp_path: Path) -> None:
    store, conf = Path(shutil.copytree(stores / "store", tmp_path / "store")), str(stores / "broker.conf")
    parts = [rows("orders", 300), rows("invoices", 100)]
    save(store, parts, brokerConf=conf)
    with pytest.raises(OptionError, match="are the same rows: nothing was appended"):
        save(store, parts, brokerConf=conf)
    assert keys_of(store)["orders-7"] == 1
    save(store, [rows("others", 1)], brokerConf=conf)
    save(store, parts, brokerConf=conf)
    for _ in range(2):
        save(store, parts, brokerConf=conf, appendId="2026-11-21")
    assert keys_of(store)["orders-7"] == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_write_that_makes_a_store_has_an_identity(overwrite: bool, stores: Path, tmp_path: Path) -> None:
    """A job that was killed after the store got its name is run again."""
    store, conf, parts = tmp_path / "new", str(stores / "broker.conf"), [rows("orders", 30)]
    save(store, parts, overwrite, brokerConf=conf, appendId="2026-11-21")
    save(store, [rows("others", 1)], brokerConf=conf)
    save(store, parts, brokerConf=conf, appendId="2026-11-21")
    assert (keys_of(store)["orders-7"], keys_of(store)["others-0"]) == (1, 1)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"appends": [{}]}', b'{"appends": [{"report": 3}]}'])
def test_a_broken_list_of_appends_is_an_error_of_one_line(content: bytes, stores: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(stores / "store", tmp_path / "store"))
    (store / "spark_mq_appends.json").write_bytes(content)
    with pytest.raises(Exception, match=r"spark_mq_appends\.json is not as an append wrote it"):
        append(stores, store)
    assert os.listdir(store / "commitlog") == ["00000000000000000000"]
