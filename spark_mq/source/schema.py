"""The columns of the tables as Spark schemas, and the columns that a user's schema names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.errors import OptionError
from spark_mq.store.config.named_stores import STORE_COLUMNS, STORE_COLUMNS_SCHEMA
from spark_mq.tables.all_tables import TABLES


def default_schema(table: str, is_of_several: bool = False) -> StructType:
    """The columns of a read without a user's schema; of several stores, the first ones say which store it is."""
    named = STORE_COLUMNS_SCHEMA if is_of_several else pa.schema([])
    return from_arrow_schema(pa.schema([*named, *TABLES[table].schema]))


def full_schema(table: str) -> StructType:
    """Every column of the table, including the columns that only a schema that names them can read."""
    extra = pa.schema([*TABLES[table].extra_schema, *STORE_COLUMNS_SCHEMA])
    return StructType([*default_schema(table), *from_arrow_schema(extra)])


def names_store(names: Iterable[str]) -> bool:
    """Whether columns say which store a row comes from."""
    return not frozenset(STORE_COLUMNS).isdisjoint(names)


def columns_of_one_store(table: str, names: list[str]) -> list[str]:
    """The columns that are read of each store; at least one, or rows could not be counted."""
    return [name for name in names if name not in STORE_COLUMNS] or default_schema(table).fieldNames()[:1]


def column_names(table: str, schema: StructType) -> list[str]:
    """The columns of a table of a store that `schema` names, in its order."""
    return names_of_schema(table, schema, full_schema(table))


def names_of_schema(table: str, schema: StructType, columns: StructType) -> list[str]:
    """The columns that `schema` names, in its order. Raises `OptionError` if `columns` has no such one."""
    known = {field.name: field.dataType for field in columns}
    for field in schema:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"{table} has no column {field.name}{hint} Columns: {', '.join(known)}")
        actual, given = known[field.name].simpleString(), field.dataType.simpleString()
        if actual != given:
            raise OptionError(f"column {field.name} is {actual.upper()}, the schema says {given.upper()}")
    return list(schema.fieldNames())
