from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.verifier import folders as new_file
from spark_mq.verifier.folders import list_index, settled

FOLDER = "commitlog"
NAMES = [f"{base:020d}" for base in (0, 1000)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / NAMES[0]).write_bytes(bytes(1000))
    (tmp_path / FOLDER / NAMES[1]).touch()
    return tmp_path


def sizes(store: Path) -> list[int]:
    location = Location.resolve(str(store))
    infos = sorted((location / FOLDER).entries(), key=lambda info: info.base_name)
    return [info.size for info in settled(location, FOLDER, infos)]


def test_a_file_that_a_broker_is_creating_gets_its_size(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_locked(at: Location) -> bool:
        timer.start()
        return True

    timer = threading.Thread(target=lambda: os.truncate(store / FOLDER / NAMES[1], 1000))
    monkeypatch.setattr(new_file, "is_locked", is_locked)
    monkeypatch.setattr(new_file, "_LOOK_SECONDS", 0.5)
    assert sizes(store) == [1000, 1000]


@pytest.mark.parametrize("runs", [True, False])
def test_an_index_file_that_a_broker_is_creating_is_not_damaged(
    runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "index" / "20261126152001475"
    file.parent.mkdir()
    file.touch()

    def is_locked(at: Location) -> bool:
        if runs:
            os.truncate(file, IndexLayout().file_size)
        return runs

    monkeypatch.setattr(new_file, "is_locked", is_locked)
    found = list_index(Location.resolve(str(tmp_path)), BrokerConf.of(None))
    assert len(found.files) == runs
    assert len(found.findings) == (not runs)


def test_a_file_without_bytes_stays_one_if_no_broker_runs(store: Path) -> None:
    assert sizes(store) == [1000, 0]


def test_a_file_without_bytes_stays_one_if_the_broker_does_not_change_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_file, "is_locked", lambda store: True)
    monkeypatch.setattr(new_file, "_SECONDS", 0.05)
    assert sizes(store) == [1000, 0]


def test_a_file_that_the_broker_deletes_is_not_there(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_locked(at: Location) -> bool:
        (store / FOLDER / NAMES[1]).unlink(missing_ok=True)
        return True

    monkeypatch.setattr(new_file, "is_locked", is_locked)
    monkeypatch.setattr(new_file, "_SECONDS", 0.1)
    assert sizes(store) == [1000]
