"""SQL over stores, run by Spark: `spark_mq.sql`, and the constants of a query, which Spark evaluates.

    >>> spark_mq.sql(spark, "SELECT * FROM prod.messages WHERE topic = 'orders'", stores={"prod": "/data/store"}).show()

Spark does not ask a Python data source for columns, and filters that Spark pushes down stay with the relation that was
loaded. So each reference of a query to a store's table gets a relation of its own: loaded with the columns that the
query uses, and with options that express what its WHERE and ON clauses require of that reference alone. The query
itself runs unchanged, with all of its filters. A relation may have fewer rows than the table, but has every row that
the query needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_mq.errors import OptionError
from spark_mq.query.catalog import (
    CatalogAnswer,
    Store,
    StoreRead,
    answer_statement,
    plan_reads,
    plan_whole_reads,
    several_of,
    table_columns,
    with_all,
    with_spark_names,
)
from spark_mq.query.comparisons import Comparator
from spark_mq.query.conditions import TIMESTAMP, Constant, Constants, TypedComparison, constants_of
from spark_mq.query.plan import QueryPlan, plan_references
from spark_mq.query.table_names import NamedTables, unknown_table

_AS_INSTANT = "struct(typeof({0}), CAST({0} AS STRING), unix_micros(try_cast({0} AS TIMESTAMP_LTZ)))"
_COMPARES_AS_INSTANTS = (
    "CAST('2001-01-01 00:00:00' AS TIMESTAMP_LTZ) = '2001-01-01'",
    "CAST('2001-01-01 00:00:00.000001' AS TIMESTAMP_LTZ) > DATE '2001-01-01'",
)
"""Two expressions that show whether Spark casts text, and a date, to TIMESTAMP_LTZ before it compares it with one."""
_CAN_SEARCH = "array_contains(array('a', 'b'), 'b') AND NOT array_contains(array('a', 'b'), 'c')"
"""An expression that is true of Spark's own function: a session can have another one of this name."""
Arguments = dict[str, Any] | list[Any]

Load = Callable[[StoreRead, SparkSession], DataFrame]
"""How a read becomes a DataFrame."""

_NO_TABLE, _NO_COLUMN = "TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_COLUMN"


def evaluate(
    spark: SparkSession, comparisons: Sequence[TypedComparison], args: dict[str, Any] | None = None
) -> Constants:
    """The values of the constants of comparisons.

    If a constant cannot be evaluated, none has a value: Spark reports the error when it runs the query.
    """
    texts = constants_of(comparisons)
    if not texts:
        return Constants({})
    searches = any(comparison.comparator == Comparator.CONTAINS for comparison, _ in comparisons)
    columns = [_AS_INSTANT.format(text) if is_instant else text for text, is_instant in texts]
    probes = [*_COMPARES_AS_INSTANTS, _CAN_SEARCH if searches else "true"]
    try:
        frame = spark.sql(f"SELECT {', '.join([*columns, *probes])}", args)
        row, schema = frame.collect()[0], frame.schema
    except PySparkException:
        return Constants({})
    values = {
        text: Constant(*row[index]) if text[1] else Constant(schema[index].dataType.simpleString(), row[index])
        for index, text in enumerate(texts)
    }
    *are_cast, can_search = row[-len(probes) :]
    casts = zip(("string", "date"), are_cast, strict=True)
    instant_types = {TIMESTAMP, *(data_type for data_type, is_cast in casts if is_cast)}
    return Constants(values, frozenset(instant_types), bool(can_search))


def run_statement(
    spark: SparkSession,
    query: str,
    args: Arguments | None,
    stores: Mapping[str, Store],
    named: NamedTables | None = None,
    load: Load = StoreRead.load,
) -> DataFrame:
    """The result of a query over stores; `named` are more tables, which Spark knows under another name."""
    named, stores = named or {}, _checked(stores)
    answer = answer_statement(query, stores, named, spark.catalog.tableExists)
    if answer is not None:
        return _frame(spark, answer)
    plan, reads = _planned(spark, with_spark_names(query, stores, named), args, stores, named)
    try:
        return _run(spark, plan, args, reads, load)
    except AnalysisException as error:
        condition = error.getCondition() or ""
        if condition.startswith(_NO_TABLE):
            name = (error.getMessageParameters() or {}).get("relationName", "")  # "`prodd`.`messages`"
            problem = unknown_table(name, stores, named)
            if problem is not None:
                raise OptionError(problem) from error
        if not condition.startswith(_NO_COLUMN) or not plan.references:
            raise
    # Spark suggests columns of the relations. With all columns of the tables, it suggests the right ones.
    return _run(spark, plan, args, plan_whole_reads(plan, stores), load)


def reads_of(
    spark: SparkSession, query: str, args: Arguments | None = None, *, stores: Mapping[str, Store]
) -> list[StoreRead]:
    """How `sql` would read each reference of a query to a store's table, in the order of the text.

    The arguments and errors are those of `sql`; the query is not run.
    """
    return _planned(spark, query, args, _checked(stores))[1]


def _checked(stores: Mapping[str, Store]) -> Mapping[str, Store]:
    if len({name.lower() for name in stores}) < len(stores):
        raise OptionError(f"two stores have the same name: {', '.join(stores)}")
    return with_all(stores)


def _planned(
    spark: SparkSession,
    query: str,
    args: Arguments | None,
    stores: Mapping[str, Store],
    named: NamedTables | None = None,
) -> tuple[QueryPlan, list[StoreRead]]:
    plan = plan_references(query, stores, table_columns, spark.catalog.tableExists, named, several_of(stores))
    return plan, plan_reads(plan, stores, partial(evaluate, spark, args=args if isinstance(args, dict) else None))


def _run(spark: SparkSession, plan: QueryPlan, args: Arguments | None, reads: list[StoreRead], load: Load) -> DataFrame:
    if not reads:
        return spark.sql(plan.text, args)
    return spark.sql(plan.template, args, **{read.reference.name: load(read, spark) for read in reads})


def _frame(spark: SparkSession, answer: CatalogAnswer) -> DataFrame:
    """The answer as a DataFrame, with Spark's own tables if it lists tables of all databases."""
    schema = ", ".join(f"`{name}` STRING" for name in answer.columns)
    frame = spark.createDataFrame(list(answer.rows), schema)
    if answer.with_session_tables is None:
        return frame
    own = spark.sql(answer.with_session_tables).drop("isTemporary")
    return frame.unionByName(own, allowMissingColumns=True)
