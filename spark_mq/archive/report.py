"""What a run of the archive did, for a person and for a program."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ArchiveReport:
    """Counts of one run. `archived_to` is the commit log offset behind the last message, -1 for none."""

    store: str
    table: str
    cluster: str
    broker: str
    rows: int = 0
    keys: int = 0
    archived_to: int = -1
    lost_bytes: int = 0
    lost_messages: int = 0
    """Archived messages that the broker lost; their rows have a name of their own."""
    renamed_messages: int = 0
    """Messages that were archived under another name, and have this one now."""
    segments: int = 0
    snapshot_files: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of each part of a run that ends by itself."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Take the time of a part."""
        started = time.monotonic()
        yield
        self.stages[name] = round(time.monotonic() - started, 3)

    def add_progress(self, offset: Mapping[str, Any]) -> None:
        """Take in the last offset of the stream over the store, as Spark's progress has it."""
        self.archived_to = offset.get("commit_log_offset", self.archived_to)
        self.lost_bytes = offset.get("lost_bytes", self.lost_bytes)

    def to_json(self) -> str:
        """One JSON object; field names as here."""
        return json.dumps(dataclasses.asdict(self))

    def to_text(self) -> str:
        """Lines for a terminal."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.store} archived in {self.table} as {self.cluster}/{self.broker}",
            f"  rows appended   {self.rows:,} with {self.keys:,} keys",
            f"  log             up to commit log offset {self.archived_to:,}",
            f"  segments        {self.segments:,}; {self.snapshot_files:,} files of config/ and checkpoint",
            f"  seconds         {self.seconds:.1f} ({rate:,.0f} rows a second)",
        ]
        if self.lost_bytes:
            lines.append(f"  lost            {self.lost_bytes:,} bytes of the log were gone before they were archived")
        if self.lost_messages:
            lines.append(f"  lost            {self.lost_messages:,} archived messages are no longer in the log")
        if self.renamed_messages:
            lines.append(f"  renamed         {self.renamed_messages:,} messages that were archived under another name")
        return "\n".join(lines)
