"""Errors of this package in the text of Spark's errors. No Spark here."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.job.task_errors import parse_task_error, reraise_task_errors

TRACEBACK = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark_mq/store/segment_source.py", line 70, in read
    raise CorruptLogError(
spark_mq.errors.CorruptLogError: /data/store/commitlog/0: the file ended at 7
 SQLSTATE: 38000
"""


def test_an_error_of_a_task_is_found_in_its_traceback() -> None:
    error = parse_task_error(TRACEBACK)
    assert type(error) is CorruptLogError
    assert str(error) == "/data/store/commitlog/0: the file ended at 7"


@pytest.mark.parametrize(
    "text",
    [
        "java.io.IOException: No space left on device",
        TRACEBACK.replace("CorruptLogError:", "annotations:"),
        TRACEBACK.replace("CorruptLogError:", "Unheard:"),
    ],
)
def test_any_other_text_has_none(text: str) -> None:
    assert parse_task_error(text) is None


def test_the_last_error_of_a_chain_is_the_one_that_the_task_raised() -> None:
    chain = (
        "spark_mq.errors.CorruptLogError: the cause\n\nThe above exception was the direct cause of the following "
        "exception:\n\nspark_mq.errors.StoreChangedError: the file went away\n"
    )
    error = parse_task_error(chain)
    assert (type(error), str(error)) == (StoreChangedError, "the file went away")


def test_an_error_of_a_task_is_raised_under_its_own_name() -> None:
    with pytest.raises(CorruptLogError, match="the file ended at 7"), reraise_task_errors():
        raise PySparkException(TRACEBACK)


def test_an_error_of_spark_stays_unchanged() -> None:
    with pytest.raises(PySparkException, match="no space"), reraise_task_errors():
        raise PySparkException("no space left")
