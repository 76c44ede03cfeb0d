"""The check of a whole store: the log is read once, and everything else is held against it.

1. What names, sizes and small files show is read first, because a broker can be running: its checkpoint and offsets are
   then older than the log that is checked.
2. The log is staged as for a rebuild (`indexer/staging`), and its records are checked while they are read.
3. Queue files, index files and the end of the log are checked against what was staged.
4. Config files and the checkpoint are held against queues and log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from spark_mq.errors import ConfigError
from spark_mq.format.broker_version import INDEX_TAGS
from spark_mq.format.consume_queue import UNIT_SIZE, Queue, queue_file_name
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.indexer.queue_plan import PlannedQueue, QueuePlan
from spark_mq.indexer.queue_runs import Runs, StagedQueue
from spark_mq.indexer.rebuild_plan import DispatchTargets
from spark_mq.indexer.stage import StagedLog, misaligned_segments
from spark_mq.indexer.staged_files import SPLIT_SCHEMA, SplitRow
from spark_mq.indexer.tag_entries import TaggedRanges, TagRun, decide_tags
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.job.task_items import TaskItems
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import is_topic_name
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE, Split, plan_splits
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder, find_queue_file_size, queue_folders
from spark_mq.verifier.config_files import BrokerState, ConfigFiles, QueueBounds, checkpoint_findings, config_findings
from spark_mq.verifier.entry_match import ExpectedEntries
from spark_mq.verifier.finding import findings
from spark_mq.verifier.index_file import IndexFileCheck
from spark_mq.verifier.index_folder import IndexFolder, list_index
from spark_mq.verifier.log_bounds import LiveLog, LogBounds, LogEndCheck, log_start_findings, merged
from spark_mq.verifier.queue_ext import QueueExtCheck
from spark_mq.verifier.queue_file import ExpectedFile
from spark_mq.verifier.queue_folders import irregular_findings, not_checked, queue_folder_findings
from spark_mq.verifier.queue_task import QueueChecker, QueueFiles, QueueFilesCheck
from spark_mq.verifier.records import FAR_BACK_MILLIS, not_checked_queues
from spark_mq.verifier.segments import segment_findings
from spark_mq.verifier.sink import SUMMARY_SCHEMA, Check, CheckTask, FindingSink, Summary, TaskRunner
from spark_mq.verifier.split_task import CHECKED_SPLIT_SCHEMA, SplitTask

STAGED, FINDINGS = "staged", "findings"
"""Folders of a check's work folder: staged units and entries; the files of all findings."""

_ENTRIES = "entries.json"
_FILES_PER_CHECK = 64


@dataclass(frozen=True)
class CheckedLog:
    """The log, staged, and what is wrong with its records.

    Attributes:
        staged: The staged log; None if the log has no segment.
        summaries: The findings about its records, counted.
        named: The queues that its messages name (`multi_dispatch`).
        doubtful_tags: Messages of which it is not certain whether entries for their tags are lost (`TaggedRanges`).
    """

    staged: StagedLog | None
    summaries: tuple[Summary, ...]
    named: frozenset[tuple[str, int]]
    doubtful_tags: tuple[TagRun, ...]


@dataclass(frozen=True)
class CheckEvidence:
    """What the files of a store were held against; a repair makes files from it.

    Attributes:
        log: The log, staged in the work folder.
        bounds: Start and end of the log.
        has_extensions: Whether tags codes can be addresses in `consumequeue_ext`.
        bounds_of_queues: The offsets of the queues that have messages or files.
    """

    log: CheckedLog
    bounds: LogBounds
    queue_file_size: int
    queues: tuple[StagedQueue, ...]
    has_extensions: bool
    index: IndexFolder
    bounds_of_queues: Mapping[Queue, QueueBounds]

    @property
    def staged(self) -> StagedLog | None:
        """The staged log; None if the log has no segment."""
        return self.log.staged


@dataclass(frozen=True)
class CheckedStore:
    """The result of a check.

    Attributes:
        evidence: What the files were held against.
    """

    summary: Summary
    evidence: CheckEvidence
    messages: int
    log_bytes: int
    queues: int
    units: int
    index_files: int
    index_entries: int


def check_store(
    store: Location,
    conf: BrokerConf,
    work: Location,
    runner: TaskRunner,
    split_size: int = DEFAULT_SPLIT_SIZE,
    checked_log: CheckedLog | None = None,
    *,
    has_lock: bool = False,
) -> CheckedStore:
    """Check a whole store.

    Args:
        work: A folder for staged files and findings, which exists and is empty.
        runner: Where the parts of the check run.
        split_size: Bytes of the log for a task.
        checked_log: The log's records, if an earlier check has read them and no record has changed since.
        has_lock: Whether this job has the store's lock. Then no broker runs, and the check does not wait for one.
    """
    return _Check(store, conf, work, runner, split_size, has_lock).run(checked_log)


@dataclass(frozen=True)
class _Check:
    store: Location
    conf: BrokerConf
    work: Location
    runner: TaskRunner
    split_size: int
    has_lock: bool

    def run(self, checked_log: CheckedLog | None) -> CheckedStore:
        (self.work / FINDINGS).make_folder()
        state, config = BrokerState.of(self.store), ConfigFiles.of(self.store)
        log = CommitLog.open(self.store)
        index = list_index(self.store, self.conf)
        has_queues = not has_rocksdb_queues(self.store)
        folders = list(queue_folders(self.store / CONSUME_QUEUE)) if has_queues else []
        file_size = find_queue_file_size(self.conf, [(self.store / CONSUME_QUEUE, folders)]).value
        checked_log = checked_log or self._stage(log, index, file_size)
        staged, summaries = checked_log.staged, list(checked_log.summaries)
        dispatched = checked_log.named & {(folder.topic, folder.queue_id) for folder in folders}
        start, end, last, newest = 0, 0, 0, 0
        if staged is not None:
            start, end = staged.start, staged.end
            last, newest = staged.last_store_timestamp, staged.newest_store_timestamp
        bounds = LogBounds(start, end, not state.has_abort, _holes(log, staged))
        live = LiveLog(self.store, log.segments[-1], end, last) if log.segments else None
        expected = _expected_entries(staged)
        queues: list[StagedQueue] = []
        missing: list[pa.RecordBatch] = []
        has_extensions = bool((self.store / "consumequeue_ext").entries())
        if live is not None:
            if not self.has_lock:
                live.wait_for_broker()
            runs = self.runner.runs([] if staged is None else staged.units)
            files = QueueFiles(
                self.store / CONSUME_QUEUE, file_size, bounds, live, has_extensions, config.topics, dispatched
            )
            queues = runs.queues()
            expected.save(self.work / _ENTRIES)
            checks: list[Check] = [LogEndCheck(live), *self._index_checks(index, staged, bounds, live)]
            with_units = _files_with_units(runs, queues, files)
            checks += _other_queue_files(files, queues, folders, with_units)
            if has_extensions:
                checks += self._extension_checks(folders, dispatched, bounds)
            missing += _missing_lost_files(with_units, folders, files)
            # Both at the same time, because neither alone keeps all cores busy.
            with ThreadPoolExecutor(1) as executor:
                others = executor.submit(self._run_checks, checks)
                if has_queues:
                    summaries += self._check_queues(runs, queues, folders, files)
                summaries += others.result()
        bounds_of_queues = _bounds_of_queues(queues, folders, dispatched, end)
        with FindingSink(self.work / FINDINGS) as sink:
            sink.add(segment_findings(self.store, log, self.conf.commit_log_file_size, has_lock=self.has_lock))
            sink.add(log_start_findings(start, folders, bounds_of_queues, index))
            sink.add(not_checked(self.store))
            sink.add(not_checked_queues(dispatched))
            sink.add(_not_checked_tags(checked_log.doubtful_tags))
            sink.add(missing)
            sink.add(queue_folder_findings(self.store, file_size, has_lock=self.has_lock))
            sink.add(irregular_findings(self.store))
            sink.add(index.findings)
            sink.add(self._missing_index(index, expected))
            if staged is not None:
                sink.add(_times_between_splits(staged.splits))
                sink.add(_inner_batches(staged))
            sink.add(checkpoint_findings(state, end, newest))
            unknown = {info.base_name for info in (self.store / "batchconsumequeue").entries()}
            sink.add(
                config_findings(
                    config,
                    bounds_of_queues,
                    _topics(queues, folders),
                    is_known=lambda topic: has_queues and topic not in unknown and not topic.startswith(LIGHT_PREFIX),
                )
            )
        return CheckedStore(
            Summary.of([*summaries, sink.summary]),
            CheckEvidence(checked_log, bounds, file_size, tuple(queues), has_extensions, index, bounds_of_queues),
            0 if staged is None else staged.messages,
            end - start,
            len(queues),
            sum(queue.staged_units for queue in queues),
            index.file_count,
            expected.count,
        )

    def _stage(self, log: CommitLog, index: IndexFolder, file_size: int) -> CheckedLog:
        """The log, staged and checked."""
        (self.work / STAGED).make_folder()
        if not log.segments:
            return CheckedLog(None, (), frozenset(), ())
        levels = self.conf.message_delay_level or DEFAULT_DELAY_LEVELS
        # Which tags have entries can be seen only after all of the log is staged.
        targets = DispatchTargets(self.work / STAGED, file_size, True, levels, index_tags=None)
        checked = self._dispatch("check log", plan_splits(log, self.split_size), targets, exact=False)
        misaligned = misaligned_segments([split.row for split in checked], log.segments[-1].base)
        if misaligned:
            whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in misaligned]
            again = self._dispatch("check log again", whole, targets, exact=True)
            checked = [split for split in checked if split.row.segment not in misaligned] + again
            checked.sort(key=_CheckedSplit.place)
        rows = tuple(split.row for split in checked)
        staged = StagedLog(targets.folder, rows, 0, sum(row.bytes_read for row in rows), ())
        staged, tagged = self._with_tags(staged, index)
        named = frozenset[tuple[str, int]]().union(*(split.named for split in checked))
        return CheckedLog(staged, tuple(split.summary for split in checked), named, tagged.doubtful)

    def _with_tags(self, staged: StagedLog, index: IndexFolder) -> tuple[StagedLog, TaggedRanges]:
        """The staged log with entries for tags where the index has them; if it shows nothing, the version decides."""
        layout = index.layout or IndexLayout()
        return decide_tags(staged, index.files, layout, find_broker_versions(self.store), self.runner.rows)

    def _dispatch(
        self, name: str, splits: Sequence[Split], targets: DispatchTargets, exact: bool
    ) -> list[_CheckedSplit]:
        task = SplitTask(TaskItems.of(splits), targets, exact, self.work / FINDINGS)
        size = sum(split.stop - split.start for split in splits)
        table = self.runner.rows(
            name, "splits", lambda done: replace(task, done=done), len(splits), CHECKED_SPLIT_SCHEMA, size
        )
        rows = [SplitRow.of(row) for row in table.select(SPLIT_SCHEMA.names).to_pylist()]
        summaries = [Summary.of_json(summary) for summary in table["summary"].to_pylist()]
        named = [
            frozenset((queue["topic"], queue["queue_id"]) for queue in queues)
            for queues in table["dispatched_queues"].to_pylist()
        ]
        return sorted(map(_CheckedSplit, rows, summaries, named), key=_CheckedSplit.place)

    def _check_queues(
        self, runs: Runs, queues: Sequence[StagedQueue], folders: Sequence[QueueFolder], files: QueueFiles
    ) -> list[Summary]:
        """The check of all queues that have messages in the log."""
        safe = [queue for queue in queues if is_topic_name(queue.topic)]
        with FindingSink(self.work / FINDINGS) as sink:
            sink.add(
                findings(
                    "TOPIC_NAME",
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    commit_log_offset=queue.commit_log_offset,
                    expected="a name of a folder",
                    found=f"topic {queue.topic!r}",
                )
                for queue in queues
                if not is_topic_name(queue.topic)
            )
        if not safe:
            return [sink.summary]
        ends = {(folder.topic, folder.queue_id): _written_stop(folder, files.file_size) for folder in folders}
        planned = [
            PlannedQueue(**vars(queue), existing_end=ends.get((queue.topic, queue.queue_id), 0)) for queue in safe
        ]
        plan = QueuePlan(tuple(planned), files.file_size // UNIT_SIZE)
        found = self.runner.summaries(runs, plan.assignment(), QueueChecker(files, self.work / FINDINGS))
        return [sink.summary, *map(Summary.of_json, found)]

    def _run_checks(self, checks: Sequence[Check]) -> list[Summary]:
        task = CheckTask(TaskItems.of(checks), self.work / FINDINGS)
        table = self.runner.rows(
            "check files", "parts", lambda done: replace(task, done=done), len(checks), SUMMARY_SCHEMA
        )
        return [Summary.of_json(summary) for summary in table["summary"].to_pylist()]

    def _index_checks(
        self, index: IndexFolder, staged: StagedLog | None, bounds: LogBounds, live: LiveLog
    ) -> Iterator[IndexFileCheck]:
        if index.layout is None or staged is None:
            return
        before: Location | None = None
        entries = self.work / _ENTRIES
        for number, info in enumerate(index.files):
            is_last = number == len(index.files) - 1
            yield IndexFileCheck(info.location, before, is_last, index.layout, entries, staged.folder, bounds, live)
            before = info.location

    def _extension_checks(
        self, folders: Sequence[QueueFolder], dispatched: Collection[Queue], bounds: LogBounds
    ) -> Iterator[QueueExtCheck]:
        """The checks of queues whose units can be addresses; without bit maps if the filters cannot be read."""
        try:
            filters = load_consumer_filters(self.store)
        except ConfigError:
            filters = []
        for folder in folders:
            if (folder.topic, folder.queue_id) not in dispatched and not folder.topic.startswith(LIGHT_PREFIX):
                of_topic = tuple(one for one in filters if one.topic == folder.topic)
                yield QueueExtCheck(self.store, folder, LogRange(bounds.start, bounds.end), of_topic)

    def _missing_index(self, index: IndexFolder, expected: ExpectedEntries) -> Iterator[pa.RecordBatch]:
        if not index.file_count and expected.count and self.conf.is_enabled("messageIndexEnable", default=True):
            yield findings("INDEX_MISSING", file=INDEX, expected=f"{expected.count} entries", found="no index file")


@dataclass(frozen=True)
class _CheckedSplit:
    """A split of the log: its row, its findings, and the queues that its messages name (`multi_dispatch`)."""

    row: SplitRow
    summary: Summary
    named: frozenset[tuple[str, int]]

    def place(self) -> tuple[int, int]:
        """Where the split is."""
        return self.row.segment, self.row.split_start


def _holes(log: CommitLog, staged: StagedLog | None) -> tuple[tuple[int, int], ...]:
    """The damaged and missing parts of the log."""
    damage = [*log.gaps, *(corrupt for split in staged.splits for corrupt in split.corrupt)] if staged else []
    return merged((one.commit_log_offset, one.commit_log_offset + one.length) for one in damage)


def _expected_entries(staged: StagedLog | None) -> ExpectedEntries:
    if staged is None:
        return ExpectedEntries((), ())
    entries = tuple(split.staged_entries(staged.folder) for split in staged.splits)
    return ExpectedEntries(entries, tuple(split.segment + split.split_start for split in staged.splits))


def _files_with_units(runs: Runs, queues: Iterable[StagedQueue], files: QueueFiles) -> Mapping[Queue, frozenset[int]]:
    """The numbers of the files with messages, of each queue that can have files without any between them."""
    capacity = files.file_size // UNIT_SIZE
    chosen = [
        (queue.topic, queue.queue_id)
        for queue in queues
        if (queue.queue_max - 1) // capacity - queue.queue_min // capacity > 1
        and (files.bounds.holes or queue.staged_units < queue.queue_max - queue.queue_min)
    ]
    return runs.file_numbers(chosen) if chosen else {}


def _missing_lost_files(
    with_units: Mapping[Queue, frozenset[int]], folders: Iterable[QueueFolder], files: QueueFiles
) -> Iterator[pa.RecordBatch]:
    """Files between others that do not exist, and whose messages are all lost; those that follow each other are one."""
    for folder in folders:
        numbers = with_units.get((folder.topic, folder.queue_id), frozenset())
        existing = {int(info.base_name) // files.file_size for info in folder.files}
        for before, after in pairwise(sorted(numbers | existing)):
            if after - before > 1 and before >= min(numbers, default=after) and after <= max(existing):
                name = queue_file_name(before + 1, files.file_size)
                yield findings(
                    "QUEUE_FILE_MISSING",
                    file=f"{CONSUME_QUEUE}/{folder.topic}/{folder.queue_id}/{name}",
                    topic=folder.topic,
                    queue_id=folder.queue_id,
                    expected=f"{after - before - 1} files, whose messages are lost, too",
                    found="no file, and later files of the queue",
                )


def _other_queue_files(
    files: QueueFiles,
    queues: Iterable[StagedQueue],
    folders: Iterable[QueueFolder],
    with_units: Mapping[Queue, frozenset[int]],
) -> Iterator[QueueFilesCheck]:
    """Checks of the files that have no message in the log.

    They are expired ones, later ones, those of other queues, and those whose messages are all lost: these are between
    files with messages (`with_units`, for the queues that can have such files).
    """
    capacity = files.file_size // UNIT_SIZE
    staged = {(queue.topic, queue.queue_id): queue for queue in queues}
    expected: list[ExpectedFile] = []
    for folder in folders:
        if folder.topic.startswith(LIGHT_PREFIX):
            continue
        queue = staged.get((folder.topic, folder.queue_id))
        low, high = (None, None) if queue is None else (queue.queue_min, queue.queue_max)
        checked = (
            range(0) if queue is None else range(queue.queue_min // capacity, (queue.queue_max - 1) // capacity + 1)
        )
        stop = _written_stop(folder, files.file_size)
        for info in folder.files:
            number, rest = divmod(int(info.base_name), files.file_size)
            inner = with_units.get((folder.topic, folder.queue_id))
            is_lost = inner is not None and number in checked and number not in inner
            if not rest and (number not in checked or is_lost):
                file = ExpectedFile(folder.topic, folder.queue_id, number, capacity, low, high, stop, is_lost=is_lost)
                expected.append(file)
    for start in range(0, len(expected), _FILES_PER_CHECK):
        yield QueueFilesCheck(files, tuple(expected[start : start + _FILES_PER_CHECK]))


def _written_stop(folder: QueueFolder, file_size: int) -> int:
    """The queue offset after the last file of a queue that is not all zeros; 0 if there is none."""
    for info in reversed(folder.files):
        if find_data_end(folder.location / info.base_name, info.size):
            return (int(info.base_name) // file_size + 1) * (file_size // UNIT_SIZE)
    return 0


def _not_checked_tags(runs: Iterable[TagRun]) -> Iterator[pa.RecordBatch]:
    """A note for each few messages without entries for their tags, if a broker of an older version can have run."""
    for run in runs:
        yield findings(
            "NOT_CHECKED",
            file=INDEX,
            commit_log_offset=run.first,
            expected=f"entries for the tags of {run.messages} messages, unless a broker before {INDEX_TAGS.since} ran",
            found="no such entries",
        )


def _times_between_splits(splits: Iterable[SplitRow]) -> Iterator[pa.RecordBatch]:
    """Store times that step back between two splits; within a split, its task finds them."""
    with_messages = [split for split in splits if split.messages]
    for before, after in pairwise(with_messages):
        assert before.last_store_timestamp is not None
        assert after.first_store_timestamp is not None
        back = before.last_store_timestamp - after.first_store_timestamp
        if back > 0:
            yield findings(
                "RECORD_TIME_FAR_BACK" if back > FAR_BACK_MILLIS else "RECORD_TIME_BACK",
                file=f"commitlog/{after.segment:020d}",
                position=after.first_position,
                commit_log_offset=after.segment + after.first_position,
                expected=f"a store time of {before.last_store_timestamp} or later",
                found=f"store time {after.first_store_timestamp}",
            )


def _inner_batches(staged: StagedLog) -> Iterator[pa.RecordBatch]:
    if staged.inner_batches:
        yield findings(
            "NOT_CHECKED",
            file="batchconsumequeue",
            found=f"the units of {staged.inner_batches} inner batches are not checked",
        )


def _bounds_of_queues(
    queues: Iterable[StagedQueue], folders: Iterable[QueueFolder], dispatched: Collection[Queue], log_end: int
) -> Mapping[Queue, QueueBounds]:
    """The offsets of queues, by the log; of a queue without own messages, or with others' messages, by its files.

    Units after the end of the log do not count.
    """
    by_log = ((queue.topic, queue.queue_id, QueueBounds(queue.queue_min, queue.queue_max)) for queue in queues)
    bounds = {(topic, queue_id): found for topic, queue_id, found in by_log if (topic, queue_id) not in dispatched}
    files = FileReaders()
    try:
        for folder in folders:
            if (folder.topic, folder.queue_id) not in bounds:
                end = ConsumeQueue(folder, files).end_before(log_end)
                start = 0 if (folder.topic, folder.queue_id) in dispatched else end
                bounds[folder.topic, folder.queue_id] = QueueBounds(start, end)
    finally:
        files.close()
    return bounds


def _topics(queues: Iterable[StagedQueue], folders: Iterable[QueueFolder]) -> set[str]:
    return {queue.topic for queue in queues} | {folder.topic for folder in folders}
