"""RocketMQ's filters of subscriptions, with exactly RocketMQ's meaning: tags, and SQL92 expressions over properties.

- `tag`, `sql92`: a Spark column that says whether a message matches.
- `matches`: whether the properties of one message match a SQL92 expression.
- `mask`: which messages of an Arrow table match a SQL92 expression.

>>> import spark_mq.filters
>>> messages = spark.read.format("rocketmq").load("/data/store")
>>> messages.where(spark_mq.filters.sql92("price BETWEEN 1 AND 3 AND region = 'eu'")).show()
>>> messages.where(spark_mq.filters.tag("paid || shipped")).show()

A SQL92 expression is not Spark SQL. NOT binds tighter than `=`: `NOT a = 1` is `(NOT a) = 1`. The type of the literal
decides how a property is read: `a > 5` reads an Integer, and `a = '1.5'` a text. A message whose property cannot be
read does not match, whatever the rest of the expression says. A broker evaluates SQL92 only with
`enablePropertyFilter=true`. docs/filters.md has all rules.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_mq.filters.conditions import answers, evaluate
from spark_mq.filters.parser import NEWEST, ParsedFilter, parse_sql92, parse_tags
from spark_mq.filters.truth import Truth

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["mask", "matches", "sql92", "tag"]


def tag(expression: str | None, tags: Column | str = "tags") -> Column:
    """A boolean column: whether a consumer that subscribed to `expression` gets the message; never NULL.

    Args:
        expression: Tags, such as `paid || shipped`; `*`, an empty text and None stand for all messages.
        tags: The column with the tag of each message.

    Raises:
        FilterError: RocketMQ refuses the expression: it consists of `||` only.

    A consumer gets a message whose tag is exactly one of the tags (`PullAPIWrapper.processPullResult`@5.3.3). `*`
    beside other tags is a tag like any other (`FilterAPI.buildSubscriptionData`@5.3.3).

    Examples:
        >>> messages.where(spark_mq.filters.tag("paid || shipped"))
    """
    from pyspark.sql import functions as sf

    column = sf.col(tags) if isinstance(tags, str) else tags
    wanted = parse_tags(expression)
    return sf.lit(True) if wanted is None else sf.coalesce(column.isin(*sorted(wanted)), sf.lit(False))


def sql92(expression: str, properties: Column | str = "properties", version: str = NEWEST) -> Column:
    """A boolean column: whether the SQL92 expression is TRUE for the message; never NULL.

    The column consists of Spark's own functions.

    Args:
        expression: The expression, such as `price BETWEEN 1 AND 3 AND region = 'eu'`.
        properties: The column with the properties of each message, MAP<STRING, STRING>.
        version: The version of RocketMQ that evaluates it, such as `4.9.7` or `5.3.3`; the newest one by default.
            CONTAINS, STARTSWITH and ENDSWITH exist from 5.1.3 on.

    Raises:
        FilterError: RocketMQ refuses the expression. The error says where, also as its attribute `position`.
        OptionError: `version` is not a version.

    Warns:
        UserWarning: RocketMQ does not read the end of the expression, because a whole expression ends before it.

    Examples:
        >>> messages.where(spark_mq.filters.sql92("price > 5 AND region IS NOT NULL"))
    """
    from pyspark.sql import functions as sf

    from spark_mq.filters.columns import ColumnMessages

    column = sf.col(properties) if isinstance(properties, str) else properties
    return answers(_parsed(expression, version).condition, ColumnMessages(column)) == sf.lit(int(Truth.TRUE))


def matches(expression: str, properties: Mapping[str, str], version: str = NEWEST) -> bool:
    """Whether the SQL92 expression is TRUE for a message with these properties.

    Args:
        expression: The expression, as in `sql92`.
        properties: All properties of the message, also TAGS and KEYS.
        version: The version of RocketMQ, as in `sql92`.

    Raises:
        FilterError, OptionError: As in `sql92`.

    Examples:
        >>> spark_mq.filters.matches("price > 5", {"price": "7"})
        True
    """
    return evaluate(_parsed(expression, version).condition, properties) == Truth.TRUE


def mask(expression: str, messages: pa.Table | pa.RecordBatch, version: str = NEWEST) -> pa.BooleanArray:
    """Which messages of an Arrow table match the SQL92 expression: TRUE or FALSE for each row.

    Args:
        expression: The expression, as in `sql92`.
        messages: A table or batch with a column `properties`, map<string, string>.
        version: The version of RocketMQ, as in `sql92`.

    Raises:
        FilterError, OptionError: As in `sql92`.

    Examples:
        >>> with spark_mq.MessageStore("/data/store") as store:
        ...     found = store.query_message("orders", "order-42")
        >>> found.filter(spark_mq.filters.mask("price > 5", found))
    """
    import pyarrow as pa

    from spark_mq.filters.arrays import matching_mask, of_maps

    column = messages.column("properties")
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.array(matching_mask(_parsed(expression, version).condition, of_maps(whole)))


def _parsed(expression: str, version: str) -> ParsedFilter:
    parsed = parse_sql92(expression, version)
    if parsed.ignored:
        warnings.warn(parsed.warning, stacklevel=3)
    return parsed
