"""What an expiry deleted, or would delete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from spark_mq.expirer.plan import PlannedFile
from spark_mq.io.size_text import size_text
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX
from spark_mq.store.unread import UnreadMessages

_KINDS = {COMMIT_LOG: "segments", CONSUME_QUEUE: "queue files", INDEX: "index files"}
_SHOWN = 10
"""Files of a kind that the text names."""


@dataclass(frozen=True)
class ExpireReport:
    """What was deleted; if `dry_run` is true, what would be deleted.

    Attributes:
        dry_run: Whether nothing was changed.
        log_start: The first offset of the log before.
        new_log_start: The first offset of the log after; -1 for an empty log.
        problems: Why other files were kept, as text for a person.
        unread: The deleted messages that groups have not read; None if that is not known. A group that has no offset in
            a queue is not known.
        unread_problem: Why it is not known who has read the messages.
        is_running: Whether a broker runs on the store now, or another job writes into it; None if that is not known.
    """

    store: str
    dry_run: bool
    log_start: int
    new_log_start: int
    log_end: int
    files: tuple[PlannedFile, ...]
    problems: tuple[str, ...]
    is_running: bool | None = None
    unread: tuple[UnreadMessages, ...] | None = ()
    unread_problem: str = ""

    @property
    def freed_bytes(self) -> int:
        """The sum of the files' sizes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """The report as one JSON object, with all files."""
        fields = {
            "store": self.store,
            "dry_run": self.dry_run,
            "log_start": self.log_start,
            "new_log_start": self.new_log_start,
            "log_end": self.log_end,
            "freed_bytes": self.freed_bytes,
            "files": [{"tree": file.tree, "path": file.path, "size": file.size} for file in self.files],
            "problems": list(self.problems),
            "unread": None if self.unread is None else [asdict(one) for one in self.unread],
            "is_running": self.is_running,
        }
        return json.dumps(fields, ensure_ascii=False)

    def to_text(self) -> str:
        """The report as lines for a terminal; names of files are as the store has them, and not to be trusted."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        would = "would be " if self.dry_run else ""
        if not self.files:
            yield f"{self.store}: no file {'would be' if self.dry_run else 'was'} deleted"
        else:
            count = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
            yield f"{self.store}: {count} {would}deleted, {size_text(self.freed_bytes)}"
        for tree, kind in _KINDS.items():
            yield from _kind(f"{kind}", [file for file in self.files if file.tree == tree])
        if self.new_log_start != self.log_start:
            yield f"  log begins   at commit log offset {self.new_log_start:,}, before at {self.log_start:,}"
        elif self.log_start >= 0:
            yield f"  log begins   at commit log offset {self.log_start:,}, as before"
        for line in unread_lines(self.unread, self.unread_problem):
            yield f"  unread       {line}"
        for problem in self.problems:
            yield f"  kept         {problem}"
        if self.dry_run and self.is_running:
            yield "  lock         a broker runs on the store, or a job writes into it: --apply needs it to be stopped"
        if self.dry_run:
            yield "dry run: nothing was changed; --apply makes the changes"


def unread_lines(unread: Sequence[UnreadMessages] | None, problem: str) -> Iterator[str]:
    """Which groups lose unread messages, a line each; no line if no group does."""
    if unread is None:
        yield f"it is not known which groups lose unread messages: {problem}"
        return
    groups: dict[str, int] = {}
    for one in unread:
        groups[one.consumer_group] = groups.get(one.consumer_group, 0) + one.count
    for group, count in list(groups.items())[:_SHOWN]:
        yield f"consumer group {group} loses {count:,} unread message{'' if count == 1 else 's'}"
    if len(groups) > _SHOWN:
        yield f"{len(groups) - _SHOWN:,} more groups lose {sum(list(groups.values())[_SHOWN:]):,} unread messages"


def _kind(name: str, files: Sequence[PlannedFile]) -> Iterator[str]:
    if files:
        yield f"  {name:<12} {len(files):,}, {size_text(sum(file.size for file in files))}"
    for file in files[:_SHOWN]:
        yield f"    {file.path}"
    if len(files) > _SHOWN:
        yield f"    ... and {len(files) - _SHOWN:,} more, the last is {files[-1].path}"
