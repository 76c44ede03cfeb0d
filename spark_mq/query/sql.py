"""SQL over stores, run by Spark: `spark_mq.sql`.

    >>> spark_mq.sql(spark, "SELECT * FROM prod.messages WHERE topic = 'orders'", stores={"prod": "/data/store"}).show()

Spark does not ask a Python data source for columns, and filters that Spark pushes down stay with the relation that was
loaded. So each reference of a query to a store's table gets a relation of its own: loaded with the columns that the
query uses, and with options that express what its WHERE and ON clauses require of that reference alone. The query
itself runs unchanged, with all of its filters. A relation may have fewer rows than the table, but has every row that
the query needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_mq.errors import OptionError
from spark_mq.query.catalog import Store, options_of, pushed_down_options, table_columns
from spark_mq.query.conditions import evaluate
from spark_mq.query.plan import QueryPlan, Reference, plan_references
from spark_mq.source.condition import Condition
from spark_mq.source.schema import full_schema

Arguments = dict[str, Any] | list[Any]


@dataclass(frozen=True)
class StoreRead:
    """How one reference of a query is read.

    Attributes:
        reference: The reference.
        options: The options of the read.
        schema: The columns that are read.
        conditions: The conditions that the query puts on the rows; `options` express them as far as the table can.
    """

    reference: Reference
    options: Mapping[str, str]
    schema: StructType
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        """One line of text: the table, its columns and its conditions."""
        columns = ", ".join(self.schema.fieldNames())
        conditions = " and ".join(map(_format_condition, self.conditions))
        return f"{self.reference.store}.{self.reference.table} ({columns}){conditions and ' where ' + conditions}"

    def load(self, spark: SparkSession) -> DataFrame:
        """The relation as a DataFrame."""
        return spark.read.format("rocketmq").options(**self.options).schema(self.schema).load()


def sql(spark: SparkSession, query: str, args: Arguments | None = None, *, stores: Mapping[str, Store]) -> DataFrame:
    """The result of a query over stores: `prod.messages` is the table `messages` of the store named `prod`.

    Each table is read as far as the query needs it. Everything else is Spark's: functions, views, tables of other
    sources, settings. The name of a store takes precedence over a database of the same name. With one store, `messages`
    alone is a table of that store, unless the query or the session has a table or view of this name.

    A statement that names no store's table goes to Spark unchanged, whatever its kind. A statement that names one must
    be a query, `EXPLAIN` of a query, `INSERT`, or `CREATE TABLE ... AS`. Columns that `messages` has only if a schema
    names them (`store_timestamp_millis`, ...) can be named in the query, and are not in `*`.

    Args:
        spark: The session that runs the query.
        query: One statement of Spark SQL.
        args: The values of parameters, as `spark.sql` takes them.
        stores: By name, the path or URI of a store, or a mapping of read options (`path`, `mode`, `brokerConf`, ...);
            each table gets the options that it has.

    Returns:
        The DataFrame that `spark.sql` returns for the query.

    Raises:
        OptionError: The parser does not know the statement (Spark may know more statements), or a store has no path or
            an unknown option. Errors that Spark raises are passed on.

    Example:
        >>> stores = {"prod": "/data/prod", "dev": {"path": "/data/dev", "mode": "FAILFAST"}}
        >>> query = "SELECT count(*) FROM dev.messages WHERE topic = :topic"
        >>> spark_mq.sql(spark, query, {"topic": "orders"}, stores=stores).show()
    """
    plan = _plan(spark, query, stores)
    if not plan.references:
        return spark.sql(query, args)
    relations = {read.reference.name: read.load(spark) for read in _reads(spark, plan, args, stores)}
    return spark.sql(plan.template, args, **relations)


def reads_of(
    spark: SparkSession, query: str, args: Arguments | None = None, *, stores: Mapping[str, Store]
) -> list[StoreRead]:
    """How `sql` would read each reference of a query to a store's table, in the order of the text.

    The arguments and errors are those of `sql`; the query is not run.
    """
    return _reads(spark, _plan(spark, query, stores), args, stores)


def _plan(spark: SparkSession, query: str, stores: Mapping[str, Store]) -> QueryPlan:
    if len({name.lower() for name in stores}) < len(stores):
        raise OptionError(f"two stores have the same name: {', '.join(stores)}")
    return plan_references(query, stores, table_columns, spark.catalog.tableExists)


def _reads(
    spark: SparkSession, plan: QueryPlan, args: Arguments | None, stores: Mapping[str, Store]
) -> list[StoreRead]:
    typed = [
        (comparison, full_schema(reference.table)[comparison.column].dataType)
        for reference in plan.references
        for comparison in reference.comparisons
    ]
    conditions = evaluate(spark, typed, args if isinstance(args, dict) else None)
    reads = []
    for reference in plan.references:
        schema = full_schema(reference.table)
        columns = reference.columns or table_columns(reference.table).default
        known = tuple(conditions[comparison] for comparison in reference.comparisons if comparison in conditions)
        options = pushed_down_options(options_of(stores[reference.store], reference.table), reference.table, known)
        reads.append(StoreRead(reference, options, StructType([schema[column] for column in columns]), known))
    return reads


def _format_condition(condition: Condition) -> str:
    values = ", ".join(value.isoformat() if isinstance(value, datetime) else repr(value) for value in condition.values)
    return f"{condition.column} {condition.operator} ({values})"
