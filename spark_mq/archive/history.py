"""Table `history`: the messages of an archive, and those after its end of a store or of a running cluster, each once.

The archive ends at a commit log offset of each of its stores. These offsets only increase, also if a topic is deleted
and made again and its queue offsets begin with 0 again, and a slave has those of its master. So the messages of a log
whose offsets are larger are read from the store or the broker. Which store of the archive a broker has is shown by its
messages: names can be those of another broker.

A broker that was archived while it ran ends at a queue offset in each queue, and messages from there on are read.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_mq.archive.archive_tables import IDENTITY, ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.archived_log import (
    archived_brokers,
    archived_stores,
    compared_columns,
    compared_values,
    described,
    is_equal,
    names_of_log,
)
from spark_mq.errors import CorruptLogError, LogCutError, OptionError, ProtocolError, RefusedError
from spark_mq.io.location import Location
from spark_mq.live.cluster import LiveBroker, live_brokers, message_at
from spark_mq.live.look_ups import at_commit_log_offset
from spark_mq.live.options import parse_live_options
from spark_mq.query.catalog import StoreRead, is_of_several
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.pull import QueueRange
from spark_mq.remoting.requests import log_offsets
from spark_mq.source.options import names_cluster, parse_options
from spark_mq.source.predicate import Condition, Operator, encode_conditions
from spark_mq.source.schema import full_schema
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.messages import MESSAGES

_OFFSET = "commit_log_offset"
_IS_REST = "_is_rest"
_SAMPLES = 16
"""Messages of a store of the archive that are looked for in a broker."""
_NO_SUCH_QUEUE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
"""The answers of a broker that has no such topic, does not let it be read, or has fewer queues."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchivedEnd:
    """Where a store of an archive ends.

    Attributes:
        last: The commit log offset of the last row, which can be a row of damage.
        stop: The commit log offset after it.
        next_segment: The commit log offset of the segment after the last one; None if a message can follow in this one.
        newest: The last message of each queue in the last segment, the newest first; of each queue, if the broker was
            archived while it ran.
        queues: Topic, queue id, and the offset after the last message of each queue, if the broker was archived while
            it ran.
    """

    identity: StoreIdentity
    last: int
    stop: int
    next_segment: int | None
    newest: tuple[Row, ...]
    queues: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        return "/".join(dataclasses.astuple(self.identity))


@dataclass(frozen=True)
class Rest:
    """The messages of a log that are not archived: those after offset `last`, or from the ends of `queues` on.

    Attributes:
        conditions: The conditions on the names of the broker, if the log is one of a cluster.
    """

    identity: StoreIdentity
    last: int = -1
    conditions: tuple[Condition, ...] = ()
    queues: tuple[tuple[str, int, int], ...] = ()

    def marked(self, rows: DataFrame) -> DataFrame:
        """Rows of this log with a column that says whether they are of the rest."""
        if not self.queues:
            return rows.withColumn(_IS_REST, F.coalesce(F.col(_OFFSET) > self.last, F.lit(False)))
        ends = rows.sparkSession.createDataFrame(self.queues, "topic STRING, queue_id INT, _end BIGINT")
        rows = rows.join(F.broadcast(ends), ["topic", "queue_id"], "left")
        return rows.withColumn(_IS_REST, F.coalesce(F.col("queue_offset") >= F.col("_end"), F.lit(True)))

    def load(self, spark: SparkSession, read: StoreRead) -> DataFrame:
        """The rows, with the columns of the read."""
        conditions = [*self.conditions, *(one for one in read.conditions if one.column not in IDENTITY)]
        options = dict(read.options)
        if self.queues:
            starts: dict[str, dict[int, int]] = {}
            for topic, queue_id, offset in self.queues:
                starts.setdefault(topic, {})[queue_id] = offset
            options["queueStarts"] = json.dumps(starts)
        else:
            conditions.append(Condition(_OFFSET, Operator.GREATER, (self.last,)))
        options["conditions"] = encode_conditions(conditions)
        names = read.schema.fieldNames()
        compared = (_OFFSET, "topic", "queue_id", "queue_offset") if self.queues else (_OFFSET,)
        columns = dict.fromkeys((*(name for name in names if name not in IDENTITY), *compared))
        schema = StructType([full_schema(MESSAGES.name)[name] for name in columns])
        rows = spark.read.format("rocketmq").options(**options).schema(schema).load()
        own_names = dataclasses.asdict(self.identity)
        chosen = [F.lit(own_names[name]).alias(name) if name in own_names else F.col(name) for name in names]
        return self.marked(rows).where(_IS_REST).select(chosen)


def load_history(spark: SparkSession, archive: str, read: StoreRead) -> DataFrame:
    """The rows of a reference to `history`; those that its conditions exclude can be among them.

    `read` says how the store, or the cluster, is read. A log that lacks archived messages is a `LogCutError`.
    """
    tables = ArchiveTables.of(archive, checkpoint="").connected(spark)
    ends = archived_ends(spark, tables)
    if names_cluster(read.options):
        rests = rests_of_cluster(read.options, tables, ends)
    elif is_of_several(read.options):
        raise OptionError("history has the messages of one store, or of the brokers of one cluster: give its path")
    else:
        rests = [_rest_of_store(spark, parse_options(read.options).path, tables, ends)]
    rows = tables.messages.read(spark)
    for rest in rests:  # what another run archives meanwhile is read from the log
        rows = rest.marked(rows).where(~(rest.identity.condition() & F.col(_IS_REST)))
    frames = [rows.select(read.schema.fieldNames()), *(rest.load(spark, read) for rest in rests)]
    return reduce(DataFrame.unionAll, frames)


def archived_ends(spark: SparkSession, tables: ArchiveTables) -> list[ArchivedEnd]:
    """The ends of the stores, and of the brokers that were archived while they ran, that have messages there."""
    last = F.max_by(F.struct(_OFFSET, "file_size", "filler_offset"), _OFFSET).alias("last")
    segments = {
        StoreIdentity.of(row): row.last for row in tables.segments.read(spark).groupBy(*IDENTITY).agg(last).collect()
    }
    running, ends = archived_brokers(spark, tables), []
    remaining = [*archived_stores(spark, tables), *running]
    # The rows of the last segment are enough, unless a run was stopped before it wrote messages of that.
    for bases in ({store: segment.commit_log_offset for store, segment in segments.items()}, {}):
        if not remaining:
            break
        ranges = [store.condition() & (F.col(_OFFSET) >= bases.get(store, 0)) for store in remaining]
        newest = F.max_by(F.struct(*compared_columns()), _OFFSET).alias("newest")
        rows = tables.messages.read(spark).where(reduce(or_, ranges))
        found: dict[StoreIdentity, list[Row]] = {}
        for row in rows.groupBy(*IDENTITY, "topic", "queue_id").agg(newest).collect():
            found.setdefault(StoreIdentity.of(row), []).append(row.newest)
        ends += [_end(store, rows, segments.get(store), store in running) for store, rows in found.items()]
        remaining = [store for store in remaining if store not in found]
    return ends


def _end(store: StoreIdentity, rows: list[Row], segment: Row | None, is_running: bool) -> ArchivedEnd:
    newest = sorted(rows, key=lambda row: -row.commit_log_offset)
    last = newest[0].commit_log_offset
    stop = last + (newest[0].store_size or 0)
    is_full = segment is not None and stop in (segment.filler_offset, segment.commit_log_offset + segment.file_size)
    next_segment = segment.commit_log_offset + segment.file_size if segment is not None and is_full else None
    messages = tuple(row for row in newest if row.topic is not None)
    queues = ((row.topic, row.queue_id, row.queue_offset + 1) for row in messages)
    return ArchivedEnd(store, last, stop, next_segment, messages, tuple(queues) if is_running else ())


def _rest_of_store(spark: SparkSession, path: str, tables: ArchiveTables, ends: Sequence[ArchivedEnd]) -> Rest:
    """The rest of a store directory, which is recognized in the archive by its messages.

    If all of these have expired, it is recognized by its path, the name that `spark-mq archive` gives it by default.
    """
    location = Location.resolve(path)
    identities = names_of_log(StoreArchive(spark, tables, StoreIdentity("", "", ""), location))
    of_stores = [end for end in ends if not end.queues]
    found = [end for end in of_stores if end.identity in identities]
    found = found or [end for end in of_stores if end.identity.store == str(location)]
    if not found:
        _say_unarchived(str(location), tables, ends)
        return Rest(StoreIdentity(DEFAULT_CLUSTER, DEFAULT_BROKER, str(location)))
    end = _only(found, str(location), tables)
    with MessageStore(location.uri) as store:
        log = store.live_log
        message = end.newest[0] if end.newest else None
        if message is not None and log.start <= message.commit_log_offset:
            try:
                record = store.records.record(message.commit_log_offset) if end.stop <= log.stop else None
                is_there = record is not None and is_equal(message, compared_values(record))
            except CorruptLogError:  # it is damaged now, and the archive has it
                is_there = True
            if not is_there:
                raise _lost(end, str(location), tables)
    _say_gap(end, log, str(location), tables)
    return Rest(end.identity, end.last)


def rests_of_cluster(options: Mapping[str, str], tables: ArchiveTables, ends: Sequence[ArchivedEnd]) -> list[Rest]:
    """The rests of the brokers of a cluster."""
    live = parse_live_options(options)
    servers = ", ".join(live.client.name_servers)
    with RemotingClient(live.client) as client:
        brokers = live_brokers(client, live.from_slave)
        chosen = [(broker, _end_of_broker(broker, tables, ends)) for broker in brokers]
    known = [end for _, end in chosen if end is not None]
    if ends and not known:
        raise OptionError(
            f"the archive {tables.name} has no store of a broker of {servers}: it has {', '.join(map(str, ends))}, and "
            f"the brokers are {', '.join('/'.join(broker.names) for broker in brokers)}: give another archive or "
            "cluster, or archive a store of these brokers first"
        )
    if len(set(known)) < len(known):
        raise OptionError(
            f"several brokers of {servers} have the same messages of the archive {tables.name}: one is a copy of "
            "another's store, and each message would be in history several times"
        )
    for broker, end in chosen:
        if end is None:
            _say_unarchived(f"broker {'/'.join(broker.names)}", tables, ends)
    return [
        Rest(
            StoreIdentity(*broker.names) if end is None else end.identity,
            -1 if end is None else end.last,
            tuple(Condition(name, Operator.IN, (value,)) for name, value in zip(IDENTITY, broker.names, strict=True)),
            () if end is None else end.queues,
        )
        for broker, end in chosen
    ]


def _end_of_broker(broker: LiveBroker, tables: ArchiveTables, ends: Sequence[ArchivedEnd]) -> ArchivedEnd | None:
    """The end of the store of the archive that a broker has; None if it has none."""
    name, log = f"broker {'/'.join(broker.names)}", LogRange(*log_offsets(broker.client, broker.address))
    found = [end for end in ends if any(_has(broker, message) for message in end.newest[:_SAMPLES])]
    if not found:
        # All of the archived messages have expired: then names are all that there is.
        found = [end for end in ends if _may_be(broker, end)]
        if any(end.stop > log.start for end in found):
            raise _lost(found[0], name, tables)
    if not found:
        return None
    end = _only(found, name, tables)
    if end.queues:
        _check_queues(broker, end, tables)
        return end
    is_behind = _is_slave(broker) and log.stop < end.stop  # it gets the messages later
    message = end.newest[0] if end.newest else None
    if message is not None and message.commit_log_offset >= log.start and not is_behind:
        try:
            sent = at_commit_log_offset(broker.client, broker.address, message.commit_log_offset)
        except ProtocolError:  # there is no record at this place
            sent = []
        if log.stop < end.stop or not any(is_equal(message, compared_values(one.record)) for one in sent):
            raise _lost(end, name, tables)
    _say_gap(end, log, name, tables)
    return end


def _check_queues(broker: LiveBroker, end: ArchivedEnd, tables: ArchiveTables) -> None:
    """Raise `LogCutError` if a queue of a broker lacks its last archived message, which has not expired."""
    known = broker.queues(*sorted({topic for topic, *_ in end.queues}))
    queues = {(queue.topic, queue.queue_id): queue for queue in known}
    for message in end.newest:
        queue, offset = queues.get((message.topic, message.queue_id)), message.queue_offset
        if queue is None or (_is_slave(broker) and queue.stop <= offset):
            continue
        if queue.start > offset + 1:
            _LOG.warning(
                "history lacks messages: the archive %s has %s up to queue offset %d, and it begins at %d; what was "
                "between them expired before it was archived",
                *(tables.name, queue, offset, queue.start),
            )
        elif queue.start <= offset and (queue.stop <= offset or not _has(broker, message)):
            raise LogCutError(
                f"the archive {tables.name} has {queue} up to queue offset {offset}, and the broker does not have that "
                "message: it lost its end, or the topic was deleted and made again; archive it into another TABLE"
            )


def _is_slave(broker: LiveBroker) -> bool:
    return broker.address != broker.broker.addresses.get(0)


def _may_be(broker: LiveBroker, end: ArchivedEnd) -> bool:
    hosts = {message.store_host for message in end.newest}
    return broker.names[:2] == (end.identity.cluster, end.identity.broker) or not hosts.isdisjoint(
        broker.broker.addresses.values()
    )


def _has(broker: LiveBroker, message: Row) -> bool:
    """Whether a broker has a message at its place in its queue."""
    place = (message.topic, message.queue_id, message.queue_offset)
    queue = QueueRange(broker.broker.name, broker.address, *place, message.queue_offset + 1)
    try:
        record = message_at(broker, queue, message.queue_offset)
    except RefusedError as error:
        if error.code not in _NO_SUCH_QUEUE:
            raise
        return False
    return record is not None and is_equal(message, compared_values(record))


def _only(found: Sequence[ArchivedEnd], log: str, tables: ArchiveTables) -> ArchivedEnd:
    if len(found) > 1:
        raise OptionError(
            f"{log} is in {tables.name} under several names ({described(end.identity for end in found)}): each of its "
            "messages would be in history several times"
        )
    return found[0]


def _lost(end: ArchivedEnd, log: str, tables: ArchiveTables) -> LogCutError:
    return LogCutError(
        f"the archive {tables.name} has messages of {end} up to commit log offset {end.stop}, which are not in the log "
        f"of {log}: it lost its end, began again, or is another one. spark-mq archive says which messages were lost, "
        "and with --data-loss continue gives them a name of their own; then ask again"
    )


def _say_unarchived(log: str, tables: ArchiveTables, ends: Sequence[ArchivedEnd]) -> None:
    if ends:
        _LOG.warning("history: %s is not in the archive %s: all of its messages are read from it", log, tables.name)


def _say_gap(end: ArchivedEnd, log: LogRange, name: str, tables: ArchiveTables) -> None:
    if end.stop < log.start and log.start != end.next_segment:
        _LOG.warning(
            "history lacks messages, perhaps: the archive %s has %s up to commit log offset %d, and the log of %s "
            "begins at %d; what was between them expired before it was archived",
            *(tables.name, end, end.stop, name, log.start),
        )
