"""The quick check: everything that needs neither Spark nor a whole reading of the log.

It looks at names and sizes of all files, both edges of segments, queues and index files, the last messages of the log,
config files and the checkpoint. Damage in the middle of a file is found only by a whole check.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from spark_mq.errors import CorruptLogError, SparkMqError, UnsupportedStoreError
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, INDEX_COUNT_AT, IndexHeader, IndexLayout
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import is_configured
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX
from spark_mq.store.file_states import QueueStateName, queue_states, segment_states
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.store.index_state import index_state
from spark_mq.store.lacking_messages import find_gone_messages
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import QueueFolder, existing_file_size
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.config_files import BrokerState, ConfigFiles, QueueBounds, checkpoint_findings, config_findings
from spark_mq.verifier.finding import FINDING_SCHEMA, findings
from spark_mq.verifier.index_folder import list_index
from spark_mq.verifier.log_bounds import LiveLog, log_end_findings, log_start_findings
from spark_mq.verifier.queue_folders import irregular_findings, not_checked, queue_folder_findings
from spark_mq.verifier.result import VerifyReport, report_of
from spark_mq.verifier.segments import segment_findings
from spark_mq.verifier.sink import FindingSink

_ANY_TIME = (1 << 63) - 1


def quick_check(store: str, conf: BrokerConf) -> tuple[VerifyReport, pa.Table]:
    """The report of a quick check, and all findings.

    Args:
        store: The store directory, a path or a URI.
    """
    started = time.monotonic()
    location = Location.resolve(store)
    state, config = BrokerState.of(location), ConfigFiles.of(location)
    log = CommitLog.open(location)
    unchecked = list(not_checked(location))
    sink = FindingSink(None)
    sink.add(segment_findings(location, log, conf.commit_log_file_size))
    sink.add(unchecked)
    sink.add(irregular_findings(location))
    index = list_index(location, conf)
    sink.add(index.findings)
    if index.layout is not None:
        for info in index.files:
            sink.add(_index_edges(info, index.layout))
    live_end = LiveEndFinder(location).find_end_now()
    end, queues, newest = -1, 0, _newest(location, state, live_end)
    with MessageStore(store, None, conf.source if conf.is_given else None, live_end=live_end) as opened:
        if log.segments:
            end = opened.get_max_phy_offset()
            sink.add(_segment_edges(opened))
            has_index = index.layout is not None and conf.is_enabled("messageIndexEnable", default=True)
            if has_index and not is_locked(location):
                sink.add(_index_lag(opened))
            last = log.segments[-1]
            if last.base <= end < last.base + last.data_end:
                live = LiveLog(location, last, end, newest)
                sink.add(log_end_findings(last, end, live.has_grown))
        try:
            folders = [queue.folder for queue in opened.queues.values()]
            has_queues = True
        except UnsupportedStoreError:  # in RocksDB; `not_checked` says so
            folders, has_queues = [], False
        if has_queues:
            queues = len(folders)
            file_size = conf.consume_queue_file_size or existing_file_size(folders) or 0
            sink.add(queue_folder_findings(location, file_size))
            sink.add(_queue_edges(opened, config.topics, not state.has_abort, bool(log.gaps)))
            bounds = _bounds(opened, folders)
            sink.add(config_findings(config, bounds, {folder.topic for folder in folders}))
            sink.add(log_start_findings(log.segments[0].base if log.segments else 0, folders, bounds, index))
    # A clock that was set back leaves later times than that of the last message, as the index shows.
    index_ends = [info.stored_header().end_timestamp for info in index.files]
    sink.add(checkpoint_findings(state, max(end, 0), max([newest, *index_ends])))
    seconds = round(time.monotonic() - started, 3)
    start = log.segments[0].base if log.segments else 0
    report = report_of(
        str(location),
        True,
        sink.summary,
        seconds,
        {},
        messages=None,
        log_bytes=max(end - start, 0),
        queues=queues,
        units=None,
        index_files=index.file_count,
        index_entries=None,
    )
    return report, pa.Table.from_batches(sink.batches, FINDING_SCHEMA)


def _segment_edges(store: MessageStore) -> Iterator[pa.RecordBatch]:
    """Damage at the edges of segments; sizes and gaps are found by name."""
    for segment in segment_states(store):
        file = f"{COMMIT_LOG}/{segment.info.base_name}"
        if segment.name == "DAMAGED":
            is_filler = segment.problem is not None and "no blank" in segment.problem
            yield findings(
                "SEGMENT_FILLER" if is_filler else "LOG_CORRUPT",
                file=file,
                commit_log_offset=segment.base,
                expected="a record at its beginning, and a filler at its end",
                found=segment.problem,
            )


def _queue_edges(
    store: MessageStore, topics: frozenset[str] | None, is_clean: bool, has_gaps: bool
) -> Iterator[pa.RecordBatch]:
    """Queues whose first or last unit leads to no message, or that lack messages at the end of the log."""
    codes = {
        QueueStateName.BEHIND: "QUEUE_LAGS_CLEAN" if is_clean else "QUEUE_LAGS",
        QueueStateName.DAMAGED: "QUEUE_NO_MESSAGE" if has_gaps else "QUEUE_UNIT_WRONG",
        QueueStateName.LOST: "QUEUE_MISSING",
    }
    gone = find_gone_messages(store).by_queue
    for (topic, queue_id), state in queue_states(store).by_queue.items():
        code = codes.get(state.name)
        if state.name == QueueStateName.AHEAD and (topic, queue_id) in gone:
            code = "QUEUE_UNIT_STALE"  # else an offset of a consumer is past the end: OFFSET_PAST_END
        file = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
        if state.name == QueueStateName.LOST and not is_configured(topic, topics):
            has_file = bool((store.location / file).entries())
            code = code if has_file else "QUEUE_DELETED"
        if code is not None and not topic.startswith(LIGHT_PREFIX):
            yield findings(
                code,
                file=file,
                topic=topic,
                queue_id=queue_id,
                found=state.problem,
            )


def _index_edges(info: IndexFileInfo, layout: IndexLayout) -> Iterator[pa.RecordBatch]:
    """What the header of an index file, its first entry and its last one show."""
    path = f"index/{info.name}"
    with FileReader(info.location) as file:
        header = IndexHeader(*HEADER.unpack(file.read(0, HEADER_SIZE)))
        count = header.next_entry - 1
        if not 0 <= header.index_count <= layout.index_num:
            yield findings(
                "INDEX_COUNT",
                file=path,
                position=INDEX_COUNT_AT,
                expected=f"an index count up to {layout.index_num}",
                found=f"index count {header.index_count}",
            )
            return
        if not count:
            return
        for number, at, name, offset in (
            (1, 16, "begin offset", header.begin_commit_log_offset),
            (count, 24, "end offset", header.end_commit_log_offset),
        ):
            entry = ENTRY.unpack(file.read(layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE))
            if entry[1] != offset:
                yield findings(
                    "INDEX_HEADER",
                    file=path,
                    position=at,
                    expected=f"{name} {entry[1]}, of entry {number}",
                    found=f"{name} {offset}",
                )


def _index_lag(store: MessageStore) -> Iterator[pa.RecordBatch]:
    """Messages with keys after the last one that the index has; a broker that runs can be about to put them."""
    state = index_state(store)
    if state.lacking:
        yield findings(
            "INDEX_LAGS" if state.files else "INDEX_MISSING",
            file=INDEX,
            commit_log_offset=state.lacking[0],
            expected=f"entries of at least {len(state.lacking):,} messages",
            found="no index file" if not state.files else f"valid files up to commit log offset {state.covered_to}",
        )


def _bounds(store: MessageStore, folders: list[QueueFolder]) -> dict[tuple[str, int], QueueBounds]:
    bounds = {}
    for folder in folders:
        queue = folder.topic, folder.queue_id
        try:
            low, high = store.get_min_offset_in_queue(*queue), store.get_max_offset_in_queue(*queue)
        except (CorruptLogError, SparkMqError):
            low, high = 0, _ANY_TIME
        bounds[queue] = QueueBounds(low, high)
    return bounds


def _newest(store: Location, state: BrokerState, live_end: LiveEnd) -> int:
    """The store time of the last message in milliseconds; the largest number if it is not known."""
    last = live_end.last_record
    if last is None or state.has_abort:
        return _ANY_TIME
    files = FileReaders()
    try:
        return RecordLookup(store, files).record(last).store_timestamp
    except CorruptLogError:
        return _ANY_TIME
    finally:
        files.close()
