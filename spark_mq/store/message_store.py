"""`MessageStore`: point questions to one store, in RocketMQ's words (`DefaultMessageStore`@5.3.3). No Spark, no JVM.

It sees the store as it was when it was opened. What it reads is what the question needs: a unit of a consume queue, and
a record of the commit log.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Self

import pyarrow as pa

from spark_mq.errors import CorruptLogError, OptionError, UnsupportedStoreError
from spark_mq.format.message_id import decode_offset_message_id, is_offset_message_id
from spark_mq.format.message_row import host_text, message_row, message_table
from spark_mq.format.record import Record
from spark_mq.format.timestamp import check_epoch_millis, epoch_millis, iso_text
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.broker_version import BrokerVersion, detect_broker_version, parse_broker_version
from spark_mq.store.config.store_kind import is_rocksdb
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.key_index import KeyIndex
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import InQueue, scan
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.queue.get_message import GetMessageResult, get_message, read_ends, read_messages
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.offset_by_time import BoundaryType, QueueTimes, nearest_in_log, offset_in_log

DEFAULT_MAX_NUM = 32
_FIRST_BYTES = 4 << 20
"""Bytes of the log in which the first messages of a topic are looked for without kernels."""


class MessageStore:
    """One store directory. Answers are `pyarrow.Table`s with the columns of table `messages`.

    >>> store = MessageStore("/data/store")
    >>> store.get_message("orders", 3, offset=1200, max_num=32)
    """

    def __init__(
        self,
        path: str,
        broker_version: str | None = None,
        broker_conf: str | None = None,
        check_index: bool = False,
        log_end: int | None = None,
    ) -> None:
        """Open the store at `path`, a path or a URI that pyarrow opens.

        `broker_version` (`4.9`, `5`, ...) decides where the two differ; by default the store's config files show it.
        `broker_conf` names the broker's settings, whose `maxHashSlotNum` and `maxIndexNum` a file does not tell.
        `check_index`: before the first look-up of a key, all index files are read and checked; see `key_index`.
        `log_end`: the commit log offset at which the log ends for this reader, if it is known; it is not looked for.
        Raises `StoreNotFoundError`, and `OptionError` for an unknown version or settings that cannot be read.
        """
        self.location = Location.resolve(path)
        self._broker_conf = BrokerConf.of(broker_conf)
        self._check_index = check_index
        self._given_log_end = log_end
        self.files = FileReaders()
        self.records = RecordLookup(self.location, self.files)
        self._given_version = None if broker_version is None else parse_broker_version(broker_version)
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files that are open."""
        self.files.close()

    @cached_property
    def broker_version(self) -> BrokerVersion:
        """The line of the broker whose rules hold."""
        return self._given_version or detect_broker_version(self.location)

    @cached_property
    def queues(self) -> dict[tuple[str, int], ConsumeQueue]:
        """The consume queues, by topic and queue id.

        Raises `UnsupportedStoreError` where they are kept in RocksDB.
        """
        if is_rocksdb(self.location / CONSUME_QUEUE):
            raise UnsupportedStoreError(
                f"{self.location / CONSUME_QUEUE} is a RocksDB database (storeType=defaultRocksDB), which is not read "
                "here; `spark-mq rebuild` makes queue files from the commit log, with another --output"
            )
        return self._queues

    @cached_property
    def _queues(self) -> dict[tuple[str, int], ConsumeQueue]:
        folders = queue_folders(self.location / CONSUME_QUEUE)
        return {(folder.topic, folder.queue_id): ConsumeQueue(folder, self.files) for folder in folders}

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue whose files can be read; None where there is none, or they are no files."""
        return self._queues.get((topic, queue_id))

    def queue_ids(self, topic: str) -> list[int]:
        """The ids of the topic's queues whose files can be read, ascending; none where queues are in RocksDB."""
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def get_min_phy_offset(self) -> int:
        """The commit log offset at which the log begins; -1 where it has no segment."""
        return self.records.min_offset

    def get_max_phy_offset(self) -> int:
        """The commit log offset behind the last live record; -1 where there is none."""
        return self._live_end

    @cached_property
    def _live_end(self) -> int:
        if self._given_log_end is not None:
            return self._given_log_end
        return LiveEndFinder(self.location).find(self.records, self._queues.values())

    def get_min_offset_in_queue(self, topic: str, queue_id: int, read_log: bool = False) -> int:
        """The first queue offset that a broker would offer; 0 where there is no such queue.

        The queue's units say it. With `read_log` it is the queue offset of the queue's first message in the log, which
        is read as far as the units prove nothing (`queue_cover`); what the units say counts if the log has no message.
        """
        return self._ends_of(topic, queue_id, read_log)[0]

    def get_max_offset_in_queue(self, topic: str, queue_id: int, read_log: bool = False) -> int:
        """The queue offset that the next message will get; 0 where there is no such queue.

        The queue's units say it: the log can have more messages if a broker was killed, or files of the queue were
        lost. With `read_log` it is the one after the queue's last message in the log, which is read as far as the units
        prove nothing (`queue_cover`); what the units say counts if the log has no message.
        """
        return self._ends_of(topic, queue_id, read_log)[1]

    def _ends_of(self, topic: str, queue_id: int, read_log: bool) -> tuple[int, int]:
        if not read_log:
            return self._queue_ends(topic, queue_id)
        return read_ends(self.queue_cover(topic, queue_id), self._known_ends(topic, queue_id))

    def _queue_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        ends = self._ends.get((topic, queue_id))
        if ends is None:
            queue = self.queues.get((topic, queue_id))
            if queue is None:
                return 0, 0
            max_offset = queue.max_offset(self.records, self._live_end)
            min_offset = queue.min_offset(max_offset, self.records.min_offset, self.broker_version)
            ends = self._ends[topic, queue_id] = min_offset, max_offset
        return ends

    def _known_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """`_queue_ends`, and 0, 0 where the queue is in files that cannot be read: the log has its messages."""
        return (0, 0) if self.find_queue(topic, queue_id) is None else self._queue_ends(topic, queue_id)

    def queue_cover(self, topic: str, queue_id: int) -> QueueCover:
        """What the units of a queue prove, and what parts of the log must be read for all else.

        Of a queue without files nothing is proven.
        """
        log = LogRange(self.get_min_phy_offset(), self.get_max_phy_offset())
        return QueueCover((topic, queue_id), self.find_queue(topic, queue_id), self.location, self.records, log)

    def get_message(
        self, topic: str, queue_id: int, offset: int, max_num: int = DEFAULT_MAX_NUM, read_log: bool = False
    ) -> pa.Table:
        """The messages of a queue from queue offset `offset` on, at most `max_num`; see `get_message_result`."""
        return self.get_message_result(topic, queue_id, offset, max_num, read_log).messages

    def get_message_result(
        self, topic: str, queue_id: int, offset: int, max_num: int = DEFAULT_MAX_NUM, read_log: bool = False
    ) -> GetMessageResult:
        """Messages from queue offset `offset` on, and how the offset is to the ends of the queue (`getMessage`).

        A broker's answer ends where a queue file does, and after 256 KiB; this one has `max_num` messages if there are
        as many. Messages whose segment is gone are passed over.

        Without `read_log` the queue's units give the answer, and its `uncovered` says which parts of the log can have
        more of the messages. Where a unit points to no record, or to a record of another place in a queue, there is a
        row with `_corrupt_record`. With `read_log` those parts of the log are read, and the rows are those of a scan of
        the whole log.
        """
        cover, most = self.queue_cover(topic, queue_id), max(max_num, 1)
        if read_log:
            return read_messages(cover, self._known_ends(topic, queue_id), offset, most)
        queue = self.queues.get((topic, queue_id))
        return get_message(queue, cover, self._queue_ends(topic, queue_id), offset, most)

    def look_message_by_offset(self, commit_log_offset: int) -> pa.Table:
        """The live message whose record starts at the offset; no row where there is none (`why_not` says why)."""
        found = self.find_record(commit_log_offset)
        return message_table([message_row(found)] if isinstance(found, Record) else [])

    def look_message_by_id(self, offset_message_id: str, any_host: bool = False) -> pa.Table:
        """The message that has this offset message id, the id that `viewMessage` takes; not a unique key.

        See `find_record_by_id`, which also says why there is no such message.
        """
        found = self.find_record_by_id(offset_message_id, any_host)
        return message_table([message_row(found)] if isinstance(found, Record) else [])

    def find_record_by_id(self, offset_message_id: str, any_host: bool = False) -> Record | str:
        """The live record that has this offset message id, or why there is none.

        An id names the broker that stored the message (address and port) and a commit log offset
        (`MessageDecoder.createMessageId`@5.3.3). Every broker has its own log: the id of another broker's message often
        is the offset of a message here. So the host of the id must be the store host of the record.

        Args:
            offset_message_id: 32 hexadecimal digits (IPv4) or 56 (IPv6), in upper or lower case.
            any_host: Compare the offset only. For a store that moved, if an id has the new address.

        Raises:
            OptionError: The text is not such an id.

        """
        host, offset = decode_offset_message_id(offset_message_id)
        found = self.find_record(offset)
        if isinstance(found, str) or any_host or found.store_host == host:
            return found
        return (
            f"it is an id of broker {host_text(host)}, but the message at commit log offset {offset} was stored by "
            f"broker {host_text(found.store_host)}; if this store moved, --any-host (any_host=True) compares only the "
            "offset"
        )

    def why_not(self, commit_log_offset: int) -> str | None:
        """Why there is no message at the offset; None if there is one."""
        found = self.find_record(commit_log_offset)
        return found if isinstance(found, str) else None

    def find_record(self, commit_log_offset: int) -> Record | str:
        """The live record at the offset, or why there is none."""
        if self.records.segment_of(commit_log_offset) is None:
            start = self.get_min_phy_offset()
            if 0 <= commit_log_offset < start:
                return f"its segment has expired: the log begins at {start}"
            here = (f"; {stray.describe()}" for stray in self.records.stray if stray.holds(commit_log_offset))
            return f"no segment holds commit log offset {commit_log_offset}{''.join(here)}"
        try:
            record = self.records.record(commit_log_offset)
        except CorruptLogError as error:
            return str(error)
        if commit_log_offset >= self.records.last_written_base and commit_log_offset >= self._live_end:
            return f"the record at {commit_log_offset} is stale: the log ends at {self._live_end}"
        return record

    @cached_property
    def index(self) -> KeyIndex:
        """The index files, and what of the log they do not cover."""
        return KeyIndex(
            self.location,
            self._broker_conf,
            self.files,
            self.records,
            self._live_end,
            LiveEndFinder(self.location).find_now,
            self._check_index,
        )

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = None,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
    ) -> pa.Table:
        """The messages of a topic that have the key, in KEYS or as unique key, newest first.

        At most `max_num`, and only those stored from `begin` to `end` (epoch milliseconds or aware datetimes, both
        included): so `end=T, max_num=1` is the newest not later than T. Unlike a broker's answer
        (`DefaultMessageStore.queryMessage`@5.3.3) it has no other limit, and no message that has only the key's hash.
        Where index files are missing or damaged, the log is read; `index.problems` says why. Messages of transaction
        type ROLLBACK are in no index. `why_no_message` explains an empty answer.
        """
        found = self.find_messages(topic, key, max_num, begin, end)
        return message_table([message_row(record) for record in found])

    def find_messages(
        self,
        topic: str,
        key: str,
        max_num: int | None = None,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
    ) -> Iterator[Record]:
        """The records of `query_message`, each read when it is asked for."""
        found = self.index.find_messages(topic, key, _optional_millis("begin", begin), _optional_millis("end", end))
        return islice(found, max_num)

    def query_message_by_unique_key(self, topic: str, unique_key: str, any_host: bool = False) -> pa.Table:
        """The messages with a unique key, newest first; or the one whose offset message id it is.

        As `MQAdminImpl.viewMessage`@5.3.3 it takes either: text alone does not tell them apart. `any_host`: if no
        message has it, also the message whose offset message id has another host, see `find_record_by_id`.
        """
        is_id = is_offset_message_id(unique_key)
        by_id = self.look_message_by_id(unique_key) if is_id else message_table([])
        if by_id.num_rows:
            return by_id
        rows = (message_row(record) for record in self.index.find_messages(topic, unique_key))
        by_key = message_table([row for row in rows if row["unique_key"] == unique_key])
        return self.look_message_by_id(unique_key, any_host) if any_host and is_id and not by_key.num_rows else by_key

    def why_no_unique_key(self, topic: str, unique_key: str) -> str:
        """Why `query_message_by_unique_key` has no answer, for a person."""
        why = self.why_no_message(topic, unique_key)
        if not is_offset_message_id(unique_key):
            return why
        is_at_offset = isinstance(self.find_record_by_id(unique_key, any_host=True), Record)
        return f"{why}; {self.find_record_by_id(unique_key)}" if is_at_offset else why

    def why_no_message(
        self,
        topic: str,
        key: str,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
    ) -> str:
        """Why `query_message` has no answer, for a person."""
        is_bounded = begin is not None or end is not None
        newest = next(self.index.find_messages(topic, key), None) if is_bounded else None
        if newest is not None:
            moment = iso_text(newest.store_timestamp)
            return f"its newest message in the log was stored at {moment}, outside the time asked for"
        expired = self.index.expired_timestamp(topic, key)
        if expired is not None:
            return (
                f"the index knows a message with this key, or with one of the same hash, stored about "
                f"{iso_text(expired)}, but its segment has expired: the log begins at {self.get_min_phy_offset()}"
            )
        if not any(name == topic for name, _ in self._queues):
            return f"there is no queue of topic {topic}"
        return f"no message of topic {topic} in the log has it"

    def get_offset_in_queue_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp: int | datetime,
        boundary_type: BoundaryType | str = BoundaryType.LOWER,
        read_log: bool = False,
    ) -> int:
        """The queue offset that a broker answers for a time; 0 where there is no such queue.

        `timestamp`: milliseconds since the epoch, or an aware datetime. `boundary_type`: LOWER, the first message
        stored then or later (the queue's maximum if there is none); UPPER, the last stored then or earlier. A broker of
        4.9 has its own rule, the nearest message, and no boundary types.
        The queue's units between its ends give the answer. With `read_log` the answer is that of all the queue's
        messages in the log, which is read as far as the units prove nothing; a queue's files do not matter then.
        Raises `OptionError` for an unknown boundary type, UPPER in 4.9, a datetime without a zone, and epoch seconds;
        without `read_log`, `CorruptQueueError` where a unit that the answer depends on does not lead to its message.
        """
        boundary = _boundary_type(boundary_type)
        millis = _millis("timestamp", timestamp)
        is_4_9 = self.broker_version == BrokerVersion.V4_9
        if is_4_9 and boundary == BoundaryType.UPPER:
            raise OptionError("a broker of 4.9 has no boundary type UPPER; open the store with broker_version='5'")
        if read_log:
            cover = self.queue_cover(topic, queue_id)
            found = nearest_in_log(cover, millis) if is_4_9 else offset_in_log(cover, millis, boundary)
            if found is None and is_4_9:
                return 0
            end = 1 if boundary == BoundaryType.LOWER else 0
            return self._ends_of(topic, queue_id, read_log)[end] if found is None else found
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            return 0
        times = self._queue_times(queue)
        return times.search_as_4_9(millis) if is_4_9 else times.search(millis, boundary)

    def first_offset_since(self, topic: str, queue_id: int, timestamp: int, read_log: bool = False) -> int:
        """The queue offset of the first message stored at `timestamp` (milliseconds) or later, by the rule of 5.x.

        `read_log` and `CorruptQueueError` as in `get_offset_in_queue_by_time`.
        """
        if read_log:
            found = offset_in_log(self.queue_cover(topic, queue_id), timestamp, BoundaryType.LOWER)
            return self.get_max_offset_in_queue(topic, queue_id, read_log) if found is None else found
        queue = self.queues.get((topic, queue_id))
        return 0 if queue is None else self._queue_times(queue).search(timestamp, BoundaryType.LOWER)

    def _queue_times(self, queue: ConsumeQueue) -> QueueTimes:
        ends = self._queue_ends(queue.topic, queue.queue_id)
        return QueueTimes(queue, self.queue_cover(queue.topic, queue.queue_id), ends)

    def messages_of_topic(
        self, topic: str, begin: int | None = None, end: int | None = None
    ) -> Iterator[Record | CorruptRange]:
        """The messages in the queues of a topic, in the order of the log, and what of the log is damaged.

        Nothing but a scan of the log can tell that no queue of a topic was lost, so the log is read. Parts of it that
        were stored outside `begin` ... `end` (milliseconds) are left out where that can be told from a part of them.
        """
        log = LogRange(self.get_min_phy_offset(), self.get_max_phy_offset())
        return scan(self.location, self.records, log, InQueue(topic), begin, end, _FIRST_BYTES)

    def pickup_store_timestamp(self, commit_log_offset: int, store_size: int) -> int:
        """The store time, in milliseconds, of the record at the offset; -1 where the live log has not all its bytes."""
        if commit_log_offset < self.get_min_phy_offset() or commit_log_offset + store_size > self._live_end:
            return -1
        return self.records.store_timestamp(commit_log_offset)

    def roll_next_file(self, commit_log_offset: int) -> int:
        """The commit log offset at which the segment behind the one that holds `commit_log_offset` begins.

        As `CommitLog.rollNextFile`@5.3.3, but by the files that are there. Raises `OptionError` where none holds it.
        """
        segment = self.records.segment_of(commit_log_offset)
        if segment is None:
            raise OptionError(f"no segment of {self.location} holds commit log offset {commit_log_offset}")
        return segment.base + segment.size


def _boundary_type(boundary_type: BoundaryType | str) -> BoundaryType:
    try:
        return BoundaryType(boundary_type.upper())
    except ValueError as error:
        raise OptionError(f"boundary type {boundary_type!r} is neither LOWER nor UPPER") from error


def _optional_millis(name: str, timestamp: int | datetime | None) -> int | None:
    return None if timestamp is None else _millis(name, timestamp)


def _millis(name: str, timestamp: int | datetime) -> int:
    if isinstance(timestamp, int):
        return check_epoch_millis(name, timestamp)
    if timestamp.tzinfo is None:
        raise OptionError(f"{timestamp!r} has no time zone: give an aware datetime, or milliseconds since the epoch")
    return epoch_millis(timestamp)
