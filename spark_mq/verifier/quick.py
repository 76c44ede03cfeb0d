"""The quick check: everything that needs neither Spark nor a whole reading of the log.

It looks at names and sizes of all files, both edges of segments, queues and index files, the last messages of the log,
config files and the checkpoint. Damage in the middle of a file is found only by a whole check.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import pyarrow as pa

from spark_mq.errors import CorruptLogError, SparkMqError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.index_file import (
    BEGIN_COMMIT_LOG_OFFSET_AT,
    END_COMMIT_LOG_OFFSET_AT,
    ENTRY,
    ENTRY_SIZE,
    INDEX_COUNT_AT,
    IndexLayout,
)
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import dledger_node
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.file_states import QueueStateName, index_state, queue_states, segment_states
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.config_files import BrokerState
from spark_mq.verifier.finding import FINDING_SCHEMA, findings
from spark_mq.verifier.folders import IndexFolder
from spark_mq.verifier.listed_store import ListedStore
from spark_mq.verifier.log_bounds import LiveLog, log_end_findings, lost_entry_findings
from spark_mq.verifier.result import Summary, VerifyReport

_ANY_TIME = (1 << 63) - 1


def quick_check(store: str, conf: BrokerConf) -> tuple[VerifyReport, pa.Table]:
    """The report of a quick check, and all findings."""
    started = time.monotonic()
    location = Location.resolve(store)
    listed = ListedStore.of(location, conf)
    log, index = listed.log, listed.index
    start, end = log.segments[0].base if log.segments else 0, -1
    live_end = LiveEndFinder(location).find_end_now()
    newest, bounds = _newest(location, listed.state, live_end), dict[Queue, range]()
    found: list[pa.RecordBatch] = []
    if index.layout is not None:
        for info in index.files:
            found += _index_edges(info, index.layout)
    with MessageStore(store, None, conf.source if conf.is_given else None, live_end=live_end) as opened:
        if log.segments:
            end = opened.get_max_phy_offset()
            found += _log_edges(opened, log, index, conf, newest)
        if listed.has_queues:
            bounds = _bounds(opened)
            found += _queue_edges(opened, not listed.state.has_abort, bool(log.gaps))
    # A clock that was set back leaves later times than that of the last message, as the index shows.
    index_ends = [info.stored_header().end_timestamp for info in index.files]
    found += listed.findings(range(start, max(end, 0)), max([newest, *index_ends]), bounds)
    summary = Summary()
    for batch in found:
        summary.add(batch)
    report = VerifyReport(
        store=str(location),
        is_quick=True,
        counts=summary.counts,
        first=summary.first,
        messages=None,
        log_bytes=max(end - start, 0),
        queues=len(bounds),
        units=None,
        index_files=index.file_count,
        index_entries=None,
        seconds=round(time.monotonic() - started, 3),
    )
    return report, pa.Table.from_batches(found, FINDING_SCHEMA)


def _log_edges(
    store: MessageStore, log: CommitLog, index: IndexFolder, conf: BrokerConf, newest: int
) -> Iterator[pa.RecordBatch]:
    """Damage at the edges of segments, messages that the index lacks, and what is after the end of the log."""
    for segment in segment_states(store):  # sizes and gaps are found by name
        if segment.name == "DAMAGED":
            is_filler = segment.problem is not None and "no blank" in segment.problem
            yield findings(
                "SEGMENT_FILLER" if is_filler else "LOG_CORRUPT",
                segment.path,
                "a record at its beginning, and a filler at its end",
                segment.problem,
                commit_log_offset=segment.base,
            )
    # A broker that runs can be about to put entries.
    has_index = index.layout is not None and conf.without_index_files is None
    # The state counts entries in the order of names.
    has_index = has_index and all(one.name < other.name for one, other in pairwise(index.files))
    lag = index_state(store) if has_index and not is_locked(store.location) else None
    if lag is not None and lag.unknown_layout is None and lag.lacking:
        yield findings(
            "INDEX_LAGS" if lag.files else "INDEX_MISSING",
            INDEX,
            f"entries of at least {len(lag.lacking):,} messages",
            f"valid files up to commit log offset {lag.covered_to}" if lag.files else "no index file",
            commit_log_offset=lag.lacking[0],
        )
    last, end = log.segments[-1], store.get_max_phy_offset()
    node = dledger_node(store.location)
    if node is not None and not is_locked(store.location):
        yield from lost_entry_findings(node, log.segments)
    if last.base <= end < last.base + last.data_end:
        yield from log_end_findings(last, end, LiveLog(store.location, last, end, newest).has_grown)


def _queue_edges(store: MessageStore, is_clean: bool, has_gaps: bool) -> Iterator[pa.RecordBatch]:
    """Queues whose first or last unit leads to no message, or that lack messages at the end of the log."""
    codes = {
        QueueStateName.BEHIND: "QUEUE_LAGS_CLEAN" if is_clean else "QUEUE_LAGS",
        QueueStateName.DAMAGED: "QUEUE_NO_MESSAGE" if has_gaps else "QUEUE_UNIT_WRONG",
        QueueStateName.LOST: "QUEUE_MISSING",
    }
    states = queue_states(store)
    for (topic, queue_id), state in states.by_queue.items():
        code = codes.get(state.name)
        if state.name == QueueStateName.AHEAD and (topic, queue_id) in states.gone:
            code = "QUEUE_UNIT_STALE"  # else an offset of a consumer is past the end: OFFSET_PAST_END
        queue = store.queues.get((topic, queue_id))
        file = f"{CONSUME_QUEUE if queue is None else queue.folder.tree}/{topic}/{queue_id}"
        if code is not None:
            yield findings(code, file, found=state.problem, queue=(topic, queue_id))


def _index_edges(info: IndexFileInfo, layout: IndexLayout) -> Iterator[pa.RecordBatch]:
    path, header = f"{INDEX}/{info.name}", info.stored_header()
    with FileReader(info.location) as file:
        if not 0 <= header.index_count <= layout.index_num:
            want, have = f"an index count up to {layout.index_num}", f"index count {header.index_count}"
            yield findings("INDEX_COUNT", path, want, have, position=INDEX_COUNT_AT)
            return
        count = header.next_entry - 1
        for number, at, name, offset in (
            (1, BEGIN_COMMIT_LOG_OFFSET_AT, "begin offset", header.begin_commit_log_offset),
            (count, END_COMMIT_LOG_OFFSET_AT, "end offset", header.end_commit_log_offset),
        ):
            entry = ENTRY.unpack(file.read(layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE))
            if count and entry[1] != offset:
                want = f"{name} {entry[1]}, of entry {number}"
                yield findings("INDEX_HEADER", path, want, f"{name} {offset}", position=at)


def _bounds(store: MessageStore) -> dict[Queue, range]:
    """The queue offsets of each queue; any if they are not known."""
    bounds = {}
    for queue in store.queues:
        try:
            bounds[queue] = range(store.get_min_offset_in_queue(*queue), store.get_max_offset_in_queue(*queue))
        except SparkMqError:
            bounds[queue] = range(_ANY_TIME)
    return bounds


def _newest(store: Location, state: BrokerState, live_end: LiveEnd) -> int:
    """The store time of the last message in milliseconds; the largest number if it is not known."""
    last = live_end.last_record
    if last is None or state.has_abort:
        return _ANY_TIME
    with closing(FileReaders()) as files:
        try:
            return RecordLookup(store, files).record(last).store_timestamp
        except CorruptLogError:
            return _ANY_TIME
