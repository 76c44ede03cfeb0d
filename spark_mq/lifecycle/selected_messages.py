"""The log as the tables of this package read it: the messages of some topics, and the parts that cannot be read.

A record that has the right lengths counts as a record of the log, but its bytes can be damaged. Most brokers write no
checksum of the properties. So a zero byte among the properties counts as damage here: files that lost a page contain
zeros, and a broker writes none.

Only the selected messages are decoded, and of these only the requested columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.kernels.batches import message_batches
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD
from spark_mq.format.record import TRANSACTION_TYPE_MASK, TRANSACTION_TYPE_NAMES
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.log.commit_log import CommitLog, plan_splits
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_reader import joined_chunks
from spark_mq.store.log.segment_files import STRAY, CorruptRange
from spark_mq.store.log.split_reader import WHOLE, read_split
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of

SOUND_COLUMNS = ("store_size", "properties_bytes")
"""The columns that `sound_messages` needs, beside `commit_log_offset`."""
POSITION_COLUMNS = ("commit_log_offset", "topic", "queue_id", "queue_offset", "unique_key", *SOUND_COLUMNS)
"""The columns that most tables need."""

_ZERO = "the properties of the record contain zero bytes"
_MAX_ROWS = 1 << 16


class ReadableLog:
    """The log of a store as it was read: its start and stop, and the ranges in between without a readable record."""

    def __init__(self, log: LogRange, damage: Sequence[CorruptRange]) -> None:
        self.log = log
        ranges = sorted(
            (one for one in damage if one.code != STRAY and one.length > 0), key=lambda one: one.commit_log_offset
        )
        self._ranges = ranges
        self._starts: Int64s = np.array([one.commit_log_offset for one in ranges], np.int64)
        ends = [one.commit_log_offset + one.length for one in ranges]
        self._ends: Int64s = np.maximum.accumulate(np.array(ends, np.int64))

    @classmethod
    def of(cls, found: SelectedMessages, *more: CorruptRange) -> Self:
        """The log from which messages were selected; `more` are records that do not count (`sound_messages`)."""
        return cls(found.log, [*found.damage, *more])

    def is_readable(self, offsets: Int64s) -> Flags:
        """Whether the commit log offsets are in the log, and not in a damaged range."""
        in_log: Flags = (offsets >= self.log.start) & (offsets < self.log.stop)
        return in_log & ~self.is_damaged_between(offsets, offsets + 1)

    def is_damaged_between(self, starts: Int64s, stops: Int64s) -> Flags:
        """Whether some bytes from each of `starts` up to the same element of `stops` are damaged."""
        first = np.searchsorted(self._ends, starts, side="right")
        last = np.searchsorted(self._starts, stops, side="left")
        result: Flags = first < last
        return result

    def is_damaged_after(self, starts: Int64s) -> Flags:
        """Whether there is damage from each of `starts` up to the end of the log."""
        result: Flags = np.searchsorted(self._ends, starts, side="right") < len(self._ranges)
        return result

    def damage_reasons(self, before: str, starts: Int64s) -> pa.Array:
        """A text for each of `starts`: `before`, and the first damaged range that ends after it."""
        texts = [f"{before}: {one.describe()}" for one in self._ranges] or [""]
        first = np.minimum(np.searchsorted(self._ends, starts, side="right"), len(texts) - 1)
        return pa.array(texts, pa.string()).take(pa.array(first))


def sound_messages(found: SelectedMessages) -> tuple[pa.Table, tuple[CorruptRange, ...]]:
    """The messages without damage, without `SOUND_COLUMNS`; and the damaged ones as ranges of the log."""
    messages, properties = found.messages, found.messages["properties_bytes"]
    reasons = pa.chunked_array([pa.nulls(messages.num_rows, pa.string())])
    if CORRUPT_RECORD in messages.column_names:
        reasons = messages[CORRUPT_RECORD]
    # Whether the buffers have a zero byte: this is much faster than a check of each text.
    datas = (chunk.buffers()[2] for chunk in properties.chunks)
    has_zero = any(data is not None and np.frombuffer(data, np.uint8).min(initial=1) == 0 for data in datas)
    if reasons.null_count == messages.num_rows and not has_zero:
        return messages.drop_columns(list(SOUND_COLUMNS)), ()
    is_damaged = pc.or_(pc.is_valid(reasons), pc.match_substring(properties, pattern="\0"))
    columns = [messages["commit_log_offset"], messages["store_size"], reasons]
    damaged = zip(*(column.filter(is_damaged).to_pylist() for column in columns), strict=True)
    ranges = [CorruptRange("commitlog", offset, size, "CONTENT", reason or _ZERO) for offset, size, reason in damaged]
    return messages.filter(pc.invert(is_damaged)).drop_columns(list(SOUND_COLUMNS)), tuple(ranges)


@dataclass(frozen=True)
class TopicRule:
    """Which messages are selected: those that match one of the conditions.

    `names` and `prefixes` are of stored topics, such as SCHEDULE_TOPIC_XXXX and `%RETRY%`. Messages of other topics are
    selected if they have one of the transaction types or properties. With `tags`, all must have one of them, or
    properties with a zero byte: such a record is damaged, and can have had the tag.
    """

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    transaction_types: frozenset[str] = frozenset()
    properties: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()

    def accepts(self, topic: str) -> bool:
        """Whether all messages of the stored topic are selected."""
        return topic in self.names or topic.startswith(self.prefixes)


EVERYTHING = TopicRule(prefixes=("",))
"""The rule that selects all messages."""


def rule_of(topic: str | None) -> TopicRule:
    """The rule that selects the messages of one stored topic; None for all messages."""
    return EVERYTHING if topic is None else TopicRule(names=frozenset({topic}))


@dataclass(frozen=True)
class Selection:
    """Which messages are read, and what of them."""

    rule: TopicRule
    columns: Sequence[str]
    properties: Sequence[str] = ()
    check_crc: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the selected messages."""
        fields = [ALL_MESSAGE_FIELDS[name] for name in self.columns]
        return pa.schema([*fields, *((name, pa.string()) for name in self.properties)])


@dataclass(frozen=True)
class SelectedMessages:
    """The selected messages of a store, in the order of the log, and the parts of its log that could not be read.

    Any message can have been in a range of `damage`. `log` is from the first segment to the end of the last record
    that was read; `newest_timestamp` is of all messages of the log, in milliseconds, and 0 for an empty log.
    """

    messages: pa.Table
    damage: tuple[CorruptRange, ...]
    log: LogRange
    newest_timestamp: int = 0


class LogSource:
    """The log of a store directory, and what else is known of its store; an archive has one, too (`archive_source`)."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.conf = store.broker_conf
        self.timer_location: Location | None = store.location

    @staticmethod
    def of(store: MessageStore | LogSource) -> LogSource:
        """The source of a store directory, or the source that is given."""
        return LogSource(store) if isinstance(store, MessageStore) else store

    @property
    def location(self) -> Location:
        """The folder with `config/` and `checkpoint`, as they were before the messages were selected."""
        return self._store.location

    @property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the broker that are possible."""
        return self._store.broker_versions

    @property
    def config_end(self) -> int | None:
        """The commit log offset up to which the files of `location` can speak of messages; None for the whole log."""
        return None

    def moment(self, at: int | datetime | None) -> int:
        """The time for which states are returned, in milliseconds: `at`, or now."""
        return moment_of(at)

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        """The messages of several selections, found by one read of the log. A message can be in several of them."""
        return self._select(selections)

    def _select(
        self, selections: Sequence[Selection], *passed: tuple[Selection, Callable[[pa.RecordBatch], None]]
    ) -> tuple[SelectedMessages, ...]:
        """The same; messages of `passed` are not kept, but given to a function, batch by batch."""
        batches: list[list[pa.RecordBatch]] = [[] for _ in selections]
        damage: list[CorruptRange] = []
        reader = _Reader(self._store.location, [*selections, *(selection for selection, _ in passed)])
        for part in reader.read():
            if isinstance(part, CorruptRange):
                damage.append(part)
            elif part[0] < len(batches):
                batches[part[0]].append(part[1])
            else:
                passed[part[0] - len(batches)][1](part[1])
        log = LogRange(reader.start, reader.position)
        return tuple(
            SelectedMessages(
                pa.Table.from_batches(found, selection.schema), tuple(damage), log, max(reader.newest_timestamp, 0)
            )
            for selection, found in zip(selections, batches, strict=True)
        )

    def batches_of(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        """The messages of a selection, batch by batch, without the damage of the log."""
        return (part[1] for part in _Reader(self.location, [selection]).read() if not isinstance(part, CorruptRange))

    def lost_end(self, newest_timestamp: int) -> str | None:
        """Why the end of the log can be lost, by the file `checkpoint`; None if it is there."""
        return lost_end(self.location, newest_timestamp)

    def due_times(
        self, commit_log_offset: Int64s, queue_id: Int64s, queue_offset: Int64s, stored: Int64s
    ) -> tuple[Int64s, Flags]:
        """When messages of SCHEDULE_TOPIC_XXXX are due, in milliseconds; and of which of them the source shows it.

        That is the tags code of a message's unit (`CommitLog.checkMessageAndReturnSize`@5.3.3).
        """
        due, is_known = np.zeros(stored.size, np.int64), np.zeros(stored.size, np.bool_)
        for one in np.unique(queue_id).tolist():
            queue = self._store.find_queue(SCHEDULE_TOPIC, one)
            waiting = np.flatnonzero(queue_id == one)
            for file in () if queue is None else queue.files:
                position = queue_offset[waiting] - file.first
                is_here = (position >= 0) & (position < file.count)
                if queue is None or not is_here.any():
                    continue
                mine = waiting[is_here]
                units = queue.units(file.first, file.first + file.count)[position[is_here]]
                codes, has_code = queue.tags_codes(units)
                is_same = has_code & (units["commit_log_offset"].astype(np.int64) == commit_log_offset[mine])
                due[mine[is_same]] = codes[is_same]
                is_known[mine[is_same]] = True
        return due, is_known


class LogReadOnce(LogSource):
    """The log of a store that is read once: selections that were asked for in time are answered out of memory.

    `location` has `config/` and `checkpoint` as they were before that. The messages of `more` are given to `add`
    meanwhile. Any other selection is a read of its own.
    """

    def __init__(
        self,
        store: MessageStore,
        location: Location,
        selections: Sequence[Selection],
        more: Selection,
        add: Callable[[pa.RecordBatch], None],
    ) -> None:
        super().__init__(store)
        self._location = location
        self._found = dict(zip(selections, self._select(selections, (more, add)), strict=True))

    @property
    def location(self) -> Location:
        """The folder with `config/` and `checkpoint`."""
        return self._location

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        """The messages of several selections."""
        if all(selection in self._found for selection in selections):
            return tuple(self._found[selection] for selection in selections)
        return super().selections_of(*selections)


class _Reader:
    """Reads the selected messages batch by batch.

    `position` is the offset after the last record that was read, and `newest_timestamp` the newest store time so far.
    """

    def __init__(self, location: Location, selections: Sequence[Selection]) -> None:
        self._log = CommitLog.open(location)
        self.start = self._log.segments[0].base if self._log.segments else 0
        self.position = self.start
        self.newest_timestamp = -(1 << 63)
        self._choices = [_Choice(selection) for selection in selections]

    def read(self) -> Iterator[tuple[int, pa.RecordBatch] | CorruptRange]:
        """Batches of selected messages with the selection's number, and damage, of which missing ranges come first."""
        yield from self._log.stray
        yield from self._log.gaps
        queues = QueueTable()
        for split in plan_splits(self._log, WHOLE):
            for part in joined_chunks(read_split(split)):
                if isinstance(part, list):
                    yield from part
                elif part.frames.size:
                    messages = MessageColumns(part.buffer, part.frames)
                    last = part.frames[-1]
                    self.position = part.base + int(last.position) + int(last.store_size)
                    self.newest_timestamp = max(self.newest_timestamp, int(messages.store_timestamp_millis().max()))
                    numbers = queues.numbers(part.buffer, part.frames)
                    for number, choice in enumerate(self._choices):
                        for batch in choice.batches(messages, queues, numbers):
                            yield number, batch


class _Choice:
    """One selection while the log is read. The topic of each queue is compared once."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._rule, self._schema = selection, selection.rule, selection.schema
        self._tags = [tags.encode() for tags in sorted(selection.rule.tags)]
        self._is_selected: list[bool] = []
        """For each queue of the table of queues: whether all its messages are selected."""

    def batches(self, messages: MessageColumns, queues: QueueTable, numbers: Int32s) -> Iterator[pa.RecordBatch]:
        """The selected messages of a chunk, whose messages are of the queues `numbers`."""
        mask = self._mask(messages, queues, numbers)
        if not mask.any():
            return
        frames = messages.frames if mask.all() else messages.frames[mask]
        if self._rule.tags:
            frames = frames[MessageColumns(messages.buffer, frames).can_have_tags(self._tags)]
        names, properties = list(self._selection.columns), [name.encode() for name in self._selection.properties]
        for part in message_batches(messages.buffer, frames, names, _MAX_ROWS, check_crc=self._selection.check_crc):
            columns = [*part.record_batch(names).columns, *part.property_texts(properties)]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _mask(self, messages: MessageColumns, queues: QueueTable, numbers: Int32s) -> Flags:
        for number in range(len(self._is_selected), queues.count):
            self._is_selected.append(self._rule.accepts(queues.topic(number).decode("utf-8", "replace")))
        mask: Flags = np.array(self._is_selected, np.bool_)[numbers]
        if self._rule.transaction_types:
            types = np.array([name in self._rule.transaction_types for name in TRANSACTION_TYPE_NAMES])
            mask |= types[(messages.frames.sys_flag & TRANSACTION_TYPE_MASK) >> 2]
        if self._rule.properties:
            # Of all messages: to copy the frames of the others takes longer.
            mask |= messages.has_any_property([name.encode() for name in self._rule.properties])
        return mask
