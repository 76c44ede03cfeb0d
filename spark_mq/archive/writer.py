"""Appending what is new in a store to an archive, each message exactly once.

Messages and keys come by streams (`streams`). Segments and snapshots are kept once a run, and once an hour in one that
goes on; a run that failed before is made good by the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_mq.archive.archive_tables import DEFAULT_BROKER, DEFAULT_CLUSTER, ArchiveTables, StoreIdentity
from spark_mq.archive.commit_metrics import AppendedRows
from spark_mq.archive.progress import BatchProgress, stream_offset
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.segments import write_segments
from spark_mq.archive.snapshot import write_snapshot
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.streams import ArchiveStreams
from spark_mq.archive.tables import create_tables
from spark_mq.io.location import Location
from spark_mq.job.session import parse_task_error
from spark_mq.source.datasource import register
from spark_mq.store.log.segment_files import segment_files

DEFAULT_MAX_BYTES = 4 << 30
"""Bytes of the log that one batch takes."""

KEEP_SECONDS = 3600.0
"""How often a run that goes on keeps segments and snapshots: well within the hours that a broker keeps a segment."""
_POLL_SECONDS = 0.5


class Archiver:
    """Archives one store, once, into tables that are there. Everything it does can be done again."""

    def __init__(self, archive: StoreArchive, options: dict[str, str]) -> None:
        """`options` are further options of the stream over the store."""
        self._archive = archive
        self._streams = ArchiveStreams(archive, options)
        self._messages = AppendedRows(archive.spark, archive.place.messages)
        self._keys = AppendedRows(archive.spark, archive.place.keys)

    def run(self) -> ArchiveReport:
        """Append what is new.

        Raises `DataLossError` where segments expired before they were archived and the options do not say to go on.
        """
        with self._reported() as report:
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
            messages, keys = self._streams.start_messages(seconds), self._streams.start_keys(seconds)
            try:
                self._watch(messages, keys, stop, on_batch, report)
            finally:
                messages.stop()
                keys.stop()
            report.add_progress(_finish(messages))
            _finish(keys)
            # What was appended last has no keys yet.
            _finish(self._streams.start_keys())
        return report

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
    with reraise_task_errors():
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
    checkpoint: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    fail_on_data_loss: bool = True,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_batch: Callable[[BatchProgress], None] = lambda batch: None,
) -> ArchiveReport:
    """Append what is new in the store at `store` to the Delta table `table` (a path, or a name in the catalog).

    `cluster`, `broker` and `store_name` (the path, by default) say in every row where it comes from, and must stay the
    same from run to run. `checkpoint` is the folder of the streams' checkpoints, beside a table with a path by default.
    `max_bytes` of the log go into one batch. With `follow_seconds` it goes on, looking every so many seconds, until
    `stop` answers true, and calls `on_batch` behind a batch.

    Raises `DataLossError` where segments expired before they were archived, unless `fail_on_data_loss` is false, and
    `StoreNotFoundError` where the path is no store.
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
    archiver = Archiver(StoreArchive(spark, location, place, identity), options)
    return archiver.run() if follow_seconds is None else archiver.follow(follow_seconds, stop, on_batch)


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """Raise errors of this package that Spark wrapped under their own names."""
    try:
        yield
    except PySparkException as error:
        named = parse_task_error(str(error))
        if named is None:
            raise
        raise named from error
