"""The messages of keys by the index files: table function `rocketmq_lookup` for SQL, `look_up` for DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq._compat import arrow_schema
from spark_mq.errors import OptionError
from spark_mq.format.message_row import plain_row
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, KEY_FIELDS, MESSAGE_BY_KEY_SCHEMA, MESSAGE_SCHEMA
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS, check_epoch_millis, epoch_millis, parse_time
from spark_mq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyspark.sql.udtf import UserDefinedTableFunction

LOOKUP_FUNCTION = "rocketmq_lookup"
_KEYS_AT_ONCE = 1 << 18
"""Keys of a task that are looked up together."""
_ANY_TIME = "any"
"""The value of a time that was not given: NULL is one that was."""
_ROUND_UP = timedelta(microseconds=999)
"""What is added to a time before it is rounded down, so that it is rounded up."""


class RocketMQLookup:
    """`rocketmq_lookup(store, topic, key[, broker_conf][, max_num][, begin][, end])`: the messages that have a key.

    >>> spark.sql("SELECT * FROM rocketmq_lookup(store => '/data/store', topic => 'orders', key => 'order-42')")
    >>> spark.sql("SELECT o.id, m.body FROM orders o, LATERAL rocketmq_lookup('/data/store', 'orders', o.id) m")

    The newest message that was not stored after a time, for each row:

    >>> spark.sql("SELECT * FROM orders o, LATERAL rocketmq_lookup('/data/store', 'orders', o.id, "
    ...           "end => o.paid_at, max_num => 1)")

    The rows are those of `MessageStore.query_message`, newest first, with the columns of table `messages`. A key that
    is a number is converted to text. NULL as topic, key, begin or end finds nothing. Each task opens a store once, and
    reads the store as it was at that moment. To keep rows without a message, write `LEFT JOIN LATERAL
    rocketmq_lookup(...) ON true`: without `ON true`, Spark 4.2 drops such rows with any table function. The errors are
    those of `MessageStore`.

    Args:
        broker_conf: The file of the broker's settings, for `maxHashSlotNum` and `maxIndexNum`.
        max_num: The largest number of messages; by default all.
        begin: The earliest store time, included: TIMESTAMP, epoch milliseconds, or text as of option `startTimestamp`.
            A TIMESTAMP is rounded up to milliseconds.
        end: The latest store time, included, in the same forms. A TIMESTAMP is rounded down.
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
        begin: datetime | int | str | None = _ANY_TIME,
        end: datetime | int | str | None = _ANY_TIME,
    ) -> Iterator[tuple[Any, ...]]:
        """The messages for one row of arguments."""
        if topic is None or key is None or begin is None or end is None:
            return
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise OptionError(f"{LOOKUP_FUNCTION}: key {key!r} is neither text nor a number")
        if max_num is not None and max_num < 1:
            raise OptionError(f"{LOOKUP_FUNCTION}: max_num {max_num}: give 1 or more, or NULL for all")
        first, last = _millis("begin", begin, _ROUND_UP), _millis("end", end, timedelta(0))
        for record in self._open(store, broker_conf).find_messages(topic, str(key), max_num, first, last):
            yield tuple(plain_row(record).values())

    def terminate(self) -> None:
        """Close the stores."""
        for store in self._stores.values():
            store.close()

    def _open(self, path: str, broker_conf: str | None) -> MessageStore:
        store = self._stores.get((path, broker_conf))
        if store is None:
            store = self._stores[path, broker_conf] = MessageStore(path, broker_conf=broker_conf)
        return store


def look_up(
    asked: DataFrame, store: str, columns: Sequence[str] | None = None, broker_conf: str | None = None
) -> DataFrame:
    """`asked` joined with the messages of its keys: a row for each of its rows and each message that has the key.

    Slots and messages are read in their order, each once, so that 100,000 keys take less time than a scan of the log.
    Each task reads the store by itself: few partitions of `asked` are better than many.

    Args:
        asked: Columns `topic` and `key`, which become text, and any others; a key is one of KEYS or a unique key. A row
            with NULL in one of the two finds nothing.
        store: The store directory.
        columns: The columns of the messages, as in table `messages_by_key`; by default all.
        broker_conf: The file of the broker's settings, for `maxHashSlotNum` and `maxIndexNum`.

    Returns:
        The columns of `asked`, and then `columns` except `topic` and `key`. The messages are those that
        `rocketmq_lookup` finds for each row; the rows are in no order.

    Raises:
        OptionError: `asked` has no such columns, or the result cannot have one of `columns`.

    Examples:
        >>> asked = orders.selectExpr("'orders' AS topic", "id AS key", "amount")
        >>> spark_mq.look_up(asked, "/data/store", ["store_timestamp", "body"]).show()
    """
    missing = {"topic", "key"}.difference(asked.columns)
    if missing:
        raise OptionError(f"look_up: the DataFrame has no column {' and none '.join(sorted(missing))}")
    fields = KEY_FIELDS | ALL_MESSAGE_FIELDS
    chosen = MESSAGE_BY_KEY_SCHEMA.names if columns is None else columns
    names = [name for name in chosen if name not in ("topic", "key")]
    for name in names:
        if name not in fields:
            raise OptionError(f"look_up: no column {name!r} in table messages_by_key: it has {', '.join(fields)}")
        if name in asked.columns:
            raise OptionError(f"look_up: the DataFrame has a column {name!r} of its own: rename it, or leave it out")
    pairs = asked.withColumns({name: asked[name].cast("string") for name in ("topic", "key")})
    found = from_arrow_schema(pa.schema([fields[name] for name in names]))
    schema = StructType([*pairs.schema.fields, *found.fields])
    return pairs.mapInArrow(partial(_look_up, store, broker_conf, names, arrow_schema(found)), schema)


def _look_up(
    store: str, broker_conf: str | None, names: list[str], schema: pa.Schema, asked: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows: list[pa.RecordBatch] = []
    with MessageStore(store, broker_conf=broker_conf) as opened:
        for batch in chain(asked, [None]):
            rows += [] if batch is None else [batch]
            if rows and (batch is None or sum(map(len, rows)) >= _KEYS_AT_ONCE):
                yield from _joined(pa.Table.from_batches(rows).combine_chunks(), opened, names, schema)
                rows = []


def _joined(asked: pa.Table, store: MessageStore, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows with the messages of their keys."""
    from spark_mq.store.many_keys import ManyKeys

    pairs = asked.select(["topic", "key"]).cast(pa.schema([("topic", pa.string()), ("key", pa.string())]))
    pairs = pairs.append_column("row", pa.array(np.arange(asked.num_rows))).drop_null()
    if not pairs.num_rows:
        return
    topics, keys, rows = (column.combine_chunks() for column in pairs.columns)
    for pair, found in ManyKeys(store.index, topics, keys, names).batches():
        of_asked = asked.take(rows.take(pa.array(pair))).combine_chunks().to_batches()[0]
        fields = [*of_asked.schema, *schema]
        columns = [*of_asked.columns, *found.cast(schema).columns]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def register_lookup(spark: SparkSession) -> None:
    """Register the table function in a session."""
    function = udtf(RocketMQLookup, returnType=from_arrow_schema(MESSAGE_SCHEMA), useArrow=False)
    spark.udtf.register(LOOKUP_FUNCTION, cast("UserDefinedTableFunction", function))


def _millis(name: str, time: datetime | int | str, added: timedelta) -> int | None:
    """The milliseconds of an argument; None if it was not given. `added` decides how a datetime is rounded."""
    if time == _ANY_TIME:
        return None
    if isinstance(time, str):
        return parse_time(f"{LOOKUP_FUNCTION}: {name}", time)
    if isinstance(time, datetime):
        try:  # Spark gives Python a TIMESTAMP as a datetime in the time zone of the process.
            return epoch_millis(time.astimezone() + added)
        except (OverflowError, ValueError):  # the first or the last day that a datetime can have
            return LATEST_MILLIS if time.year > 1 else EARLIEST_MILLIS
    if isinstance(time, bool) or not isinstance(time, int):
        raise OptionError(f"{LOOKUP_FUNCTION}: {name} {time!r} is not a TIMESTAMP: cast it, or give epoch milliseconds")
    return check_epoch_millis(f"{LOOKUP_FUNCTION}: {name}", time)
