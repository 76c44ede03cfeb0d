"""The rows that say what the next start of a broker does to a store: one thing that is done to one file, each."""

from __future__ import annotations

import pyarrow as pa

RECOVERY_SCHEMA = pa.schema(
    [
        ("action", pa.string()),
        ("target", pa.string()),
        ("file", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("position", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("bytes", pa.int64()),
        ("count", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""The columns. `file` is a path in the store, `position` a byte of it.
`count` is a number of messages, units or entries.

| action | what a broker does |
| --- | --- |
| refuse | does not start |
| start, check, end | begins with a segment; checks records; ends the log at a position |
| revive | takes old records after the live end for live ones |
| truncate | cuts off the end of a segment or of a queue |
| delete | deletes a segment, a queue file or an index file |
| add | counts a unit of zeros, which no message has |
| dispatch, ignore | dispatches messages again; ignores those of them that their queues have |
| complete, shift, lose | gives messages their unit, a unit at a wrong queue offset, or none |
| double | puts units or index entries a second time |
| lack, skip | leaves messages without index entries; puts no keys of new messages up to an offset |
"""


class RecoveryRows:
    """Rows of `RECOVERY_SCHEMA`, in the order in which they are added."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []

    def add(self, action: str, target: str, reason: str = "", **values: object) -> None:
        """Add a row; `values` are those of other columns."""
        row = {"action": action, "target": target, "reason": reason or None, **values}
        self._rows.append({name: _encodable(value) for name, value in row.items()})

    def to_table(self) -> pa.Table:
        """The rows."""
        return pa.Table.from_pylist(self._rows, RECOVERY_SCHEMA)


def _encodable(value: object) -> object:
    """A text without the lone surrogates that stand for bytes of a file's name that are not UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
