"""The columns of rows that become messages: which there may be, of which types, and their values as arrays.

This module imports no numba, so that a driver can check columns before tasks start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyarrow import types

from spark_mq.errors import InvalidMessageError, similar
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD, KEY, KEY_TYPE
from spark_mq.format.pieces import Pieces, no_pieces, pieces_of_array
from spark_mq.format.properties import DELAY_TIME_LEVEL, SHARDING_KEY, TIMER_PROPERTIES
from spark_mq.restorer.queue_choice import StoreQueues

IGNORED_COLUMNS = frozenset(("cluster", "broker", "store", "offset_message_id", "transaction_type", KEY, KEY_TYPE))
"""Columns of messages, of archives and of keys that say nothing about a message that other columns do not say."""

OWN_COLUMNS = {"sharding_key": SHARDING_KEY, "delay_level": DELAY_TIME_LEVEL, "deliver_timestamp": TIMER_PROPERTIES[0]}
"""Columns of new messages, which become a property each."""

_KNOWN = IGNORED_COLUMNS.union(ALL_MESSAGE_FIELDS, OWN_COLUMNS)
_UNITS_IN_A_MILLISECOND = {"ms": 1, "us": 1000, "ns": 1_000_000}


def _is_text(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    checks = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return _is_text(kind) or any(check(kind) for check in checks)


def is_list(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_keys(kind: pa.DataType) -> bool:
    return _is_text(kind) or (is_list(kind) and (_is_text(kind.value_type) or types.is_null(kind.value_type)))


def _is_map(kind: pa.DataType) -> bool:
    return types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


_TEXT = (_is_text, "STRING")
_BINARY = (_is_binary, "BINARY or STRING")
_INTEGER = (lambda kind: types.is_integer(kind) and not types.is_uint64(kind), "INT or BIGINT")
_TIME = (
    lambda kind: types.is_timestamp(kind) and kind.tz is not None,
    "TIMESTAMP (a time zone is needed; a column of the same name and _millis has milliseconds)",
)
_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    **dict.fromkeys(("topic", "tags", "unique_key", "born_host", "store_host", CORRUPT_RECORD), _TEXT),
    **dict.fromkeys(("body", "stored_body", "encoded_body", "properties_bytes"), _BINARY),
    **dict.fromkeys(("born_timestamp", "store_timestamp"), _TIME),
    "sharding_key": (lambda kind: _is_text(kind) or types.is_integer(kind), "STRING, INT or BIGINT"),
    "deliver_timestamp": (
        lambda kind: types.is_integer(kind) or (types.is_timestamp(kind) and kind.tz is not None),
        "TIMESTAMP or BIGINT (milliseconds)",
    ),
    "keys": (_is_keys, "ARRAY<STRING> or STRING"),
    "properties": (_is_map, "MAP<STRING, STRING>"),
}
"""Which types a column may have, and how an error names them; a column that is not in the table has integers."""


def check_columns(schema: pa.Schema, is_faithful: bool = False) -> None:
    """Check that rows with these columns can become messages."""
    for name in schema.names:
        if name not in _KNOWN:
            raise InvalidMessageError(f"column {name!r} is not a column of messages{similar(name, _KNOWN)}")
        if schema.names.count(name) > 1:
            raise InvalidMessageError(f"column {name!r} is there twice: leave one of them out")
        if name in IGNORED_COLUMNS:
            continue
        kind = schema.field(name).type
        is_right, expected = _TYPES.get(name, _INTEGER)
        if not (types.is_null(kind) or is_right(kind)):
            raise InvalidMessageError(f"column {name!r} has type {kind}: it must be {expected}")
        if is_faithful and name in OWN_COLUMNS:
            raise InvalidMessageError(
                f"column {name!r} changes messages, so they need new offsets (renumber); or leave it out"
            )
    if "topic" not in schema.names:
        raise InvalidMessageError("column 'topic' is missing: every message needs a topic")
    missing = [name for name in ("commit_log_offset", "queue_offset") if name not in schema.names]
    if is_faithful and missing:
        raise InvalidMessageError(
            f"column {missing[0]!r} is missing, without which messages cannot keep their offsets: add it, or give them "
            "new offsets (renumber)"
        )


DEFAULT_STORE_HOST, DEFAULT_BORN_HOST = "127.0.0.1:10911", "127.0.0.1:0"


@dataclass(frozen=True)
class EncodingRules:
    """How rows become records: what a restore decides about all messages, before it reads one.

    Attributes:
        is_faithful: Whether each record has the offsets of its row, and the bytes that it had. Else both offsets are
            written as 0, and the record is one that a broker could get today.
        now: The store time, in milliseconds since the epoch, of a row without one. It is also the born time of a row
            that has neither.
        max_body_size: The largest body in bytes, for a body that did not have this length in a store before.
        properties_crc: Whether each record gets the property CRC of a broker with `enabledAppendPropCRC`. A faithful
            record never gets one that it did not have.
        queues: How messages get their queues, as a broker chooses them; None leaves that to a broker that gets them.
        batch_topics: The topics that have batch consume queues in the store: only these have inner batches.
        allows_v2: Whether the broker can read records of version 2, which long topics need: brokers from 5.1.0 on can.
    """

    is_faithful: bool
    now: int
    store_host: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    max_body_size: int = 4 << 20
    properties_crc: bool = False
    queues: StoreQueues | None = None
    allows_v2: bool = True
    batch_topics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a batch of rows that `check_columns` accepts."""

    batch: pa.RecordBatch
    first_row: int = 0

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)

    def has(self, name: str) -> bool:
        """Whether the column is there."""
        return name in self.batch.schema.names and not types.is_null(self.batch.schema.field(name).type)

    def array(self, name: str) -> pa.Array:
        """The column, which must be there."""
        return self.batch.column(name)

    def is_given(self, name: str) -> Flags:
        """In which rows the column has a value; in none if it is not there."""
        if not self.has(name):
            return np.zeros(self.size, np.bool_)
        given: Flags = self.array(name).is_valid().to_numpy(zero_copy_only=False)
        return given

    def pieces(self, name: str) -> Pieces:
        """The texts or bytes of the column; all NULL if it is not there."""
        return pieces_of_array(self.array(name)) if self.has(name) else no_pieces(self.size)

    def texts(self, name: str) -> Pieces:
        """The texts of the column, or its numbers or times (milliseconds) as texts; all NULL if it is not there."""
        if not self.has(name):
            return no_pieces(self.size)
        array = self.array(name)
        if types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
        texts = pieces_of_array(array.cast(pa.string()))
        return texts._replace(lengths=np.where(texts.lengths > 0, texts.lengths, -1).astype(np.int32))

    def numbers(self, name: str, first: int, last: int, default: int = 0) -> Int64s:
        """The integers of the column, with `default` for NULL."""
        if not self.has(name):
            return np.broadcast_to(np.int64(default), self.size)
        array = self.array(name).cast(pa.int64())
        numbers: Int64s = (array.fill_null(default) if array.null_count else array).to_numpy()
        outside = (numbers < first) | (numbers > last)
        if outside.any():
            self.check(
                outside & self.is_given(name), lambda row: f"{name} {numbers[row]} is not from {first} to {last}"
            )
        return numbers

    def millis(self, name: str, first: int, last: int) -> tuple[Int64s, Flags]:
        """The times of column `NAME_millis`, or of TIMESTAMP column `name` where that is NULL.
        They are rounded down; the second array says in which rows there is a time. Other rows have 0.
        """
        exact = f"{name}_millis"
        given = self.is_given(exact)
        values = self.numbers(exact, first, last)
        if not self.has(name) or given.all():
            return values, given
        times = self.array(name).cast(pa.int64()).fill_null(0).to_numpy()
        unit = self.array(name).type.unit
        times = times * 1000 if unit == "s" else times // _UNITS_IN_A_MILLISECOND[unit]
        present = self.is_given(name)
        outside = ~given & present & ((times < first) | (times > last))
        self.check(outside, lambda row: f"{name} is {times[row]} milliseconds, which are not from {first} to {last}")
        return np.where(given, values, times), given | present

    def check(self, faults: Flags, reason: str | Callable[[int], str]) -> None:
        """Raise the error of the first row that has a fault."""
        if faults.any():
            row = int(np.argmax(faults))
            raise InvalidMessageError(f"{self.name_of(row)}: {reason if isinstance(reason, str) else reason(row)}")

    def name_of(self, row: int) -> str:
        """What an error calls a row: its commit log offset, topic and queue if it has them, and its number."""
        known = {
            text: self.array(name)[row].as_py()
            for name, text in (("commit_log_offset", "commit log offset"), ("queue_id", "queue"))
            if self.has(name)
        }
        named = [f"{text} {value}" for text, value in known.items() if value is not None]
        topic = self.pieces("topic").piece(row) if self.has("topic") else b""
        named += [f"topic {topic[:80].decode('utf-8', 'replace')!r}"] if topic else []
        return f"row {self.first_row + row}" + (f" ({', '.join(named)})" if named else "")


def is_fault(faults: Sequence[str | None]) -> Flags:
    """Which distinct values have a fault."""
    return np.array([fault is not None for fault in faults], np.bool_)
