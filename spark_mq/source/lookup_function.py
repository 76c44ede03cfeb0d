"""`rocketmq_lookup`, a table function for SQL: the messages of a key, by the index files, for each row of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.errors import OptionError
from spark_mq.format.message_row import Row, message_row
from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.format.timestamp import of_micros
from spark_mq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyspark.sql.udtf import UserDefinedTableFunction

LOOKUP_FUNCTION = "rocketmq_lookup"


class RocketMQLookup:
    """`rocketmq_lookup(store, topic, key[, broker_conf][, max_num])`: the messages of a topic that have a key.

    >>> spark.sql("SELECT * FROM rocketmq_lookup(store => '/data/store', topic => 'orders', key => 'order-42')")
    >>> spark.sql("SELECT o.id, m.body FROM orders o, LATERAL rocketmq_lookup('/data/store', 'orders', o.id) m")

    The rows are those of `MessageStore.query_message`, newest first, with the columns of table `messages`. A key that
    is a number is converted to text. NULL as topic or key finds nothing. Each task opens a store once, and reads the
    store as it was at that moment. To keep rows without a message, write `LEFT JOIN LATERAL rocketmq_lookup(...) ON
    true`: without `ON true`, Spark 4.2 drops such rows with any table function. The errors are those of `MessageStore`.

    Args:
        store: The broker's store directory.
        topic: The topic.
        key: The key: one of KEYS, or the unique key.
        broker_conf: The file of the broker's settings, for `maxHashSlotNum` and `maxIndexNum`.
        max_num: The largest number of messages; by default all.

    """

    def __init__(self) -> None:
        self._stores: dict[tuple[str, str | None], MessageStore] = {}

    def eval(
        self,
        store: str,
        topic: str | None,
        key: str | int | None,
        broker_conf: str | None = None,
        max_num: int | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        """The messages for one row of arguments."""
        if topic is None or key is None:
            return
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise OptionError(f"{LOOKUP_FUNCTION}: key {key!r} is neither text nor a number")
        for record in self._open(store, broker_conf).find_messages(topic, str(key), max_num):
            yield _values(message_row(record))

    def terminate(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            store.close()

    def _open(self, path: str, broker_conf: str | None) -> MessageStore:
        store = self._stores.get((path, broker_conf))
        if store is None:
            store = self._stores[path, broker_conf] = MessageStore(path, broker_conf=broker_conf)
        return store


def register_lookup(spark: SparkSession) -> None:
    """Register the table function in a session."""
    function = udtf(RocketMQLookup, returnType=from_arrow_schema(MESSAGE_SCHEMA), useArrow=False)
    spark.udtf.register(LOOKUP_FUNCTION, cast("UserDefinedTableFunction", function))


def _values(row: Row) -> tuple[Any, ...]:
    """The columns of a message as Python values for Spark."""
    moments = {name: of_micros(row[name]) for name in ("born_timestamp", "store_timestamp") if row[name] is not None}
    plain = row | {"properties": dict(row["properties"])} | moments
    return tuple(plain.get(name) for name in MESSAGE_SCHEMA.names)
