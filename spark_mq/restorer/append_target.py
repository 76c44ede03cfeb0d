"""Where a stopped store ends, and whether messages can be appended to it. Spark is not started.

Names, sizes and ends of files are read, and at most the last 256 KiB of the log, as for `spark-mq state`. More of the
log is read only if no queue, or no index entry, leads to its last messages: these can be messages that have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np
from pyarrow import fs

from spark_mq.errors import CorruptIndexError, UnfinishedAppendError, UnsupportedStoreError
from spark_mq.format.consume_queue import UNIT_SIZE, Queue
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, IndexLayout
from spark_mq.format.record import FRAME
from spark_mq.indexer.staged_files import EntryBatch
from spark_mq.indexer.tag_entries import TagRun, find_runs, tagged_ranges
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.boot_obstacles import BootObstacles
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import Door, batch_topics, check_form, double_written_database, queue_database
from spark_mq.store.config.store_paths import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CURRENT,
    INDEX,
    mapped_files,
)
from spark_mq.store.file_states import queue_states
from spark_mq.store.index.folder import IndexFileInfo, index_end, index_files, index_layout
from spark_mq.store.lacking_messages import find_lacking_messages
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import DEFAULT_SEGMENT_SIZE, linked_segment, usual_size
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.batch_consume_queue import BatchConsumeQueue
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import find_queue_file_size, listed

_TAIL = 1000
"""The last entries of an index that show whether tags have entries."""
_REBUILD = "`spark-mq rebuild STORE --resume` completes queues and index that lack messages"


class AppendTarget:
    """Where a store ends; an error says why nothing can be appended to it. Nothing is changed.

    Attributes:
        last_segment: The file that contains `log_end`, and perhaps records before it; None if the next record starts in
            a file that does not exist yet.
        last_store_timestamp: The store time of the last record, in milliseconds; 0 for an empty log.
        stale_queues: The queues with units, after their end, of records that a recovery cut off; and the byte of the
            queue at which the others end.
    """

    def __init__(self, store: Location, conf: BrokerConf) -> None:
        check_appendable(store)
        self.store, self.conf = store, conf
        log = CommitLog.open(store)
        for problem in [*log.gaps, *log.stray]:
            raise _refused(store, f"{problem.describe()}; {_says_what_to_do(store)}")
        _check_filesystem(store)
        with MessageStore(str(store)) as opened:
            self.broker_versions = opened.broker_versions
            for obstacle in BootObstacles(store, conf).of(queue.folder for queue in opened.queues.values()):
                raise _refused(store, f"no broker starts on it: {obstacle}")
            self.log_end = max(opened.get_max_phy_offset(), opened.get_min_phy_offset(), 0)
            self.last_segment = opened.records.segment_of(self.log_end)
            self.last_store_timestamp = _last_store_timestamp(opened, self.log_end)
            _check_queues(opened, self.log_end)
            queues = opened.queues
            self.next_offsets: Mapping[Queue, int] = {queue: opened.get_max_offset_in_queue(*queue) for queue in queues}
            stale = (queue for name, queue in queues.items() if queue.written_end > self.next_offsets[name])
            self.stale_queues = tuple((queue.folder, self._end_of(queue)) for queue in stale)
            self.has_index = conf.without_index_files is None
            self.index_tags = self.has_index and _check_index(opened, index_layout(store, conf), self.log_end)
        segments = mapped_files((store / COMMIT_LOG).entries())
        self.segment_size = conf.commit_log_file_size or usual_size(segments) or DEFAULT_SEGMENT_SIZE
        self.queue_file_size = find_queue_file_size(conf, listed([store / CONSUME_QUEUE])).value

    def _end_of(self, queue: ConsumeQueue) -> int:
        """The byte of a queue after its last live unit."""
        if isinstance(queue, BatchConsumeQueue):
            return queue.end_position
        return self.next_offsets[queue.topic, queue.queue_id] * UNIT_SIZE


def _refused(store: Location, why: str) -> UnsupportedStoreError:
    return UnsupportedStoreError(f"nothing can be appended to {store}: {why}")


def _says_what_to_do(store: Location) -> str:
    return f"`spark-mq verify {store}` says what to do"


def not_local(store: Location) -> UnsupportedStoreError:
    """The error for a store that is not on a local filesystem."""
    return _refused(store, "it is not on a local filesystem, where a broker could lock it; append to a local copy")


def check_appendable(store: Location) -> None:
    """Raise `UnsupportedStoreError` if a look at the store's files shows that nothing can be appended to it.

    It is not local, its broker crashed, or its queues are in RocksDB. `AppendTarget` looks further.
    """
    if not store.is_local:
        raise not_local(store)
    if (store / ABORT).info().type != fs.FileType.NotFound:
        raise _refused(
            store,
            f"{store / ABORT} says that its broker runs or crashed, so its log has not been checked; start the broker "
            "on it, and stop it cleanly (mqshutdown broker)",
        )
    check_form(store, Door.FILES, Door.CHANGE)
    link = None
    with suppress(UnfinishedAppendError):  # which was not begun in links, and is finished first
        link = linked_segment(store)
    if link is not None:
        raise _refused(
            store,
            f"{link} is a link: its broker would not find what is appended, because it opens the files in the folders "
            "of storePathCommitLog; append to a copy that has the files themselves (cp -rL)",
        )
    if (database := queue_database(store)) is not None:
        raise _refused(
            store,
            f"{database} is a RocksDB database (storeType=defaultRocksDB); append to files, which `spark-mq rebuild "
            "STORE --queue-store files` makes in its place",
        )
    if (database := double_written_database(store)) is not None:
        raise _refused(
            store,
            f"{database} has a RocksDB database beside the queue files, in which a broker does not put all units of "
            f"what is appended: move its files ({CURRENT}, MANIFEST-*, *.sst and the others, no folders) elsewhere, "
            "append, and let `spark-mq repair STORE --apply --broker-conf FILE` make the database",
        )


def _check_filesystem(store: Location) -> None:
    own = os.stat(store.path).st_dev
    for tree in (COMMIT_LOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CONFIG):
        folder = (store / tree).path
        if os.path.isdir(folder) and os.stat(folder).st_dev != own:
            raise _refused(
                store,
                f"{folder} is on another filesystem than the store's directory, so files cannot be put in place in one "
                "step; append to a copy on one filesystem",
            )


def _last_store_timestamp(store: MessageStore, log_end: int) -> int:
    """The store time of the last record; 0 for an empty log. Files after it, made in advance, must have zeros."""
    location, segments = store.location, store.records.segments
    for segment in segments:
        if segment.base > log_end and store.records.read(segment.base, FRAME.size).strip(b"\0"):
            raise _refused(
                location,
                f"the log ends at commit log offset {log_end}, but {segment.location}, which is after that, begins "
                f"with other bytes than zeros; {_says_what_to_do(location)}",
            )
    if store.get_max_phy_offset() < 0 or log_end == store.get_min_phy_offset():
        return 0
    record = store.records.newest_in([segment for segment in segments if segment.base < log_end][-1], log_end)
    if record is None:
        why = f"no record ends at the end of the log, commit log offset {log_end}; {_says_what_to_do(location)}"
        raise _refused(location, why)
    return record.store_timestamp


def _check_queues(store: MessageStore, log_end: int) -> None:
    location = store.location
    for (topic, queue_id), state in queue_states(store).by_queue.items():
        if state.problem is not None:
            why = f"consume queue {topic}/{queue_id}: {state.problem}; {_says_what_to_do(location)} ({_REBUILD})"
            raise _refused(location, why)
    found = find_lacking_messages(store)
    if found.is_complete:
        return
    for lacking in _with_units(location, max(found.dispatched_to, 0), log_end):
        raise _refused(
            location,
            f"the consume queues end before the log: no queue has the message at commit log offset {lacking}; "
            f"{_REBUILD}",
        )


def _with_units(store: Location, start: int, stop: int) -> Iterator[int]:
    """The commit log offsets of the messages of a range that belong into a consume queue."""
    from spark_mq.format.kernels.dispatch import has_unit, is_final
    from spark_mq.store.log.split_reader import read_chunks

    belongs = is_final if batch_topics(store) else has_unit
    for chunk in read_chunks(store, start, stop):
        yield from (chunk.base + chunk.frames.position[belongs(chunk.frames)]).tolist()


def _check_index(store: MessageStore, layout: IndexLayout, log_end: int) -> bool:
    """Check that the index ends where the log ends; returns whether tags of new messages have entries."""
    location, start = store.location, max(store.get_min_phy_offset(), 0)
    has_tags = _has_tags(store, layout, log_end)
    try:
        end = index_end(index_files(location), layout)
    except CorruptIndexError as error:
        raise _refused(location, f"{error}") from error
    indexed = -1 if end is None else end.commit_log_offset
    if end is not None and indexed >= log_end:
        raise _refused(
            location,
            f"{end.file.location} ends with the message at commit log offset {indexed}, but the log ends at {log_end}; "
            f"{_says_what_to_do(location)}",
        )
    for offset, key_hashes in _with_keys(location, max(indexed, start), log_end, has_tags):
        known = 0 if end is None or offset > indexed else end.keys_in(key_hashes)
        is_deleted = end is not None and offset == indexed and not end.key_hashes
        if known < len(key_hashes) and not is_deleted:
            raise _refused(
                location,
                f"the index lacks the keys of the message at commit log offset {offset}: the index ends before the "
                f"log; {_REBUILD} (or give --broker-conf with messageIndexEnable=false, if the broker keeps no index)",
            )
    return has_tags


def _has_tags(store: MessageStore, layout: IndexLayout, log_end: int) -> bool:
    """Whether tags have entries at the end of the index; if that does not show it, the broker's version decides."""
    from spark_mq.format.kernels.big_endian import int64s_at
    from spark_mq.format.kernels.index_keys import index_keys
    from spark_mq.store.log.split_reader import read_chunks

    files, runs = index_files(store.location), list[TagRun]()
    tails = [offset for file in files[-2:] if (offset := _tail_offset(file, layout)) is not None]
    for chunk in read_chunks(store.location, max(min(tails), store.get_min_phy_offset()), log_end) if tails else ():
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
    from spark_mq.store.log.split_reader import read_chunks

    for chunk in read_chunks(store, start, stop):
        keys = index_keys(chunk.buffer, chunk.frames, has_tags)
        ends = np.cumsum(keys.entry_count)
        for number in np.flatnonzero(keys.entry_count).tolist():
            first = int(ends[number]) - int(keys.entry_count[number])
            offset = chunk.base + int(chunk.frames.position[number])
            yield offset, keys.key_hash[first : int(ends[number])].tolist()
