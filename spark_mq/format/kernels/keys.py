"""The distinct keys of many messages, in Arrow; `record_keys` has the same rule for a single one."""

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
    """n keys: `message` is the index of the message that has it; `key_type` is KEYS or UNIQ_KEY."""

    message: Int64s
    key: pa.Array
    key_type: pa.Array


def message_keys(messages: MessageColumns, wanted: frozenset[str] | None = None) -> MessageKeys:
    """Each distinct key of each message once, the unique key first; with `wanted`, only those."""
    unique_key, keys = messages.column("unique_key"), messages.column("keys")
    is_indexed = messages.frames.sys_flag & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE
    has_unique_key = is_indexed & unique_key.is_valid().to_numpy(zero_copy_only=False)
    owner = np.concatenate((np.flatnonzero(has_unique_key), pc.list_parent_indices(keys).to_numpy()))
    key = pa.concat_arrays([unique_key.filter(pa.array(has_unique_key)), keys.flatten()])
    is_unique = np.arange(owner.size) < has_unique_key.sum()
    kept = is_indexed[owner]
    if wanted is not None:
        kept &= pc.is_in(key, value_set=pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
    owner, key, is_unique = owner[kept], key.filter(pa.array(kept)), is_unique[kept]
    codes = key.dictionary_encode().indices.to_numpy().astype(np.int64)
    # Of a key that a message has twice the first counts, and unique keys come first.
    _, first = np.unique(owner.astype(np.int64) * (codes.max(initial=0) + 1) + codes, return_index=True)
    first = first[np.lexsort((first, owner[first]))]
    types = pa.DictionaryArray.from_arrays(pa.array(is_unique[first].astype(np.int8)), pa.array([*KeyType]))
    return MessageKeys(owner[first].astype(np.int64), key.take(pa.array(first)), types.cast(pa.string()))
