"""From the columns of a message to Spark's schema, and from a user's schema to a list of columns."""

from __future__ import annotations

import difflib

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.errors import OptionError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, EXTRA_MESSAGE_SCHEMA, MESSAGE_SCHEMA


def messages_schema() -> StructType:
    """The default schema of table `messages`."""
    return from_arrow_schema(MESSAGE_SCHEMA)


def column_names(schema: StructType) -> list[str]:
    """The columns that `schema` asks for, in its order.

    Raises `OptionError` for a column that does not exist, or that has another type.
    """
    known = {
        field.name: field.dataType
        for part in (MESSAGE_SCHEMA, EXTRA_MESSAGE_SCHEMA)
        for field in from_arrow_schema(part)
    }
    for field in schema:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"messages has no column {field.name}{hint} Columns: {', '.join(ALL_MESSAGE_FIELDS)}")
        wanted, given = known[field.name].simpleString(), field.dataType.simpleString()
        if wanted != given:
            raise OptionError(f"column {field.name} is {wanted.upper()}, the schema says {given.upper()}")
    return list(schema.fieldNames())
