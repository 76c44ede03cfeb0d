"""The layout of a frame in memory, which `frames` explains."""

from __future__ import annotations

import numpy as np

FRAME_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("store_size", np.int32),
        ("sys_flag", np.int32),
        ("store_timestamp_at", np.int64),
        ("store_host_at", np.int64),
        ("after_hosts_at", np.int64),
        ("body_start", np.int64),
        ("body_length", np.int32),
        ("topic_length", np.int32),
        ("topic_start", np.int64),
        ("properties_start", np.int64),
        ("properties_length", np.int32),
    ],
    align=True,
)
"""One frame: the positions of a record's parts, as indices in the buffer that was scanned, and its lengths in bytes."""
