"""How far a stream over a store has come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchProgress:
    """The last batch with messages. `archived_to` and `log_end` are commit log offsets behind a message."""

    number: int
    rows: int
    archived_to: int
    log_end: int
    """The end of the log, as it was when the batch was planned."""
    seconds: float

    @classmethod
    def of(cls, query: StreamingQuery) -> Self | None:
        """What Spark says of the last batch (`StreamingQueryProgress`); None where that had no message."""
        progress = query.lastProgress
        if progress is None or not progress["numInputRows"]:
            return None
        archived_to = _offset(progress, "endOffset").get("commit_log_offset", -1)
        log_end = _offset(progress, "latestOffset").get("commit_log_offset", archived_to)
        return cls(
            progress["batchId"], progress["numInputRows"], archived_to, log_end, progress["batchDuration"] / 1000
        )

    def __str__(self) -> str:
        """A line for a terminal."""
        return (
            f"{self.rows:,} messages in {self.seconds:.1f} s, up to commit log offset {self.archived_to:,}, "
            f"{self.log_end - self.archived_to:,} bytes before the end of the log"
        )


def stream_offset(query: StreamingQuery) -> dict[str, Any]:
    """The offset at which the stream is, as in its checkpoint; empty before the first batch."""
    progress = query.lastProgress
    return {} if progress is None else _offset(progress, "endOffset")


def _offset(progress: StreamingQueryProgress, name: str) -> dict[str, Any]:
    # The fields of Spark 4.0's SourceProgress are Python's text of an offset, not JSON.
    offset = json.loads(progress.json)["sources"][0].get(name)
    found = json.loads(offset) if isinstance(offset, str) else offset
    return found if isinstance(found, dict) else {}
