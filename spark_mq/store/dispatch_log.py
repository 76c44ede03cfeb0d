"""What a start of a broker dispatches, and what happens to each message and queue, as rows of `recover`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int32s, Int64s, is_in
from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LITE_PREFIX
from spark_mq.format.kernels.recovery import PutResult, put_keys_again
from spark_mq.store.boot import RECOVERY_SCHEMA, QueueOutcome
from spark_mq.store.dispatch_requests import ANYWHERE, NOWHERE, DispatchRequests
from spark_mq.store.lacking_scan import WithoutUnit
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.starting_queues import StartingQueues

_NO_OFFSETS = np.empty(0, np.int64)


class RecoveryRows:
    """Rows of `RECOVERY_SCHEMA`, in the order in which they are added."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []

    def add(self, action: str, target: str, reason: str = "", **values: object) -> None:
        """Add a row; `values` are those of other columns."""
        row = {"action": action, "target": target, "reason": reason or None, **values}
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        # Lone surrogates stand for bytes of a file's name that are not UTF-8.
        self._rows.append(row | {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()})

    def to_table(self) -> pa.Table:
        """The rows."""
        return table_of(self._rows, RECOVERY_SCHEMA)


class DispatchLog:
    """What was dispatched, and what happened to each message.

    Attributes:
        fails_at: The commit log offset of the first message whose dispatch fails.
    """

    def __init__(self, queues: StartingQueues, rows: RecoveryRows, has_light_queues: bool) -> None:
        """With `has_light_queues`, the broker dispatches to light message queues."""
        self._has_light_queues = has_light_queues
        self.ranges: list[LogRange] = []
        self.fails_at: int | None = None
        self._queues = queues
        self._rows = rows
        self._read: list[DispatchRequests] = []
        self._dispatched: list[DispatchRequests] = []
        self._results: list[Int32s] = []

    def dispatch(
        self, read: DispatchRequests, part: LogRange, reason: str, since: int = ANYWHERE, cut_at: int = NOWHERE
    ) -> None:
        """Dispatch the messages that were read and state an offset from `since` on; `part` is where they are.

        Args:
            cut_at: The commit log offset from which on queues do not keep their units.
        """
        is_dispatched = read.commit_log_offset >= since
        if not self._has_light_queues:
            is_dispatched &= read.rank == 0
        self._read.append(read)
        self._results.append(self._queues.put(read, is_dispatched & (read.commit_log_offset < cut_at)))
        dispatched = read if is_dispatched.all() else read.take(is_dispatched)
        self._dispatched.append(dispatched)
        if part.size > 0:
            self.ranges.append(part)
        if self._has_light_queues and dispatched.fails.any() and self.fails_at is None:
            self.fails_at = int(dispatched.position[dispatched.fails][0])
        if dispatched.position.size:
            records = dispatched.records()
            size, first, count = int(records.store_size.sum(dtype=np.int64)), records.position[0], records.position.size
            self._rows.add("dispatch", "log", reason, commit_log_offset=int(first), bytes=size, count=count)

    def cut(self, number: int) -> None:
        """Note that the units of a queue that were put so far are cut off."""
        for read, results in zip(self._read, self._results, strict=True):
            results[(read.queue == number) & (results > PutResult.IGNORED)] = PutResult.IGNORED

    def doubled_entries(self, index_end: int, known: Int64s, entries: Int64s, has_tags: bool) -> tuple[int, int]:
        """The number of index entries that are put a second time, and the commit log offset of the first such message.

        Args:
            index_end: The commit log offset of the last message in the index; 0 without one.
            known: The commit log offsets from there on that the entries of files have, in order.
            entries: The number of entries with each of them.
            has_tags: Whether tags have entries.
        """
        counts = [part.key_count + part.has_tags if has_tags else part.key_count for part in self._dispatched]
        offsets = [part.commit_log_offset for part in self._dispatched]
        return put_keys_again(np.concatenate(offsets), np.concatenate(counts), index_end, known, entries)

    def outcomes(self, lacking: Mapping[Queue, WithoutUnit], old_from: int) -> tuple[tuple[QueueOutcome, ...], int]:
        """What happens to the queues that lack messages.

        Args:
            old_from: The commit log offset from which on records are old: one that gets no unit is not lost.

        The outcomes, and the number of messages whose topic was deleted; lite topics, which expire, do not count.
        """
        all_lacking = [messages.commit_log_offset for messages in lacking.values()]
        offsets_of_all = np.concatenate([_NO_OFFSETS, *all_lacking])
        is_early = np.ones(offsets_of_all.size, np.bool_)
        for one in self._read:
            is_early &= ~is_in(offsets_of_all, one.position)
        parts = np.split(is_early, np.cumsum([offsets.size for offsets in all_lacking], dtype=np.int64))
        early = {name: messages.take(part) for (name, messages), part in zip(lacking.items(), parts, strict=False)}
        read, results, was_there, ignored = self._without_usual()
        if ignored:
            self._rows.add("ignore", "queue", "their queues have them", count=ignored)
        again = was_there & (results > PutResult.IGNORED)
        self._add_rows("double", read, again, "they get a second unit")
        got, shifted, is_first = results == PutResult.APPENDED, results == PutResult.SHIFTED, read.has_unit
        if sum(part.position.size > 0 for part in self._read) > 1:  # the same messages can be in both
            got, shifted = (is_in(read.place, read.place[chosen]) for chosen in (got, shifted))
            is_first = np.zeros(read.position.size, np.bool_)
            is_first[np.unique(read.place, return_index=True)[1]] = True
        lacked = is_first & ~was_there
        completed, moved = lacked & got, lacked & ~got & shifted
        lost = lacked & ~got & ~shifted & (read.position < old_from)
        self._add_rows("complete", read, completed, "they get the unit that they lack")
        self._add_rows("shift", read, moved, "they get a unit, but not at their queue offset")
        of_deleted = [messages.place[messages.is_deleted] for messages in lacking.values()]
        is_deleted = (lost | moved) & is_in(read.place, np.concatenate([_NO_OFFSETS, *of_deleted]))
        lost, moved = lost & ~is_deleted, moved & ~is_deleted
        counts = {
            name: np.bincount(read.queue[chosen], minlength=len(self._queues.names))
            for name, chosen in (("completed", completed), ("shifted", moved), ("lost", lost))
        }
        first_lost = np.full(len(self._queues.names), NOWHERE)
        np.minimum.at(first_lost, read.queue[lost], read.commit_log_offset[lost])
        are_lite = np.array([topic.startswith(LITE_PREFIX) for topic, _ in self._queues.names], np.bool_)
        deleted = int((is_deleted & ~are_lite[read.queue]).sum()) + sum(
            int(messages.is_deleted.sum())
            for (topic, _), messages in early.items()
            if not topic.startswith(LITE_PREFIX)
        )
        if deleted:
            self._rows.add("lack", "queue", "their topic was deleted, as far as files show", count=deleted)
        numbers = np.flatnonzero(counts["completed"] + counts["shifted"] + counts["lost"])
        by_name = {self._queues.names[number]: number for number in numbers.tolist()}
        outcomes = []
        lost_early = {name: messages.commit_log_offset[~messages.is_deleted] for name, messages in early.items()}
        for name in sorted(by_name.keys() | {name for name, offsets in lost_early.items() if offsets.size}):
            number, offsets = by_name.get(name), lost_early.get(name, _NO_OFFSETS)
            done = {kind: 0 if number is None else int(values[number]) for kind, values in counts.items()}
            count, first = offsets.size + done["lost"], int(offsets.min(initial=NOWHERE))
            first = first if number is None else min(first, int(first_lost[number]))
            if count:
                self._rows.add(
                    "lose",
                    "queue",
                    "they get no unit: no consumer gets them",
                    topic=name[0],
                    queue_id=name[1],
                    commit_log_offset=first,
                    count=count,
                )
            outcomes.append(QueueOutcome(*name, done["completed"], done["shifted"], count, first if count else None))
        return tuple(outcomes), deleted

    def _without_usual(self) -> tuple[DispatchRequests, Int32s, Flags, int]:
        """The messages that lack a unit or get one, what happened to them, and which of them had one.

        The number is that of the other messages that were dispatched: their queues ignore them.
        """
        parts, ignored = [], 0
        for read, results in zip(self._read, self._results, strict=True):
            was_there = self._queues.are_there(read)
            ignored += int((was_there & (results == PutResult.IGNORED) & (read.rank == 0)).sum())
            kept = (read.has_unit & ~was_there) | (results > PutResult.IGNORED)
            parts.append((read.take(kept), results[kept], was_there[kept]))
        reads, results_of, there = zip(*parts, strict=True)
        return DispatchRequests.concatenate(reads), np.concatenate(results_of), np.concatenate(there), ignored

    def _add_rows(self, action: str, read: DispatchRequests, chosen: Flags, reason: str) -> None:
        indices = np.flatnonzero(chosen)
        numbers, firsts, counts = np.unique(read.queue[indices], return_index=True, return_counts=True)
        for number, first, count in zip(numbers.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            topic, queue_id = self._queues.names[number]
            message = int(indices[first])
            self._rows.add(
                action,
                "queue",
                reason,
                topic=topic,
                queue_id=queue_id,
                queue_offset=int(read.queue_offset[message]),
                commit_log_offset=int(read.commit_log_offset[message]),
                count=count,
            )
