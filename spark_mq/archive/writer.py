"""Appending the new messages of a store to an archive, each message exactly once.

Streams append messages and keys (`streams`). Segments and snapshots are written once in a run, and once an hour in a
run that continues. If a run fails, the next run completes its work.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from spark_mq._compat import SPARK_ERRORS
from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.archived_log import find_lost_end, rename_lost, settle_name
from spark_mq.archive.delta_log import (
    CONFLICT,
    LATE_WORKER,
    TRIES,
    check_newest_commits,
    retry,
    sync_newest_commits,
    version_of,
)
from spark_mq.archive.last_run import MESSAGES_STREAM, Checkpoint, archive_state, store_state, versions, write_note
from spark_mq.archive.lease import lease
from spark_mq.archive.report import ArchiveReport, BatchProgress, stream_offset
from spark_mq.archive.small_tables import write_segments, write_snapshot
from spark_mq.archive.streams import ArchiveStreams
from spark_mq.errors import ArchiveInUseError, LogCutError
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.io.location import Location
from spark_mq.job.task_errors import reraise_task_errors
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
from spark_mq.store.log.segment_files import segment_files

DEFAULT_MAX_BYTES = 4 << 30
"""The bytes of the log that one batch reads."""

SNAPSHOT_SECONDS = 3600.0
"""The interval at which a run that continues writes segments and snapshots; a broker keeps a segment much longer."""
_POLL_SECONDS = 0.5
_MISSING_FILE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST")
_TWO_RUNS = re.compile("CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|DELTA_CONCURRENT_TRANSACTION")
"""Error conditions of Spark and Delta for two queries with one checkpoint."""
_INTERRUPTED = re.compile("SPARK_JOB_CANCELLED|cancelled job group|java.lang.InterruptedException|ByInterruptException")
"""What Spark says of a batch in Python that was interrupted by the end of its query."""


@dataclass(frozen=True)
class Following:
    """How a run continues, and whom it tells what; the arguments of `archive`. It ends at once without `seconds`."""

    seconds: float | None
    stop: Callable[[], bool]
    on_batch: Callable[[BatchProgress], None]
    on_wait: Callable[[int], None]


class Archiver:
    """One run that appends to existing tables what its streams read. Every step can be repeated."""

    def __init__(self, streams: ArchiveStreams, following: Following) -> None:
        self.streams, self._following = streams, following

    def run(self, report: ArchiveReport) -> None:
        """Append the new messages, once, or again and again."""
        if self._following.seconds is not None:
            self._follow(report, self._following.seconds)
            return
        with self._reported(report):
            with report.stage("messages"):
                report.add_progress(retry(LATE_WORKER, lambda: _finish(self.streams.start_messages())))
            with report.stage("keys"):
                self._add_keys_and_segments(report)

    def _follow(self, report: ArchiveReport, seconds: float) -> None:
        failures = 0
        with self._reported(report):
            while True:
                messages, keys = self.streams.start_messages(seconds), self.streams.start_keys(seconds)
                try:
                    self._watch(messages, keys, report)
                finally:
                    messages.stop()
                    keys.stop()
                try:
                    report.add_progress(_finish_stopped(messages))
                    _finish_stopped(keys)
                except LogCutError:
                    if not self._settle_lost_end(report):
                        raise
                    continue
                except SPARK_ERRORS as error:
                    failures += 1
                    goes_on = LATE_WORKER.search(str(error)) or self._begins_keys_again(error)
                    if not goes_on or failures == TRIES:
                        raise
                    continue
                break
            # The keys of the last messages are not written yet.
            self._add_keys_and_segments(report)

    def _settle_lost_end(self, report: ArchiveReport) -> bool:
        """Whether messages that are archived, and that the source lost, got a name of their own."""
        return False

    def _write_snapshot(self) -> int:
        """The number of files whose present contents were archived."""
        return 0

    def _add_segments(self, report: ArchiveReport) -> None:
        """Archive what is known of segments."""

    def _watch(self, messages: StreamingQuery, keys: StreamingQuery, report: ArchiveReport) -> None:
        """Wait until `stop` returns true or a stream ends, and report and write snapshots meanwhile."""
        shown, written = None, time.monotonic()
        while messages.isActive and keys.isActive and not self._following.stop():
            batch = BatchProgress.of(messages, self.streams.batch_rows)
            if batch is not None and batch != shown:
                self._following.on_batch(batch)
                shown = batch
            elif messages.lastProgress is not None and not messages.status["isDataAvailable"]:
                self._following.on_wait(stream_offset(messages).get("commit_log_offset", report.archived_to))
            if time.monotonic() - written >= SNAPSHOT_SECONDS:
                written = time.monotonic()
                report.add_progress(stream_offset(messages))
                self._add_counts(report)
                self._add_segments(report)
                report.snapshot_files += self._write_snapshot()
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def _reported(self, report: ArchiveReport) -> Iterator[None]:
        """The steps before and after the streams."""
        with ThreadPoolExecutor(1) as threads:
            written = threads.submit(self._write_snapshot)
            self._settle_lost_end(report)
            yield
            report.snapshot_files += written.result()
        self._add_counts(report)

    def _add_keys_and_segments(self, report: ArchiveReport) -> None:
        """Write the keys of the messages that are archived, and meanwhile the segments."""
        keys = self.streams.start_keys()
        try:
            self._add_segments(report)
        except BaseException:
            keys.stop()
            raise
        self._finish_keys(keys)

    def _finish_keys(self, keys: StreamingQuery, renamed_to: StoreIdentity | None = None) -> None:
        """Wait for the stream of keys, which is started again if that can help."""
        queries = chain([keys], iter(partial(self.streams.start_keys, renamed_to=renamed_to), None))
        try:
            retry(LATE_WORKER, lambda: _finish(next(queries)))
        except SPARK_ERRORS as error:
            if not self._begins_keys_again(error):
                raise
            _finish(next(queries))

    def _begins_keys_again(self, error: Exception) -> bool:
        """Whether a vacuum removed files that the stream of keys has not read; it is then made to begin again.

        They can be those of other stores, which were archived since this store was. The table has their rows in other
        files, or not any more.
        """
        is_missing = _MISSING_FILE.search(str(error)) is not None
        if is_missing:
            self.streams.retire_keys()
        return is_missing

    def _add_counts(self, report: ArchiveReport) -> None:
        self.streams.count()
        report.rows, report.keys = self.streams.messages.rows, self.streams.keys.rows


class StoreArchiver(Archiver):
    """One run that archives one store."""

    def __init__(self, archive: StoreArchive, options: dict[str, str], following: Following) -> None:
        # The archive has the messages, so it handles a log that lost its end better than the stream does.
        super().__init__(ArchiveStreams(archive, {**options, "failOnLogCut": "true"}), following)
        self._archive = archive
        self._fails_on_data_loss = options["failOnDataLoss"] == "true"

    def _settle_lost_end(self, report: ArchiveReport) -> bool:
        """Whether the broker lost archived messages; their rows then have a store name of their own."""
        lost = find_lost_end(self._archive)
        if lost is None:
            return False
        if self._fails_on_data_loss:
            raise LogCutError(
                f"{self._archive.store}: {lost.count:,} archived messages, from commit log offset {lost.start} on, are "
                "no longer in the log: the broker lost its end, or the path is another store. With --data-loss "
                f"continue their rows stay, as store {lost.name(self._archive.identity).store}, and what the broker "
                "wrote since is archived"
            )
        renamed_to = lost.name(self._archive.identity)
        self._finish_keys(self.streams.start_keys(renamed_to=renamed_to), renamed_to)
        rename_lost(self._archive, lost)
        report.lost_messages += lost.count
        return True

    def _write_snapshot(self) -> int:
        return write_snapshot(self._archive)

    def _add_segments(self, report: ArchiveReport) -> None:
        if report.archived_to < 0:
            report.archived_to = self.streams.archived_end()
        report.segments += write_segments(self._archive, report.archived_to)


def _finish(query: StreamingQuery) -> dict[str, object]:
    """The last offset of a query, after its end; errors of this package have their own names."""
    with reraise_task_errors():
        try:
            query.awaitTermination()
        except PySparkException as error:
            if not _TWO_RUNS.search(str(error)):
                raise
            raise ArchiveInUseError(
                "another run archives this store into this table at the moment: wait until it has ended, or stop it, "
                "and run again; what either has appended stays, each message once"
            ) from error
    return stream_offset(query)


def _finish_stopped(query: StreamingQuery) -> dict[str, object]:
    """The last offset of a query that may have been stopped in the middle of a batch, which the next run repeats."""
    try:
        return _finish(query)
    except SPARK_ERRORS as error:
        if not _INTERRUPTED.search(str(error)):
            raise
        return stream_offset(query)


def archive(
    spark: SparkSession,
    store: str,
    table: str,
    *,
    cluster: str = DEFAULT_CLUSTER,
    broker: str = DEFAULT_BROKER,
    store_name: str | None = None,
    rename: bool = False,
    checkpoint: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    fail_on_data_loss: bool = True,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_batch: Callable[[BatchProgress], None] = lambda batch: None,
    on_wait: Callable[[int], None] = lambda archived_to: None,
) -> ArchiveReport:
    """Append the new messages of a store to a Delta table, and return the report of the run.

    `cluster`, `broker` and `store_name` name the log in every row, and must stay the same from run to run. A log that
    is archived under another name is refused, because every message would be in the archive twice.

    If the broker lost the end of its log after that end was archived, and `fail_on_data_loss` is false, the rows of
    the lost messages stay, with `#lost-OFFSET-TIME` appended to `store`, and the messages that the broker wrote since
    are appended.

    Args:
        rename: If the log is in the archive under another name, give the rows of that name the present one, in all
            four tables, and then append.
        max_bytes: The bytes of the log that one batch reads (Spark 4.2 or later).
        follow_seconds: Append every `follow_seconds` seconds, until `stop` returns true. None: append once.
        on_wait: Called about twice a second while no message is new, with the commit log offset up to which all
            messages are archived; -1 if that is not known yet.

    Examples:
        >>> print(archive(spark, "/data/store", "/lake/messages", broker="broker-a").to_text())
    """
    options = {"maxBytesPerTrigger": str(max_bytes), "failOnDataLoss": str(fail_on_data_loss).lower()}
    started = time.monotonic()
    location = Location.resolve(store)
    segment_files(location)  # a path that is not a store must not create tables
    identity = StoreIdentity(cluster, broker, store_name or str(location))
    tables = ArchiveTables.of(table, checkpoint).connected(spark)
    report = ArchiveReport(str(location), tables.name, cluster, broker)
    with lease(spark, tables):
        create_tables(spark, tables)
        store_archive = StoreArchive(spark, tables, identity, location)
        store_before = store_state(location) if tables.is_local else None
        messages_before, segments_before = versions(tables)
        report.renamed_messages = settle_name(store_archive, rename)
        start = (Checkpoint(tables, identity, MESSAGES_STREAM).last_offset or {}).get("commit_log_offset", 0)
        archiver = StoreArchiver(store_archive, options, Following(follow_seconds, stop, on_batch, on_wait))
        archiver.run(report)
        if report.rows:
            start = 0 if report.lost_messages else start
            # Files have minima and maxima of offsets, so only those of this run are read.
            new = store_archive.rows(tables.messages).where(F.col("commit_log_offset") >= start)
            report.damaged_rows = new.where(F.col(CORRUPT_RECORD).isNotNull()).count()
        if follow_seconds is None:
            after = archive_state(tables, identity)
            own_commits = (messages_before + archiver.streams.messages.commits, segments_before + (report.segments > 0))
            is_alone = versions(tables) == own_commits
            if store_before is not None and after is not None and is_alone:
                write_note(tables, identity, store_before, after, report.archived_to)
    report.seconds = time.monotonic() - started
    return report


def create_tables(spark: SparkSession, tables: ArchiveTables) -> None:
    """Create the tables that do not exist, and add the columns that older tables lack; see `check_newest_commits`."""
    check_newest_commits(tables)
    with ThreadPoolExecutor(len(tables.all)) as threads:
        list(threads.map(lambda table: retry(CONFLICT, partial(_create, spark, table)), tables.all))


def _create(spark: SparkSession, table: ArchiveTable) -> None:
    if version_of(table) < 0:
        spark.sql(table.create_sql())
        sync_newest_commits(table)
        if version_of(table) == 0:
            return
    present = set(table.read(spark).columns)
    missing = [f"`{f.name}` {f.dataType.simpleString()}" for f in table.layout.columns() if f.name not in present]
    if missing:
        spark.sql(f"ALTER TABLE {table.sql_name} ADD COLUMNS ({', '.join(missing)})")
