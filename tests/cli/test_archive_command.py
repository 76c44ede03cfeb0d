"""What `spark-mq archive` says of arguments that it cannot work with, before a JVM starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FAILED, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from tests.real_stores import OWN_STORES, RealStore, stores_in

STORE = stores_in(OWN_STORES)[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["STORE", "lake.messages"], "--checkpoint"),
        (["STORE", "no table"], "is no table"),
        (["/no/such/store", "/lake/messages"], "/no/such/store"),
        (["STORE", "/lake/messages", "--max-bytes", "much"], "--max-bytes"),
        (["STORE", "/lake/messages", "--broker-conf", "/no/such/file"], "/no/such/file"),
    ],
)
def test_a_wrong_argument_is_named(
    words: list[str],
    message: str,
    unpacked: Callable[[RealStore], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_mq.cli.archive.spark_session", lambda *_: pytest.fail("a JVM was started"))
    store = str(unpacked(STORE))
    assert main(["archive", *(store if word == "STORE" else word for word in words)]) == FAILED
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["archive"], ["archive", "/s"], ["maintain-archive"], ["archive", "/s", "/t", "--x"]]
)
def test_missing_and_unknown_arguments_are_not_understood(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(words)
    assert error.value.code == NOT_UNDERSTOOD
