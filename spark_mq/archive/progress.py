"""The progress of a stream over a store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchProgress:
    """The last batch that contained messages.

    Attributes:
        number: The number of the batch in its stream.
        rows: The number of messages in the batch.
        archived_to: The commit log offset at which the batch ended.
        log_end: The commit log offset of the end of the log when the batch was planned.
        seconds: The duration of the batch.

    """

    number: int
    rows: int
    archived_to: int
    log_end: int
    seconds: float

    @classmethod
    def of(cls, query: StreamingQuery, batch_rows: Mapping[int, int]) -> Self | None:
        """The last batch, from Spark's `StreamingQueryProgress`; None if that batch had no message.

        `batch_rows` has the messages of batches of which Spark counts something else.
        """
        progress = query.lastProgress
        if progress is None or not progress["numInputRows"]:
            return None
        archived_to = _offset(progress, "endOffset").get("commit_log_offset", -1)
        log_end = _offset(progress, "latestOffset").get("commit_log_offset", archived_to)
        rows = batch_rows.get(progress["batchId"], progress["numInputRows"])
        return cls(progress["batchId"], rows, archived_to, log_end, progress["batchDuration"] / 1000)

    def __str__(self) -> str:
        """The progress as a line for a terminal."""
        return (
            f"{self.rows:,} messages in {self.seconds:.1f} s, up to commit log offset {self.archived_to:,}, "
            f"{self.log_end - self.archived_to:,} bytes before the end of the log"
        )


def stream_offset(query: StreamingQuery) -> dict[str, Any]:
    """The offset of the stream, as in its checkpoint; empty before the first batch."""
    progress = query.lastProgress
    return {} if progress is None else _offset(progress, "endOffset")


def _offset(progress: StreamingQueryProgress, name: str) -> dict[str, Any]:
    # In Spark 4.0, the fields of SourceProgress contain Python's text of an offset, not JSON.
    offset = json.loads(progress.json)["sources"][0].get(name)
    values = json.loads(offset) if isinstance(offset, str) else offset
    return values if isinstance(values, dict) else {}
