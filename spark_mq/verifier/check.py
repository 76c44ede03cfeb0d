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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.indexer.queue_lives import restarted_queues, staged_runs
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import Runs, StagedQueue, of_runs
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
from spark_mq.store.queue.queue_database import lost_light_database
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.batch_queue import BatchQueueCheck, batch_queue_checks, batch_queue_offsets
from spark_mq.verifier.entry_match import ExpectedEntries
from spark_mq.verifier.finding import findings
from spark_mq.verifier.folders import IndexFolder
from spark_mq.verifier.index_file import index_file_checks
from spark_mq.verifier.journal import WHOLE, Facts, Since, facts_of, files_now, new_journal, plan_since
from spark_mq.verifier.listed_store import ListedStore
from spark_mq.verifier.log_bounds import LiveLog, LogBounds, log_end_findings, lost_entry_findings
from spark_mq.verifier.log_check import CheckedLog, check_log, entry_findings
from spark_mq.verifier.queue_task import FilesWithoutMessages, QueueFiles, topic_name_findings
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
    store, found = request.store, work / FINDINGS
    found.make_folder()
    listed = ListedStore.of(store, request.conf, reads_databases=True)
    log, index = listed.log, listed.index
    since, earlier, facts = WHOLE, None, dict[str, Facts]()
    if request.since_last is not None:
        since, earlier = plan_since(request.since_last, listed)
        facts = {path: facts_of(location) for path, location in files_now(listed).items()}
    if checked_log is None:
        checked_log = check_log(listed, request.split_size, runner, work / STAGED, found, since)
    staged, expected = checked_log.staged, checked_log.expected_entries()
    bounds = checked_log.bounds(log, not listed.state.has_abort)
    dispatched = checked_log.named & {(folder.topic, folder.queue_id) for folder in listed.folders}
    has_extensions = bool((store / CONSUME_QUEUE_EXT).entries())

    compared, live = ComparedFiles(), None
    if log.segments:
        last_time = staged.last_store_timestamp or since.last_store_timestamp or 0
        live = LiveLog(store, log.segments[-1], bounds.end, last_time)
        again = None if doubtful is None else {path for file in doubtful for path in (file, file.rpartition("/")[0])}
        compared = _Comparison(
            listed, checked_log, since, bounds, live, dispatched, has_extensions, work, runner, again, has_lock
        ).run()
    summaries = [*checked_log.summaries, *compared.summaries]
    if request.tiered is not None:
        from spark_mq.verifier.tiered import check_tiered

        is_running = is_locked(store) is not False
        summaries += check_tiered(
            request.tiered, work, runner, found, has_extensions=has_extensions, is_running=is_running
        )

    # Everything else, against queues and log
    queues, of_batches = compared.queues, batch_queue_offsets(compared.batches)
    offsets = {**since.with_earlier(_offsets_of_queues(queues, listed.folders, dispatched, bounds.end)), **of_batches}
    newest = max(staged.newest_store_timestamp, since.newest_store_timestamp)
    log_range = range(log.segments[0].base if log.segments else 0, bounds.end)
    with FindingSink(found) as sink:
        named = {topic for topic, _ in (*queues, *of_batches)}
        sink.add(listed.findings(log_range, newest, offsets, named, has_lock=has_lock))
        sink.add(checked_log.findings(log))
        sink.add(not_checked_queues(dispatched))
        sink.add(topic_name_findings(queues.values()) if listed.has_queues else ())
        sink.add(compared.missing)
        if not index.file_count and expected.count and request.conf.without_index_files is None:
            sink.add([findings("INDEX_MISSING", INDEX, f"{expected.count} entries", "no index file")])
    summary = Summary.of([*summaries, sink.summary])
    report = VerifyReport(
        store=str(store),
        is_quick=False,
        counts=summary.counts,
        first=summary.first,
        messages=staged.messages,
        log_bytes=bounds.end - bounds.start,
        queues=len(queues) + len(compared.batches),
        units=compared.units,
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
    if request.since_last is not None and report.is_sound and live is not None:
        start, times = min(bounds.end, summary.later), (live.last_store_timestamp, newest)
        is_whole, grows = bounds.start == log_range.start, live.has_grown()
        journal = new_journal(listed, facts, earlier, start, times, offsets, is_whole=is_whole, has_grown=grows)
        journal.save(request.since_last)
    return CheckedStore(
        report,
        summary.files,
        checked_log,
        bounds,
        listed.queue_file_size,
        has_extensions,
        index,
        queues,
        offsets,
        compared.batches,
    )


@dataclass(frozen=True)
class ComparedFiles:
    """The queues of a log, and what is wrong with the files that are made of it; nothing of a log without a segment.

    `missing` are findings about files that do not exist; `summaries` are those of all other findings.
    """

    queues: Mapping[Queue, StagedQueue] = field(default_factory=dict)
    batches: Sequence[BatchQueueCheck] = ()
    missing: Sequence[pa.RecordBatch] = ()
    summaries: Sequence[Summary] = ()

    @property
    def units(self) -> int:
        """The number of units of all queues."""
        parts = (part for check in self.batches for part in check.parts)
        return sum(queue.staged_units for queue in self.queues.values()) + sum(part.count for part in parts)


@dataclass(frozen=True)
class _Comparison:
    """Compares queues and index with the staged log.

    `again` are the folders of which files are read; None if all are. The other fields are as in `check_store`.
    """

    listed: ListedStore
    checked_log: CheckedLog
    since: Since
    bounds: LogBounds
    live: LiveLog
    dispatched: frozenset[Queue]
    has_extensions: bool
    work: Location
    runner: TaskRunner
    again: Collection[str] | None
    has_lock: bool

    def run(self) -> ComparedFiles:
        """Check all files that a task can check alone."""
        if not self.has_lock:
            self.live.wait_for_broker()
        listed, staged, store = self.listed, self.checked_log.staged, self.listed.location
        runs = staged_runs(
            self.runner.tasks, staged.units, shown_by=listed.tree, has_lite_topics=listed.has_light_queues
        )
        queues = {(queue.topic, queue.queue_id): queue for queue in runs.queues()}
        trees = self._trees(runs, queues)
        missing = list(self._missing(trees, runs, queues))
        batch_size = find_batch_file_size(listed.conf, store).value
        batches = batch_queue_checks(store, batch_size, staged, self.bounds, self.live)
        checks = [*self._checks(trees), *batches]
        # Both at the same time, because neither alone keeps all cores busy.
        with ThreadPoolExecutor(1) as executor:
            found_by = partial(_found_by, folder=self.work / FINDINGS)
            of_checks = executor.submit(self.runner.each, "check files", "parts", checks, found_by)
            of_queues = [self._check_queues(runs, tree) for tree in trees if listed.has_queues]
            summaries = [*chain.from_iterable(of_queues), *of_checks.result()]
        return ComparedFiles(queues, batches, missing, summaries)

    def _trees(self, runs: Runs, queues: Mapping[Queue, StagedQueue]) -> list[FilesWithoutMessages]:
        """The queues of the store's tree, and those of a database beside it; each has its own `queues`."""
        listed, double = self.listed, self.listed.double
        files = QueueFiles(
            listed.tree,
            listed.queue_file_size,
            self.bounds,
            self.live,
            self.has_extensions,
            listed.config.topics,
            self.dispatched,
            self.since.sound_to,
        )
        is_light = {name: name[0].startswith(LIGHT_PREFIX) and listed.has_light_database for name in queues}
        own = {name: queue for name, queue in queues.items() if not is_light[name]}
        trees = [FilesWithoutMessages.of(files, listed.folders, own, runs, self.since.unchanged)]
        if double is not None:
            # It has the queues of some topics only (`rocksdbCQSelectiveDoubleWrite`), and those light ones.
            files = replace(files, tree=double.tree, name=double.name, has_extensions=False)
            some = {(folder.topic, folder.queue_id) for folder in double.folders}
            kept = {name: queue for name, queue in queues.items() if name in some or is_light[name]}
            trees.append(FilesWithoutMessages.of(files, double.folders, kept, runs))
        return trees

    def _missing(
        self, trees: Sequence[FilesWithoutMessages], runs: Runs, queues: Collection[Queue]
    ) -> Iterator[pa.RecordBatch]:
        """Findings about queue files, a database, and messages of a deleted queue that are not there."""
        for tree in trees:
            yield from tree.missing()
        light_topics = any(topic.startswith(LIGHT_PREFIX) for topic, _ in queues)
        if light_topics and lost_light_database(self.listed.location, self.listed.conf):
            wanted = "the RocksDB database of light message queues (combineCQUseRocksdbForLmq)"
            yield findings("QUEUE_DATABASE", CONSUME_QUEUE, wanted, "no database")
        for queue, start in restarted_queues(runs).items():
            messages = "units of the messages before it", "a later message with queue offset 0"
            path = "/".join((trees[-1].files.name, queue[0], str(queue[1])))
            yield findings("QUEUE_DELETED", path, *messages, queue=queue, commit_log_offset=start)

    def _checks(self, trees: Iterable[FilesWithoutMessages]) -> Iterator[Check]:
        """The checks that need no runs of units."""
        store, log, live, bounds = self.listed.location, self.listed.log, self.live, self.bounds
        expected, entries = self.checked_log.expected_entries(), self.work / _ENTRIES
        expected.save(entries)
        yield partial(log_end_findings, live.last, live.end, live.has_grown)
        if self.again is None or INDEX in self.again:
            yield from index_file_checks(
                self.listed.index, entries, self.checked_log.staged.folder, bounds, live, self.since
            )
        for tree in trees:
            yield from tree.checks()
        is_running = not self.has_lock and bool(is_locked(store))
        yield from _checks_of_forms(store, log, live, expected, bounds, is_running=is_running)
        if self.has_extensions:
            from spark_mq.verifier.queue_ext import extension_checks

            yield from extension_checks(store, self.listed.folders, self.dispatched, bounds)

    def _check_queues(self, runs: Runs, tree: FilesWithoutMessages) -> list[Summary]:
        """Check the queue files that have messages in the log."""
        planned = tuple(
            replace(queue, existing_end=tree.stops.get(name, 0))
            for name, queue in tree.queues.items()
            if is_topic_name(queue.topic)
            and (self.again is None or f"{tree.files.name}/{queue.topic}/{queue.queue_id}" in self.again)
        )
        if not planned:
            return []
        assignment = QueuePlan(planned, tree.files.capacity).assignment()
        check = partial(tree.files.check_runs, found=self.work / FINDINGS)
        return of_runs(self.runner, "check queues", runs, assignment, check)


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
