"""Appending what is new in a store to an archive, each message exactly once.

Messages and keys come by streams (`streams`). Segments and snapshots are kept once a run, and once an hour in one that
goes on; a run that failed before is made good by the next.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_mq.archive.archive_tables import DEFAULT_BROKER, DEFAULT_CLUSTER, ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import find_lost_end
from spark_mq.archive.commit_metrics import AppendedRows
from spark_mq.archive.progress import BatchProgress, stream_offset
from spark_mq.archive.renaming import rename_lost, settle_name
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.segments import write_segments
from spark_mq.archive.snapshot import write_snapshot
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.streams import ArchiveStreams
from spark_mq.archive.tables import create_tables
from spark_mq.errors import ArchiveInUseError, LogCutError
from spark_mq.io.location import Location
from spark_mq.job.task_errors import reraise_task_errors
from spark_mq.source.datasource import register
from spark_mq.store.log.segment_files import segment_files

DEFAULT_MAX_BYTES = 4 << 30
"""Bytes of the log that one batch takes."""

KEEP_SECONDS = 3600.0
"""How often a run that goes on keeps segments and snapshots: well within the hours that a broker keeps a segment."""
_POLL_SECONDS = 0.5
_TWO_RUNS = re.compile("CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|DELTA_CONCURRENT_TRANSACTION")
"""What Spark and Delta say of two queries with one checkpoint."""


class Archiver:
    """Archives one store, once, into tables that are there. Everything it does can be done again."""

    def __init__(self, archive: StoreArchive, options: dict[str, str]) -> None:
        """`options` are further options of the stream over the store."""
        self._archive = archive
        self._fails_on_data_loss = options["failOnDataLoss"] == "true"
        # What to do about a log that was cut, the archive itself knows best: it has the messages.
        self._streams = ArchiveStreams(archive, {**options, "failOnLogCut": "true"})
        self._messages = AppendedRows(archive.spark, archive.place.messages)
        self._keys = AppendedRows(archive.spark, archive.place.keys)

    def run(self) -> ArchiveReport:
        """Append what is new.

        Raises `DataLossError` if segments expired before they were archived, and `LogCutError` if the broker lost the
        end of its log, unless the options say to continue.
        """
        with self._reported() as report:
            self._settle_lost_end(report)
            with report.stage("messages"):
                report.add_progress(_finish(self._streams.start_messages()))
            with report.stage("keys"):
                _finish(self._streams.start_keys())
        return report

    def follow(
        self, seconds: float, stop: Callable[[], bool], on_batch: Callable[[BatchProgress], None]
    ) -> ArchiveReport:
        """Append what is new, and look again every so many seconds, until `stop` answers true; raises as `run`."""
        with self._reported() as report:
            self._settle_lost_end(report)
            while True:
                messages, keys = self._streams.start_messages(seconds), self._streams.start_keys(seconds)
                try:
                    self._watch(messages, keys, stop, on_batch, report)
                finally:
                    messages.stop()
                    keys.stop()
                try:
                    report.add_progress(_finish(messages))
                except LogCutError:
                    if not self._settle_lost_end(report):
                        raise
                    continue
                _finish(keys)
                break
            # What was appended last has no keys yet.
            _finish(self._streams.start_keys())
        return report

    def _settle_lost_end(self, report: ArchiveReport) -> bool:
        """See that what is archived is in the log, or under a name of its own; returns whether it was not."""
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
        _finish(self._streams.start_keys(renamed_to=lost.name(self._archive.identity)))
        rename_lost(self._archive, lost)
        report.lost_messages += lost.count
        return True

    def _watch(
        self,
        messages: StreamingQuery,
        keys: StreamingQuery,
        stop: Callable[[], bool],
        on_batch: Callable[[BatchProgress], None],
        report: ArchiveReport,
    ) -> None:
        """Stay until `stop` says so, or a stream fails."""
        shown, kept = None, time.monotonic()
        while messages.isActive and keys.isActive and not stop():
            batch = BatchProgress.of(messages)
            if batch is not None and batch != shown:
                on_batch(batch)
                shown = batch
            if time.monotonic() - kept >= KEEP_SECONDS:
                kept = time.monotonic()
                report.add_progress(stream_offset(messages))
                self._keep(report)
                self._keep_snapshot(report)
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def _reported(self) -> Iterator[ArchiveReport]:
        """What is done before the streams, and behind them."""
        started = time.monotonic()
        store, place, identity = self._archive.store, self._archive.place, self._archive.identity
        report = ArchiveReport(str(store), place.name, identity.cluster, identity.broker)
        self._keep_snapshot(report)
        yield report
        if report.archived_to < 0:
            report.archived_to = self._streams.archived_end()
        self._keep(report)
        report.seconds = time.monotonic() - started

    def _keep(self, report: ArchiveReport) -> None:
        report.rows += self._messages.count_new(self._streams.query_ids)
        report.keys += self._keys.count_new(self._streams.query_ids)
        report.segments += write_segments(self._archive, report.archived_to)

    def _keep_snapshot(self, report: ArchiveReport) -> None:
        report.snapshot_files += write_snapshot(self._archive)


def _finish(query: StreamingQuery) -> dict[str, object]:
    """Wait for a query's end; gives its last offset."""
    with stream_errors():
        query.awaitTermination()
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
) -> ArchiveReport:
    """Append what is new in the store at `store` to the Delta table `table` (a path, or a name in the catalog).

    `cluster`, `broker` and `store_name` (the path, by default) say in every row where it comes from, and must stay the
    same from run to run: a log that is archived under another name is refused, for every message would be there twice.
    `rename` gives the rows of that other name this one, in all four tables, and then appends. `checkpoint` is the
    folder of the streams' checkpoints, beside a table with a path by default. `max_bytes` of the log go into one batch.
    With `follow_seconds` it looks again every so many seconds, until `stop` answers true, and calls `on_batch` after a
    batch.

    If the broker lost the end of its log after it was archived, and `fail_on_data_loss` is false, the rows of those
    messages stay, with `store` followed by `#lost-OFFSET-TIME`, and what the broker wrote since is appended.

    Raises `OptionError` for a log that is there under another name, `DataLossError` if segments expired before they
    were archived, `LogCutError` if the broker lost the end of its log, both unless `fail_on_data_loss` is false, and
    `StoreNotFoundError` if the path is not a store.
    """
    options = {
        "maxBytesPerTrigger": str(max_bytes),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    location = Location.resolve(store)
    segment_files(location)  # what is no store gets no tables
    identity = StoreIdentity(cluster, broker, store_name or location.uri)
    place = ArchiveTables.of(table, checkpoint)
    register(spark)
    create_tables(spark, place)
    store_archive = StoreArchive(spark, location, place, identity)
    renamed = settle_name(store_archive, rename)
    archiver = Archiver(store_archive, options)
    report = archiver.run() if follow_seconds is None else archiver.follow(follow_seconds, stop, on_batch)
    report.renamed_messages = renamed
    return report


@contextmanager
def stream_errors() -> Iterator[None]:
    """A context that raises errors of this package under their own names if Spark passes them on from a stream.

    Raises:
        ArchiveInUseError: Another run uses the same checkpoint.

    """
    with reraise_task_errors():
        try:
            yield
        except PySparkException as error:
            if not _TWO_RUNS.search(str(error)):
                raise
            raise ArchiveInUseError(
                "another run archives this store into this table at the moment: wait until it has ended, or stop it, "
                "and run again; what either has appended stays, each message once"
            ) from error
