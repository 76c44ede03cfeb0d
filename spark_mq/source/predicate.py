"""The predicate of a read: a conjunction of conditions on columns, and sets of integers.

Options, filters that Spark pushes, and arguments of commands become one `Predicate`. The planner chooses the access
path by the predicate, and readers select rows by it. Spark checks a condition that a predicate cannot contain. So a
predicate may match more rows than the query that it comes from, never fewer. This module is plain Python: it runs while
Spark plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self, TypeVar

from spark_mq.errors import OptionError
from spark_mq.filters.expression import Expression
from spark_mq.format.message_id import decode_offset_message_id, is_offset_message_id, normalize_offset_message_id
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS
from spark_mq.format.record import TRANSACTION_TYPE_NAMES
from spark_mq.format.timestamp import epoch_micros, of_micros

Value = str | int | datetime
_T = TypeVar("_T")

_REPLACEMENT = "\ufffd"
_NONE, PREPARED, COMMIT, ROLLBACK = TRANSACTION_TYPE_NAMES
IN_INDEX = frozenset((_NONE, PREPARED, COMMIT))
"""Transaction types of messages that the index contains (`IndexService.buildIndex`@5.3.3)."""
IN_QUEUES = frozenset((_NONE, COMMIT))
"""Transaction types of messages that queues contain; the others are stored with queue offset 0 (`CommitLog`@5.3.3)."""


class Operator(StrEnum):
    """The comparison of a column with values."""

    IN = "in"
    """Equal to one of the values."""
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True)
class Condition:
    """One comparison, with SQL's rule for NULL: a row for which the comparison is NULL does not match.

    The values of a TIMESTAMP column are datetimes with a zone; there is one value, except for IN.
    """

    column: str
    operator: Operator
    values: tuple[Value, ...]


def encode_conditions(conditions: Iterable[Condition]) -> str:
    """The JSON text of conditions, which `decode_conditions` reads."""
    return json.dumps([[one.column, one.operator, list(map(_as_json, one.values))] for one in conditions])


def decode_conditions(text: str) -> list[Condition]:
    """The conditions of a JSON text: `[["topic", "in", ["orders"]], ...]`.

    A time is `{"micros": n}`, microseconds since the epoch.
    """
    try:
        return [_condition(*item) for item in json.loads(text)]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise OptionError(f"option conditions={text!r} is not a list of [column, operator, values]: {error}") from error


def matches_names(conditions: Iterable[Condition], names: Mapping[str, str]) -> bool:
    """Whether a store with these names, by column, can have rows that meet the conditions."""
    return all(
        names[one.column] in one.values for one in conditions if one.column in names and one.operator == Operator.IN
    )


def _condition(column: str, operator: str, values: Sequence[object]) -> Condition:
    if operator != Operator.IN and len(values) != 1:
        raise ValueError(f"{operator} takes one value, not {len(values)}")
    return Condition(str(column), Operator(operator), tuple(map(_from_json, values)))


def _as_json(value: Value) -> object:
    return {"micros": epoch_micros(value)} if isinstance(value, datetime) else value


def _from_json(value: object) -> Value:
    if isinstance(value, dict):
        return of_micros(value["micros"])
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{value!r} is neither text nor an integer")
    return value


@dataclass(frozen=True)
class IntegerSet:
    """The integers from `first` to `last`, both included, that are in `values`.

    None as a bound is open, and None as `values` means every integer.
    """

    first: int | None = None
    last: int | None = None
    values: frozenset[int] | None = None

    def __contains__(self, value: int) -> bool:
        return (
            (self.first is None or value >= self.first)
            and (self.last is None or value <= self.last)
            and (self.values is None or value in self.values)
        )

    def __and__(self, other: Self) -> Self:
        firsts = [first for first in (self.first, other.first) if first is not None]
        lasts = [last for last in (self.last, other.last) if last is not None]
        values = _both(self.values, other.values)
        return replace(self, first=max(firsts, default=None), last=min(lasts, default=None), values=values)

    @property
    def is_all(self) -> bool:
        """Whether every integer is in the set."""
        return self == ALL

    @property
    def is_empty(self) -> bool:
        """Whether no integer is in the set."""
        if self.values is not None:
            return not any(value in self for value in self.values)
        return self.first is not None and self.last is not None and self.first > self.last

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The smallest and the largest integer of the set, None for an open bound. The set must not be empty."""
        if self.values is None:
            return self.first, self.last
        values = [value for value in self.values if value in self]
        return min(values), max(values)


ALL = IntegerSet()


def _both(left: Any, right: Any) -> Any:
    """The condition that both are met; None and an empty tuple are conditions that everything meets."""
    if isinstance(left, tuple):
        return tuple(dict.fromkeys((*left, *right)))
    if left is None or right is None:
        return right if left is None else left
    return left & right


@dataclass(frozen=True)
class Predicate:
    """The conditions that every matching message meets; None means any value.

    Attributes:
        topics, queue_ids, tags, unique_keys, transaction_types: The column has one of the values.
        keys: One of the values is one of the message's KEYS or its unique key, and the message does not have
            transaction type ROLLBACK, because the index does not contain such messages.
        offset_message_ids: The column has one of the values, which are normalized.
        commit_log_offset, queue_offset: The column has one of the integers.
        store_timestamp: The store time, in milliseconds since the epoch, is one of the integers.
        filters: Parsed SQL92 expressions, each of which is TRUE for the properties of the message.
    """

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    unique_keys: frozenset[str] | None = None
    offset_message_ids: frozenset[str] | None = None
    transaction_types: frozenset[str] | None = None
    commit_log_offset: IntegerSet = ALL
    queue_offset: IntegerSet = ALL
    store_timestamp: IntegerSet = ALL
    filters: tuple[Expression, ...] = ()

    @property
    def of_batches(self) -> Predicate:
        """The conditions that a record meets if one of its messages meets all of them."""
        kept = Predicate(self.topics, self.queue_ids, transaction_types=self.transaction_types)
        return replace(kept, commit_log_offset=self.commit_log_offset, store_timestamp=self.store_timestamp)

    def __and__(self, other: Self) -> Self:
        names = (field.name for field in fields(self))
        return replace(self, **{name: _both(getattr(self, name), getattr(other, name)) for name in names})

    @classmethod
    def of(cls, conditions: Iterable[Condition]) -> Self:
        """The conjunction of the conditions; conditions that a predicate cannot contain are left out."""
        result = cls()
        for condition in conditions:
            if condition.column not in _BUILDERS:
                continue
            name, build = _BUILDERS[condition.column]
            part = build(condition)
            if part is not None:
                result &= replace(cls(), **{name: part})
        return result

    @property
    def is_empty(self) -> bool:
        """Whether no message can match."""
        values = [getattr(self, field.name) for field in fields(self)]
        return any(one.is_empty if isinstance(one, IntegerSet) else one == frozenset() for one in values)

    @property
    def is_indexed(self) -> bool:
        """Whether the index contains the keys of all messages that can match."""
        return self.keys is not None or not self.allows_transaction_type(ROLLBACK)

    @property
    def is_queued(self) -> bool:
        """Whether queues contain all messages that can match: the others are stored with queue offset 0."""
        return 0 not in self.queue_offset or not (
            self.allows_transaction_type(PREPARED) or self.allows_transaction_type(ROLLBACK)
        )

    def allows_transaction_type(self, transaction_type: str) -> bool:
        """Whether messages of this transaction type can match."""
        return self.transaction_types is None or transaction_type in self.transaction_types

    @property
    def only_constrains_offset(self) -> bool:
        """Whether there is no condition except on the commit log offset: damage has an offset, but no other columns."""
        return self == Predicate(commit_log_offset=self.commit_log_offset)

    @property
    def offsets(self) -> IntegerSet:
        """The commit log offsets that can match, by the conditions on offset and offset message id."""
        if self.offset_message_ids is None:
            return self.commit_log_offset
        offsets = frozenset(decode_offset_message_id(text)[1] for text in self.offset_message_ids)
        return self.commit_log_offset & IntegerSet(values=offsets)


def _texts(condition: Condition) -> frozenset[str] | None:
    """A set of texts; None if a text contains U+FFFD, which also stands for stored bytes that are not valid UTF-8."""
    texts = [value for value in condition.values if isinstance(value, str)]
    if not _is_set_of(condition, texts) or any(_REPLACEMENT in text for text in texts):
        return None
    return frozenset(texts)


def _offset_message_ids(condition: Condition) -> frozenset[str] | None:
    """The texts that can be the id of a message, which is normalized."""
    texts = _texts(condition)
    if texts is None:
        return None
    return frozenset(text for text in texts if is_offset_message_id(text) and text == normalize_offset_message_id(text))


def _queue_ids(condition: Condition) -> frozenset[int] | None:
    values = _of_integers(condition)
    return frozenset(values) if _is_set_of(condition, values) else None


def _is_set_of(condition: Condition, values: Sequence[Value]) -> bool:
    return condition.operator == Operator.IN and len(values) == len(condition.values)


def _integers(condition: Condition) -> IntegerSet | None:
    values = _of_integers(condition)
    if len(values) < len(condition.values):
        return None
    return _range(condition.operator, [(value, value) for value in values])


def _of_integers(condition: Condition) -> list[int]:
    return [value for value in condition.values if isinstance(value, int) and not isinstance(value, bool)]


def _timestamps(condition: Condition) -> IntegerSet | None:
    """The store times, milliseconds, that a TIMESTAMP can be; a time between two milliseconds equals neither."""
    micros = [epoch_micros(value) for value in condition.values if isinstance(value, datetime)]
    if len(micros) < len(condition.values):
        return None
    millis = _range(condition.operator, [(value // 1000, -(-value // 1000)) for value in micros])
    return millis & IntegerSet(MIN_TIMESTAMP_MILLIS, MAX_TIMESTAMP_MILLIS)


def _range(operator: Operator, values: list[tuple[int, int]]) -> IntegerSet:
    """The integers for which the comparison is true.

    Each of the values is a pair: the integers below and above the value, or the value itself twice.
    """
    if operator == Operator.IN:
        return IntegerSet(values=frozenset(below for below, above in values if below == above))
    ((below, above),) = values
    ends = {
        Operator.LESS: IntegerSet(last=above - 1),
        Operator.LESS_OR_EQUAL: IntegerSet(last=below),
        Operator.GREATER: IntegerSet(first=below + 1),
        Operator.GREATER_OR_EQUAL: IntegerSet(first=above),
    }
    return ends[operator]


_BUILDERS: dict[str, tuple[str, Callable[[Condition], Any]]] = {
    "topic": ("topics", _texts),
    "queue_id": ("queue_ids", _queue_ids),
    "tags": ("tags", _texts),
    "key": ("keys", _texts),
    "unique_key": ("unique_keys", _texts),
    "offset_message_id": ("offset_message_ids", _offset_message_ids),
    "transaction_type": ("transaction_types", _texts),
    "commit_log_offset": ("commit_log_offset", _integers),
    "queue_offset": ("queue_offset", _integers),
    "store_timestamp": ("store_timestamp", _timestamps),
    "store_timestamp_millis": ("store_timestamp", _integers),
}
"""By column: the attribute of a predicate, and the function that builds its value from a condition, or returns None."""

CONDITION_COLUMNS = frozenset(_BUILDERS)
"""The columns that a predicate can have conditions on."""
