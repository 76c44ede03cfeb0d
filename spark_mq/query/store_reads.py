"""The reads of a query: for each reference, the options and the schema of a relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, StructType

from spark_mq.query.catalog import Store, columns_of, options_of, pushed_down_options
from spark_mq.query.comparisons import Comparison
from spark_mq.query.conditions import KEY, Constants, TypedComparison, conditions_of, usable_conditions
from spark_mq.query.plan import QueryPlan, Reference
from spark_mq.query.table_names import HISTORY
from spark_mq.source.predicate import Condition, Value
from spark_mq.source.schema import full_schema
from spark_mq.store.config.named_stores import STORE_COLUMNS
from spark_mq.tables.messages import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StoreRead:
    """How one reference of a query is read.

    Attributes:
        conditions: The conditions that the query puts on the rows; `options` express them as far as the table can.
        unused: The comparisons of the query that the read does not apply; Spark filters the rows by them.
        misses_rollback: Whether a condition on `keys` is unused because messages of type ROLLBACK are in no index.
    """

    reference: Reference
    options: Mapping[str, str]
    schema: StructType
    conditions: tuple[Condition, ...]
    unused: tuple[Comparison, ...] = ()
    misses_rollback: bool = False

    def __str__(self) -> str:
        """One line of text: the table, its columns and its conditions."""
        columns = ", ".join(self.schema.fieldNames())

        def text(value: Value) -> str:
            return value.isoformat() if isinstance(value, datetime) else repr(value)

        conditions = " and ".join(
            f"{one.column} {one.operator} ({', '.join(map(text, one.values))})" for one in self.conditions
        )
        name = HISTORY if self.reference.is_history else f"{self.reference.store}.{self.reference.table}"
        return f"{name} ({columns}){conditions and ' where ' + conditions}"

    def load(self, spark: SparkSession) -> DataFrame:
        """The relation as a DataFrame."""
        return spark.read.format("rocketmq").options(**self.options).schema(self.schema).load()


def plan_reads(
    plan: QueryPlan, stores: Mapping[str, Store], evaluate: Callable[[Sequence[TypedComparison]], Constants]
) -> list[StoreRead]:
    """The reads of a plan's references, in the order of the text."""
    typed = [
        (comparison, _type_of(reference.table, comparison.column))
        for reference in plan.references
        for comparison in reference.comparisons
    ]
    conditions = conditions_of(typed, evaluate(typed)) if typed else {}
    return [_read(reference, stores[reference.store], conditions) for reference in plan.references]


def plan_whole_reads(plan: QueryPlan, stores: Mapping[str, Store]) -> list[StoreRead]:
    """The reads of a plan's references without pushdown: with all default columns, and all rows."""
    whole = (replace(reference, columns=None) for reference in plan.references)
    return [_read(reference, stores[reference.store], {}) for reference in whole]


def _read(reference: Reference, store: Store, conditions: Mapping[Comparison, Condition]) -> StoreRead:
    found = [conditions[comparison] for comparison in reference.comparisons if comparison in conditions]
    known = usable_conditions(found) if reference.table == MESSAGES.name else tuple(found)
    unused = [item for item in reference.comparisons if conditions.get(item) not in known]
    # The names of a store in an archive can be others than its own.
    own = [one for one in known if not (reference.is_history and one.column in STORE_COLUMNS)]
    options = pushed_down_options(options_of(store, reference.table), reference.table, own)
    full = full_schema(reference.table)
    columns = reference.columns or columns_of(store, reference.table, reference.is_history).default
    schema = StructType([full[column] for column in columns])
    misses_rollback = any(condition.column == KEY for condition in found if condition not in known)
    return StoreRead(reference, options, schema, known, tuple(unused), misses_rollback)


def _type_of(table: str, column: str) -> str:
    """Spark's name of the type of a column, or of its elements if it is an array."""
    data_type = full_schema(table)[column].dataType
    return (data_type.elementType if isinstance(data_type, ArrayType) else data_type).simpleString()
