"""Which settings file a command uses, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.cli.arguments import VARIABLE, broker_conf_path
from spark_mq.errors import OptionError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def test_without_a_file_nothing_is_said(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert broker_conf_path(None, str(store)) is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("beside", ["broker.conf", "conf/broker.conf"])
@pytest.mark.parametrize("content", ["brokerName=a", "storePathRootDir=/home/rocketmq/store"])
def test_a_file_beside_the_store_is_used_and_named(
    store: Path, beside: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = store.parent / beside
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    assert broker_conf_path(None, f"{store}/") == str(file)
    assert f"{file} (beside the store)" in capsys.readouterr().err
    assert broker_conf_path("", str(store)) is None
    assert broker_conf_path("other.conf", str(store)) == "other.conf"


def test_the_file_of_another_store_is_not_used(store: Path) -> None:
    (store.parent / "broker.conf").write_text("storePathRootDir=/home/rocketmq/store-b")
    assert broker_conf_path(None, str(store)) is None


def test_the_environment_names_a_file(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.parent / "broker.conf").touch()
    monkeypatch.setenv(VARIABLE, str(store.parent / "mine.conf"))
    with pytest.raises(OptionError, match=f"{VARIABLE}=.*mine.conf: there is no such file"):
        broker_conf_path(None, str(store))
    (store.parent / "mine.conf").touch()
    assert broker_conf_path(None, str(store)) == str(store.parent / "mine.conf")
    assert VARIABLE in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "")
    assert broker_conf_path(None, str(store)) is None
