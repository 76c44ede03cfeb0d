"""Messages whose contents show no damage.

A record that has the right lengths counts as a record of the log, but its bytes can be damaged. Most brokers write no
checksum of the properties. So a zero byte among the properties counts as damage here: files that lost a page contain
zeros, and a broker writes none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.lifecycle.messages.selected_messages import SelectedMessages
from spark_mq.store.log.corrupt_range import CorruptRange

SOUND_COLUMNS = ("store_size", "properties_bytes")
"""The columns that `sound_messages` needs, beside `commit_log_offset`."""

_ZERO = "the properties of the record contain zero bytes"


def sound_messages(found: SelectedMessages) -> tuple[pa.Table, tuple[CorruptRange, ...]]:
    """The messages without damage, without `SOUND_COLUMNS`; and the damaged ones as ranges of the log.

    Args:
        found: Messages with the columns `SOUND_COLUMNS`, and perhaps `_corrupt_record`.
    """
    messages = found.messages
    checked = CORRUPT_RECORD in messages.column_names and messages[CORRUPT_RECORD].null_count < messages.num_rows
    if not checked and not _has_zero(messages["properties_bytes"]):
        return messages.drop_columns(list(SOUND_COLUMNS)), ()
    is_damaged = pc.match_substring(messages["properties_bytes"], pattern="\0")
    if CORRUPT_RECORD in messages.column_names:
        is_damaged = pc.or_(is_damaged, pc.is_valid(messages[CORRUPT_RECORD]))
    damaged = messages.filter(is_damaged)
    reasons = damaged[CORRUPT_RECORD] if CORRUPT_RECORD in damaged.column_names else pa.nulls(len(damaged), pa.string())
    ranges = [
        CorruptRange("commitlog", offset, size, "CONTENT", reason or _ZERO)
        for offset, size, reason in zip(
            damaged["commit_log_offset"].to_pylist(),
            damaged["store_size"].to_pylist(),
            reasons.to_pylist(),
            strict=True,
        )
    ]
    return messages.filter(pc.invert(is_damaged)).drop_columns(list(SOUND_COLUMNS)), tuple(ranges)


def _has_zero(texts: pa.ChunkedArray) -> bool:
    """Whether the buffers of binary texts have a zero byte: this is much faster than a check of each text."""
    datas = (chunk.buffers()[2] for chunk in texts.chunks)
    return any(data is not None and np.frombuffer(data, np.uint8).min(initial=1) == 0 for data in datas)
