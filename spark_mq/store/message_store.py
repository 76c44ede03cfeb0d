"""`MessageStore`: look-ups in one store, in RocketMQ's words (`DefaultMessageStore`@5.3.3). No Spark, no JVM.

A `MessageStore` shows the store as it was when it was opened. Each look-up reads only what it needs: a few units of a
consume queue or entries of an index file, and the records that they point to.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Self

import pyarrow as pa

from spark_mq.errors import CorruptLogError, OptionError, UnsupportedStoreError, similar_names
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import KeyType, record_keys, tags_key
from spark_mq.format.index_file import query_offset
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import decode_offset_message_id, is_offset_message_id
from spark_mq.format.message_row import host_text, message_row, message_table
from spark_mq.format.message_schema import MESSAGE_BY_KEY_SCHEMA
from spark_mq.format.record import Record
from spark_mq.format.timestamp import iso_text, millis_of
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.index.coverage import CheckedIndex
from spark_mq.store.index.folder import index_files, index_layout
from spark_mq.store.index.index_database import answers_from_database, index_database, query_database
from spark_mq.store.index.key_index import FIRST_TIME, LAST_TIME, MQADMIN_MAX_NUM, BrokerAnswer, IndexType, KeyIndex
from spark_mq.store.live_end import LiveEndFinder, end_by_index
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.record_lookup import NoRecord, RecordLookup
from spark_mq.store.log.scan import InQueue, scan
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.consume_queue_store import ConsumeQueueStore
from spark_mq.store.queue.folders import folders_of_topic
from spark_mq.store.queue.queue_database import QueueDatabase
from spark_mq.store.store_lock import StateMemory, settled_state

_ENDS = StateMemory[LiveEnd]()
"""Ends of logs that this process found, by the state of the files."""
_ASKED_SCHEMA = pa.schema([("topic", pa.string()), ("key", pa.string())])
_FIRST_BYTES = 4 << 20
"""Bytes of the log in which the first messages of a topic are searched for without the kernels."""


class MessageStore(ConsumeQueueStore):
    """One store directory of a broker, opened for look-ups.

    Methods that return messages return a `pyarrow.Table` with the columns of table `messages`. Commit log offsets are
    bytes, queue offsets count messages, and integer timestamps are milliseconds since the epoch. A `MessageStore` never
    changes the store. It keeps files open until `close`, or until the end of a `with` block.

    Examples:
        >>> with MessageStore("/data/store") as store:
        ...     messages = store.get_message("orders", 3, offset=1200, max_num=32)
    """

    def __init__(
        self,
        path: str,
        broker_version: str | None = None,
        broker_conf: str | None = None,
        check_index: bool = False,
        live_end: LiveEnd | None = None,
        checked_index: CheckedIndex | None = None,
        recalls_end: bool = False,
    ) -> None:
        """Open the store.

        Args:
            path: The store directory (`storePathRootDir`): a path, or a URI that pyarrow can open.
            broker_version: The broker's version, such as `5.1.0`, or a line of versions, such as `4.9` or `5`. It
                selects the rules that differ by version. By default the store's files show which ones are possible.
            broker_conf: The file of the broker's settings. The sizes of index files do not show `maxHashSlotNum` and
                `maxIndexNum` if these were changed.
            check_index: Whether each index file is read whole and checked before a look-up of a key uses it; see
                `spark_mq.store.index.key_index`.
            live_end: Where the log ends for this reader, if it is known. By default it is searched for when it is
                needed.
            checked_index: What another process found out about the index files, for look-ups in the same time range.
            recalls_end: Whether the end of the log is the one that this process found before, if no broker runs and no
                file has changed since. That takes less time for a process that opens the same store again and again.

        Raises:
            StoreNotFoundError: The path is not a message store.
            UnsupportedStoreError: The store is of a kind that is not read.
            OptionError: `broker_version` is unknown, or `broker_conf` cannot be read.
        """
        super().__init__()
        self.location = Location.resolve(path).snapshot()
        self.broker_conf = BrokerConf.of(broker_conf)
        self._check_index = check_index
        self._given_live_end = live_end
        self._checked_index = checked_index
        self._recalls_end = recalls_end
        self.files = FileReaders()
        self.records = RecordLookup(self.location, self.files)
        self._given_version = broker_version
        if broker_version is not None:
            versions = BrokerVersions.parse(broker_version)  # a mistake is an error now, not at the first question
            if versions.is_assumed:
                warnings.warn(versions.evidence, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all open files."""
        self.files.close()

    @cached_property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the broker that are possible, with the evidence; their rules are used."""
        return find_broker_versions(self.location, self._given_version)

    def queue_ids(self, topic: str) -> list[int]:
        """The ids of the topic's queues that have files, ascending; empty if the queues are in RocksDB."""
        if self._lists_all(topic):
            return sorted(queue_id for name, queue_id in self._found if name == topic)
        return sorted({folder.queue_id for folder in folders_of_topic(self.tree, topic)})

    @property
    def queue_names(self) -> list[Queue]:
        """Topic and queue id of each queue that has files, sorted; empty if the queues are in RocksDB."""
        return sorted(self._found)

    def get_min_phy_offset(self) -> int:
        """The commit log offset at which the log begins; -1 if the log has no segment."""
        return self.records.min_offset

    def get_max_phy_offset(self) -> int:
        """The commit log offset after the last live record; -1 if the log is empty."""
        return self.live_end.offset

    @property
    def live_log(self) -> LogRange:
        """The log from its first segment to its live end."""
        return LogRange(self.get_min_phy_offset(), self.get_max_phy_offset())

    @cached_property
    def live_end(self) -> LiveEnd:
        """Where the log ends, and which records before that can be stale."""
        if self._given_live_end is not None:
            return self._given_live_end
        known = end_by_index(self.records)
        if known is None and self._may_recall_end:
            known = _ENDS.recall(self.first_state)
        if known is not None:
            return known
        found = LiveEndFinder(self.location).find_without_index(self.records, self._each_queue())
        if self._may_recall_end and self.state_of_files() == self.first_state:
            _ENDS.keep(self.first_state, found)
        return found

    def _each_queue(self) -> Iterator[ConsumeQueue]:
        """The queues, which are listed when the first one is asked for: many look-ups need none."""
        yield from self._found.values()

    @property
    def _may_recall_end(self) -> bool:
        """Whether an end that was found before counts: with `abort`, a broker may run on another machine."""
        may_run = not self.location.is_local or os.path.lexists((self.location / ABORT).path)
        return self._recalls_end and not may_run and self.first_state is not None

    @cached_property
    def first_state(self) -> bytes | None:
        """The state of the files when it was asked for first, as in `state_of_files`."""
        return self.state_of_files()

    def state_of_files(self) -> bytes | None:
        """The state of all files of log and queues now, and of the checkpoint; None if a broker may change them unseen.

        See `store.settled_files`.
        """
        files = [segment.location for segment in self.records.segments]
        of_queues = [file.location for queue in self._found.values() for file in queue.files]
        files += [file for file in of_queues if not isinstance(file.storage, QueueDatabase)]
        databases = {id(file.storage): file.storage for file in of_queues if isinstance(file.storage, QueueDatabase)}
        files += [file for database in databases.values() for file in database.stored_files()]
        read_at = min((database.copied_at for database in databases.values()), default=None)
        extents = [(segment.base, segment.size) for segment in self.records.segments]
        return settled_state(self.location, [*files, self.location / CHECKPOINT], extents, read_at)

    def look_message_by_offset(self, commit_log_offset: int) -> pa.Table:
        """The live message whose record starts at a commit log offset.

        Returns:
            One row, or no row if there is no such message; `why_not` gives the reason.

        Examples:
            >>> store.look_message_by_offset(1073741824).num_rows
            1
        """
        record = self.find_record(commit_log_offset)
        return message_table([message_row(record)] if isinstance(record, Record) else [])

    def look_message_by_id(self, offset_message_id: str, any_host: bool = False) -> pa.Table:
        """The message that has an offset message id (`viewMessage`); a unique key is not such an id.

        `find_record_by_id` has the same arguments and errors, and returns the reason if there is no such message.

        Returns:
            One row, or no row.

        Examples:
            >>> store.look_message_by_id("7F00000100002A9F0000000000000000").num_rows
            1
        """
        record = self.find_record_by_id(offset_message_id, any_host)
        return message_table([message_row(record)] if isinstance(record, Record) else [])

    def find_record_by_id(self, offset_message_id: str, any_host: bool = False) -> Record | NoRecord:
        """The live record that has this offset message id, or why there is none.

        An id contains the address and port of the broker that stored the message, and a commit log offset
        (`MessageDecoder.createMessageId`@5.3.3). Every broker has its own log, so the offset in the id of another
        broker's message often is the offset of a message in this store. Therefore the host of the id must be the store
        host of the record.

        Args:
            offset_message_id: 32 hexadecimal digits (IPv4) or 56 (IPv6), in upper or lower case.
            any_host: Whether only the offset is compared. Use this for a store that moved, if the id has the new
                address.

        Returns:
            The record, or the reason.

        Raises:
            OptionError: The text is not an offset message id.
        """
        return record_with_id(self.find_record, offset_message_id, any_host)

    def why_not(self, commit_log_offset: int) -> str | None:
        """Why no live message starts at a commit log offset; None if one does."""
        record = self.find_record(commit_log_offset)
        return record.reason if isinstance(record, NoRecord) else None

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        """The live record that starts at a commit log offset, or the reason why there is none."""
        if self.records.segment_of(commit_log_offset) is None:
            start = self.get_min_phy_offset()
            if 0 <= commit_log_offset < start:
                return NoRecord(f"its segment has expired: the log begins at {start}", is_expired=True)
            stray_files = (f"; {stray.describe()}" for stray in self.records.stray if stray.holds(commit_log_offset))
            return NoRecord(f"no segment contains commit log offset {commit_log_offset}{''.join(stray_files)}")
        try:
            record = self.records.record(commit_log_offset)
        except CorruptLogError as error:
            return NoRecord(str(error))
        if not self.records.is_before_last_written(commit_log_offset) and commit_log_offset >= self.live_end.offset:
            return NoRecord(f"the record at {commit_log_offset} is stale: the log ends at {self.live_end.offset}")
        return record

    @cached_property
    def index(self) -> KeyIndex:
        """The index files, and the parts of the log that they do not cover."""
        find_log_end = LiveEndFinder(self.location).find_now
        log = self.records, self.live_end, find_log_end
        return KeyIndex(self.broker_conf, *log, self._check_index, self._checked_index)

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = None,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
    ) -> pa.Table:
        """The messages of a topic that have a key, in KEYS or as unique key, newest first.

        Unlike a broker's answer (`DefaultMessageStore.queryMessage`@5.3.3), the result has no other limit than
        `max_num`, and does not have messages that share only the key's hash. If index files are missing or damaged,
        the log is read; `index.problems` has the reasons. Messages of transaction type ROLLBACK are not in any index.
        `why_no_message` explains an empty result.

        Args:
            topic: The topic.
            key: One key of KEYS, or a unique key.
            max_num: The largest number of messages; None for all.
            begin: The earliest store time, included: epoch milliseconds or an aware datetime; None for any.
            end: The latest store time, included, in the same form. `end=T, max_num=1` gives the newest message that
                was not stored after T.

        Returns:
            The messages.

        Raises:
            OptionError: A time is in seconds, or is a datetime without a time zone.

        Examples:
            >>> store.query_message("orders", "order-17", max_num=1)["queue_offset"].to_pylist()
            [1304]
        """
        records = self.find_messages(topic, key, max_num, begin, end)
        return message_table([message_row(record) for record in records])

    def find_messages(
        self,
        topic: str,
        key: str,
        max_num: int | None = None,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
    ) -> Iterator[Record]:
        """The records of `query_message`, which has the same arguments and errors; each is read when it is needed."""
        records = self.index.find_messages(topic, key, _optional_millis("begin", begin), _optional_millis("end", end))
        return islice(records, max_num)

    def query_messages(self, asked: pa.Table, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The messages of many keys, as `query_message` finds them for each, in one pass over index files and log.

        Args:
            asked: Columns `topic` and `key`; a key is one of KEYS or a unique key. Rows with NULL find nothing, and a
                pair that is there twice counts once.
            columns: Columns of table `messages_by_key`; by default all.

        Returns:
            Batches with a row for each pair and message, in no order.

        Raises:
            CorruptLogError: As `query_message`.

        Examples:
            >>> asked = pa.table({"topic": ["orders", "orders"], "key": ["order-17", "order-18"]})
            >>> pa.Table.from_batches(store.query_messages(asked, ["key", "queue_offset"])).to_pylist()
            [{'key': 'order-17', 'queue_offset': 1187}, {'key': 'order-18', 'queue_offset': 1188}]
        """
        from spark_mq.store.many_keys import ManyKeys

        pairs = asked.select(["topic", "key"]).cast(_ASKED_SCHEMA).drop_null().group_by(["topic", "key"]).aggregate([])
        topics, keys = (pairs[name].combine_chunks() for name in ("topic", "key"))
        names = MESSAGE_BY_KEY_SCHEMA.names if columns is None else columns
        many = ManyKeys(self.index, topics, keys, names)
        return (batch for _, batch in many.batches()) if len(pairs) else iter(())

    def query_message_as_broker(
        self,
        topic: str,
        key: str,
        max_num: int = MQADMIN_MAX_NUM,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
        index_type: str = IndexType.KEY,
    ) -> pa.Table:
        """The messages that a broker on these files returns for a key, in the order of the log.

        Only `query_message` is exact. The answer of a broker has at most `maxMsgsNumBatch` messages (64 by default, see
        `broker_conf`), messages of other keys that have the same hash, and none that its index files lack; times are
        compared in whole seconds (`DefaultMessageStore.queryMessage`@5.3.3 and 4.9.7). `mqadmin queryMsgByKey` leaves
        out what does not have the key in KEYS.

        With `indexRocksDBEnable=true` and `indexFileReadEnable=false` in the settings, the answer is that of the index
        in RocksDB. It has only messages that have a unique key, and answers for 7 days (`maxRocksDBIndexQueryDays`):
        give both times, or it is asked for the last days before now.

        Args:
            topic: The topic.
            key: One key of KEYS, or a unique key.
            max_num: The largest number of messages that the broker is asked for; by default 64, as by mqadmin.
            begin: The earliest store time, included: epoch milliseconds or an aware datetime; None for any.
            end: The latest store time, included, in the same form.
            index_type: `K`, or `T` for a look-up by tags, which `key` then has. Index files have tags since 5.4.0. `U`
                is for a unique key, which an index in RocksDB does not find with `K`.

        Raises:
            CorruptIndexError: An index file is damaged in a part that the look-up reads.
            OptionError: The index type is another one; or a time is in seconds, or a datetime without a time zone; or
                the files do not show `maxHashSlotNum` and `maxIndexNum`.

        Examples:
            >>> store.query_message_as_broker("orders", "order-17")["queue_offset"].to_pylist()
            [1187, 1304]
        """
        answer = self.find_as_broker(topic, key, max_num, begin, end, index_type)
        return message_table([message_row(record) for record in answer.records])

    def find_as_broker(
        self,
        topic: str,
        key: str,
        max_num: int = MQADMIN_MAX_NUM,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
        index_type: str = IndexType.KEY,
    ) -> BrokerAnswer:
        """The records of `query_message_as_broker`, which has the same arguments and errors, and what else is known."""
        if index_type not in set(IndexType):
            raise OptionError(f"index type {index_type!r} is none of K (keys), T (tags), U (unique keys)")
        first, last = _optional_millis("begin", begin), _optional_millis("end", end)
        times = FIRST_TIME if first is None else first, LAST_TIME if last is None else last
        if self._index_database is not None:
            found = query_database(self._index_database, self.broker_conf, topic, index_type, key, max_num, *times)
        else:
            layout, opened = index_layout(self.location, self.broker_conf), []
            for info in index_files(self.location):
                layout.check_file_size(info.size, str(info.location))
                opened.append(info.opened(layout, self.files))
            found = query_offset(
                opened,
                topic.encode("utf-8", "replace"),
                (tags_key(key) if index_type == IndexType.TAG else key).encode("utf-8", "replace"),
                max_num,
                *times,
                self.broker_conf.max_msgs_num_batch,
            )
        offsets = sorted(found.commit_log_offsets)
        records = {offset: self.find_record(offset) for offset in offsets}
        return BrokerAnswer(
            tuple(record for offset in offsets if isinstance(record := records[offset], Record)),
            found.index_last_update_timestamp if offsets else 0,
            found.index_last_update_commit_log_offset if offsets else 0,
            tuple(offset for offset, record in records.items() if isinstance(record, NoRecord)),
        )

    @cached_property
    def _index_database(self) -> RocksDatabase | None:
        """The database in which a broker looks keys up; None if it does so in index files."""
        folder = index_database(self.location) if answers_from_database(self.broker_conf) else None
        return None if folder is None else RocksDatabase(folder)

    def query_message_by_unique_key(self, topic: str, unique_key: str, any_host: bool = False) -> pa.Table:
        """The messages with a unique key, newest first; or the message with an offset message id.

        Both kinds of ids are accepted, because a text alone does not show which kind it is
        (`MQAdminImpl.viewMessage`@5.3.3). A message of another topic is not an answer, as it is not for a unique key.

        Args:
            topic: The topic.
            unique_key: A unique key, or an offset message id.
            any_host: Whether, if no message has the id, the host of an offset message id is ignored; see
                `find_record_by_id`.

        Returns:
            The messages; `why_no_unique_key` explains an empty result.

        Examples:
            >>> store.query_message_by_unique_key("orders", "7F0000010A2C18B4AAC2567E12340000").num_rows
            1
        """
        return message_table([message_row(one) for one in self.find_by_unique_key(topic, unique_key, any_host)])

    def find_by_unique_key(self, topic: str, unique_key: str, any_host: bool = False) -> list[Record]:
        """The records of `query_message_by_unique_key`, which has the same arguments."""
        is_id = is_offset_message_id(unique_key)
        by_id = self.find_record_by_id(unique_key) if is_id else None
        if isinstance(by_id, Record) and decode_utf8(by_id.topic) == topic:
            return [by_id]
        found = self.index.find_messages(topic, unique_key)
        by_key = [record for record in found if record_keys(record).get(unique_key) == KeyType.UNIQ_KEY]
        if any_host and is_id and not by_key:
            by_offset = self.find_record_by_id(unique_key, any_host)
            if isinstance(by_offset, Record) and decode_utf8(by_offset.topic) == topic:
                return [by_offset]
        return by_key

    def why_no_unique_key(self, topic: str, unique_key: str) -> str:
        """Why `query_message_by_unique_key` returns no message, as text for a person."""
        reason, by_id = self.why_no_message(topic, unique_key), self.why_no_offset_message_id(unique_key)
        record = self.find_record_by_id(unique_key, any_host=True) if is_offset_message_id(unique_key) else None
        if by_id is None and isinstance(record, Record) and decode_utf8(record.topic) != topic:
            name = decode_utf8(record.topic)
            by_id = f"it is the offset message id of a message of topic {name}, which `query-by-id` prints"
        return reason if by_id is None else f"{reason}; {by_id}"

    def why_no_offset_message_id(self, text: str) -> str | None:
        """Why a text is not the id of a message, if another broker's message has its offset; else None."""
        if not is_offset_message_id(text) or isinstance(self.find_record_by_id(text, any_host=True), NoRecord):
            return None
        record = self.find_record_by_id(text)
        return str(record) if isinstance(record, NoRecord) else None

    def why_no_message(
        self, topic: str, key: str, begin: int | datetime | None = None, end: int | datetime | None = None
    ) -> str:
        """Why `query_message` returns no message, as text for a person."""
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
        separated = ": a space separates keys, so look up one of them" if " " in key.strip() else ""
        return self.why_no_topic(topic) or f"no message of topic {topic} in the log has it{separated}"

    def why_no_topic(self, topic: str) -> str | None:
        """A text for a person if no queue of the topic has files, with similar topics that have some; else None.

        None also if queues are not in files.
        """
        if self.queue_ids(topic) or topic in self._batch_topics:
            return None
        try:
            topics = {name for name, _ in self.queues}
        except UnsupportedStoreError:
            return None
        similar = similar_names(topic, topics)
        hint = f"similar topics: {', '.join(similar)}" if similar else "`spark-mq topics` lists the topics"
        return f"there is no queue of topic {topic}; {hint}"

    def why_no_queue(self, topic: str, queue_id: int) -> str | None:
        """A text for a person if the queue has no files, with the topic's queues that have some; else None."""
        if (topic, queue_id) in self._found:
            return None
        ids = ", ".join(map(str, self.queue_ids(topic)))
        return self.why_no_topic(topic) or f"there is no queue {topic}/{queue_id}; queues of the topic: {ids}"

    def stored_times(self, topic: str | None = None) -> tuple[int, int] | None:
        """The store times (milliseconds) of the first and the last message to which queues lead.

        Messages that no queue leads to can be older or newer.

        Args:
            topic: Only the queues of this topic; None for all queues.

        Returns:
            Both times; None if no queue leads to a message.

        Examples:
            >>> store.stored_times("orders")
            (1795248093336, 1795248151002)
        """
        times = []
        for name in self._found if topic is None else [(topic, queue_id) for queue_id in self.queue_ids(topic)]:
            cover, (first, stop) = self.queue_cover(*name), self._ends_of_units(*name)
            ends = (cover.proven(first), cover.proven(stop - 1)) if first < stop else ()
            times += [proven.record.store_timestamp for proven in ends if proven is not None]
        return (min(times), max(times)) if times else None

    def messages_of_topic(
        self, topic: str, begin: int | None = None, end: int | None = None
    ) -> Iterator[Record | CorruptRange]:
        """The messages in the queues of a topic, in the order of the log, and the damaged ranges of the log.

        Only a scan of the log shows that no queue of a topic was lost, so the log is read.

        Args:
            topic: The topic.
            begin: The earliest store time in milliseconds, included; None for any.
            end: The latest store time in milliseconds, included; None for any. A part of the log can be skipped if a
                sample shows that all of it was stored outside `begin` to `end`. Messages outside can be returned.
        """
        return scan(self.records, self.live_log, InQueue(topic), begin, end, _FIRST_BYTES)

    def pickup_store_timestamp(self, commit_log_offset: int, store_size: int) -> int:
        """The store time of a record, in milliseconds; -1 if the live log does not contain all its bytes.

        As in `CommitLog.pickupStoreTimestamp`@5.3.3, nothing checks that a record starts at the offset.
        """
        if commit_log_offset < self.get_min_phy_offset() or commit_log_offset + store_size > self.live_end.offset:
            return -1
        return self.records.store_timestamp(commit_log_offset)


def record_with_id(
    find_record: Callable[[int], Record | NoRecord], offset_message_id: str, any_host: bool
) -> Record | NoRecord:
    """The record at the offset in an id, as `find_record` finds it; the arguments of `find_record_by_id`."""
    host, offset = decode_offset_message_id(offset_message_id)
    record = find_record(offset)
    if isinstance(record, NoRecord) or any_host or record.store_host == host:
        return record
    return NoRecord(
        f"it is an id of broker {host_text(host)}, but the message at commit log offset {offset} was stored by "
        f"broker {host_text(record.store_host)}; if this store moved, --any-host (any_host=True) compares only the "
        "offset"
    )


def _optional_millis(name: str, timestamp: int | datetime | None) -> int | None:
    return None if timestamp is None else millis_of(name, timestamp)
