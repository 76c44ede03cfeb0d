"""The report of an archive run, for a person and for a program; and the progress of its streams meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spark_mq.job import Report
from spark_mq.tables.table import is_cluster


@dataclass
class ArchiveReport(Report):
    """The counts of one run.

    Attributes:
        cluster, broker: The name of the broker in every row.
        rows: Messages that were appended, and damaged parts of the log.
        keys: Keys of messages that were appended.
        archived_to: The commit log offset of the end of the last archived message; -1 if there is none.
        lost_bytes: Bytes of the log that were gone before they were archived.
        lost_messages: Archived messages that the broker lost; their rows have a store name of their own.
        renamed_messages: Messages that were archived under another name, and got the present one.
        expired_messages: Messages of a running broker that expired before they were archived.
        damaged_rows: Rows of this run that have a `_corrupt_record`. All rows of the store count if the run had no
            checkpoint to continue with, or if the broker lost messages.
        segments: Rows of the segments table that were written.
        snapshot_files: Files of `config/` and checkpoints that were written.
        seconds: The duration of the run, without the start of Spark.
        stages: The seconds of each part of a run that ends by itself.
    """

    store: str
    table: str
    cluster: str
    broker: str
    rows: int = 0
    keys: int = 0
    archived_to: int = -1
    lost_bytes: int = 0
    lost_messages: int = 0
    renamed_messages: int = 0
    expired_messages: int = 0
    damaged_rows: int = 0
    segments: int = 0
    snapshot_files: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the duration of a part of the run."""
        started = time.monotonic()
        yield
        self.stages[name] = round(time.monotonic() - started, 3)

    def add_progress(self, offset: Mapping[str, Any]) -> None:
        """Copy the counts of the last offset of the stream over the store, as in Spark's progress."""
        self.archived_to = offset.get("commit_log_offset", self.archived_to)
        self.lost_bytes = offset.get("lost_bytes", self.lost_bytes)

    def to_text(self) -> str:
        """The report as lines for a terminal, without counts of what did not happen."""
        archived = f"{self.rows:,} with {self.keys:,} keys" if self.rows or self.keys else "0: nothing new"
        end = f"up to commit log offset {self.archived_to:,}" if self.archived_to >= 0 else "no message yet"
        rate = f" ({self.rows / self.seconds:,.0f} rows a second)" if self.rows and self.seconds else ""
        lines = [
            f"{self.store} archived in {self.table} as {self.cluster}/{self.broker}",
            f"  rows appended   {archived}",
            *([] if is_cluster(self.store) else [f"  log             {end}"]),
        ]
        counts = (
            ("segments        ", self.segments, ""),
            ("snapshot        ", self.snapshot_files, " files of config/ and checkpoint"),
        )
        losses = (
            ("damaged         ", self.damaged_rows, " rows have a _corrupt_record: damage of the log, or of a body"),
            ("lost            ", self.lost_bytes, " bytes of the log were gone before they were archived"),
            ("lost            ", self.expired_messages, " messages expired before they were archived"),
            ("lost            ", self.lost_messages, " archived messages are no longer in the log"),
            ("renamed         ", self.renamed_messages, " messages that were archived under another name"),
        )
        lines += [f"  {name}{count:,}{what}" for name, count, what in counts if count]
        lines.append(f"  seconds         {self.seconds:.1f}{rate}")
        return "\n".join([*lines, *(f"  {name}{count:,}{what}" for name, count, what in losses if count)])


@dataclass(frozen=True)
class BatchProgress:
    """The last batch that contained messages, and the end of the log when the batch was planned."""

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
        batch = f"{self.rows:,} messages in {self.seconds:.1f} s"
        if self.archived_to < 0:  # of a running broker
            return batch
        return (
            f"{batch}, up to commit log offset {self.archived_to:,}, {self.log_end - self.archived_to:,} bytes before "
            "the end of the log"
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
