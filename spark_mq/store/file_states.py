"""The states of segments, consume queues and index files, and their damage, from a quick check of their edges.

Only a whole read finds damage in the middle of a segment (table `messages`, `spark-mq rebuild`). Of each segment, the
beginning is read, and the bytes before its end:

- A segment begins with a record that stores the segment's offset, or with a blank.
- A segment before the one with the live end ends with a blank (`CommitLog.DefaultAppendMessageCallback`@5.3.3): eight
  bytes that contain the number of bytes left. The blank is searched for in the last 64 MiB, and usually found in the
  last few KiB.
- All segments have one size, and each segment begins at the end of the one before it.

Only a whole read of the log proves that its queues are complete (`spark-mq rebuild`). Read are a few units and record
heads of each queue, and at most `TAIL_SIZE` bytes of the log:

- The first and the last unit that a broker would offer must lead to a record of the queue.
- The files of a queue must follow each other, and have one size.
- Each message in the last `TAIL_SIZE` bytes of the log must have its unit (`lacking_messages`).
- A consumer group cannot be past the end of a queue (`config/consumerOffset.json`).
- No unit may lead past the end of the log, except to an old record (`lacking_messages`).

So the check does not notice units that were lost or changed in the middle of a queue, nor a lost queue whose last
message is older and that no group consumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from pyarrow import fs

from spark_mq.errors import CorruptIndexError, CorruptLogError, OptionError
from spark_mq.format.amounts import counted
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import record_keys
from spark_mq.format.dledger import BLANK_MAGIC
from spark_mq.format.record import BLANK_SIZE, MAGIC_AT, MAX_BLANK_SIZE, STORED_BLANK_MAGIC, Record, is_blank
from spark_mq.store.config.config_file import configured_topics, consumed_offsets
from spark_mq.store.config.store_kind import log_folders
from spark_mq.store.config.store_paths import mapped_files
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.index.folder import index_end, index_files, index_layout
from spark_mq.store.lacking_messages import TAIL_SIZE, find_gone_messages, find_lacking_messages, leads_to_its_message
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.log.segment_files import STRAY, usual_size
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue

_FIRST_LOOK = 64 << 10
_LOOK_FACTOR = 16
_ENTRY_BLANK = BLANK_MAGIC.to_bytes(4, "big", signed=True)


@dataclass(frozen=True)
class IndexFileEnd:
    """The end of one index file, as its header states it; all are 0 if the file is too short for a header.

    Attributes:
        next_entry: The number of the next entry: 1 if the file has no entry.
    """

    name: str
    end_timestamp: int
    end_offset: int
    next_entry: int


@dataclass(frozen=True)
class IndexState:
    """How far the index covers the log.

    Attributes:
        covered_to: The commit log offset up to which the valid files cover the log; the log's start without such files.
        lacking: The commit log offsets of the messages in that part that have keys, and so lack entries.
        unknown_layout: Why the files could not be read: nothing shows their slots and entries. Then `covered_to` and
            `lacking` tell nothing. None if they could be read.
    """

    files: tuple[IndexFileEnd, ...]
    covered_to: int
    covered_timestamp: int | None
    checked: LogRange
    lacking: tuple[int, ...]
    log_end: int
    problems: tuple[str, ...]
    unknown_layout: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all of the log after `covered_to` was read."""
        return self.checked.stop >= self.log_end


def index_state(store: MessageStore, flushed_timestamp: int | None = None) -> IndexState:
    """How far the index files of a store cover its log. Files that contradict the log are not used.

    Args:
        flushed_timestamp: Files that end later were perhaps not flushed to the disk (`Checkpoint.index_msg_timestamp`):
            what files lack is looked up (`lacking_entries`). None to look at the edges of files only.
    """
    covering = [part for part in store.index.parts if isinstance(part, IndexedRange)]
    end = store.get_max_phy_offset()
    covered_to = max((part.stop for part in covering), default=max(store.get_min_phy_offset(), 0))
    start, flushed, counts = covered_to, [], None
    if flushed_timestamp is not None and _unknown_layout(store) is None:
        # The kernels take half a second.
        from spark_mq.store.lacking_entries import count_entries, find_lacking_entries

        names = {file.name for file in index_files(store.location)}
        found = find_lacking_entries(store, names, end, flushed_timestamp)
        covered_to, start = (max(covered_to, end),) * 2 if found is None else (found.start, found.stop)
        flushed = [part for part in covering if part.header.end_timestamp <= flushed_timestamp]
        counts = None if found is None else count_entries(store, LogRange(start, min(end, start + TAIL_SIZE)))
    checked = LogRange(start, max(start, min(end, start + TAIL_SIZE)))
    lacking, reached = [], checked.start
    try:
        for record in store.records.iterate(checked):
            reached = record.commit_log_offset
            there = 0 if counts is None else counts[reached]
            if there < len(record_keys(record)) and not any(part.start <= reached < part.stop for part in flushed):
                lacking.append(reached)
    except CorruptLogError:
        checked = LogRange(checked.start, reached)  # table `segments` reports damage of the log
    return IndexState(
        tuple(
            IndexFileEnd(file.name, header.end_timestamp, header.end_commit_log_offset, header.next_entry)
            for file in index_files(store.location)
            for header in [file.stored_header()]
        ),
        covered_to,
        covering[-1].header.end_timestamp if covering else None,
        checked,
        tuple(lacking),
        end,
        tuple(dict.fromkeys(store.index.problems)),
        _unknown_layout(store),
    )


def _unknown_layout(store: MessageStore) -> str | None:
    try:
        index_layout(store.location, store.broker_conf)
    except OptionError as error:
        return str(error)
    return None


def kept_files(files: Sequence[IndexFileEnd], index_msg_timestamp: int) -> list[IndexFileEnd]:
    """The files that a broker keeps when it recovers after an unclean stop (`IndexService.load`@5.3.3, as in 4.9)."""
    return [file for file in files if file.end_timestamp <= index_msg_timestamp]


def cut_index_ends(store: MessageStore, index: IndexState, index_msg_timestamp: int) -> frozenset[str]:
    """The last file that a broker keeps after a clean stop, and after another one, if the next file has entries of its
    last message, too.
    """
    kept = [index.files, kept_files(index.files, index_msg_timestamp)]
    return frozenset(files[-1].name for files in kept if files and _is_cut(store, files))


def _is_cut(store: MessageStore, kept: Sequence[IndexFileEnd]) -> bool:
    record = store.records.find(kept[-1].end_offset) if max(file.next_entry for file in kept) > 1 else None
    names = {file.name for file in kept}
    files = index_files(store.location)
    infos = [info for info in files if info.name in names]
    try:
        end = index_end(infos, index_layout(store.location, store.broker_conf, files))
    except (CorruptIndexError, OptionError):
        return False
    return record is not None and end is not None and len(end.key_hashes) < len(record_keys(record))


@dataclass(frozen=True)
class SegmentState:
    """A file of the log that has the name of a segment; `path` is its path in the store."""

    path: str
    info: fs.FileInfo
    base: int | None
    name: str
    problem: str | None
    first: Record | None


def segment_states(store: MessageStore) -> list[SegmentState]:
    """The states of the files of the log that have the name of a segment, by name."""
    infos = {
        f"{folder}/{info.base_name}": info
        for folder in log_folders(store.location)
        for info in mapped_files((store.location / folder).entries())
    }
    stray = {file.file.removeprefix(f"{store.location}/"): file.reason for file in store.records.stray}
    usual = usual_size([info for path, info in infos.items() if path not in stray])
    states = []
    end: int | None = None
    for path, info in infos.items():
        if path in stray:
            states.append(SegmentState(path, info, None, STRAY, stray[path], None))
            continue
        base, live_end = int(info.base_name), store.get_max_phy_offset()
        first = store.find_record(store.records.after_heads(base)) if info.size else None
        damage = list(_segment_damage(store, info, first)) if info.size else []
        problems = list(_misfits(info, usual, end)) + damage
        name = _state_name(info.size, usual, base, live_end)
        if damage and name in ("FULL", "APPENDING", "BEHIND"):
            name = "DAMAGED"
        record = first if isinstance(first, Record) else None
        states.append(SegmentState(path, info, base, name, "; ".join(problems) or None, record))
        if info.size:
            end = int(info.base_name) + info.size
    return states


def _state_name(size: int, usual: int, base: int, live_end: int) -> str:
    if size == 0:
        return "EMPTY"
    if size != usual:
        return "WRONG_SIZE"
    if base + size <= live_end:
        return "FULL"
    return "APPENDING" if base <= live_end else "BEHIND"


def _misfits(info: fs.FileInfo, usual: int, end_before: int | None) -> Iterator[str]:
    """How the file contradicts the other files."""
    base = int(info.base_name)
    if not info.size:
        yield "the file is empty"
    elif info.size != usual:
        yield f"the file has {info.size} bytes, most segments have {usual}: a broker does not start with it"
    if end_before is not None and end_before < base and info.size:
        yield f"no file has the {base - end_before} bytes before it, from commit log offset {end_before} on"


def _segment_damage(store: MessageStore, info: fs.FileInfo, first: Record | NoRecord | None) -> Iterator[str]:
    """The damage at the edges of a file that is not empty."""
    base, live_end = int(info.base_name), store.get_max_phy_offset()
    if base == live_end:
        return  # what is there is a write in progress, or the torn last message: LOG_UNFINISHED
    head = store.records.read(base, BLANK_SIZE)
    if base > live_end:
        if head.strip(b"\0"):
            yield f"the log ends at commit log offset {live_end}, but the file begins with other bytes than zeros"
        return
    segment = store.records.segment_of(base)
    size = info.size if segment is None else segment.size
    if isinstance(first, NoRecord) and not is_blank(head, size):
        yield f"it does not begin with a record: {first}"
    if base + size < live_end and not _ends_with_blank(store, base, size):
        yield f"there is no blank at its end, in the last {min(size, MAX_BLANK_SIZE)} bytes"


def _ends_with_blank(store: MessageStore, base: int, size: int) -> bool:
    """Whether the last bytes of a segment contain the start of a blank that reaches to the segment's end."""
    look, end = _FIRST_LOOK, size
    segment = store.records.segment_of(base)
    has_entries = segment is not None and segment.has_entries
    magic, before_magic = (_ENTRY_BLANK, 0) if has_entries else (STORED_BLANK_MAGIC, MAGIC_AT)
    while end > 0 and size - end < MAX_BLANK_SIZE:
        start = max(0, size - min(look, MAX_BLANK_SIZE))
        data = store.records.read(base + start, min(end + BLANK_SIZE, size) - start)
        magic_at = data.rfind(magic)
        while magic_at >= before_magic:
            at = magic_at - before_magic
            if is_blank(data[at : at + BLANK_SIZE], size - start - at):
                return True
            magic_at = data.rfind(magic, 0, magic_at + len(magic) - 1)
        end, look = start, look * _LOOK_FACTOR
    return False


class QueueStateName(StrEnum):
    """The values of column `state` of table `queues`."""

    CAUGHT_UP = "CAUGHT_UP"
    """The check found nothing that is missing or damaged."""
    BEHIND = "BEHIND"
    """The queue lacks messages after its end."""
    DAMAGED = "DAMAGED"
    """A file is missing or has another size, or the first or last unit does not lead to its message."""
    AHEAD = "AHEAD"
    """Its units, or a consumer group, are past the last message of it in the log."""
    LOST = "LOST"
    """The queue had messages, and has no files."""


@dataclass(frozen=True)
class QueueState:
    """The state of one queue; `problem` is None if the check found nothing."""

    name: QueueStateName
    problem: str | None = None


@dataclass(frozen=True)
class QueueStates:
    """The states of all queues.

    Attributes:
        behind: Text for a person if no queue leads to the end of the log. Then any queue can lack messages, even an
            unknown one. None if the last part of the log was checked.
        gone: The number of units of each queue that lead past the end of the log, to no record.
    """

    by_queue: Mapping[Queue, QueueState]
    behind: str | None
    gone: Mapping[Queue, int]


def queue_states(store: MessageStore, topic: str | None = None) -> QueueStates:
    """The states of the queues, or of the queues of one topic."""
    found = find_lacking_messages(store)
    lacking: dict[Queue, list[int]] = {}
    for message in found.messages:
        lacking.setdefault((message.topic, message.queue_id), []).append(message.queue_offset)
    behind = None
    if found.messages and not found.is_complete:
        behind = f"the log has {found.log_end - found.dispatched_to} bytes after the last message that any queue has"
    consumed = consumed_offsets(store.location)
    configured = configured_topics(store.location) or ()
    names = {*store.queues, *lacking, *(queue for queue in consumed if queue[0] in configured and consumed[queue] > 0)}
    gone = find_gone_messages(store).by_queue
    by_queue = {
        queue: _state(store, queue, lacking.get(queue, ()), consumed.get(queue, 0), gone.get(queue, 0), behind)
        for queue in sorted(names)
        if topic in (None, queue[0])
    }
    return QueueStates(by_queue, behind, gone)


def _state(
    store: MessageStore, queue: Queue, lacking: Sequence[int], consumed: int, gone: int, behind: str | None
) -> QueueState:
    files = store.queues.get(queue)
    if files is None:
        said = [f"the log has at least {counted(len(lacking), 'message')} of it"] if lacking else []
        said += [f"a consumer group has consumed it up to queue offset {consumed}"] if consumed else []
        return QueueState(QueueStateName.LOST, f"it has no files that can be read, but {' and '.join(said)}")
    max_offset = store.get_max_offset_in_queue(*queue)
    damage = list(_damage(store, files))
    if lacking and min(lacking) < max_offset:
        damage.append(f"at least {counted(len(lacking), 'message')} of the log have no unit that leads to them")
    if damage:
        return QueueState(QueueStateName.DAMAGED, "; ".join(damage))
    if lacking:
        reason = f"it lacks at least {counted(len(lacking), 'message')}, up to queue offset {max(lacking)}"
        return QueueState(QueueStateName.BEHIND, f"{reason}, which the log has")
    if gone:
        reason = f"its last {gone} units lead past the end of the log, which does not have their messages"
        return QueueState(QueueStateName.AHEAD, reason)
    if consumed > max_offset:
        reason = f"it ends at queue offset {max_offset}, but a consumer group has consumed it up to {consumed}"
        return QueueState(QueueStateName.AHEAD if behind is None else QueueStateName.BEHIND, reason)
    if behind is not None:
        return QueueState(QueueStateName.BEHIND, behind)
    return QueueState(QueueStateName.CAUGHT_UP)


def _damage(store: MessageStore, queue: ConsumeQueue) -> Iterator[str]:
    sizes = {info.size for info in queue.folder.files}
    if len(sizes) > 1:
        yield f"its files have different sizes: {', '.join(map(str, sorted(sizes)))} bytes"
    for before, after in pairwise(queue.files):
        end = before.first + before.count
        if end < after.first:
            yield f"no file has the queue offsets {end} to {after.first - 1}"
    min_offset = store.get_min_offset_in_queue(queue.topic, queue.queue_id)
    max_offset = store.get_max_offset_in_queue(queue.topic, queue.queue_id)
    if min_offset < max_offset:
        start, first = store.get_min_phy_offset(), queue.files[0]
        # Until its file is deleted, a broker can offer an expired first unit (`ConsumeQueue.correctMinOffset`).
        may_be_expired = queue.unit(min(first.first + first.count, max_offset) - 1)[0] < start
        for queue_offset in sorted({min_offset, max_offset - 1}):
            is_expired = may_be_expired and queue.unit(queue_offset)[0] < start
            if not is_expired and not leads_to_its_message(store, queue, queue_offset):
                yield f"the unit at queue offset {queue_offset} does not lead to its message"
