"""Times of many messages as Arrow's timestamps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, MIN_TIMESTAMP_MILLIS, TIMESTAMP


def timestamps(millis: Int64s, is_known: Flags | None = None) -> pa.Array:
    """Milliseconds since the epoch as TIMESTAMP; NULL if not known, and outside years 1 to 9999."""
    is_null = (millis < MIN_TIMESTAMP_MILLIS) | (millis > MAX_TIMESTAMP_MILLIS)
    if is_known is not None:
        is_null |= ~is_known
    if not is_null.any():
        return pa.Array.from_buffers(TIMESTAMP, millis.size, [None, pa.py_buffer(millis * 1000)])
    return pa.array(np.where(is_null, 0, millis) * 1000, mask=is_null).cast(TIMESTAMP)
