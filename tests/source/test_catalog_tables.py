"""Views and tables of Spark's catalog: what works, and which statement to use instead of what cannot work."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.stores import WORKLOAD, Unpack


def test_a_view_of_a_store_works_and_a_table_names_the_view(spark: SparkSession, unpacked: Unpack) -> None:
    options = f"USING rocketmq OPTIONS (path '{unpacked(WORKLOAD)}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW store_messages {options}")
    assert spark.table("store_messages").count() == len(WORKLOAD.facts("msg"))
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE store_table {options}")
    # With columns, Spark does not ask the data source before the table is read.
    spark.sql(f"CREATE TABLE store_columns (topic STRING) {options}")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.table("store_columns").collect()
    finally:
        spark.sql("DROP TABLE store_columns")
    assert unpacked(WORKLOAD).is_dir()
