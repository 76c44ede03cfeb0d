"""Queue files against staged units, as tasks: files that have messages in the log, and files that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, queue_file_name
from spark_mq.format.java_text import decode_utf8
from spark_mq.indexer.queue_runs import Run, runs_in
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import is_configured
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.queue.consume_queue import ConsumeQueueExt
from spark_mq.verifier.finding import findings
from spark_mq.verifier.log_bounds import LiveLog, LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, queue_file_findings
from spark_mq.verifier.records import NOT_COMPARABLE
from spark_mq.verifier.sink import FindingSink, summary_batch

AFTER_THE_LOG = ("QUEUE_UNIT_STALE", "QUEUE_UNIT_EXTRA", "QUEUE_LAGS", "QUEUE_LAGS_CLEAN", "QUEUE_MISSING")
"""Findings that a broker causes while it appends: units of later messages, or units that are about to be written."""


@dataclass(frozen=True)
class QueueFiles:
    """What is needed to check any queue file.

    Attributes:
        folder: The folder `consumequeue`.
        bounds: Start and end of the log.
        log: The log as it was when the check began.
        has_extensions: Whether tags codes can be addresses in `consumequeue_ext`.
        topics: The configured topics; None if no file names them.
        dispatched: Queues with units of other queues' messages, which are not checked (`multi_dispatch`).
    """

    folder: Location
    file_size: int
    bounds: LogBounds
    log: LiveLog
    has_extensions: bool
    topics: frozenset[str] | None
    dispatched: frozenset[tuple[str, int]] = frozenset()

    def findings(self, expected: ExpectedFile) -> Iterator[pa.RecordBatch]:
        """What is wrong with a file; nothing if it has another size, which is a finding of its own."""
        existing = self._read(expected)
        if existing is None:
            return
        if not existing.size:
            expected.has_file = self._location(expected).is_file
            expected.newest_unit = self._newest_unit(expected) if expected.stop else -1
        has_later = expected.start + expected.capacity < expected.stop
        if has_later and expected.units.size and not existing.size and not expected.has_file:
            yield _missing_file(expected)
            return
        for batch in queue_file_findings(expected, existing, self.bounds, self.has_extensions):
            code = batch["code"][0].as_py()
            if code in NOT_COMPARABLE and (expected.topic, expected.queue_id) in self.dispatched:
                continue
            if code not in AFTER_THE_LOG or not self.log.has_grown():
                yield batch

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
        return offset if (decode_utf8(record.topic), record.queue_id) == (expected.topic, expected.queue_id) else -1

    def _location(self, expected: ExpectedFile) -> Location:
        name = queue_file_name(expected.number, self.file_size)
        return self.folder / expected.topic / str(expected.queue_id) / name

    def _read(self, expected: ExpectedFile) -> Units | None:
        """The units up to the last one that is not zeros; none if the file does not exist, or is empty.

        Addresses in `consumequeue_ext` are replaced by the tags codes to which they lead.
        """
        location = self._location(expected)
        info = location.info()
        if info.type != fs.FileType.File or not info.size:
            return np.zeros(0, UNIT_DTYPE)
        if info.size != self.file_size:
            return None
        try:
            data_end = find_data_end(location, self.file_size)
            with FileReader(location) as file:
                data = file.read(0, -(-data_end // UNIT_SIZE) * UNIT_SIZE)
        except FileNotFoundError as error:
            raise StoreChangedError(f"{location} was removed while the store was checked; run again") from error
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
        if not self.has_extensions:
            return units
        with closing(FileReaders()) as files:
            return ConsumeQueueExt.beside(location.parent, files).resolved(units)


def _missing_file(expected: ExpectedFile) -> pa.RecordBatch:
    with_message = np.flatnonzero(expected.units["store_size"])
    return findings(
        "QUEUE_FILE_MISSING",
        file=expected.path,
        topic=expected.topic,
        queue_id=expected.queue_id,
        commit_log_offset=int(expected.units["commit_log_offset"][with_message[0]]),
        expected=f"a file with {with_message.size} units",
        found="no file, and later files of the queue",
    )


@dataclass(frozen=True)
class QueueChecker:
    """The task that checks the files of its runs (`indexer/queue_runs`)."""

    files: QueueFiles
    findings: Location

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As a task: runs sorted by file and then by commit log offset in, one summary out."""
        with FindingSink(self.findings) as sink:
            for file in expected_files(runs_in(batches), self.files.file_size // UNIT_SIZE):
                file.is_configured = is_configured(file.topic, self.files.topics)
                sink.add(self.files.findings(file))
        yield summary_batch(sink.summary.to_json())


def expected_files(runs: Iterable[Run], capacity: int) -> Iterator[ExpectedFile]:
    """The files of runs, with all units that the log has for them.

    Args:
        runs: Runs that are sorted by file and then by commit log offset.
        capacity: The number of units in a file.
    """
    for (topic, queue_id, number), group in groupby(runs, lambda r: (r.topic, r.queue_id, r.file_number)):
        file: ExpectedFile | None = None
        for run in group:
            if file is None:
                bounds = run.queue_min, run.queue_max, run.existing_end
                file = ExpectedFile(topic, queue_id, number, capacity, *bounds)
            file.put(run.first_queue_offset, np.frombuffer(run.units, UNIT_DTYPE))
            file.last_store_timestamp = run.last_store_timestamp
        if file is not None:
            yield file


@dataclass(frozen=True)
class QueueFilesCheck:
    """The check of queue files for which the log has no message."""

    files: QueueFiles
    expected: tuple[ExpectedFile, ...]

    def __call__(self, sink: FindingSink) -> None:
        """Put what is wrong into `sink`."""
        for file in self.expected:
            sink.add(self.files.findings(file))
