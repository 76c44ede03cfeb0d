"""Queue files against staged units: files that have messages in the log, and files that have none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Queue, Units, pre_blank, queue_file_name
from spark_mq.format.java_text import decode_utf8
from spark_mq.indexer.queue_runs import Run, Runs, StagedQueue, by_file
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import is_configured, is_topic_name
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.queue.consume_queue import ConsumeQueueExt
from spark_mq.store.queue.folders import QueueFolder, queue_path
from spark_mq.verifier.finding import findings, postponed
from spark_mq.verifier.log_bounds import LiveLog, LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, queue_file_findings
from spark_mq.verifier.records import NOT_COMPARABLE
from spark_mq.verifier.result import FindingSink, Summary

_FILES_PER_CHECK = 64
_AFTER_THE_LOG = ("QUEUE_UNIT_STALE", "QUEUE_UNIT_EXTRA", "QUEUE_LAGS", "QUEUE_LAGS_CLEAN", "QUEUE_MISSING")
"""Findings that a broker causes while it appends: units of later messages, or units that are about to be written."""


@dataclass(frozen=True)
class QueueFiles:
    """What is needed to check any queue file of a store; in `dispatched` queues are units of others' messages.

    `name` is what findings call the folder `tree`.

    The units of a queue before the offset that `sound_to` has are not read: they count as pre-blank.
    """

    tree: Location
    file_size: int
    bounds: LogBounds
    log: LiveLog
    has_extensions: bool
    topics: frozenset[str] | None
    dispatched: frozenset[Queue] = frozenset()
    sound_to: Mapping[Queue, int] = field(default_factory=dict)
    name: str = CONSUME_QUEUE

    @property
    def capacity(self) -> int:
        """The number of units in a file."""
        return self.file_size // UNIT_SIZE

    def check_runs(self, runs: Iterable[Run], found: Location) -> Iterator[Summary]:
        """Check the files of runs, which are sorted by file and then by commit log offset."""
        with FindingSink(found) as sink:
            for file in expected_files(runs, self.capacity):
                file.tree = self.name
                file.is_configured = is_configured(file.topic, self.topics)
                sink.add(self.findings(file))
        yield sink.summary

    def check(self, files: Iterable[ExpectedFile]) -> Iterator[pa.RecordBatch]:
        """What is wrong with files."""
        for file in files:
            file.tree = self.name
            yield from self.findings(file)

    def findings(self, expected: ExpectedFile) -> Iterator[pa.RecordBatch]:
        """What is wrong with a file; another size is a finding of its own."""
        existing = self._read(expected)
        if existing is None:
            return
        if not existing.size:
            expected.has_file = self._location(expected).is_file
            expected.newest_unit = self._newest_unit(expected) if expected.stop else -1
        has_later = expected.start + expected.capacity < expected.stop
        if has_later and expected.units.size and not existing.size and not expected.has_file:
            with_message = expected.units[expected.units["store_size"] != 0]
            yield findings(
                "QUEUE_FILE_MISSING",
                expected.path,
                f"a file with {with_message.size} units",
                "no file, and later files of the queue",
                queue=expected.queue,
                commit_log_offset=int(with_message["commit_log_offset"][0]),
            )
            return
        for batch in queue_file_findings(expected, existing, self.bounds, self.has_extensions):
            if batch["code"][0].as_py() in NOT_COMPARABLE and expected.queue in self.dispatched:
                continue
            yield unless_appended(batch, self.log)

    def _newest_unit(self, expected: ExpectedFile) -> int:
        """The commit log offset in the last unit of a queue; -1 if it does not lead to a message of the queue."""
        last = replace(expected, number=expected.stop // expected.capacity - 1, doubled=[])
        units = self._read(last)
        if units is None or not units.size:
            return -1
        offset = int(units["commit_log_offset"][-1])
        with closing(FileReaders()) as files:
            try:
                record = RecordLookup(self.log.store, files).record(offset)
            except CorruptLogError:
                return -1
        return offset if (decode_utf8(record.topic), record.queue_id) == expected.queue else -1

    def _location(self, expected: ExpectedFile) -> Location:
        return self.tree / expected.path.removeprefix(f"{self.name}/")

    def _read(self, expected: ExpectedFile) -> Units | None:
        """The units up to the last one that is not zeros; none if the file does not exist, or is empty.

        None if the file has another size, or if its units after the sound ones are those of the log. Addresses in
        `consumequeue_ext` are replaced by the tags codes to which they lead.
        """
        location = self._location(expected)
        info = location.info()
        if info.type != fs.FileType.File or not info.size:
            return np.zeros(0, UNIT_DTYPE)
        if info.size != self.file_size:
            return None
        sound = self._sound_units(expected)
        try:
            data_end = find_data_end(location, self.file_size)
            with FileReader(location) as file:
                data = file.read(sound * UNIT_SIZE, max(-(-data_end // UNIT_SIZE) - sound, 0) * UNIT_SIZE)
        except FileNotFoundError as error:
            raise StoreChangedError(f"{location} was removed while the store was checked; run again") from error
        if sound:
            if not expected.doubled and data == expected.units[sound:].tobytes():
                return None
            data = pre_blank(sound).tobytes() + data
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
        if not self.has_extensions:
            return units
        with closing(FileReaders()) as files:
            return ConsumeQueueExt(location.parent, files).resolved(units)

    def _sound_units(self, expected: ExpectedFile) -> int:
        """The number of units at the beginning of a file that are not read."""
        stop = self.sound_to.get(expected.queue, 0)
        if expected.queue_min is not None:
            stop = min(stop, expected.queue_min)
        return min(max(stop - expected.start, 0), self.capacity)


def unless_appended(batch: pa.RecordBatch, log: LiveLog) -> pa.RecordBatch:
    """Findings of one code about units; postponed if they can be those that a broker writes at this moment."""
    return postponed(batch) if batch["code"][0].as_py() in _AFTER_THE_LOG and log.has_grown() else batch


def expected_files(runs: Iterable[Run], capacity: int) -> Iterator[ExpectedFile]:
    """The files of runs, which are sorted by file and then by commit log offset, with the units that the log has."""
    for first, of_file in by_file(runs):
        bounds = first.queue_min, first.queue_max, first.existing_end
        file = ExpectedFile(first.topic, first.queue_id, first.file_number, capacity, *bounds)
        for run in of_file:
            file.put(run.first_queue_offset, np.frombuffer(run.units, UNIT_DTYPE))
            file.last_store_timestamp = run.last_store_timestamp
        yield file


def file_range(queue: StagedQueue | None, capacity: int) -> range:
    """The numbers of a queue's files from the first to the last one that has messages in the log."""
    return range(0) if queue is None else range(queue.queue_min // capacity, (queue.queue_max - 1) // capacity + 1)


def written_stop(folder: QueueFolder, file_size: int) -> int:
    """The queue offset after the last file of a queue that is not all zeros; 0 if there is none."""
    for info in reversed(folder.files):
        if find_data_end(folder.location / info.base_name, info.size):
            return (int(info.base_name) // file_size + 1) * (file_size // UNIT_SIZE)
    return 0


@dataclass(frozen=True)
class FilesWithoutMessages:
    """The queue files that have no message in the log.

    They are expired ones, later ones, those of other queues, and those whose messages are all lost: these are between
    files with messages, whose numbers `with_units` has. `stops` are those of `written_stop`. Files that are `unchanged`
    since they were sound are left out.
    """

    files: QueueFiles
    folders: Sequence[QueueFolder]
    queues: Mapping[Queue, StagedQueue]
    stops: Mapping[Queue, int]
    with_units: Mapping[Queue, Collection[int]]
    unchanged: Collection[str] = ()

    @classmethod
    def of(
        cls,
        files: QueueFiles,
        folders: Sequence[QueueFolder],
        queues: Mapping[Queue, StagedQueue],
        runs: Runs,
        unchanged: Collection[str] = (),
    ) -> Self:
        """The files of these folders."""
        chosen = [
            name
            for name, queue in queues.items()
            if len(file_range(queue, files.capacity)) > 2
            and (files.bounds.holes or queue.staged_units < queue.queue_max - queue.queue_min)
        ]
        stops = {(folder.topic, folder.queue_id): written_stop(folder, files.file_size) for folder in folders}
        return cls(files, folders, queues, stops, runs.file_numbers(chosen) if chosen else {}, unchanged)

    def checks(self) -> Iterator[Callable[[], Iterator[pa.RecordBatch]]]:
        """The checks of those that exist, some in each."""
        existing = iter(self._existing())
        while some := list(islice(existing, _FILES_PER_CHECK)):
            yield partial(self.files.check, some)

    def _existing(self) -> Iterator[ExpectedFile]:
        for folder in self.folders:
            name = folder.topic, folder.queue_id
            queue = self.queues.get(name)
            checked = file_range(queue, self.files.capacity)
            for info in folder.files:
                number, rest = divmod(int(info.base_name), self.files.file_size)
                is_lost = number in checked and number not in self.with_units.get(name, checked)
                path = queue_path(folder.topic, folder.queue_id, info.base_name)
                if not rest and (number not in checked or is_lost) and path not in self.unchanged:
                    capacity, stop = self.files.capacity, self.stops[name]
                    yield ExpectedFile.without_message(name, number, capacity, queue, stop, is_lost)

    def missing(self) -> Iterator[pa.RecordBatch]:
        """Runs of files between others that do not exist, and whose messages are all lost."""
        for folder in self.folders:
            queue = folder.topic, folder.queue_id
            numbers = self.with_units.get(queue, frozenset())
            existing = {int(info.base_name) // self.files.file_size for info in folder.files}
            for before, after in pairwise(sorted({*numbers, *existing})):
                if after - before > 1 and before >= min(numbers, default=after) and after <= max(existing):
                    name = queue_file_name(before + 1, self.files.file_size)
                    yield findings(
                        "QUEUE_FILE_MISSING",
                        queue_path(folder.topic, folder.queue_id, name),
                        f"{after - before - 1} files, whose messages are lost, too",
                        "no file, and later files of the queue",
                        queue=queue,
                    )


def topic_name_findings(queues: Iterable[StagedQueue]) -> Iterator[pa.RecordBatch]:
    """Queues whose topic is not a name of a folder: no file of them is looked for."""
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
