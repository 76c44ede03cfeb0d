"""The consume queues of one store, and their answers (`ConsumeQueueStore`@5.3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from spark_mq.errors import OptionError
from spark_mq.format.broker_version import MIN_OFFSET_BY_HALVING, OFFSET_BY_STORE_TIME, BrokerVersions, VersionRule
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import Door, FoundForm, check_form, find_forms
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folder, queue_folders
from spark_mq.store.queue.get_message import GetMessageResult, get_message, read_ends, read_messages
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.offset_by_time import BoundaryType, QueueTimes, nearest_in_log, offset_in_log


class ConsumeQueueStore:
    """The queues of a store that have files, by topic and queue id.

    By default an answer is that of the queues' units, as a broker's. With `read_log`, messages about which the units
    prove nothing are searched for in the log; see `QueueCover`.
    """

    def __init__(
        self,
        location: Location,
        files: FileReaders,
        records: RecordLookup,
        live_end: Callable[[], LiveEnd],
        broker_versions: Callable[[], BrokerVersions],
    ) -> None:
        """The queues of the store at `location`. `live_end` and `broker_versions` are asked only when needed."""
        self._location = location
        self._files = files
        self._records = records
        self._live_end = live_end
        self._broker_versions = broker_versions
        self._is_listed = False
        self._single: dict[tuple[str, int], ConsumeQueue | None] = {}
        self._ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._max_offsets: dict[tuple[str, int], int] = {}

    @cached_property
    def found(self) -> dict[tuple[str, int], ConsumeQueue]:
        """The queues that have files; none if they are in RocksDB."""
        folders = queue_folders(self._location / CONSUME_QUEUE)
        self._is_listed = True
        return {(folder.topic, folder.queue_id): ConsumeQueue(folder, self._files) for folder in folders}

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue of `found`; None if there is no such queue. The other queues are not listed for it."""
        if self._is_listed:
            return self.found.get((topic, queue_id))
        name = topic, queue_id
        if name not in self._single:
            folder = queue_folder(self._location / CONSUME_QUEUE, topic, queue_id)
            self._single[name] = None if folder is None else ConsumeQueue(folder, self._files)
        return self._single[name]

    @cached_property
    def queues(self) -> dict[tuple[str, int], ConsumeQueue]:
        """As `found`. Raises `UnsupportedStoreError` if the store has queues that are not in files, or not read."""
        check_form(self._location, Door.QUEUES)
        return self.found

    def notes(self, topic: str) -> list[str]:
        """What an answer by queue offsets of `topic` leaves out because of the store's form, a sentence each."""
        found = [one for one in self._forms if not one.topics or topic in one.topics]
        return [str(note) for one in found if (note := one.check(Door.QUEUE)) is not None]

    @cached_property
    def _forms(self) -> list[FoundForm]:
        return find_forms(self._location, Door.QUEUE)

    def _with_units(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue whose units are read; None if there is no such queue."""
        self.notes(topic)
        return self.find(topic, queue_id) if self._has_units else None

    @cached_property
    def _has_units(self) -> bool:
        """True. Raises `UnsupportedStoreError` if the units are not in files."""
        check_form(self._location, Door.UNITS)
        return True

    def cover(self, topic: str, queue_id: int) -> QueueCover:
        """What the units of a queue prove. Nothing is proven about a queue without files."""
        name, log_start = (topic, queue_id), self._records.min_offset
        return QueueCover(name, self.find(*name), self._location, self._records, log_start, self._live_end())

    def ends(self, topic: str, queue_id: int, read_log: bool) -> tuple[int, int]:
        """The queue offset of the first message, and the one that the next message will get; 0, 0 for no queue."""
        self.notes(topic)
        if not read_log:
            return self._ends_of_units(topic, queue_id)
        return read_ends(self.cover(topic, queue_id), self._known_ends(topic, queue_id))

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message will get, as the units show it; 0 for no queue."""
        queue = self._with_units(topic, queue_id)
        if queue is None:
            return 0
        found = self._max_offsets.get((topic, queue_id))
        if found is None:
            found = self._max_offsets[topic, queue_id] = queue.max_offset(self._records, self._live_end().offset)
        return found

    def get_message(self, topic: str, queue_id: int, offset: int, max_num: int, read_log: bool) -> GetMessageResult:
        """At most `max_num` messages of a queue, from queue offset `offset` on."""
        cover, notes = self.cover(topic, queue_id), tuple(self.notes(topic))
        if read_log:
            result = read_messages(cover, self._known_ends(topic, queue_id), offset, max_num)
        else:
            queue = self._with_units(topic, queue_id)
            result = get_message(queue, cover, self._ends_of_units(topic, queue_id), offset, max_num)
        return replace(result, notes=notes)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary_type: BoundaryType, read_log: bool
    ) -> int:
        """The queue offset that a broker of the store's version returns for a time in milliseconds."""
        self.notes(topic)
        if boundary_type == BoundaryType.UPPER:
            versions = self._broker_versions()
            if versions.decide(OFFSET_BY_STORE_TIME) is False:
                since = OFFSET_BY_STORE_TIME.since
                raise OptionError(f"a broker of {versions} has no boundary type UPPER, which is there from {since} on")
            return self.offset_by_store_time(topic, queue_id, timestamp, boundary_type, read_log)
        return self._agreed(
            OFFSET_BY_STORE_TIME,
            lambda follows: (
                self.offset_by_store_time(topic, queue_id, timestamp, boundary_type, read_log)
                if follows
                else self._nearest_offset(topic, queue_id, timestamp, read_log)
            ),
            f"the queue offset of the time {timestamp} in queue {queue_id} of topic {topic!r}",
        )

    def _agreed(self, rule: VersionRule, answer: Callable[[bool], int], what: str) -> int:
        """The answer of a broker that follows a rule, or does not; of a broker that may do either, if both agree."""
        versions = self._broker_versions()
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
            return nearest_in_log(self.cover(topic, queue_id), timestamp) or 0
        times = self._times(topic, queue_id)
        return 0 if times is None else times.search_nearest(timestamp)

    def offset_by_store_time(
        self, topic: str, queue_id: int, timestamp: int, boundary_type: BoundaryType, read_log: bool
    ) -> int:
        """The queue offset that a broker from 5.1.1 on returns for a time in milliseconds."""
        if read_log:
            offset = offset_in_log(self.cover(topic, queue_id), timestamp, boundary_type)
            if offset is not None:
                return offset
            min_offset, max_offset = self.ends(topic, queue_id, read_log)
            return max_offset if boundary_type == BoundaryType.LOWER else min_offset
        times = self._times(topic, queue_id)
        return 0 if times is None else times.search(timestamp, boundary_type)

    def _ends_of_units(self, topic: str, queue_id: int) -> tuple[int, int]:
        ends = self._ends.get((topic, queue_id))
        if ends is None:
            queue = self._with_units(topic, queue_id)
            if queue is None:
                return 0, 0
            max_offset = self.max_offset(topic, queue_id)
            min_offset = self._agreed(
                MIN_OFFSET_BY_HALVING,
                lambda follows: queue.min_offset(max_offset, self._records.min_offset, by_halving=follows),
                f"the min offset of queue {queue_id} of topic {topic!r}",
            )
            ends = self._ends[topic, queue_id] = min_offset, max_offset
        return ends

    def _known_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """`_ends_of_units`; 0, 0 if the queue has no files that can be read: the log can have its messages."""
        return (0, 0) if (topic, queue_id) not in self.found else self._ends_of_units(topic, queue_id)

    def _times(self, topic: str, queue_id: int) -> QueueTimes | None:
        queue = self._with_units(topic, queue_id)
        if queue is None:
            return None
        return QueueTimes(queue, self.cover(topic, queue_id), self._ends_of_units(topic, queue_id))
