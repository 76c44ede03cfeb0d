"""What all errors of the package have in common."""

from __future__ import annotations

import inspect

import spark_mq.errors


def test_no_error_is_one_that_spark_takes_for_a_source_without_partitions() -> None:
    """`plan_data_source_read` of PySpark catches `NotImplementedError` of `partitions`, and the read has no rows."""
    classes = [one for _, one in inspect.getmembers(spark_mq.errors, inspect.isclass)]
    assert len(classes) > 20
    assert [one.__name__ for one in classes if issubclass(one, NotImplementedError)] == []
