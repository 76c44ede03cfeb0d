"""Where a stopped store ends, and whether messages can be appended to it. Spark is not started.

Names, sizes and ends of files are read, and at most the last 256 KiB of the log, as for `spark-mq state`. More of the
log is read only if no queue, or no index entry, leads to its last messages: these can be messages that have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pyarrow import fs

from spark_mq.errors import CorruptIndexError, UnsupportedStoreError
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, IndexLayout
from spark_mq.format.record import FRAME
from spark_mq.indexer.staged_files import EntryBatch
from spark_mq.indexer.tag_entries import TagRun, find_runs, tagged_ranges
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.boot import boot_obstacles
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.config.store_paths import ABORT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, is_rocksdb
from spark_mq.store.file_states import queue_states
from spark_mq.store.index.folder import IndexEnd, IndexFileInfo, index_end, index_files, index_layout
from spark_mq.store.lacking_messages import find_lacking_messages
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import newest_record
from spark_mq.store.log.segment_files import DEFAULT_SEGMENT_SIZE, SegmentFile, is_segment_name, usual_size
from spark_mq.store.log.splits import list_offset_range
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import find_queue_file_size, listed
from spark_mq.store.store_lock import LOCK, is_locked

_TAIL = 1000
"""The last entries of an index that show whether tags have entries."""
_REBUILD = "`spark-mq rebuild STORE --resume` completes queues and index that lack messages"


@dataclass(frozen=True)
class AppendTarget:
    """Where a store ends.

    Attributes:
        broker_versions: The versions whose rules apply.
        log_end: The commit log offset of the live end, at which the next record starts; 0 or more.
        last_segment: The file that contains `log_end`, and perhaps records before it; None if the next record starts in
            a file that does not exist yet.
        last_store_timestamp: The store time of the last record, in milliseconds; 0 for an empty log.
        next_offsets: The next queue offset of each queue that has files; it is 0 for every other queue.
        stale_queues: The queues with units, after their end, of records that a recovery cut off.
        index_layout: Slots and entries of an index file.
        index_end: The end of the index; None if it has no file.
        index_tags: Whether tags of new messages have index entries.
    """

    store: Location
    conf: BrokerConf
    broker_versions: BrokerVersions
    log_end: int
    last_segment: SegmentFile | None
    segment_size: int
    last_store_timestamp: int
    next_offsets: Mapping[Queue, int]
    stale_queues: tuple[Queue, ...]
    queue_file_size: int
    has_index: bool
    index_layout: IndexLayout
    index_end: IndexEnd | None
    index_tags: bool

    @classmethod
    def open(cls, store: Location, conf: BrokerConf, has_lock: bool = False) -> Self:
        """The target, if messages can be appended to the store. Nothing is changed."""
        check_appendable(store, has_lock)
        log = CommitLog.open(store)
        for problem in [*log.gaps, *log.stray]:
            raise _refused(store, f"{problem.describe()}; `spark-mq verify {store}` says what to do")
        _check_filesystem(store)
        with MessageStore(str(store)) as opened:
            _check_boots(opened, conf)
            log_end = max(opened.get_max_phy_offset(), opened.get_min_phy_offset(), 0)
            _check_end_of_files(opened, log_end)
            last_timestamp = _last_store_timestamp(opened, log_end)
            _check_queues(opened, log_end)
            next_offsets = {queue: opened.get_max_offset_in_queue(*queue) for queue in opened.queues}
            has_index = conf.is_enabled("messageIndexEnable", default=True)
            layout = index_layout(store, conf) if has_index else IndexLayout()
            index_tags = has_index and _has_tags(opened, layout, log_end)
            end = _index_end(opened, layout, log_end, index_tags) if has_index else None
            return cls(
                store,
                conf,
                opened.broker_versions,
                log_end,
                opened.records.segment_of(log_end),
                conf.commit_log_file_size or _segment_size(store) or DEFAULT_SEGMENT_SIZE,
                last_timestamp,
                next_offsets,
                tuple(name for name, queue in opened.queues.items() if queue.written_end > next_offsets[name]),
                find_queue_file_size(conf, listed([store / CONSUME_QUEUE])).value,
                has_index,
                layout,
                end,
                index_tags,
            )


def _refused(store: Location, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"nothing can be appended to {store}: {why}")


def not_local(store: Location) -> UnsupportedStoreError:
    """The error for a store that is not on a local filesystem."""
    return _refused(store, "it is not on a local filesystem, where a broker could lock it; append to a local copy")


def check_appendable(store: Location, has_lock: bool) -> None:
    """Raise `UnsupportedStoreError` if a look at the store's files shows that nothing can be appended to it.

    It is not local, its broker runs or crashed, or its queues are in RocksDB. `AppendTarget.open` looks further.
    """
    if not store.is_local:
        raise not_local(store)
    if not has_lock and is_locked(store):
        raise _refused(store, f"{store / LOCK} is locked: a broker runs on it, or another job writes into it; stop it")
    if (store / ABORT).info().type != fs.FileType.NotFound:
        raise _refused(
            store,
            f"{store / ABORT} says that its broker runs or crashed, so its log has not been checked; start the broker "
            "on it, and stop it cleanly (mqshutdown broker)",
        )
    check_form(store, Door.FILES)
    if is_rocksdb(store / CONSUME_QUEUE):
        raise _refused(store, f"{store / CONSUME_QUEUE} is a RocksDB database (storeType=defaultRocksDB)")


def _check_filesystem(store: Location) -> None:
    """Check that a file can be renamed from the store's own folder into each of its trees."""
    own = os.stat(store.path).st_dev
    for tree in (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG):
        folder = (store / tree).path
        if os.path.isdir(folder) and os.stat(folder).st_dev != own:
            raise _refused(
                store,
                f"{folder} is on another filesystem than the store's directory, so files cannot be put in place in one "
                "step; append to a copy on one filesystem",
            )


def _check_boots(store: MessageStore, conf: BrokerConf) -> None:
    folders = [queue.folder for queue in store.queues.values()]
    for obstacle in boot_obstacles(store.location, conf, folders):
        raise _refused(store.location, f"no broker starts on it: {obstacle}")


def _check_end_of_files(store: MessageStore, log_end: int) -> None:
    """Check that the files after the one with the live end contain zeros; a broker makes them in advance."""
    for segment in store.records.segments:
        if segment.base > log_end and store.records.read(segment.base, FRAME.size).strip(b"\0"):
            raise _refused(
                store.location,
                f"the log ends at commit log offset {log_end}, but {segment.location}, which is after that, begins "
                f"with other bytes than zeros; `spark-mq verify {store.location}` says what to do",
            )


def _segment_size(store: Location) -> int:
    """The usual size of the store's segments, in bytes; 0 without a segment."""
    return usual_size([info for info in (store / COMMIT_LOG).entries() if is_segment_name(info)])


def _last_store_timestamp(store: MessageStore, log_end: int) -> int:
    """The store time of the last record; 0 for an empty log."""
    if store.get_max_phy_offset() < 0 or log_end == store.get_min_phy_offset():
        return 0
    before = [segment for segment in store.records.segments if segment.base < log_end]
    record = newest_record(store.records, before[-1], log_end)
    if record is None:
        raise _refused(
            store.location,
            f"no record ends at the end of the log, commit log offset {log_end}; `spark-mq verify {store.location}` "
            "says what to do",
        )
    return record.store_timestamp


def _check_queues(store: MessageStore, log_end: int) -> None:
    """Check that the queues end where the log ends."""
    states = queue_states(store)
    for (topic, queue_id), state in states.by_queue.items():
        if state.problem is not None:
            raise _refused(
                store.location,
                f"consume queue {topic}/{queue_id}: {state.problem}; `spark-mq verify {store.location}` says what to "
                f"do ({_REBUILD})",
            )
    found = find_lacking_messages(store)
    if found.is_complete:
        return
    lacking = next(_with_units(store.location, max(found.dispatched_to, 0), log_end), None)
    if lacking is not None:
        raise _refused(
            store.location,
            f"the consume queues end before the log: no queue has the message at commit log offset {lacking}; "
            f"{_REBUILD}",
        )


def _with_units(store: Location, start: int, stop: int) -> Iterator[int]:
    """The commit log offsets of the messages of a range that belong into a consume queue."""
    from spark_mq.format.kernels.dispatch import has_unit

    for chunk in _chunks(store, start, stop):
        yield from (chunk.base + chunk.frames.position[has_unit(chunk.frames)]).tolist()


def _index_end(store: MessageStore, layout: IndexLayout, log_end: int, has_tags: bool) -> IndexEnd | None:
    """The end of the index, which must be the end of the log."""
    location, start = store.location, max(store.get_min_phy_offset(), 0)
    try:
        end = index_end(index_files(location), layout)
    except CorruptIndexError as error:
        raise _refused(location, f"{error}") from error
    if end is not None and end.commit_log_offset >= log_end:
        raise _refused(
            location,
            f"{end.file.location} ends with the message at commit log offset {end.commit_log_offset}, but the log ends "
            f"at {log_end}; `spark-mq verify {location}` says what to do",
        )
    indexed = -1 if end is None else end.commit_log_offset
    for offset, key_hashes in _with_keys(location, max(indexed, start), log_end, has_tags):
        known = 0 if end is None or offset > indexed else end.keys_in(key_hashes)
        is_deleted = end is not None and offset == indexed and not end.key_hashes
        if known < len(key_hashes) and not is_deleted:
            raise _refused(
                location,
                f"the index lacks the keys of the message at commit log offset {offset}: the index ends before the "
                f"log; {_REBUILD} (or give --broker-conf with messageIndexEnable=false, if the broker keeps no index)",
            )
    return end


def _has_tags(store: MessageStore, layout: IndexLayout, log_end: int) -> bool:
    """Whether tags have entries at the end of the index; if that does not show it, the broker's version decides."""
    from spark_mq.format.kernels.big_endian import int64s_at
    from spark_mq.format.kernels.index_keys import index_keys

    files, runs = index_files(store.location), list[TagRun]()
    tails = [offset for file in files[-2:] if (offset := _tail_offset(file, layout)) is not None]
    for chunk in _chunks(store.location, max(min(tails), store.get_min_phy_offset()), log_end) if tails else ():
        keys = index_keys(chunk.buffer, chunk.frames, None)
        offsets = np.repeat(chunk.base + chunk.frames.position, keys.entry_count)
        if offsets.size:
            times = int64s_at(chunk.buffer, chunk.frames.store_timestamp_at).repeat(keys.entry_count)
            runs += find_runs(EntryBatch(keys.key_hash, offsets, times), files, layout)
    return tagged_ranges(runs, store.broker_versions).has_end


def _tail_offset(file: IndexFileInfo, layout: IndexLayout) -> int | None:
    """The commit log offset of the message with which the last entries of a file begin; None without an entry."""
    stop = file.header(layout).next_entry
    if stop <= 1:
        return None
    with FileReader(file.location) as reader:
        data = reader.read(layout.entries_at + ENTRY_SIZE * max(stop - _TAIL, 1), ENTRY_SIZE)
    return int(ENTRY.unpack(data)[1])


def _with_keys(store: Location, start: int, stop: int, has_tags: bool) -> Iterator[tuple[int, list[int]]]:
    """The messages of a range that have index entries: commit log offset, and the hash of each key, and of tags."""
    from spark_mq.format.kernels.index_keys import index_keys

    for chunk in _chunks(store, start, stop):
        keys = index_keys(chunk.buffer, chunk.frames, has_tags)
        ends = np.cumsum(keys.entry_count)
        for number in np.flatnonzero(keys.entry_count).tolist():
            first = int(ends[number]) - int(keys.entry_count[number])
            offset = chunk.base + int(chunk.frames.position[number])
            yield offset, keys.key_hash[first : int(ends[number])].tolist()


def _chunks(store: Location, start: int, stop: int) -> Iterator[Any]:
    """The records of a range of the log that starts with a record or a blank, chunk by chunk (`RecordChunk`)."""
    from spark_mq.store.log.commit_log import SegmentSource
    from spark_mq.store.log.record_reader import RecordChunk, RecordReader

    for segment in list_offset_range(store, start, stop).segments:
        with SegmentSource(segment) as source:
            parts = RecordReader(source, max(start - segment.base, 0)).read(min(stop - segment.base, segment.size))
            yield from (part for part in parts if isinstance(part, RecordChunk))
