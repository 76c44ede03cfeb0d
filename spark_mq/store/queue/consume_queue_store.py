"""The consume queues of one store, and their answers (`ConsumeQueueStore`@5.3.3)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.format.broker_version import (
    MIN_OFFSET_BY_HALVING,
    OFFSET_BY_STORE_TIME,
    OFFSET_BY_TIME_IN_QUEUE,
    BrokerVersions,
    VersionRule,
)
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_row import Row, consumer_rows, corrupt_row, message_table
from spark_mq.format.timestamp import millis_of
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import (
    Door,
    FoundForm,
    batch_topics,
    check_form,
    double_written_database,
    find_forms,
)
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.batch_consume_queue import BatchConsumeQueue
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folder, queue_folders
from spark_mq.store.queue.get_message import (
    GetMessageResult,
    GetMessageStatus,
    get_message,
    no_messages,
    read_ends,
    read_messages,
    status_of,
)
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.offset_by_time import BoundaryType, QueueTimes, nearest_in_log, offset_in_log
from spark_mq.store.queue.queue_database import QueueDatabase, light_folders, queue_tree

DEFAULT_MAX_NUM = 32


class ConsumeQueueStore:
    """The part of `MessageStore` that answers by queue offset: the queues that have files, by topic and queue id.

    What it needs of the store is an attribute of `MessageStore`.
    """

    location: Location
    files: FileReaders
    records: RecordLookup

    @cached_property
    def live_end(self) -> LiveEnd:
        """Where the log ends, and which records before that can be stale."""
        raise NotImplementedError

    @cached_property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the broker that are possible, with the evidence; their rules are used."""
        raise NotImplementedError

    def __init__(self) -> None:
        self._tree_error: StorageError | None = None
        self._single: dict[Queue, ConsumeQueue | None] = {}
        self._ends: dict[Queue, tuple[int, int]] = {}
        self._max_offsets: dict[Queue, int] = {}
        self._batches: dict[Queue, BatchConsumeQueue | None] = {}

    @cached_property
    def tree(self) -> Location:
        """The folder of the queue files; or the database of the queues, as such a folder, if RocksDB opens it."""
        try:
            return queue_tree(self.location)
        except StorageError as error:
            self._tree_error = error  # the log has the messages, too
            return self.location / CONSUME_QUEUE

    @property
    def queue_database(self) -> QueueDatabase | None:
        """The database of the queues, if they are in RocksDB, and RocksDB opens it."""
        return self.tree.storage if isinstance(self.tree.storage, QueueDatabase) else None

    def _check_tree(self) -> None:
        """Raise `UnsupportedStoreError` if RocksDB does not open the database of the queues."""
        if self.tree and self._tree_error is not None:
            raise UnsupportedStoreError(
                f"{self._tree_error}. `spark-mq rebuild` builds queue files from the commit log, with another --output"
            )

    @cached_property
    def _found(self) -> dict[Queue, ConsumeQueue]:
        """The queues that have files, or are in RocksDB."""
        folders = *queue_folders(self.tree, skips_unreadable=True), *light_folders(self.location)
        return {(folder.topic, folder.queue_id): ConsumeQueue(folder, self.files) for folder in folders}

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue; None if there is no such queue."""
        if self._lists_all(topic):
            return self._found.get((topic, queue_id))
        name = topic, queue_id
        if name not in self._single:
            folder = queue_folder(self.tree, topic, queue_id)
            self._single[name] = None if folder is None else ConsumeQueue(folder, self.files)
        return self._single[name]

    def _lists_all(self, topic: str) -> bool:
        """Whether all queues are listed already, or one look at the folder of a topic does not show its queues."""
        is_light = topic.startswith(LIGHT_PREFIX)
        return "_found" in vars(self) or (is_light and double_written_database(self.location) is not None)

    @cached_property
    def queues(self) -> dict[Queue, ConsumeQueue]:
        """The consume queues, also batch consume queues, by topic and queue id.

        Raises:
            UnsupportedStoreError: The store has queues that are not in files, or not read.
        """
        check_form(self.location, Door.QUEUES)
        self._check_tree()
        folders = queue_folders(self.location / BATCH_CONSUME_QUEUE, skips_unreadable=True)
        names = [(folder.topic, folder.queue_id) for folder in folders]
        return self._found | {name: queue for name in names if (queue := self.find_batch_queue(*name)) is not None}

    def queue_notes(self, topic: str) -> list[str]:
        """What an answer by queue offsets of `topic` leaves out because of the store's form, a sentence each.

        Raises:
            UnsupportedStoreError: The topic has queues that are not read.
        """
        found = [one for one in self._forms if not one.topics or topic in one.topics]
        return [str(note) for one in found if (note := one.check(Door.QUEUE)) is not None]

    @cached_property
    def _forms(self) -> list[FoundForm]:
        return find_forms(self.location, Door.QUEUE)

    @cached_property
    def _batch_topics(self) -> frozenset[str]:
        """The topics with files of batch consume queues: of most stores there are none, which one look shows."""
        return frozenset((self.location / BATCH_CONSUME_QUEUE).folders())

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """The topics that have batch consume queues, by their files or by `config/topics.json`."""
        return batch_topics(self.location)

    def find_batch_queue(self, topic: str, queue_id: int) -> BatchConsumeQueue | None:
        """One batch consume queue; None if there is no such queue."""
        if topic not in self._batch_topics:
            return None
        name = topic, queue_id
        if name not in self._batches:
            folder = queue_folder(self.location / BATCH_CONSUME_QUEUE, topic, queue_id)
            ends = self.records.min_offset, self.live_end.offset if folder is not None else 0
            self._batches[name] = None if folder is None else BatchConsumeQueue(folder, self.files, *ends)
        return self._batches[name]

    def get_min_offset_in_queue(self, topic: str, queue_id: int, read_log: bool = False) -> int:
        """The first queue offset that a broker would offer; 0 if there is no such queue.

        `get_max_offset_in_queue` has the same arguments and errors.

        Examples:
            >>> store.get_min_offset_in_queue("orders", 3)
            1200
        """
        return self._queue_ends(topic, queue_id, read_log)[0]

    def get_max_offset_in_queue(self, topic: str, queue_id: int, read_log: bool = False) -> int:
        """The queue offset that the next message will get; 0 if there is no such queue.

        Args:
            topic: The topic.
            queue_id: The queue id.
            read_log: By default the queue's units give the answer. The log can have more messages if a broker was
                killed, or if files of the queue were lost. If True, the queue's first and last message in the log give
                the answer, or the units if the log has no message of the queue. Parts of the log about which the units
                prove nothing are read (`queue_cover`).

        Returns:
            A queue offset.

        Raises:
            UnsupportedStoreError: The queues are in RocksDB, and `read_log` is False; or the queue is a batch consume
                queue, and `read_log` is True.

        Examples:
            >>> store.get_max_offset_in_queue("orders", 3)
            1532
        """
        return self._queue_ends(topic, queue_id, read_log)[1] if read_log else self._max_offset(topic, queue_id)

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_num: int = DEFAULT_MAX_NUM, read_log: bool = False
    ) -> pa.Table:
        """At most `max_num` messages of a queue, from queue offset `offset` on.

        `get_message_result` has the same arguments and errors, and also returns the status of the offset. A note of its
        result is a warning here.

        Examples:
            >>> store.get_message("orders", 3, offset=1200, max_num=2)["queue_offset"].to_pylist()
            [1200, 1201]
        """
        result = self.get_message_result(topic, queue_id, offset, max_num, read_log)
        for note in result.notes:
            warnings.warn(f"{self.location}: {note}", stacklevel=2)
        return result.messages

    def get_message_result(
        self, topic: str, queue_id: int, offset: int, max_num: int = DEFAULT_MAX_NUM, read_log: bool = False
    ) -> GetMessageResult:
        """Messages of a queue, and the status of the requested offset (`DefaultMessageStore.getMessage`@5.3.3).

        A broker's answer ends at the end of a queue file, and after 256 KiB. This answer has `max_num` messages if the
        queue has enough. Messages whose segment has expired are skipped.

        Args:
            topic: The topic.
            queue_id: The queue id.
            offset: The queue offset of the first requested message.
            max_num: The largest number of messages, at least 1.
            read_log: By default the queue's units give the answer, and `uncovered` of the result contains the parts of
                the log that can have more of the requested messages. If a unit does not point to a record, or points
                to a record with another queue offset, the result has a row with `_corrupt_record`. If True, those
                parts of the log are read, and the rows are those of a scan of the whole log.

        Returns:
            Status, queue offsets and messages.

        Raises:
            UnsupportedStoreError: The queues are in RocksDB, and `read_log` is False; or the queue is a batch consume
                queue, and `read_log` is True.

        Examples:
            >>> store.get_message_result("orders", 3, offset=0).status
            <GetMessageStatus.OFFSET_TOO_SMALL: 'OFFSET_TOO_SMALL'>
        """
        max_num = max(max_num, 1)
        batches = None if read_log else self.find_batch_queue(topic, queue_id)
        if batches is not None:
            return self._get_batches(batches, (topic, queue_id), offset, max_num)
        cover, notes = self.queue_cover(topic, queue_id), tuple(self.queue_notes(topic))
        if read_log:
            result = read_messages(cover, self._known_ends(topic, queue_id), offset, max_num)
        else:
            queue = self._with_units(topic, queue_id)
            result = get_message(queue, cover, self._ends_of_units(topic, queue_id), offset, max_num)
        return replace(result, notes=notes)

    def get_offset_in_queue_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int | datetime,
        boundary_type: BoundaryType | str = BoundaryType.LOWER,
        read_log: bool = False,
    ) -> int:
        """The queue offset that a broker returns for a time; 0 if there is no such queue.

        Brokers before 5.1.1 have another rule, the nearest message, and no boundary types
        (`ConsumeQueue.getOffsetInQueueByTime`@5.1.0; `ConsumeQueueStore.getOffsetInQueueByTime`@5.3.3). If the store's
        broker can be of both, the answer is given where both rules agree.

        Args:
            topic: The topic.
            queue_id: The queue id.
            timestamp: The store time: epoch milliseconds or an aware datetime.
            boundary_type: LOWER: the first message stored at the time or later, or the queue's maximum offset if there
                is none. UPPER: the last message stored at the time or earlier.
            read_log: By default the queue's units between its ends give the answer. If True, all messages of the queue
                in the log count, whatever the queue's files contain. Parts of the log about which the units prove
                nothing are read.

        Returns:
            A queue offset.

        Raises:
            OptionError: The boundary type is unknown, or is UPPER for a broker before 5.1.1; or the time is in seconds,
                or is a datetime without a time zone; or the answer depends on the version, which is not known.
            CorruptQueueError: A unit on which the answer depends does not lead to its message, and `read_log` is
                False.
            UnsupportedStoreError: The queues are in RocksDB, and `read_log` is False; or the queue is a batch consume
                queue, and `read_log` is True.

        Examples:
            >>> store.get_offset_in_queue_by_time("orders", 3, 1_700_000_000_000)
            1377
        """
        try:
            boundary_type = BoundaryType(boundary_type.upper())
        except ValueError as error:
            raise OptionError(f"boundary type {boundary_type!r} is neither LOWER nor UPPER") from error
        timestamp = millis_of("timestamp", timestamp)
        batches = None if read_log else self.find_batch_queue(topic, queue_id)
        if batches is not None:
            return batches.offset_by_time(timestamp, boundary_type)
        self.queue_notes(topic)
        if boundary_type == BoundaryType.UPPER:
            versions = self.broker_versions
            if versions.decide(OFFSET_BY_STORE_TIME) is False:
                since = OFFSET_BY_STORE_TIME.since
                raise OptionError(f"a broker of {versions} has no boundary type UPPER, which is there from {since} on")
            return self._offset_by_store_time(topic, queue_id, timestamp, boundary_type, read_log)
        return self._agreed(
            OFFSET_BY_STORE_TIME,
            lambda follows: (
                self._offset_by_store_time(topic, queue_id, timestamp, boundary_type, read_log)
                if follows
                else self._nearest_offset(topic, queue_id, timestamp, read_log)
            ),
            f"the queue offset of the time {timestamp} in queue {queue_id} of topic {topic!r}",
        )

    def _get_batches(self, queue: BatchConsumeQueue, name: Queue, offset: int, max_num: int) -> GetMessageResult:
        """Messages of a batch consume queue as a consumer gets them, by its units alone; see `get_message`."""
        ends = self._ends_of_units(*name)
        status = status_of(offset, *ends)
        if status != GetMessageStatus.FOUND:
            return no_messages(status, offset, ends)
        rows: list[Row] = []
        next_offset = ends[1]
        for unit in queue.units_from(offset):
            if unit.commit_log_offset < self.records.min_offset:
                continue
            record = self.records.find(unit.commit_log_offset, unit.store_size)
            is_own = record is not None and (decode_utf8(record.topic), record.queue_id) == name
            if record is None or not is_own or record.size != unit.store_size:
                reason = f"BAD_UNIT: the unit at queue offset {unit.queue_offset} leads to no record of its queue"
                rows.append(corrupt_row(unit.commit_log_offset, unit.store_size, reason))
            else:
                rows += (row for row in consumer_rows(record) if row["queue_offset"] >= offset)
            if len(rows) >= max_num:
                next_offset = rows[max_num - 1].get("queue_offset", unit.next_offset - 1) + 1
                break
        status = GetMessageStatus.FOUND if rows else GetMessageStatus.MESSAGE_WAS_REMOVING
        return GetMessageResult(status, next_offset, *ends, message_table(rows[:max_num]))

    def _with_units(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue whose units are read; None if there is no such queue."""
        batches = self.find_batch_queue(topic, queue_id)
        if batches is not None:
            return batches
        self.queue_notes(topic)
        return self.find_queue(topic, queue_id) if self._has_units else None

    @cached_property
    def _has_units(self) -> bool:
        """True. Raises `UnsupportedStoreError` if the units are not in files."""
        check_form(self.location, Door.UNITS)
        self._check_tree()
        return True

    def queue_cover(self, topic: str, queue_id: int) -> QueueCover:
        """What the units of a queue prove, and the parts of the log that must be read for its other messages.

        Nothing is proven about a queue without files.
        """
        name = topic, queue_id
        queue = self.find_batch_queue(*name) or self.find_queue(*name)
        return QueueCover(name, queue, self.records, self.live_end)

    def _queue_ends(self, topic: str, queue_id: int, read_log: bool) -> tuple[int, int]:
        """The queue offset of the first message, and the one that the next message will get; 0, 0 for no queue."""
        if not read_log:
            return self._ends_of_units(topic, queue_id)
        self.queue_notes(topic)
        return read_ends(self.queue_cover(topic, queue_id), self._known_ends(topic, queue_id))

    def _max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message will get, as the units show it; 0 for no queue."""
        queue = self._with_units(topic, queue_id)
        if queue is None:
            return 0
        found = self._max_offsets.get((topic, queue_id))
        if found is None:
            found = self._max_offsets[topic, queue_id] = queue.max_offset(self.records, self.live_end.offset)
        return found

    def _agreed(self, rule: VersionRule, answer: Callable[[bool], int], what: str) -> int:
        """The answer of a broker that follows a rule, or does not; of a broker that may do either, if both agree."""
        versions = self.broker_versions
        follows = versions.decide(rule)
        if follows is not None:
            return answer(follows)
        by_rule, otherwise = answer(True), answer(False)
        if by_rule != otherwise:
            raise OptionError(f"{what} is {by_rule:,} or {otherwise:,}: {versions.undecided(rule)}")
        return by_rule

    def _nearest_offset(self, topic: str, queue_id: int, timestamp: int, read_log: bool) -> int:
        """The queue offset that a broker before 5.1.1 returns for a time in milliseconds."""
        if read_log:
            return nearest_in_log(self.queue_cover(topic, queue_id), timestamp) or 0
        times = self._times(topic, queue_id)
        if times is None:
            return 0
        nearest, (min_offset, max_offset) = times.search_nearest(timestamp), self._ends_of_units(topic, queue_id)
        return self._agreed(
            OFFSET_BY_TIME_IN_QUEUE,
            lambda follows: min(max(nearest, min_offset), max_offset) if follows else nearest,
            f"the queue offset of the time {timestamp} in queue {queue_id} of topic {topic!r}",
        )

    def _offset_by_store_time(
        self, topic: str, queue_id: int, timestamp: int, boundary_type: BoundaryType, read_log: bool
    ) -> int:
        """The queue offset that a broker from 5.1.1 on returns for a time in milliseconds."""
        if read_log:
            offset = offset_in_log(self.queue_cover(topic, queue_id), timestamp, boundary_type)
            if offset is not None:
                return offset
            min_offset, max_offset = self._queue_ends(topic, queue_id, read_log)
            return max_offset if boundary_type == BoundaryType.LOWER else min_offset
        times = self._times(topic, queue_id)
        return 0 if times is None else times.search(timestamp, boundary_type)

    def _ends_of_units(self, topic: str, queue_id: int) -> tuple[int, int]:
        ends = self._ends.get((topic, queue_id))
        if ends is None:
            queue = self._with_units(topic, queue_id)
            if queue is None:
                return 0, 0
            max_offset = self._max_offset(topic, queue_id)
            min_offset = self._agreed(
                MIN_OFFSET_BY_HALVING,
                lambda follows: queue.min_offset(max_offset, self.records.min_offset, by_halving=follows),
                f"the min offset of queue {queue_id} of topic {topic!r}",
            )
            ends = self._ends[topic, queue_id] = min_offset, max_offset
        return ends

    def _known_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """`_ends_of_units`; 0, 0 if the queue has no files that can be read: the log can have its messages."""
        return (0, 0) if (topic, queue_id) not in self._found else self._ends_of_units(topic, queue_id)

    def _times(self, topic: str, queue_id: int) -> QueueTimes | None:
        queue = self._with_units(topic, queue_id)
        if queue is None:
            return None
        return QueueTimes(queue, self.queue_cover(topic, queue_id), self._ends_of_units(topic, queue_id))
