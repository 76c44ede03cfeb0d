"""Where the job of a command runs, by what the user gives. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.cli.engine import find_engine
from spark_mq.cli.main import main, parser
from spark_mq.errors import OptionError


@pytest.fixture(autouse=True)
def _no_session_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


def engine(words: str, place: str | Path = "/data/store", only_spark: str = "") -> str:
    arguments = parser(["verify"]).parse_args(["verify", "/data/store", *words.split()])
    return find_engine(arguments, [str(place), None], only_spark)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "local"),
        ("--cores 2", "local"),
        ("--engine local", "local"),
        ("--engine spark", "spark"),
        ("--spark-conf spark.master=local[2]", "spark"),
        ("--packages a:b:1", "spark"),
    ],
)
def test_arguments_decide(words: str, expected: str) -> None:
    assert engine(words) == expected


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_ENV_LOADED"])
def test_a_session_elsewhere_is_used_unless_told_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "local")
    assert (engine(""), engine("--engine local")) == ("spark", "local")


def test_what_only_spark_can_do_runs_there() -> None:
    assert engine("", only_spark="--where") == "spark"


@pytest.mark.parametrize(
    ("words", "only_spark", "said"),
    [
        ("--engine local --spark-conf a=b", "", "--spark-conf and --packages are for Spark"),
        ("--engine local", "--where", "--where needs Spark"),
        ("--engine spark --cores 2", "", "--cores has no effect on Spark"),
        ("--packages a:b:1 --cores 2", "", "--cores has no effect on Spark"),
    ],
)
def test_arguments_that_contradict_each_other(words: str, only_spark: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        engine(words, only_spark=only_spark)


def test_an_empty_log_is_checked_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", None)
    (tmp_path / "commitlog").mkdir()
    assert main(["verify", str(tmp_path), "--engine", "spark", "--quiet"]) == 0
    assert "in threads of this process" in capsys.readouterr().out
