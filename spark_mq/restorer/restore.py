"""Restoring a store: `spark_mq.restore`, and the rows of a store.

`query_rows` has the rows that only Spark has, `store_job` the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import CorruptLogError, EmptyStoreError, OptionError, UnsupportedStoreError
from spark_mq.format.message_schema import CORRUPT_RECORD, RECORD_COLUMNS
from spark_mq.io.location import Location
from spark_mq.job.tasks import SharedStorageCheck, SparkTasks, TaskRunner, Tasks, package_errors, spark_tasks
from spark_mq.restorer.appended_messages import append_messages
from spark_mq.restorer.chunk import Chunk, StageTask
from spark_mq.restorer.new_store import make_store
from spark_mq.restorer.restore_request import LeftOut, RestoreRequest, is_store
from spark_mq.restorer.source_facts import Source, facts_of_store
from spark_mq.restorer.store_job import RestoreReport, Stage, StoreJob
from spark_mq.source.messages import GET_AS_ROW, MessagesReader
from spark_mq.source.options import parse_options
from spark_mq.store.config.store_kind import batch_topics, configured_batch_topics, dledger_node
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE
from spark_mq.store.index.folder import index_files, index_layout
from spark_mq.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DAMAGE = ("commit_log_offset", "store_size", CORRUPT_RECORD)
_MOST_NAMED = 20
"""Damaged parts of a log that a report names; of more of them, it has the number."""


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
    With `renumber`, and if the rows have no offsets, messages get new ones: in the order of the log, and of a DataFrame
    in the order of their store times.

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

    Examples:
        >>> report = spark_mq.restore(spark, "/lake/messages", "/data/restored", where="topic = 'orders'")
        >>> print(report.to_text())
    """
    request = RestoreRequest.of(
        store,
        names={"cluster": cluster, "broker": broker, "store_name": store_name},
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
    with spark_tasks(spark, progress) as tasks:
        return restore_with(tasks, source, request)


def restore_with(tasks: Tasks, source: str | DataFrame, request: RestoreRequest) -> RestoreReport:
    """Restore what a request says."""
    if isinstance(source, str):
        request.check_source(source)
        request = request.of_source(source)
    try:
        with package_errors():
            origin, stage = _open_source(tasks, source, request)
            job = StoreJob(tasks, origin, request.with_settings(origin.settings))
            return append_messages(job, stage) if request.append else make_store(job, stage)
    except CorruptLogError as error:
        if not str(error).endswith(GET_AS_ROW):
            raise
        raise CorruptLogError(
            f"{str(error).removesuffix(GET_AS_ROW)}; an archive can leave damage out: `spark-mq archive STORE TABLE`, "
            "then `spark-mq restore TABLE NEW --where '_corrupt_record IS NULL'`"
        ) from error


def _open_source(tasks: Tasks, source: str | DataFrame, request: RestoreRequest) -> tuple[Source, Stage]:
    """What is known of a source, and how its rows are staged: only Spark reads an archive, and evaluates conditions."""
    if isinstance(source, str) and is_store(source):
        store = Location.resolve(source)
        facts = _facts_of_store(store, request)
        if request.where is None:
            return facts, partial(_stage_store, tasks, store, request.left_out)
    if not isinstance(tasks, SparkTasks):
        raise OptionError(f"{'--where' if is_store(str(source)) else source} needs Spark: leave out --engine local")
    from spark_mq.restorer.query_rows import open_archive, open_rows, open_store, stage_rows

    if not isinstance(source, str):
        facts, rows = open_rows(source, request)
    elif is_store(source):
        rows = open_store(tasks.session, store, request)
    else:
        facts, rows = open_archive(tasks.session, source, request)
    return facts, partial(stage_rows, tasks, rows)


def _stage_store(tasks: Tasks, store: Location, left_out: LeftOut, folder: Location, task: StageTask) -> list[Chunk]:
    """The chunks of all messages of a store, in the order of its log, except those of some topics.

    Damage is an error, unless the log is one of DLedger: the report then says what is lost.
    """
    mode, columns = {"mode": "FAILFAST"}, list(RECORD_COLUMNS)
    if dledger_node(store) is not None:
        mode, columns = {"checkCrc": "true"}, [*columns, CORRUPT_RECORD]
    reader = MessagesReader(parse_options({"path": store.uri, **mode}), columns)
    runner = TaskRunner(tasks.checked(SharedStorageCheck.of_folder(folder)))
    work = partial(_stage_partition, reader=reader, left_out=left_out, task=task)
    return list(chain.from_iterable(runner.each("encode", "partitions", enumerate(reader.partitions()), work)))


def _stage_partition(
    partition: tuple[int, Any], reader: MessagesReader, left_out: LeftOut, task: StageTask
) -> list[Chunk]:
    messages = map(left_out.kept, map(_without_damage, reader.read(partition[1])))
    return list(task.stage(messages, partition[0]))


def _without_damage(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages of a batch that are whole; without the column that says so, they all are."""
    if CORRUPT_RECORD not in batch.schema.names:
        return batch
    return batch.filter(pc.invert(_is_lost(batch))).drop_columns([CORRUPT_RECORD])


def _is_lost(rows: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
    """Whether a row is damage; a body that its producer compressed wrongly is not."""
    reasons = rows[CORRUPT_RECORD]
    return pc.and_(pc.is_valid(reasons), pc.invert(pc.fill_null(pc.starts_with(reasons, "BODY:"), False)))


def _facts_of_store(store: Location, request: RestoreRequest) -> Source:
    source = facts_of_store(store)
    unknown = batch_topics(store) - configured_batch_topics(store)
    if unknown:
        raise UnsupportedStoreError(
            f"{store / BATCH_CONSUME_QUEUE} has batch consume queues of topic{'s' if len(unknown) > 1 else ''} "
            f"{', '.join(sorted(unknown))}, and config/topics.json does not say so (queue.type=BatchCQ): no broker "
            "starts with them. Put the right topics.json in place"
        )
    if index_files(store):
        index_layout(store, request.broker_conf)  # an error if nothing shows it: no index is made from a guess
    if source.log_start is None:
        raise EmptyStoreError(f"{store} has no message: there is nothing to restore")
    return replace(source, form_notes=(*source.form_notes, *_dledger_notes(store)))


def _dledger_notes(store: Location) -> Iterator[str]:
    """What becomes of a DLedger log, and what of it is lost."""
    from spark_mq.store.log.dledger_log import lost_entries

    node = dledger_node(store)
    if node is None:
        return
    yield (
        f"{node.name} is a DLedger log: messages have new commit log offsets and ids, and their queue offsets. Start "
        "the broker of the new store without enableDLegerCommitLog"
    )
    log = CommitLog.open(store)
    reader = MessagesReader(parse_options({"path": store.uri, "checkCrc": "true"}), list(_DAMAGE))
    tables = [pa.Table.from_batches(reader.read(partition)) for partition in reader.partitions()]
    damaged = pa.concat_tables(table.filter(_is_lost(table)) for table in tables)
    lost = [
        f"{row['store_size']:,} bytes from commit log offset {row['commit_log_offset']}: {row[CORRUPT_RECORD]}"
        for row in damaged.slice(0, _MOST_NAMED).to_pylist()
    ]
    yield from (f"a damaged part of the log is lost: {text}" for text in [*lost, *(gap.describe() for gap in log.gaps)])
    if damaged.num_rows > _MOST_NAMED:
        yield f"{damaged.num_rows - _MOST_NAMED:,} more damaged parts of the log are lost"
    ended = lost_entries(node, log.segments)
    if ended is not None:
        yield f"the messages of entries {ended[0]:,} to {ended[1]:,} are lost: the log of {node.name} ends before them"
