"""How far a stream has come, as Spark keeps it in a checkpoint: JSON with a fixed order of keys.

Spark compares offsets as text, so the same offset is always the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from spark_mq.errors import OptionError

VERSION = 1
NOTHING_YET = -1
"""The commit log offset of a stream over a log that holds nothing; it begins with whatever comes first."""


@dataclass(frozen=True)
class StreamOffset:
    """All that starts before `commit_log_offset` was given; `lost_bytes` of it were gone before they were read."""

    commit_log_offset: int
    lost_bytes: int = 0

    def to_json(self) -> dict[str, int]:
        """The offset as Spark wants it."""
        return {"version": VERSION, "commit_log_offset": self.commit_log_offset, "lost_bytes": self.lost_bytes}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The offset that stands in a checkpoint. Raises `OptionError` for what this version did not write."""
        version = values.get("version")
        if version != VERSION:
            raise OptionError(
                f"the checkpoint's offset {dict(values)} has version {version}, this spark-mq reads version {VERSION}: "
                "use the spark-mq that wrote it or a later one, or another checkpointLocation"
            )
        offset, lost = values.get("commit_log_offset"), values.get("lost_bytes")
        if not isinstance(offset, int) or not isinstance(lost, int) or offset < NOTHING_YET or lost < 0:
            raise OptionError(f"the checkpoint's offset {dict(values)} is none of this source")
        return cls(offset, lost)
