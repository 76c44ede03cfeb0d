"""What the next boot of a broker does to a store, by version: one model of two depths, and the rules of both.

```
store_state, next_recovery          who asks: `state`, `recover`, `check`, `report`, `repair`
   |- next_boot(rules, BootFacts)   quick: sizes and times of files, ends of queues, 256 KiB of the log; no kernels
   `- recovery.next_recoveries      full: the records and units that the boot reads, and the rest of the log
          both fill one `Boot`, by `recovery_start`, `matches_recovery` and `index_outcome` of this module
verdict                             says what is in a `Boot`, for all of them
```

What the quick depth says is a part of what the full one says:

- The segment with which the boot begins, the index files that it deletes, and messages that are gone, are the same. So
  are the parts that are dispatched or lack index entries, up to damage in the log: the boot ends the log there.
- Messages that the quick depth calls lost, or at a wrong queue offset, are so, or they are cut off with the log.
- What it cannot know has no value: `Boot.log_end` and what follows, and entries that are put twice.

The steps are those of `CommitLog.recoverNormally` and `recoverAbnormally`, `isMappedFileMatchedRecover`,
`DefaultMessageStore.load`, `start` and `doRecheckReputOffsetFromCq`, `ConsumeQueue.putMessagePositionInfo`,
`ConsumeQueueStore`, and `IndexService.load`:

- A broker checks the records of the log from one segment on, and cuts the log at the first one that is damaged.
- It dispatches a part of the log again. Queues ignore messages that they have. A message with a queue offset after the
  end of its queue is appended at that end all the same, and then it has a wrong queue offset. The index ignores
  messages before the last one that it has, but puts the keys of that one again.
- After an unclean stop, it first deletes the index files that end after the checkpoint's index time.

The rules changed four times in 4.9.0 to 5.5.1:

| rules | clean stop: which segments are checked | clean stop: which messages are dispatched again |
| --- | --- | --- |
| 4.9 | from the third-last one | those after the last message of any queue |
| 5.0.0 to 5.3.1 | from the third-last one | none; with `recheckReputOffsetFromCq`, as in 4.9 |
| 5.3.2, 5.3.3 | from the last one that starts at or before the end of the queues | those that start after that end |
| 5.4.0 to 5.5.1 | as 5.3.2, if its first record is whole; at most ten (`commitLogRecoverMaxNum`) | as 5.3.2 |

After any other stop, all dispatch the log again from a segment that the checkpoint selects: by its times up to 5.4.0,
by the offset up to which queues were flushed (`logicsPhysicalOffset`) since 5.5.0. Since 5.4.0, both are at most ten
segments. Records of format V2 end the log for brokers before 5.1.0.

Queues in RocksDB have other rules (`starting_queues`): a message gets its unit at its queue offset, or none. After a
crash, too, the check begins with the last segment whose first record is in the dispatched part. 5.4.0 and later also
ask the index and the transactions in RocksDB, if they are enabled (`CommitLogDispatchStore`@5.5.0).

Not modelled: controller mode and `duplicationEnable`, which dispatch only up to a confirmed offset. A boot on a DLedger
log, or with batch consume queues, is modelled in `recovery` only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from spark_mq.format.broker_version import (
    DISPATCHES_AFTER_QUEUE_END,
    DISPATCHES_AT_CLEAN_BOOT,
    MESSAGE_VERSION_2,
    RECOVERS_FROM_FLUSHED_QUEUES,
    RECOVERS_FROM_TENTH_FILE,
    BrokerVersions,
)
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, MAGIC_AT, MAGIC_V1, MAGIC_V2, store_timestamp_of
from spark_mq.store.boot_conditions import BootSettings, LastInDatabase
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.file_states import IndexFileEnd, IndexState, kept_files
from spark_mq.store.lacking_messages import LackingMessage
from spark_mq.store.log.log_range import LogRange

_FILES_BACK = 3
"""A clean boot of 4.9, and of 5.0.0 to 5.3.1, begins with the third-last file."""

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
| delete | deletes a segment, a queue file, an index file or the database of the queues |
| add | counts a unit that no message of the log has |
| dispatch, ignore | dispatches messages again; ignores those of them that their queues have |
| complete, shift, lose | gives messages their unit, a unit at a wrong queue offset, or none |
| double | puts units or index entries a second time |
| lack, skip | leaves messages without index entries; puts no keys of new messages up to an offset |
"""
_NO_ROWS = pa.Table.from_batches([], RECOVERY_SCHEMA)
"""`Schema.empty_table` would import pandas."""


def dispatch_obstacle(commit_log_offset: int) -> str:
    """Why a broker does not start that dispatches a message which `format.dispatch.fails_dispatch`."""
    return (
        f"the dispatch of the message at commit log offset {commit_log_offset:,} fails (NumberFormatException): one of "
        "its offsets in INNER_MULTI_QUEUE_OFFSET is not a number, as of a message that names a plain topic and a light "
        "message queue in INNER_MULTI_DISPATCH. Start the broker once with enableMultiDispatch=false, and stop it "
        "cleanly; `spark-mq repair` then adds the units that light message queues lack"
    )


@dataclass(frozen=True)
class SegmentHead:
    """The beginning of a segment: its first offset, and fields of its first record."""

    base: int
    magic: int
    store_timestamp: int
    commit_log_offset: int = 0
    is_whole: bool = True

    @classmethod
    def of(cls, base: int, data: bytes, *, is_whole: bool = True) -> Self:
        """The beginning of the segment whose first `HEAD_SIZE` bytes are `data`."""
        magic = int.from_bytes(data[MAGIC_AT : MAGIC_AT + 4], "big", signed=True)
        offset = int.from_bytes(data[COMMIT_LOG_OFFSET_AT : COMMIT_LOG_OFFSET_AT + 8], "big", signed=True)
        return cls(base, magic, store_timestamp_of(data) or 0, offset, is_whole)


@dataclass(frozen=True)
class BootFacts:
    """The facts about a store on which a boot depends.

    Attributes:
        log_end: The offset at which recovery ends the log, if no record before it is damaged.
        segments: The first offset of each file of `commitlog/`, in order; also of files created in advance.
        heads: The beginnings of the newest segments, the newest first, down to one with which the recovery begins.
        queue_end: The largest offset after a message that a queue's last unit points to, whether live or not
            (`ConsumeQueueStore.getMaxPhyOffsetInConsumeQueue`@5.3.3); -1 without queues. Of queues in RocksDB, it is
            that of the table of ends; 0 without one.
        live_queue_end: The same of units before `log_end`.
        next_queue_offsets: The queue offset after the end of each queue that lacks messages and has files.
        revived: The number of old records after the live end that the broker takes for live ones.
        read_from: The commit log offset from which on the log was read.
        fails_at: The commit log offset of the first message, of those that were read, whose dispatch fails.
        light_end: Of light message queues in RocksDB beside files: the commit log offset up to which messages were
            dispatched to them; 0 without one. None if there are no such queues.
    """

    is_clean: bool
    log_start: int
    log_end: int
    segments: tuple[int, ...]
    heads: tuple[SegmentHead, ...] = ()
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    queue_end: int = -1
    live_queue_end: int = -1
    lacking: tuple[LackingMessage, ...] = ()
    next_queue_offsets: Mapping[Queue, int] = field(default_factory=dict)
    index: IndexState | None = None
    cut_index_ends: frozenset[str] = frozenset()
    settings: BootSettings = field(default_factory=BootSettings)
    gone: int = 0
    revived: int = 0
    missing_bytes: int = 0
    read_from: int = 0
    has_rocksdb_queues: bool = False
    light_end: int | None = None
    fails_at: int | None = None
    last_in_database: LastInDatabase = field(default_factory=LastInDatabase)

    @property
    def is_index_known(self) -> bool:
        """Whether the index files can be read: the files or the broker's settings tell their slots and entries."""
        return self.index is None or self.index.unknown_layout is None

    def dispatched_since(self, rules: BrokerVersions) -> int:
        """The commit log offset from which on a clean boot dispatches (`DefaultMessageStore.recover`@5.5.0)."""
        others = self.last_in_database.asked_by(rules) if rules.decide(RECOVERS_FROM_FLUSHED_QUEUES) else ()
        queue_end = self.queue_end if self.light_end is None else min(self.queue_end, self.light_end)
        return min([queue_end, *(last for last in others if last > 0)]) + 1


@dataclass(frozen=True)
class QueueOutcome:
    """What a boot does to a queue that lacks messages.

    Attributes:
        shifted: The number of lacking messages that get a unit at a wrong, lower queue offset.
    """

    topic: str
    queue_id: int
    completed: int
    shifted: int
    lost: int
    first_lost_offset: int | None


@dataclass(frozen=True)
class Boot:
    """What a boot by certain rules does.

    Attributes:
        recovers_from: The first offset of the segment from which records are checked; None without segments, or if the
            files do not tell.
        unindexed: The part of the log whose messages lack index entries after the boot; None if there is none.
        deleted: The number of messages that get no unit, or one at a wrong queue offset, and whose topic was deleted,
            as far as files show: `queues` does not count them.
        damaged_bytes: Bytes of the log before its live end that are not records, or that no segment has.
        queues_cut_at: The commit log offset from which on queues lose the units that they have, although the log goes
            on (`DLEDGER_DISPATCHES_AFTER_CRASH`); None if they do not.
        is_full: Whether the whole log was read, and each record that the broker checks (`recovery`). Otherwise the
            numbers are what the end of the log shows: at least that many. And parts of the log end where it ends now:
            damage, of which nothing is known, can end them earlier.
        is_index_known: Whether the index files could be read; else `unindexed` is None without a meaning.
        doubled_entries: The number of index entries that are put a second time; 0 without the whole log.
        obstacles: Why the broker does not start, as far as the read files show.
        log_end: The commit log offset at which the broker ends the log. It, and what follows, is not known without the
            whole log: None then.
        end_reason: What is at that offset.
        checked: The number of records that are checked and accepted.
        max_offsets: The queue offset after the last unit of each queue, by topic and queue id, as the broker then has
            them.
        rows: Each thing that is done, in order, with the columns of `RECOVERY_SCHEMA`.
    """

    rules: BrokerVersions
    is_clean: bool
    recovers_from: int | None = None
    dispatched: tuple[LogRange, ...] = ()
    deleted_index_files: tuple[str, ...] = ()
    unindexed: LogRange | None = None
    queues: tuple[QueueOutcome, ...] = ()
    deletes_queues: bool = False
    cut_bytes: int = 0
    cut_messages: int = 0
    revived: int = 0
    gone: int = 0
    deleted: int = 0
    damaged_bytes: int = 0
    queues_cut_at: int | None = None
    is_full: bool = False
    is_index_known: bool = True
    doubled_entries: int = field(default=0, compare=False)
    obstacles: tuple[str, ...] = field(default=(), compare=False)
    log_end: int | None = field(default=None, compare=False)
    end_reason: str | None = field(default=None, compare=False)
    checked: int | None = field(default=None, compare=False)
    max_offsets: Mapping[Queue, int] = field(default_factory=dict, compare=False)
    rows: pa.Table = field(default_factory=lambda: _NO_ROWS, compare=False)

    @property
    def lost(self) -> int:
        """The number of messages that their queue lacks after the boot; one counts once for each of its queues."""
        return sum(queue.lost for queue in self.queues)

    @property
    def shifted(self) -> int:
        """The number of messages that get a wrong queue offset."""
        return sum(queue.shifted for queue in self.queues)

    @property
    def completed(self) -> int:
        """The number of messages that get the unit that they lack."""
        return sum(queue.completed for queue in self.queues)

    @property
    def loses_no_message(self) -> bool:
        """Whether all messages are in the log, and in their queues unless these were deleted, after the boot."""
        harm = self.lost, self.shifted, self.cut_bytes, self.revived, self.gone, self.damaged_bytes
        return not (any(harm) or self.deletes_queues)

    @property
    def loses_nothing(self) -> bool:
        """Whether all messages are in the log, in their queues and in the index after the boot."""
        return self.loses_no_message and self.is_index_known and self.unindexed is None

    @property
    def is_harmless(self) -> bool:
        """Whether the broker starts, and all live messages are then in the log, in their queues and in the index."""
        return self.is_full and self.loses_nothing and not self.obstacles

    @property
    def at_least(self) -> str:
        """`at least` before a number of messages, if not the whole log was read."""
        return "" if self.is_full else "at least "


def next_boot(rules: BrokerVersions, facts: BootFacts) -> Boot:
    """What a boot by `rules` does to the store that has these facts."""
    if not facts.segments:
        return Boot(rules, facts.is_clean, deletes_queues=True, gone=facts.gone)
    recovers_from = recovery_start(rules, facts)
    dispatched = tuple(part for part in _dispatched(rules, facts, recovers_from) if part.size > 0)
    deleted, unindexed = index_outcome(facts, dispatched)
    fails_at = facts.fails_at if facts.settings.dispatches_to_light_queues else None
    if fails_at is not None and not any(fails_at in part for part in dispatched):
        fails_at = None
    return Boot(
        rules,
        facts.is_clean,
        recovers_from,
        dispatched,
        deleted,
        unindexed,
        _queues(facts, dispatched),
        revived=facts.revived,
        gone=facts.gone,
        damaged_bytes=facts.missing_bytes,
        is_index_known=facts.is_index_known,
        obstacles=() if fails_at is None else (dispatch_obstacle(fails_at),),
    )


def matches_recovery(head: SegmentHead, facts: BootFacts, rules: BrokerVersions) -> bool:
    """Whether a recovery can begin with the segment (`CommitLog.isMappedFileMatchedRecover`).

    Up to 5.3.3 it is asked after an unclean stop only, and compares times with those of the checkpoint. A record of V2
    is accepted since 5.1.0. Since 5.4.0 the record must be whole, and after a clean stop its offset is compared with
    the end of the queues. Since 5.5.0 it is compared with the checkpoint's `logicsPhysicalOffset` after an unclean one.
    """
    magics = (MAGIC_V1, MAGIC_V2) if rules.decide(MESSAGE_VERSION_2) else (MAGIC_V1,)
    if head.magic not in magics:
        return False
    if facts.has_rocksdb_queues and not rules.decide(RECOVERS_FROM_TENTH_FILE):
        return head.commit_log_offset <= facts.queue_end
    if head.store_timestamp == 0:
        return False
    checkpoint, time = facts.checkpoint, head.store_timestamp
    is_safe = facts.settings.message_index_enable and facts.settings.message_index_safe
    if is_safe and time > checkpoint.index_msg_timestamp:
        return False
    if not rules.decide(RECOVERS_FROM_TENTH_FILE):
        return time <= checkpoint.min_timestamp
    if not head.is_whole or any(head.commit_log_offset > last for last in facts.last_in_database.asked_by(rules)):
        return False
    if facts.light_end and head.commit_log_offset > facts.light_end:
        return False
    if facts.is_clean or facts.has_rocksdb_queues:
        return head.commit_log_offset <= facts.queue_end
    if not rules.decide(RECOVERS_FROM_FLUSHED_QUEUES):
        return time <= checkpoint.min_timestamp
    if checkpoint.logics_physical_offset <= 0:
        return time <= checkpoint.logics_msg_timestamp
    return head.commit_log_offset <= checkpoint.logics_physical_offset


def newest_heads(heads: Iterable[SegmentHead], is_first: Callable[[SegmentHead], bool]) -> tuple[SegmentHead, ...]:
    """The beginnings of segments, given the newest first, down to the first one with which the recovery begins."""
    found = []
    for head in heads:
        found.append(head)
        if is_first(head):
            break
    return tuple(found)


def recovery_start(rules: BrokerVersions, facts: BootFacts) -> int:
    """The first offset of the segment with which the check of the log begins."""
    first = facts.segments[0]
    from_tenth = rules.decide(RECOVERS_FROM_TENTH_FILE)
    if facts.is_clean and not rules.decide(DISPATCHES_AFTER_QUEUE_END):
        return facts.segments[max(len(facts.segments) - _FILES_BACK, 0)]
    if facts.is_clean and not from_tenth:
        return facts.segments[max(bisect_right(facts.segments, facts.queue_end) - 1, 0)]
    most = facts.settings.commit_log_recover_max_num if from_tenth else len(facts.segments)
    for number, head in enumerate(facts.heads, start=1):
        if number == most or matches_recovery(head, facts, rules):
            return head.base
    return first


def _dispatched(rules: BrokerVersions, facts: BootFacts, recovers_from: int) -> list[LogRange]:
    if not facts.is_clean:
        return [LogRange(recovers_from, facts.log_end)]
    # Units at or after the end of the log are cut off before 4.9 looks for the last message of the queues.
    queue_end = facts.queue_end if facts.queue_end < facts.log_end else facts.live_queue_end
    since_queue_end = LogRange(max(queue_end, facts.log_start), facts.log_end)
    if rules.decide(DISPATCHES_AT_CLEAN_BOOT):
        return [since_queue_end]
    if not rules.decide(DISPATCHES_AFTER_QUEUE_END):
        return [since_queue_end] if facts.settings.recheck_reput_offset_from_cq else []
    after = LogRange(max(facts.dispatched_since(rules), recovers_from), facts.log_end)
    # With the setting, messages after the queues' new end are dispatched. It is the log's end if one was appended.
    is_last = not any(message.commit_log_offset in after for message in facts.lacking)
    return [since_queue_end if facts.settings.recheck_reput_offset_from_cq and is_last else after]


def _queues(facts: BootFacts, dispatched: Sequence[LogRange]) -> tuple[QueueOutcome, ...]:
    by_queue: dict[Queue, list[LackingMessage]] = {}
    for message in facts.lacking:
        by_queue.setdefault((message.topic, message.queue_id), []).append(message)
    is_all_known = all(part.start >= facts.read_from for part in dispatched)
    outcomes = []
    for queue, messages in sorted(by_queue.items()):
        end = facts.next_queue_offsets.get(queue)
        if end is not None and not is_all_known:
            end = max(end, messages[0].queue_offset)  # the messages before it can be completed, too
        is_light = queue[0].startswith(LIGHT_PREFIX)
        by_offset = facts.has_rocksdb_queues or (facts.light_end is not None and is_light)
        parts = dispatched if facts.settings.dispatches_to_light_queues or not is_light else ()
        outcomes.append(_outcome(queue, messages, end, parts, by_offset=by_offset))
    return tuple(outcomes)


def _outcome(
    queue: Queue,
    messages: Sequence[LackingMessage],
    end: int | None,
    dispatched: Sequence[LogRange],
    *,
    by_offset: bool,
) -> QueueOutcome:
    """The outcome of a queue whose next queue offset is `end`; None if it has no files. In RocksDB, it is `by_offset`.

    `ConsumeQueue.putMessagePositionInfo`@5.3.3, as in 4.9: a queue offset before the end is ignored; a queue without
    files begins with the first message, whatever its queue offset.
    """
    completed = shifted = 0
    lost = []
    for message in messages:
        is_dispatched = any(message.commit_log_offset in part for part in dispatched)
        if not is_dispatched or (end is not None and message.queue_offset < end and not by_offset):
            lost.append(message.commit_log_offset)
        elif by_offset or end is None or message.queue_offset == end:
            completed, end = completed + 1, message.queue_offset + 1
        else:
            shifted, end = shifted + 1, end + 1
    return QueueOutcome(*queue, completed, shifted, len(lost), min(lost, default=None))


def index_outcome(
    facts: BootFacts,
    dispatched: Sequence[LogRange],
    find_lacking: Callable[[Sequence[IndexFileEnd], int], LogRange | None] | None = None,
) -> tuple[tuple[str, ...], LogRange | None]:
    """The deleted files, and the part of the log that the index then lacks.

    Args:
        find_lacking: Finds what files lack before an offset (`lacking_entries`); None to judge by their edges.
    """
    index = facts.index
    if index is None:
        return (), None
    kept = list(index.files) if facts.is_clean else kept_files(index.files, facts.checkpoint.index_msg_timestamp)
    deleted = tuple(file.name for file in index.files if file not in kept)
    if not facts.settings.writes_index_files:
        return deleted, None
    end = kept[-1].end_offset if kept else 0
    start = min((part.start for part in dispatched), default=facts.log_end)
    start = max(start, min(end, facts.log_end))  # the index ignores messages before its end
    if find_lacking is not None and facts.is_index_known:
        found = find_lacking(kept, start)
        return deleted, None if found is None else LogRange(found.start, start)
    if deleted:
        is_whole = not kept or kept[-1].name not in facts.cut_index_ends
        covered_to = max(end + is_whole if kept else facts.log_start, facts.log_start)
        lacks = covered_to < start
    else:
        covered_to = index.covered_to
        lacks = facts.is_index_known and any(offset < start for offset in index.lacking)
    return deleted, LogRange(covered_to, start) if lacks else None
