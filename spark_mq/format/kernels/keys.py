"""The distinct keys of many messages, in Arrow. `message_keys.record_keys` is the twin for a single record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Int64s
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.message_keys import KeyType
from spark_mq.format.sys_flag import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK


@dataclass(frozen=True)
class MessageKeys:
    """Keys of messages; each attribute has one value for each key.

    `message` is the index of the message that has the key. `key_type` is KEYS or UNIQ_KEY.
    """

    message: Int64s
    key: pa.Array
    key_type: pa.Array


def message_keys(messages: MessageColumns, requested: frozenset[str] | None = None) -> MessageKeys:
    """The distinct keys of each message, the unique key first, in the order of the messages.

    Args:
        requested: The keys to return; None for all keys.
    """
    unique_key, keys = messages.column("unique_key"), messages.column("keys")
    is_indexed = messages.frames.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE
    has_unique_key = is_indexed & unique_key.is_valid().to_numpy(zero_copy_only=False)
    owner = np.concatenate((np.flatnonzero(has_unique_key), pc.list_parent_indices(keys).to_numpy()))
    key = pa.concat_arrays([unique_key.filter(pa.array(has_unique_key)), keys.flatten()])
    is_unique = np.arange(owner.size) < has_unique_key.sum()
    is_returned = is_indexed[owner]
    if requested is not None:
        is_returned &= pc.is_in(key, value_set=pa.array(sorted(requested), pa.string())).to_numpy(zero_copy_only=False)
    owner, key, is_unique = owner[is_returned], key.filter(pa.array(is_returned)), is_unique[is_returned]
    codes = key.dictionary_encode().indices.to_numpy().astype(np.int64)
    # If a message has a key twice, the first one counts; unique keys come first.
    _, first = np.unique(owner.astype(np.int64) * (codes.max(initial=0) + 1) + codes, return_index=True)
    first = first[np.lexsort((first, owner[first]))]
    types = pa.DictionaryArray.from_arrays(pa.array(is_unique[first].astype(np.int8)), pa.array([*KeyType]))
    return MessageKeys(owner[first].astype(np.int64), key.take(pa.array(first)), types.cast(pa.string()))
