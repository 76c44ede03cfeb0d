"""The report of a restore, for a person and for a program."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_mq.format.amounts import size_text
from spark_mq.job import Report
from spark_mq.job.tasks import ENGINES


@dataclass(frozen=True)
class RestoreReport(Report):
    """What was restored. It is built once, when the store is in place.

    Attributes:
        store: The store that was made, or continued.
        mode: `faithful`, `compact` or `append`.
        log_start: The commit log offset of the first segment that has new messages.
        gaps: Ranges of the log whose messages were left out, filled with left-out records.
        raised: Messages whose store time was raised to that of the message before them.
        backup: The new name of the store that was replaced; None if none was.
        offset_map: The folder with the old and the new offsets; None if no offset changed.
        settings: The broker's settings that shape the files, a text each.
        notes: What a user has to know, a sentence each.
        stages: The duration of each stage, in seconds.
        engine: Where the tasks ran: a key of `ENGINES`.
    """

    source: str
    store: str
    mode: str
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    segments: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    queues: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_entries: int = 0
    raised: int = 0
    backup: str | None = None
    offset_map: str | None = None
    settings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    engine: str = "spark"

    def to_text(self) -> str:
        """The report as lines for a terminal; a row that does not apply is left out."""
        verb = "appended to" if self.mode == "append" else "restored to"
        rate = self.messages / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.source} {verb} {self.store} ({self.mode})",
            f"  messages        {self.messages:,}",
            f"  commit log      {self.log_start:,} to {self.log_end:,} in {self.segments:,} segments",
            f"  queues          {self.queues:,} in {self.queue_files:,} files",
            f"  index           {self.index_entries:,} entries in {self.index_files:,} files",
        ]
        if self.gaps:
            lines.append(f"  left out        {self.gaps:,} ranges of the log, {size_text(self.gap_bytes)}")
        if self.raised:
            lines.append(f"  store times     {self.raised:,} raised to that of the message before")
        if self.backup is not None:
            lines.append(f"  replaced store  is in {self.backup}: remove it when it is no longer needed")
        if self.offset_map is not None:
            lines.append(f"  offsets         old and new ones are in {self.offset_map}")
        lines.append(f"  seconds         {self.seconds:.1f} {ENGINES[self.engine]} ({rate:,.0f} messages a second)")
        lines += [f"  assumed         {setting}" for setting in self.settings]
        lines += [f"  note            {note}" for note in self.notes]
        return "\n".join(lines)
