"""The Arrow types of columns."""

from __future__ import annotations

import pyarrow as pa

ARROW_TYPES: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
}
"""By Spark's name of a type."""
ARROW_TYPES |= {
    f"ARRAY<{name}>": pa.list_(pa.field("element", ARROW_TYPES[name])) for name in ("STRING", "INT", "BIGINT")
}
