"""`make demo`, in the session of the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from jobs import demo


def test_the_demo_builds_all_files_of_the_broker(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def session(name: str) -> Iterator[SparkSession]:
        yield spark
        spark.catalog.dropTempView("messages")

    monkeypatch.setattr(demo, "spark_session", session)
    assert demo.main() == 0
    said = capsys.readouterr().out
    assert re.search(r"([1-9]\d*) of the broker's \1 queue files are the same, byte for byte; built: \1\.", said)
    assert re.search(r"([1-9]\d*) of its \1 index files are the same apart from names; built: \1\.", said)
