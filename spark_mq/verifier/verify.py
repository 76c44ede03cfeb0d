"""`verify`: the check of a store as a job, on Spark or in this process.

A quick check with the records of a sample of the log is what a short check each night can read of a large store.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from spark_mq.errors import OptionError, StorageError
from spark_mq.format.amounts import parse_size
from spark_mq.indexer.rebuild_plan import DispatchSettings, DispatchTargets
from spark_mq.io.location import Location
from spark_mq.io.publish import discard_folder
from spark_mq.job.progress import PROGRESS, Progress
from spark_mq.job.tasks import LocalTasks, SharedStorageCheck, TaskRunner, Tasks, package_errors, spark_tasks
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, SegmentSource, Split, list_offset_range
from spark_mq.verifier.check import STAGED, VerifyRequest, check_store
from spark_mq.verifier.finding import FINDING_SCHEMA
from spark_mq.verifier.log_check import CheckedSplit, check_split
from spark_mq.verifier.quick import quick_check
from spark_mq.verifier.result import SHOWN, Summary, VerifyReport, read_findings, write_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PREFIX = "spark-mq-verify-"
_PART = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_LEAST_SPLIT = 64 << 10
_SPLITS_OF_PART = 4
_SPLITS = 256


class VerifyResult:
    """What a check found.

    Attributes:
        report: Counts, the first findings of each code, and the verdict.
        folder: The folder with the files of all findings. It is removed when the result is closed, or no longer used.
    """

    def __init__(self, report: VerifyReport, files: Sequence[Location], folder: Location) -> None:
        self.report = report
        self.folder = folder
        self._files = tuple(files)
        self._spark: SparkSession | None = None
        self._finalizer = weakref.finalize(self, discard_folder, folder)

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings, by code."""
        return self.report.counts

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        return self.report.verdict

    @property
    def is_sound(self) -> bool:
        """Whether there is neither a warning nor an error."""
        return self.report.is_sound

    @property
    def findings(self) -> DataFrame:
        """All findings, one row each: the columns of `spark_mq.verifier.finding.Finding`."""
        from pyspark.sql import SparkSession
        from pyspark.sql.pandas.types import from_arrow_schema

        spark, schema = self._spark or SparkSession.active(), from_arrow_schema(FINDING_SCHEMA)
        if not self._files:
            return spark.createDataFrame([], schema)
        paths = [f"file://{file.path}" if file.is_local else str(file) for file in self._files]
        return spark.read.schema(schema).parquet(*paths)

    def write(self, path: str) -> None:
        """Write all findings to a file: Parquet if its name ends with `.parquet`, else JSON lines.

        Args:
            path: The file, a path or a URI.

        Raises:
            StorageError: The file cannot be written.
        """
        write_findings(path, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All findings, batch by batch, without Spark."""
        return read_findings(self._files)

    def close(self) -> None:
        """Remove the files of the findings."""
        self._finalizer()


def verify(
    spark: SparkSession,
    store: str,
    *,
    broker_conf: str | None = None,
    scratch: str | None = None,
    split_size: int = DEFAULT_SPLIT_SIZE,
    since_last: str | None = None,
    tiered_storage: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> VerifyResult:
    """Check everything in a store against its commit log, which is read once. Nothing in the store is changed.

    A broker can run on the store: what is newer than the end of the log at the start is left out.

    Args:
        spark: The session. The job uses a session of its own on the same Spark.
        store: The store directory, a path or a URI.
        broker_conf: The broker's `broker.conf` (file sizes, slots and entries, delay levels).
        scratch: A folder for staged files and findings that every machine sees; by default a temporary folder, which
            is right only if Spark runs on this machine. It needs a tenth of the log's size.
        split_size: Bytes of the log for a task.
        since_last: The file of a journal: only what is new or has changed since the last sound check is read, and a
            sound check rewrites the file. Without the file, everything is read.
        tiered_storage: The folder of tiered storage (tieredStoreFilePath), of which all is checked, too.
        progress: Gets a line of progress every few seconds.

    Returns:
        The result: `findings` is a DataFrame, `counts` has the number of findings of each code, `verdict` says whether
        the store is sound.

    Raises:
        OptionError: An argument is not valid.
        StoreNotFoundError: `store` is not a message store.
        UnsupportedStoreError: The store is of a kind that is not read.
        StoreChangedError: A file was removed while the store was checked.
        NotSharedError: A task does not see the store or the scratch folder that the driver sees.
        StorageError: A file cannot be read, or the scratch folder cannot be written.

    >>> from spark_mq import verify
    >>> result = verify(spark, "/data/store")
    >>> print(result.verdict)
    >>> result.findings.where("severity = 'error'").show()
    """
    request = VerifyRequest.of(store, broker_conf, scratch, split_size, since_last, tiered_storage)
    with spark_tasks(spark, progress) as tasks:
        result = verify_with(tasks, request)
    result._spark = spark
    return result


def verify_with(tasks: Tasks, request: VerifyRequest) -> VerifyResult:
    """Check what a request says; returns the result, and raises the errors, of `verify`."""
    started = time.monotonic()
    work = work_folder(request.scratch)
    stages = Progress(work, tasks.on_progress)
    try:
        with package_errors():
            checked = check_store(request, work, task_runner(tasks, request, work, stages))
    except BaseException:
        discard_folder(work)
        raise
    for name in (STAGED, PROGRESS):
        discard_folder(work / name)
    report = replace(checked.report, seconds=round(time.monotonic() - started, 3), stages=stages.seconds)
    return VerifyResult(report, checked.files, work)


def work_folder(scratch: Location | None) -> Location:
    """A new folder for staged files and findings, below `scratch`, or a temporary one of this machine."""
    if scratch is None:
        return Location.resolve(tempfile.mkdtemp(prefix=_PREFIX))
    folder = scratch / f"{_PREFIX}{uuid.uuid4().hex}"
    try:
        folder.make_folder()
    except OSError as error:
        raise StorageError(f"--scratch {scratch}: the folder cannot be written: {error}") from error
    return folder


def task_runner(tasks: Tasks, request: VerifyRequest, work: Location, progress: Progress) -> TaskRunner:
    """Runs the parts of a job, which write into `work`, as these tasks; in this process if the log is empty."""
    log = CommitLog.open(request.store)
    return TaskRunner(tasks.checked(SharedStorageCheck.record(log, work)) if log.segments else LocalTasks(), progress)


@dataclass(frozen=True)
class LogSample:
    """A part of the log: the `number`-th of `parts` parts, or, chosen at random, a `share` of it or a number of bytes.

    The splits of the log belong to the parts in turn, so `parts` checks read all of it while it does not grow.
    """

    number: int = 0
    parts: int = 0
    share: float = 0.0
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """The sample that N/T, X% or a size names."""
        part, share = _PART.fullmatch(text.strip()), _SHARE.fullmatch(text.strip())
        if part is not None and 1 <= int(part[1]) <= int(part[2]):
            return cls(number=int(part[1]), parts=int(part[2]))
        if share is not None and 0 < float(share[1]) <= 100:
            return cls(share=float(share[1]) / 100)
        try:
            return cls(size=parse_size("--sample", text))
        except OptionError as error:
            raise OptionError(
                f"--sample {text!r}: give N/T such as 3/30, X% such as 5%, or a size such as 20g"
            ) from error

    def splits(self, store: Location, split_size: int) -> list[Split]:
        """The splits of the sample, in the order of the log; at least as many bytes as asked for, if there are."""
        segments, end = CommitLog.open(store).segments, LiveEndFinder(store).find_end_now().offset
        if not segments or end <= segments[0].base:
            return []
        log = list_offset_range(store, segments[0].base, end)
        small = (log.end - log.start) // max(self.parts * _SPLITS_OF_PART, _SPLITS)
        splits = log.splits(max(min(split_size, small), _LEAST_SPLIT))
        if self.parts:
            return splits[self.number - 1 :: self.parts]
        wanted = self.size or self.share * sum(split.stop - split.start for split in splits)
        chosen: list[int] = []
        for number in random.sample(range(len(splits)), len(splits)):
            if wanted > 0:
                chosen.append(number)
                wanted -= splits[number].stop - splits[number].start
        return [splits[number] for number in sorted(chosen)]


def check_sample(
    request: VerifyRequest, sample: LogSample, work: Location, runner: TaskRunner
) -> tuple[VerifyReport, list[pa.RecordBatch]]:
    """The report of a quick check and of the records of a sample, and all findings; `work` is an empty folder."""
    report, found = quick_check(str(request.store), request.conf)
    splits = sample.splits(request.store, request.split_size)
    size = sum(split.stop - split.start for split in splits)
    settings = DispatchSettings(0, request.conf.message_delay_level)
    targets = DispatchTargets(work, settings, has_queues=False, has_index=False)
    checked = runner.each("check sample", "splits", splits, partial(_check, targets=targets, found=work), size)
    summary = Summary.of(one.summary for one in checked)
    # Both checks can see the same damage.
    codes = {*report.counts, *summary.counts}
    counts = {code: max(report.counts.get(code, 0), summary.counts.get(code, 0)) for code in codes}
    first = {code: [*report.first.get(code, ()), *summary.first.get(code, ())][:SHOWN] for code in counts}
    messages = sum(one.row.messages for one in checked)
    of_records = list(read_findings(summary.files))
    engine = runner.tasks.engine
    sampled = replace(report, counts=counts, first=first, messages=messages, sampled_bytes=size, engine=engine)
    return sampled, [*found.to_batches(), *of_records]


def _check(split: Split, targets: DispatchTargets, found: Location) -> CheckedSplit:
    """The check of the records that start in a split; where the first one starts is found from the bytes before it."""
    from spark_mq.store.log.split_reader import find_start

    with SegmentSource(split.segment) as source:
        start = split.start if split.start == 0 else find_start(source, split)
    return check_split(replace(split, start=min(start, split.stop)), targets, exact=True, found=found)
