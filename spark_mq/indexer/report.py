"""The report of a rebuild, for a person and for a program, and damage as an error or as a part of it."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_mq.errors import CorruptLogError
from spark_mq.format.amounts import size_text
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.job.tasks import ENGINES
from spark_mq.store.config.store_paths import INDEX, ROCKSDB_STORE
from spark_mq.store.log.segment_files import CorruptRange


def raise_or_report(damage: Iterable[CorruptRange], is_permissive: bool) -> tuple[CorruptRange, ...]:
    """The damage for the report, if the mode is permissive or there is none."""
    ranges = tuple(damage)
    if ranges and not is_permissive:
        more = f" ({len(ranges)} such places in all)" if len(ranges) > 1 else ""
        raise CorruptLogError(f"{ranges[0].describe()}{more}; --mode permissive skips and reports what is damaged")
    return ranges


@dataclass(frozen=True)
class Written:
    """What a part of a rebuild has written. The fields are those of `RebuildReport`, and two more.

    `end_timestamp` is the latest one of an index file (ms); `stale_files` are after the end of a continued queue.
    """

    queues: int = 0
    files: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    index_records: int = 0
    bytes_written: int = 0
    files_untouched: int = 0
    files_completed: int = 0
    end_timestamp: int = 0
    corrupt: tuple[CorruptRange, ...] = ()
    topics_left_out: tuple[str, ...] = ()
    carried_over: tuple[str, ...] = ()
    lost_queues: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stale_files: tuple[Location, ...] = ()

    def __add__(self, other: Written) -> Written:
        return Written(*map(operator.add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class RebuildReport(Report):
    """Counts of one rebuild. It is built once, when the rebuild is done.

    Attributes:
        bytes_read: Bytes of the log that this job read.
        files: Queue files that contain messages of the log.
        index_records: Records of the index in RocksDB.
        bytes_written: Bytes of queue files, index files and databases that were written.
        segments_staged_before: Segments that a killed job had staged.
        files_untouched: Existing files that were already complete.
        stages: The duration of each stage, in seconds.
        corrupt: Damage that was skipped.
        topics_left_out: Topics whose names are not safe as names of folders.
        carried_over: Queues without a live message, whose files were kept.
        lost_queues: Queues whose next offset falls back.
        settings: The broker's settings that shape the files, with their sources, a text each.
        backup: The folder with the trees that were replaced; None if nothing was replaced and kept.
        next_boot: What a broker does when it next starts on the store.
        engine: Where the tasks ran: a key of `ENGINES`.
    """

    store: str
    output: str
    trees: list[str] = field(default_factory=list)
    messages: int = 0
    log_bytes: int = 0
    bytes_read: int = 0
    queues: int = 0
    files: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    index_records: int = 0
    bytes_written: int = 0
    segments_staged_before: int = 0
    files_untouched: int = 0
    files_completed: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    corrupt: list[CorruptRange] = field(default_factory=list)
    topics_left_out: list[str] = field(default_factory=list)
    carried_over: list[str] = field(default_factory=list)
    lost_queues: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    backup: str | None = None
    notes: list[str] = field(default_factory=list)
    next_boot: str = ""
    engine: str = "spark"

    @property
    def has_damage(self) -> bool:
        """Whether a part of the log was skipped: a damaged range, a queue offset, or a topic."""
        return bool(self.corrupt or self.topics_left_out)

    def to_text(self) -> str:
        """The report as lines for a terminal; a row that does not apply is left out."""
        rate = self.messages / self.seconds if self.seconds else 0.0
        of_log = f" of {size_text(self.log_bytes)}" if self.bytes_read < self.log_bytes else ""
        lines = [
            f"{' and '.join(self.trees)} of {self.store} rebuilt in {self.output}",
            f"  messages        {self.messages:,}",
        ]
        if any(tree not in (INDEX, ROCKSDB_STORE) for tree in self.trees):
            lines.append(f"  queues          {self.queues:,} with {self.units:,} units in {self.files:,} files")
        if INDEX in self.trees:
            lines.append(f"  index           {self.index_entries:,} entries in {self.index_files:,} files")
        if ROCKSDB_STORE in self.trees:
            lines.append(f"  index           {self.index_records:,} records in RocksDB")
        lines += [
            f"  read            {size_text(self.bytes_read)}{of_log}",
            f"  written         {size_text(self.bytes_written)}",
            f"  seconds         {self.seconds:.1f} {ENGINES[self.engine]} ({rate:,.0f} messages a second)",
        ]
        if self.segments_staged_before or self.files_untouched or self.files_completed:
            lines.append(
                f"  continued       {self.segments_staged_before:,} segments staged before, "
                f"{self.files_untouched:,} files left untouched, {self.files_completed:,} completed"
            )
        lines += [f"  skipped         {corrupt.describe()}" for corrupt in self.corrupt]
        lines += [f"  carried over    {queue}: no live message, files kept as they were" for queue in self.carried_over]
        lines += [f"  next offset lost  {queue}" for queue in self.lost_queues]
        lines += [f"  assumed         {setting}" for setting in self.settings]
        lines += [f"  note            {note}" for note in self.notes]
        if self.backup is not None:
            lines.append(f"  replaced files  are in {self.backup}: remove it when they are no longer needed")
        lines.append(f"  next boot       {self.next_boot}")
        return "\n".join(lines)
