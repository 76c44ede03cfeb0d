"""SQL over stores, run by Spark: `spark_mq.sql`.

    >>> spark_mq.sql(spark, "SELECT * FROM prod.messages WHERE topic = 'orders'", stores={"prod": "/data/store"}).show()

A data source in Python cannot be asked for columns, and what Spark pushes into it stays with the relation that was
loaded. So each place where a query names a store's table gets a relation of its own, loaded with the columns that the
query uses, and with options that say what its WHERE and ON clauses ask of that place alone. The query itself runs
unchanged, with all of its filters: a relation may hold fewer rows than the table, but every row that the query needs.
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
    """How one reference of a query is read: options, columns, and the conditions that the options hold."""

    reference: Reference
    options: Mapping[str, str]
    schema: StructType
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        """One line for people."""
        columns = ", ".join(self.schema.fieldNames())
        conditions = " and ".join(map(_shown, self.conditions))
        return f"{self.reference.store}.{self.reference.table} ({columns}){conditions and ' where ' + conditions}"

    def load(self, spark: SparkSession) -> DataFrame:
        """The relation."""
        return spark.read.format("rocketmq").options(**self.options).schema(self.schema).load()


def sql(spark: SparkSession, query: str, args: Arguments | None = None, *, stores: Mapping[str, Store]) -> DataFrame:
    """Run a query over stores: `prod.messages` is the table `messages` of the store that `stores` calls `prod`.

    `stores`: by name, a store's path or URI, or a mapping of options (`path`, `mode`, `brokerConf`, ...), of which each
    table gets those that it has. With one store `messages` alone will do, unless the query or the session has something
    of this name; then that is meant. A store's name goes before a database's. `args` are those of `spark.sql`.

    Everything else is Spark's: functions, views, tables of other sources, settings. Without a name of a store's table a
    statement of any kind goes to Spark as it is; with one it is a query, `EXPLAIN` of one, `INSERT`, or `CREATE TABLE
    ... AS`. Columns that `messages` has only when a schema names them (`store_timestamp_millis`, ...) are there when
    they are named, and not in `*`.

    Raises `OptionError` for a statement that the parser does not know (Spark may know more), and for stores without a
    path or with unknown options; what Spark raises, it raises.
    """
    plan = _plan(spark, query, stores)
    if not plan.references:
        return spark.sql(query, args)
    relations = {read.reference.name: read.load(spark) for read in _reads(spark, plan, args, stores)}
    return spark.sql(plan.template, args, **relations)


def reads_of(
    spark: SparkSession, query: str, args: Arguments | None = None, *, stores: Mapping[str, Store]
) -> list[StoreRead]:
    """How `sql` would read each place where a query names a store's table, in the order of the text."""
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
        names = reference.columns or table_columns(reference.table).default
        known = tuple(conditions[one] for one in reference.comparisons if one in conditions)
        options = pushed_down_options(options_of(stores[reference.store], reference.table), reference.table, known)
        reads.append(StoreRead(reference, options, StructType([schema[name] for name in names]), known))
    return reads


def _shown(condition: Condition) -> str:
    values = ", ".join(value.isoformat() if isinstance(value, datetime) else repr(value) for value in condition.values)
    return f"{condition.column} {condition.operator} ({values})"
