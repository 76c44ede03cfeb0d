"""The check of a whole store: the log is read once, and everything else is compared with it.

1. What names, sizes and small files show is read first, because a broker can be running: its checkpoint and offsets are
   then older than the log that is checked.
2. The log is staged as for a rebuild, and its records are checked while they are read (`log_check`).
3. Queue files, index files and the end of the log are checked against what was staged.
4. Config files and the checkpoint are held against queues and log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.indexer.queue_lives import restarted_queues, staged_runs
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import StagedQueue, of_runs
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskRunner
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import is_topic_name
from spark_mq.store.config.store_kind import Door, check_form, dledger_node
from spark_mq.store.config.store_paths import COMPACTION, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from spark_mq.store.index.index_database import index_database
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder, find_batch_file_size
from spark_mq.store.queue.queue_database import lost_light_database, makes_light_queues
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.batch_queue import BatchQueueCheck, batch_queue_checks, batch_queue_offsets
from spark_mq.verifier.entry_match import ExpectedEntries
from spark_mq.verifier.finding import findings
from spark_mq.verifier.folders import IndexFolder
from spark_mq.verifier.index_file import index_file_checks
from spark_mq.verifier.journal import WHOLE, Facts, facts_of, files_now, new_journal, plan_since
from spark_mq.verifier.listed_store import ListedStore
from spark_mq.verifier.log_bounds import LiveLog, LogBounds, log_end_findings, lost_entry_findings
from spark_mq.verifier.log_check import CheckedLog, check_log, entry_findings
from spark_mq.verifier.queue_task import FilesWithoutMessages, QueueFiles
from spark_mq.verifier.records import not_checked_queues
from spark_mq.verifier.result import FindingSink, Summary, VerifyReport

if TYPE_CHECKING:
    from spark_mq.store.tiered_storage import TieredStorage

FINDINGS, STAGED = "findings", "staged"
"""Folders of a check's work folder: the files of all findings; staged units and entries."""

_ENTRIES = "entries.json"

Check = Callable[[], Iterable[pa.RecordBatch]]
"""Says what is wrong with a part of a store. It can be pickled."""


@dataclass(frozen=True)
class VerifyRequest:
    """What to check; see `spark_mq.verify` for the arguments. `since_last` is the file of the journal.

    It is made without Spark: a wrong argument must not wait until a JVM has started.
    """

    store: Location
    conf: BrokerConf
    scratch: Location | None = None
    split_size: int = DEFAULT_SPLIT_SIZE
    since_last: Location | None = None
    tiered: TieredStorage | None = None

    @classmethod
    def of(
        cls,
        store: str,
        broker_conf: str | None = None,
        scratch: str | None = None,
        split_size: int = DEFAULT_SPLIT_SIZE,
        since_last: str | None = None,
        tiered_storage: str | None = None,
    ) -> Self:
        """The request with these arguments."""
        location = Location.resolve(store)
        CommitLog.open(location)
        check_form(location, Door.CHECK)
        folder, journal = (None if path is None else Location.resolve(path) for path in (scratch, since_last))
        tiered = None
        if tiered_storage is not None:
            from spark_mq.store.tiered_storage import TieredStorage

            tiered = TieredStorage.of(location, tiered_storage)
        return cls(location, BrokerConf.of(broker_conf), folder, split_size, journal, tiered)


@dataclass(frozen=True)
class CheckedStore:
    """The result of a check, and what the files of the store were held against: a repair makes files from it.

    `files` contain all findings; `offsets` are those of the queues that have messages or files.
    """

    report: VerifyReport
    files: Sequence[Location]
    log: CheckedLog
    bounds: LogBounds
    queue_file_size: int
    has_extensions: bool
    index: IndexFolder
    queues: Mapping[Queue, StagedQueue]
    offsets: Mapping[Queue, range]
    batches: Sequence[BatchQueueCheck]


def check_store(
    request: VerifyRequest,
    work: Location,
    runner: TaskRunner,
    checked_log: CheckedLog | None = None,
    doubtful: Collection[str] | None = None,
    *,
    has_lock: bool = False,
) -> CheckedStore:
    """Check a whole store; the folder `work`, which is empty, gets staged files and findings.

    A `checked_log` is that of an earlier check, since which no record has changed; `doubtful` are then the files with
    its findings, and those that changed. The index, and each queue, is read again only if it has one of them. If this
    job has the store's lock, no broker runs, and the check does not wait for one. With a journal
    (`request.since_last`), what was sound and has not changed is not read again, and a sound check writes the journal.
    """
    started = time.monotonic()
    store, conf = request.store, request.conf
    found = work / FINDINGS
    found.make_folder()

    listed = ListedStore.of(store, conf, reads_databases=True)
    log, index, folders, file_size = listed.log, listed.index, listed.folders, listed.queue_file_size
    has_extensions = bool((store / CONSUME_QUEUE_EXT).entries())
    since, earlier, facts = WHOLE, None, dict[str, Facts]()
    if request.since_last is not None:
        since, earlier = plan_since(request.since_last, listed)
        facts = {path: facts_of(location) for path, location in files_now(listed).items()}

    # The log
    has_light_queues = makes_light_queues(store, conf)
    if checked_log is None:
        checked_log = check_log(listed, request.split_size, has_light_queues, runner, work / STAGED, found, since)
    staged, summaries = checked_log.staged, list(checked_log.summaries)
    bounds, expected = checked_log.bounds(log, not listed.state.has_abort), checked_log.expected_entries()
    dispatched = checked_log.named & {(folder.topic, folder.queue_id) for folder in folders}

    folders_again = {path for file in doubtful or () for path in (file, file.rpartition("/")[0])}

    def is_read(folder: str) -> bool:
        return doubtful is None or folder in folders_again

    # Files against the log
    queues: dict[Queue, StagedQueue] = {}
    missing: list[pa.RecordBatch] = []
    batches: list[BatchQueueCheck] = []
    if log.segments:
        last_time = staged.last_store_timestamp or since.last_store_timestamp or 0
        live = LiveLog(store, log.segments[-1], bounds.end, last_time)
        if not has_lock:
            live.wait_for_broker()
        runs = staged_runs(runner.tasks, staged.units, shown_by=listed.tree, has_lite_topics=has_light_queues)
        queues = {(queue.topic, queue.queue_id): queue for queue in runs.queues()}
        topics = listed.config.topics
        files = QueueFiles(listed.tree, file_size, bounds, live, has_extensions, topics, dispatched, since.sound_to)
        is_light = {name: name[0].startswith(LIGHT_PREFIX) and listed.has_light_database for name in queues}
        own = {name: queue for name, queue in queues.items() if not is_light[name]}
        trees = [(files, FilesWithoutMessages.of(files, folders, own, runs, since.unchanged))]
        if (double := listed.double) is not None:
            # It has the queues of some topics only (`rocksdbCQSelectiveDoubleWrite`), and those light ones.
            files = replace(files, tree=double.tree, name=double.name, has_extensions=False)
            some = {(folder.topic, folder.queue_id) for folder in double.folders}
            kept = {name: queue for name, queue in queues.items() if name in some or is_light[name]}
            trees.append((files, FilesWithoutMessages.of(files, double.folders, kept, runs)))
        missing += (batch for _, others in trees for batch in others.missing())
        if lost_light_database(store, conf) and any(topic.startswith(LIGHT_PREFIX) for topic, _ in queues):
            wanted = "the RocksDB database of light message queues (combineCQUseRocksdbForLmq)"
            missing.append(findings("QUEUE_DATABASE", CONSUME_QUEUE, wanted, "no database"))
        for queue, start in restarted_queues(runs).items():
            messages = "units of the messages before it", "a later message with queue offset 0"
            path = "/".join((trees[-1][0].name, queue[0], str(queue[1])))
            missing.append(findings("QUEUE_DELETED", path, *messages, queue=queue, commit_log_offset=start))
        expected.save(work / _ENTRIES)
        batches = batch_queue_checks(store, find_batch_file_size(conf, store).value, staged, bounds, live)
        checks: list[Check] = [
            partial(log_end_findings, live.last, live.end, live.has_grown),
            *(index_file_checks(index, work / _ENTRIES, staged.folder, bounds, live, since) if is_read(INDEX) else ()),
            *(check for _, others in trees for check in others.checks()),
            *_checks_of_forms(store, log, live, expected, bounds, is_running=not has_lock and bool(is_locked(store))),
            *batches,
        ]
        if has_extensions:
            from spark_mq.verifier.queue_ext import extension_checks

            checks += extension_checks(store, folders, dispatched, bounds)
        # Both at the same time, because neither alone keeps all cores busy.
        with ThreadPoolExecutor(1) as executor:
            of_checks = executor.submit(runner.each, "check files", "parts", checks, partial(_found_by, folder=found))
            for files, others in trees if listed.has_queues else ():
                planned = [
                    replace(queue, existing_end=others.stops.get(name, 0))
                    for name, queue in others.queues.items()
                    if is_topic_name(queue.topic) and is_read(f"{files.name}/{queue.topic}/{queue.queue_id}")
                ]
                if planned:
                    plan = QueuePlan(tuple(planned), files.capacity)
                    of_queues = partial(files.check_runs, found=found)
                    summaries += of_runs(runner, "check queues", runs, plan.assignment(), of_queues)
            summaries += of_checks.result()

    if request.tiered is not None:
        from spark_mq.verifier.tiered import check_tiered

        summaries += check_tiered(
            request.tiered, work, runner, found, has_extensions=has_extensions, is_running=is_locked(store) is not False
        )

    # Everything else, against queues and log
    of_batches = batch_queue_offsets(batches)
    offsets = {**since.with_earlier(_offsets_of_queues(queues, folders, dispatched, bounds.end)), **of_batches}
    newest = max(staged.newest_store_timestamp, since.newest_store_timestamp)
    with FindingSink(found) as sink:
        log_range = range(log.segments[0].base if log.segments else 0, bounds.end)
        named = {topic for topic, _ in (*queues, *of_batches)}
        sink.add(listed.findings(log_range, newest, offsets, named, has_lock=has_lock))
        sink.add(checked_log.findings(log))
        sink.add(not_checked_queues(dispatched))
        sink.add(_topic_names(queues.values()) if listed.has_queues else ())
        sink.add(missing)
        if not index.file_count and expected.count and conf.without_index_files is None:
            sink.add([findings("INDEX_MISSING", INDEX, f"{expected.count} entries", "no index file")])
    summary = Summary.of([*summaries, sink.summary])
    report = VerifyReport(
        store=str(store),
        is_quick=False,
        counts=summary.counts,
        first=summary.first,
        messages=staged.messages,
        log_bytes=bounds.end - bounds.start,
        queues=len(queues) + len(batches),
        units=sum(queue.staged_units for queue in queues.values())
        + sum(part.count for check in batches for part in check.parts),
        index_files=index.file_count,
        index_entries=expected.count,
        seconds=round(time.monotonic() - started, 3),
        engine=runner.tasks.engine,
        is_accepted=checked_log.is_accepted,
        sound_bytes=bounds.start - log_range.start,
        checked_timestamp=since.checked,
        whole_timestamp=since.whole,
        whole_reason=since.reason,
        tiered_queues=None if request.tiered is None else len(request.tiered.queues()),
    )
    if request.since_last is not None and report.is_sound and log.segments:
        start, times = min(bounds.end, summary.later), (last_time, newest)
        is_whole = bounds.start == log_range.start
        grows = live.has_grown()
        new_journal(listed, facts, earlier, start, times, offsets, is_whole=is_whole, has_grown=grows).save(
            request.since_last
        )
    found_of = report, summary.files, checked_log, bounds
    return CheckedStore(*found_of, file_size, has_extensions, index, queues, offsets, batches)


def _checks_of_forms(
    store: Location, log: CommitLog, live: LiveLog, expected: ExpectedEntries, bounds: LogBounds, *, is_running: bool
) -> Iterator[Check]:
    """The checks of what few stores have. Their modules are loaded only for such a store: a command waits for them."""
    node, database = dledger_node(store), index_database(store)
    if node is not None:
        yield from (partial(entry_findings, node, segment) for segment in log.segments if segment.has_entries)
        if not is_running:
            yield partial(lost_entry_findings, node, log.segments)
    if (store / COMPACTION).is_directory:
        from spark_mq.verifier.compaction import compaction_findings

        yield partial(compaction_findings, store, live)
    if database is not None:
        from spark_mq.verifier.index_database import index_database_findings

        yield partial(index_database_findings, store, database, expected, bounds)


def _found_by(check: Check, folder: Location) -> Summary:
    with FindingSink(folder) as sink:
        sink.add(check())
    return sink.summary


def _topic_names(queues: Iterable[StagedQueue]) -> Iterator[pa.RecordBatch]:
    for queue in queues:
        if not is_topic_name(queue.topic):
            yield findings(
                "TOPIC_NAME",
                None,
                "a name of a folder",
                f"topic {queue.topic!r}",
                queue=(queue.topic, queue.queue_id),
                commit_log_offset=queue.commit_log_offset,
            )


def _offsets_of_queues(
    queues: Mapping[Queue, StagedQueue], folders: Iterable[QueueFolder], dispatched: Collection[Queue], log_end: int
) -> Mapping[Queue, range]:
    """The offsets of queues, by the log; of a queue without own messages, or with others' messages, by its files.

    Units after the end of the log do not count.
    """
    offsets = {
        name: range(queue.queue_min, queue.queue_max) for name, queue in queues.items() if name not in dispatched
    }
    with closing(FileReaders()) as files:
        for folder in folders:
            name = folder.topic, folder.queue_id
            if name not in offsets:
                end = ConsumeQueue(folder, files).end_before(log_end)
                offsets[name] = range(0 if name in dispatched else end, end)
    return offsets
