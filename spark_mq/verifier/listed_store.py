"""What names, sizes and small files of a store show: the part of a check that the quick and the whole one share.

All of it is read before the log, because a broker can be running: its checkpoint and offsets are then older than the
log.

A RocksDB database has a table with the ends of its queues. A broker numbers new messages from `max`, and delivers
messages from `min` on (`RocksDBConsumeQueueOffsetTable`@5.3.3). It corrects `min` only when it is asked, and if its
message has expired; a queue can lack it. The checkpoint is where a boot begins to dispatch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from spark_mq.errors import StorageError
from spark_mq.format.consume_queue import Queue
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import can_read_rocksdb
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import double_written_database, has_rocksdb_queues
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.queue.folders import QueueFolder, find_queue_file_size, queue_folders
from spark_mq.store.queue.queue_database import (
    QueueDatabase,
    database_tree,
    has_light_database,
    makes_light_queues,
    queue_tree,
)
from spark_mq.verifier.config_files import BrokerState, ConfigFiles
from spark_mq.verifier.finding import findings
from spark_mq.verifier.folders import IndexFolder, form_findings, list_index, queue_folder_findings, segment_findings
from spark_mq.verifier.log_bounds import log_start_findings


@dataclass(frozen=True)
class DoubleQueues:
    """The queues of a database beside queue files, as files of the same size; `name` is what findings call them."""

    name: str
    tree: Location
    folders: list[QueueFolder]

    @classmethod
    def of(cls, database: Location, file_size: int) -> Self:
        """The queues of a database. Raises `StorageError` if RocksDB does not open it."""
        tree = database_tree(database, file_size)
        return cls(f"{database.name} (RocksDB)", tree, list(queue_folders(tree)))


@dataclass(frozen=True)
class ListedStore:
    """A store whose files are listed.

    `folders` are the queues in `tree`; there are none if their database is not read. `double` are those of a database
    beside the files of `tree`. `fault` says why RocksDB does not open a database.
    """

    location: Location
    conf: BrokerConf
    state: BrokerState
    config: ConfigFiles
    log: CommitLog
    index: IndexFolder
    has_queues: bool
    tree: Location
    fault: str | None
    folders: list[QueueFolder]
    double: DoubleQueues | None = None

    @classmethod
    def of(cls, store: Location, conf: BrokerConf, *, reads_databases: bool = False) -> Self:
        """The files of a store now. With `reads_databases`, databases of queues are read whole, which shows damage."""

        def read_whole(tree: Location) -> None:
            if reads_databases and isinstance(tree.storage, QueueDatabase):
                tree.storage.read_all()

        state, config = BrokerState.of(store), ConfigFiles.of(store)
        log, index = CommitLog.open(store), list_index(store, conf)
        has_queues = can_read_rocksdb() or not has_rocksdb_queues(store)
        tree, fault = store / CONSUME_QUEUE, None
        try:
            tree = queue_tree(store)
            read_whole(tree)
        except StorageError as error:
            has_queues, fault = False, str(error)
        folders = list(queue_folders(tree)) if has_queues else []
        found = cls(store, conf, state, config, log, index, has_queues, tree, fault, folders)
        database = double_written_database(store) if can_read_rocksdb() else None
        if database is None:
            return found
        try:
            double = DoubleQueues.of(database, found.queue_file_size)
            read_whole(double.tree)
            return replace(found, double=double)
        except StorageError as error:
            return replace(found, fault=str(error))

    @property
    def queue_file_size(self) -> int:
        """The bytes of a queue file, or of those as which a database is read."""
        if isinstance(self.tree.storage, QueueDatabase):
            return self.tree.storage.file_size
        return find_queue_file_size(self.conf, [(self.location / CONSUME_QUEUE, self.folders)]).value

    @property
    def has_light_queues(self) -> bool:
        """Whether a broker makes light message queues."""
        return makes_light_queues(self.location, self.conf)

    @property
    def has_light_database(self) -> bool:
        """Whether light message queues are in the database only."""
        return self.double is not None and has_light_database(self.location, self.conf)

    @property
    def has_database(self) -> bool:
        """Whether queues in RocksDB are checked."""
        return self.double is not None or isinstance(self.tree.storage, QueueDatabase)

    def findings(
        self,
        log: range,
        newest: int,
        offsets: Mapping[Queue, range],
        topics: Collection[str] = (),
        *,
        has_lock: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """What is wrong with the files, compared with each other and with what is known of log and queues.

        Args:
            log: The commit log offsets of the log.
            newest: The store time of the newest message, in milliseconds.
            offsets: The queue offsets of each queue that has messages or files.
            topics: The topics of messages, besides those of queue files.
        """
        yield from segment_findings(self.location, self.log, self.conf.commit_log_file_size, has_lock=has_lock)
        first = self.log.segments[0].path if self.log.segments else COMMIT_LOG
        yield from log_start_findings(first, log.start, self.folders, offsets, self.index)
        yield from form_findings(self.location)
        if self.fault is not None:
            yield findings("QUEUE_DATABASE", CONSUME_QUEUE, found=self.fault)
        trees = [(CONSUME_QUEUE, self.tree)] if self.double is None else [(self.double.name, self.double.tree)]
        for name, tree in trees:
            if isinstance(tree.storage, QueueDatabase):
                yield from offset_table_findings(tree.storage, name, log)
        yield from queue_folder_findings(self.location, self.queue_file_size, has_lock=has_lock)
        yield from self.index.findings
        yield from self.state.findings(log.stop, newest)
        not_known = {info.base_name for info in (self.location / BATCH_CONSUME_QUEUE).entries()}

        def is_known(topic: str) -> bool:
            return self.has_queues and topic not in not_known

        names = {*topics, *(folder.topic for folder in self.folders)}
        yield from self.config.findings(offsets, names, is_known)
        is_written = self.state.checkpoint.written_end == log.stop
        yield from self.config.lost(names, not self.state.has_abort, is_written)


def offset_table_findings(database: QueueDatabase, name: str, log: range) -> Iterator[pa.RecordBatch]:
    """What is wrong with the table of a database that findings call `name`; `log` are the offsets of the log."""
    table, ends = database.offset_table(), database.last_units(log.stop)
    for queue in sorted({*ends, *table.maximum, *table.minimum}):
        last = ends.get(queue)
        maximum, minimum = table.maximum.get(queue), table.minimum.get(queue)
        if maximum != last and (last is not None or (maximum is not None and maximum[0] >= log.start)):
            yield findings("QUEUE_OFFSET_TABLE", name, _text("max", last), _text("max", maximum), queue=queue)
        if minimum is None or minimum[0] < log.start:
            continue  # a broker looks for the first message of the log (`RocksDBConsumeQueueOffsetTable.isMinOffsetOk`)
        before = minimum[1] - 1
        is_past_end = last is not None and before > last[1]
        if is_past_end or (database.commit_log_offset(queue, before) or 0) >= max(log.start, 1):
            expected = "min: the queue offset of the first message in the log"
            yield findings("QUEUE_OFFSET_TABLE", name, expected, _text("min", minimum), queue=queue)
    if table.checkpoint is not None and table.checkpoint > log.stop:
        found = f"checkpoint {table.checkpoint}"
        yield findings("QUEUE_OFFSET_TABLE", name, f"a checkpoint up to {log.stop}", found)


def _text(name: str, end: tuple[int, int] | None) -> str:
    return f"no {name}" if end is None else f"{name}: queue offset {end[1]}, at commit log offset {end[0]}"
