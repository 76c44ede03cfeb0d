"""Views and tables of Spark's catalog: what works, and which statement to use instead of what cannot work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.stores import OWN_STORES, RealStore

STORE = RealStore("workload-533", OWN_STORES)


def test_a_view_of_a_store_works_and_a_table_names_the_view(
    spark: SparkSession, unpacked: Callable[[RealStore], Path]
) -> None:
    options = f"USING rocketmq OPTIONS (path '{unpacked(STORE)}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW store_messages {options}")
    assert spark.table("store_messages").count() == len(STORE.facts("msg"))
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE store_table {options}")
    # With columns, Spark does not ask the data source before the table is read.
    spark.sql(f"CREATE TABLE store_columns (topic STRING) {options}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.table("store_columns").collect()
    finally:
        spark.sql("DROP TABLE store_columns")
    assert unpacked(STORE).is_dir()
