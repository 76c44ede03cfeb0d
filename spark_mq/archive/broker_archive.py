"""Appending the messages that a running broker hands out to an archive, each message exactly once.

The streams are those of a store (`streams`), and their offsets are the queue offsets of the broker. A broker hands out
the messages of queues. So such an archive has neither half messages nor other messages of the system, and no files.
A row in table `snapshots`, which each run writes before the first message, says so (`RUNNING_BROKER`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTables, BrokerArchive, StoreIdentity
from spark_mq.archive.archived_log import RUNNING_BROKER, archived_brokers, described, names_of_records
from spark_mq.archive.delta_log import is_empty
from spark_mq.archive.last_run import MESSAGES_STREAM, Checkpoint
from spark_mq.archive.lease import lease
from spark_mq.archive.report import ArchiveReport, BatchProgress
from spark_mq.archive.streams import STARTS, ArchiveStreams
from spark_mq.archive.table_file import append_rows
from spark_mq.archive.writer import Archiver, Following, create_tables
from spark_mq.errors import DataLossError, LogCutError, OptionError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.record import Record
from spark_mq.live.cluster import LiveBroker, live_brokers, message_at, selected_topics
from spark_mq.live.message_stream import LiveOffset
from spark_mq.live.options import LiveOptions, parse_live_stream_options
from spark_mq.remoting.client import RemotingClient

_SAMPLES = 64
"""Messages that are looked for in the archive under another name."""


class BrokerStreams(ArchiveStreams):
    """The streams of one running broker."""

    def __init__(self, archive: BrokerArchive, options: dict[str, str]) -> None:
        super().__init__(archive, options)
        if self._kernel_tables is None:
            raise OptionError(
                f"{archive.tables.name}: a running cluster can only be archived into tables on a local disk, in "
                "folders whose names have only letters, digits and ._~+=@:,- in them, by a Spark session with a JVM of "
                "its own, and with a pyarrow that writes Bloom filters (pip install -U pyarrow)"
            )

    def _start_options(self, checkpoint: Checkpoint) -> dict[str, str]:
        starts: dict[str, dict[str, int]] = {}
        if not checkpoint.has_begun:
            for (topic, queue_id), offset in self.archived_ends().items():
                starts.setdefault(topic, {})[str(queue_id)] = offset
        return {STARTS: json.dumps(starts)}

    def archived_ends(self) -> dict[Queue, int]:
        """The offset after the last archived message of each queue."""
        archive = self._archive
        if is_empty(archive.tables.messages):
            return {}
        queues = archive.rows(archive.tables.messages).where(F.col("topic").isNotNull()).groupBy("topic", "queue_id")
        ends = queues.agg((F.max("queue_offset") + 1).alias("end")).collect()
        return {(row.topic, row.queue_id): row.end for row in ends}


class BrokerArchiver(Archiver):
    """One run that archives one running broker."""

    def __init__(
        self, archive: BrokerArchive, broker: LiveBroker, options: dict[str, str], following: Following
    ) -> None:
        streams = BrokerStreams(archive, options)
        super().__init__(streams, following)
        self._archive, self._broker, self._ends_of_table = archive, broker, streams.archived_ends
        self._fails_on_data_loss = options["failOnDataLoss"] == "true"

    def _settle_lost_end(self, report: ArchiveReport) -> bool:
        """False: raises an error for a queue that is shorter than what is archived, and counts what has expired.

        A stream would read such a queue from its first message on, and the archive would have messages twice.
        """
        for (topic, queue_id), offset in self._archived_to().items():
            found = self._broker.topics.get(topic)
            if found is None or queue_id >= found.read_queue_nums:
                continue
            queue = self._broker.queue(topic, queue_id)
            if queue.stop < offset:
                raise LogCutError(
                    f"{queue.address}: {queue} is archived up to queue offset {offset}, and ends at {queue.stop}: the "
                    "broker lost its end, or the topic was deleted and made again. Archive it into another TABLE"
                )
            report.expired_messages += max(queue.start - offset, 0)
        if report.expired_messages and self._fails_on_data_loss:
            raise DataLossError(
                f"{self._broker.address}: {report.expired_messages:,} messages expired before they were archived. With "
                "--data-loss continue the others are archived"
            )
        return False

    def _write_snapshot(self) -> int:
        _mark(self._archive)
        return 0

    def _archived_to(self) -> Mapping[Queue, int]:
        """The offset up to which each queue is archived; nothing if the last batch will be repeated."""
        checkpoint = Checkpoint(self._archive.tables, self._archive.identity, MESSAGES_STREAM)
        if not checkpoint.has_begun:
            return self._ends_of_table()
        values = checkpoint.last_offset
        offsets = {} if values is None else LiveOffset.of_json(values).queues
        return {(topic, queue_id): offset for (_, topic, queue_id), offset in offsets.items()}


def archive_broker(
    spark: SparkSession,
    address: str,
    table: str,
    *,
    cluster: str,
    broker: str,
    store_name: str | None = None,
    client_options: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    max_bytes: int | str = 4 << 30,
    fail_on_data_loss: bool = True,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_batch: Callable[[BatchProgress], None] = lambda batch: None,
    on_wait: Callable[[int], None] = lambda archived_to: None,
) -> ArchiveReport:
    """Append the new messages of one broker of a running cluster to a Delta table, and return the report of the run.

    The rows have the names `cluster` and `broker`, which the name servers know, and in column `store` `store_name`, by
    default the broker's address. All topics are archived, except those of the system, unless `client_options` have
    `topic` or `topicPattern`.

    Args:
        address: The cluster, `rocketmq://NAME_SERVER:9876`.
        client_options: Options of a stream of a running cluster, such as `accessKey`.
        max_bytes: About the bytes of one batch (Spark 4.2 or later).
        fail_on_data_loss: Whether messages that expired before they were archived are an error.
        follow_seconds: Append every `follow_seconds` seconds, until `stop` returns true. None: append once.

    Raises:
        RemotingError: The cluster has no such broker, or it does not answer.
        LogCutError: A queue is shorter than what is archived of it.
        DataLossError: Messages expired before they were archived.
        OptionError: The messages are in the table under another name, or an option is wrong.

    Examples:
        >>> archive_broker(spark, "rocketmq://namesrv:9876", "/lake/live", cluster="DefaultCluster", broker="broker-a")
    """
    started = time.monotonic()
    options = {"maxBytesPerTrigger": str(max_bytes), "failOnDataLoss": str(fail_on_data_loss).lower()}
    options |= all_topics(client_options or {})
    read = parse_live_stream_options(options | {"path": address}).read
    tables = ArchiveTables.of(table, checkpoint).connected(spark)
    with lease(spark, tables), RemotingClient(read.client) as client:
        found = [one for one in live_brokers(client, read.from_slave) if one.names[:2] == (cluster, broker)]
        if not found:
            raise OptionError(f"{address} has no broker {broker} of cluster {cluster}")
        identity = StoreIdentity(cluster, broker, store_name or found[0].address)
        archive = BrokerArchive(spark, tables, identity, address)
        create_tables(spark, tables)
        _check_name(archive, found[0], read)
        if identity not in archived_brokers(spark, tables):
            _mark(archive)
        report = ArchiveReport(f"{address} ({broker})", tables.name, cluster, broker)
        following = Following(follow_seconds, stop, on_batch, on_wait)
        BrokerArchiver(archive, found[0], options, following).run(report)
    report.seconds = time.monotonic() - started
    return report


def _mark(archive: BrokerArchive) -> None:
    """Note that the rows of these names are of a running broker."""
    row = {"snapshot_timestamp": datetime.now(UTC), "file": RUNNING_BROKER, "file_size": 0, "content": b""}
    append_rows(archive, archive.tables.snapshots, [row])


def all_topics(client_options: Mapping[str, str]) -> dict[str, str]:
    """The options of a stream that reads all topics, except those of the system, unless they name others."""
    is_given = any(name.lower() in ("topic", "topicpattern") for name in client_options)
    return {**client_options, **({} if is_given else {"topicPattern": ".*"})}


def _check_name(archive: BrokerArchive, broker: LiveBroker, options: LiveOptions) -> None:
    """Raise `OptionError` if messages of the broker are in the archive under another name."""
    if is_empty(archive.tables.messages):
        return
    names = names_of_records(archive, islice(_samples(broker, options), _SAMPLES))
    if names:
        raise OptionError(
            f"{broker.address}: messages of this broker are in {archive.tables.name} already, as {described(names)}: "
            "give --store-name that name if a running cluster was archived, or another TABLE, because a message must "
            "be there once"
        )


def _samples(broker: LiveBroker, options: LiveOptions) -> Iterator[Record]:
    """The last and the first messages of queues."""
    for topic in selected_topics(broker, options):
        for queue in broker.queues(topic):
            offsets = {queue.start, queue.stop - 1} if queue.start < queue.stop else set()
            found = (message_at(broker, queue, offset) for offset in offsets)
            yield from (record for record in found if record is not None)
