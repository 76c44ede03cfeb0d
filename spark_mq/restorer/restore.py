"""Restoring a store with Spark: `spark_mq.restore`. `store_job` has the stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_mq.job.progress import StageProgress
from spark_mq.job.tasks import SparkTasks, job_session
from spark_mq.restorer.appended_messages import append_messages
from spark_mq.restorer.new_store import make_store
from spark_mq.restorer.report import RestoreReport
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.restorer.restore_source import open_source
from spark_mq.restorer.store_job import StoreJob

_ROWS_PER_BATCH = "8192"


def restore(
    spark: SparkSession,
    source: str | DataFrame,
    store: str,
    *,
    where: str | None = None,
    renumber: bool = False,
    append: bool = False,
    only_delivered: bool = False,
    store_host: str | None = None,
    topic_map: Mapping[str, str] | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    time_zone: str | None = None,
    offset_map: str | None = None,
    append_id: str | None = None,
    cluster: str | None = None,
    broker: str | None = None,
    store_name: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> RestoreReport:
    """Make a store out of messages, or append messages to a stopped store.

    The store has everything that a broker needs: commit log, consume queues, index files, checkpoint and `config/`. It
    appears whole or not at all.

    Messages with offsets keep them, and all bytes of their records; where messages are left out, queue offsets stay.
    With `renumber`, and if the rows have no offsets, messages get new ones, in the order of their store times.

    Args:
        spark: The session. The job uses a session of its own on the same Spark.
        source: A store directory; the table of messages of an archive (a path or a name in the catalog); or a DataFrame
            with columns of table `messages`, of which only `topic` is required.
        store: The store directory that is made, missing or empty: a path, or an address of S3. With `append`, a path
            that exists.
        where: The condition of the messages, as Spark SQL; by default all.
        renumber: Whether messages get new offsets, without gaps. Offsets of consumers are translated.
        append: Whether to append to the store; its broker must be stopped. Messages get new offsets.
        only_delivered: Whether messages that wait in a broker's own topics are left out: delayed messages, timers and
            half messages.
        store_host: HOST:PORT that messages get as the address of their broker. Offset message ids change with it.
        topic_map: New names of topics, by their old names; only if offsets are new.
        broker_conf: The `broker.conf` of the broker of the new store: sizes of its files, and delay levels. By default
            the sizes of the source's files, as far as they are known, or else a broker's defaults.
        broker_version: The version of that broker (`4.9`, `5`, ...); by default as the source shows, or else 5.
        time_zone: The zone of the names of index files (`Asia/Shanghai`); by default as the source shows, or else UTC.
        offset_map: The folder for the table of old and new offsets; by default `<store>_offsets`.
        append_id: The identity of an append: if the store has one of this id, nothing is appended, and the report is
            that of the first one. By default its source and the other arguments are the identity.
        cluster: The cluster of the store in an archive of several stores.
        broker: The broker of that store.
        store_name: The name of that store.
        progress: Gets a line of progress every few seconds.

    Returns:
        The report.

    Raises:
        OptionError: An argument is not valid.
        OutputExistsError: The store exists, and `append` is false.
        StoreNotFoundError: The source is not there.
        EmptyStoreError: No message is restored.
        InvalidMessageError: A row cannot be written as a message. The error names the row.
        CorruptLogError: The source is a store whose log is damaged.
        OutputInUseError: Another job makes the same store.
        StoreLockedError: A broker runs on the store that is appended to.
        UnsupportedStoreError: The store cannot be appended to in the state in which it is.
        NotSharedError: A task does not see the folder that the driver sees.
        NoRoomError: A disk is full.
        StorageError: The store cannot be written.

    Example:
        >>> report = spark_mq.restore(spark, "/lake/messages", "/data/restored", where="topic = 'orders'")
        >>> print(report.to_text())
    """
    request = RestoreRequest.of(
        store,
        where=where,
        renumber=renumber,
        append=append,
        only_delivered=only_delivered,
        store_host=store_host,
        topic_map=topic_map,
        broker_conf=broker_conf,
        broker_version=broker_version,
        time_zone=time_zone,
        offset_map=offset_map,
        append_id=append_id,
    )
    names = {"cluster": cluster, "broker": broker, "store_name": store_name}
    return run_restore(spark, source, request, names, None if progress is None else lambda stage: progress(str(stage)))


def run_restore(
    spark: SparkSession,
    source: str | DataFrame,
    request: RestoreRequest,
    names: Mapping[str, str | None],
    progress: Callable[[StageProgress], None] | None = None,
) -> RestoreReport:
    """Restore what a request says; `names` are `cluster`, `broker` and `store_name` of the store in an archive."""
    if isinstance(source, str):
        request.check_source(source, names)
    with job_session(spark) as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", _ROWS_PER_BATCH)
        origin, rows = open_source(session, source, request, names)
        tasks = SparkTasks(session)
        job = StoreJob(tasks, origin, request.with_settings(origin.settings), progress)
        run = append_messages if request.append else make_store
        return run(job, lambda folder, task: rows.stage(tasks, folder, task))
