"""The messages that match a predicate: of many at once, in Arrow and NumPy, and of a single row.

Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_mq.filters.conditions import evaluate
from spark_mq.filters.truth import Truth
from spark_mq.format.array_types import Flags
from spark_mq.format.message_row import Row
from spark_mq.format.record import TRANSACTION_TYPE_MASK, TRANSACTION_TYPE_NAMES
from spark_mq.source.predicate import ROLLBACK, IntegerSet, Predicate

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.store.log.record_reader import Records

_INT64 = np.iinfo(np.int64)

_INTEGERS: dict[str, Callable[[Predicate], IntegerSet]] = {
    "commit_log_offset": attrgetter("commit_log_offset"),
    "queue_offset": attrgetter("queue_offset"),
    "queue_id": lambda predicate: IntegerSet(values=predicate.queue_ids),
    "store_timestamp_millis": attrgetter("store_timestamp"),
}
_TEXTS: dict[str, Callable[[Predicate], frozenset[str] | None]] = {
    "topic": attrgetter("topics"),
    "tags": attrgetter("tags"),
    "unique_key": attrgetter("unique_keys"),
    "offset_message_id": attrgetter("offset_message_ids"),
}
"""The conditions of a predicate by the column that they are about, cheap comparisons first."""


def matching_messages(predicate: Predicate, messages: MessageColumns) -> MessageColumns:
    """The messages that match the predicate; cheap comparisons come first."""
    for name, integers in _INTEGERS.items():
        matching = integers(predicate)
        if not matching.is_all and messages.frames.size:
            messages = _kept(messages, _is_in(messages.column(name).to_numpy(), matching))
    if predicate.transaction_types is not None or predicate.keys is not None:
        types = [predicate.allows_transaction_type(name) for name in TRANSACTION_TYPE_NAMES]
        types[TRANSACTION_TYPE_NAMES.index(ROLLBACK)] &= predicate.keys is None
        messages = _kept(messages, np.array(types)[(messages.frames.sys_flag & TRANSACTION_TYPE_MASK) >> 2])
    for name, texts in _TEXTS.items():
        wanted = texts(predicate)
        if wanted is not None and messages.frames.size:
            messages = _kept(messages, _is_one_of(messages, name, wanted))
    if predicate.keys is not None and messages.frames.size:
        messages = _kept(messages, _has_key(messages, predicate.keys))
    for condition in predicate.filters:
        if messages.frames.size:
            from spark_mq.filters.arrays import matching_mask, of_columns

            messages = _kept(messages, matching_mask(condition, of_columns(messages)))
    return messages


def without_queues(part: Records, queue_ids: frozenset[int]) -> Records:
    """The records of a chunk that have none of the queue ids."""
    from spark_mq.format.kernels.columns import MessageColumns

    column = MessageColumns(part.buffer, part.frames).column("queue_id").to_numpy()
    is_kept = ~np.isin(column, sorted(queue_ids))
    return replace(part, frames=part.frames[is_kept])


def matches_predicate(predicate: Predicate, row: Row) -> bool:
    """Whether a message's row matches the predicate."""
    if not all(row[name] in integers(predicate) for name, integers in _INTEGERS.items()):
        return False
    compared = ((row[name], texts(predicate)) for name, texts in _TEXTS.items())
    if not all(texts is None or text in texts for text, texts in compared):
        return False
    if not predicate.allows_transaction_type(row["transaction_type"]):
        return False
    if not all(evaluate(condition, dict(row["properties"])) == Truth.TRUE for condition in predicate.filters):
        return False
    if predicate.keys is None:
        return True
    return row["transaction_type"] != ROLLBACK and not predicate.keys.isdisjoint(
        (*(row["keys"] or ()), row["unique_key"])
    )


def keeps_corrupt_range(predicate: Predicate, commit_log_offset: int | None) -> bool:
    """Whether a row for damage at the offset matches the predicate; such a row has no other columns.

    Damage without an offset (None) matches only a predicate without conditions.
    """
    if commit_log_offset is None:
        return predicate == Predicate()
    return predicate.only_constrains_offset and commit_log_offset in predicate.commit_log_offset


def _kept(messages: MessageColumns, mask: Flags) -> MessageColumns:
    return messages if mask.all() else messages.part(mask)


def _is_in(values: npt.NDArray[np.integer], integers: IntegerSet) -> Flags:
    result = np.ones(values.size, np.bool_)
    if integers.first is not None:
        result &= (values >= max(integers.first, _INT64.min)) & (integers.first <= _INT64.max)
    if integers.last is not None:
        result &= (values <= min(integers.last, _INT64.max)) & (integers.last >= _INT64.min)
    if integers.values is not None:
        matching = [value for value in integers.values if _INT64.min <= value <= _INT64.max]
        result &= np.isin(values, np.array(matching, np.int64))
    return result


def _is_one_of(messages: MessageColumns, name: str, texts: frozenset[str]) -> Flags:
    if name == "topic" and len(texts) == 1 and "\ufffd" not in next(iter(texts)):
        return messages.topic_is(next(iter(texts)).encode("utf-8", "replace"))
    import pyarrow.compute as pc

    return _to_numpy(pc.is_in(messages.column(name), value_set=_text_array(texts)))


def _has_key(messages: MessageColumns, keys: frozenset[str]) -> Flags:
    import pyarrow.compute as pc

    key_array = _text_array(keys)
    pieces = messages.column("keys")
    result = _to_numpy(pc.is_in(messages.column("unique_key"), value_set=key_array))
    result[pc.list_parent_indices(pieces).filter(pc.is_in(pieces.flatten(), value_set=key_array)).to_numpy()] = True
    return result


def _text_array(texts: frozenset[str]) -> pa.Array:
    """The texts that UTF-8 can represent: a store contains no others."""
    return pa.array([text for text in texts if text.encode("utf-8", "replace").decode("utf-8") == text], pa.string())


def _to_numpy(mask: pa.Array) -> Flags:
    return np.array(mask.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
