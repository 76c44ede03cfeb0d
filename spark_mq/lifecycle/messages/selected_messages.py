"""The messages of some topics, found by one read of the log: the input of the tables of this package.

Only the selected messages are decoded, and of these only the requested columns. Modules with kernels are imported when
the log is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.format.sys_flag import TRANSACTION_TYPE_MASK, TRANSACTION_TYPE_NAMES
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.splits import plan_splits
from spark_mq.store.message_store import MessageStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spark_mq.format.array_types import Int32s
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.format.kernels.dispatch import QueueTable

_MAX_ROWS = 1 << 16
_WHOLE_SEGMENT = 1 << 62
"""The size of a split: one reader reads all of them, so a split never begins in the middle of a segment."""


@dataclass(frozen=True)
class TopicRule:
    """Which messages are selected: those that match one of the conditions.

    Attributes:
        names: Stored topics, such as SCHEDULE_TOPIC_XXXX.
        prefixes: Beginnings of stored topics, such as `%RETRY%`.
        transaction_types: Names of transaction types, such as COMMIT. Messages of other topics that have one of these
            types are selected, too.
        properties: Names of properties. Messages of other topics that have one of these properties are selected, too.
        tags: Of all these messages, only those with one of these tags, and those whose properties contain a zero byte:
            such a record is damaged, and can have had the tag. Empty for all.
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
    """Which messages are read, and what of them.

    Attributes:
        columns: Names of columns of table `messages`.
        properties: Names of properties, such as REAL_TOPIC. Each of them becomes a column with the property's name,
            which is NULL for a message without the property.
        check_crc: Whether the CRCs of the selected messages are checked; column `_corrupt_record` has the result.
    """

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
    """The selected messages of a store, and the parts of its log that could not be read.

    Attributes:
        messages: The messages in the order of the log. The columns are those that were requested, then one column of
            text for each requested property, which has the property's name.
        damage: The ranges of the log without a readable record, also those that no segment contains. Any message can
            have been there.
        log: The log when it was read: from its first segment to the end of the last record that was read.
        newest_timestamp: The newest store time of all messages of the log, in milliseconds; 0 for an empty log.
    """

    messages: pa.Table
    damage: tuple[CorruptRange, ...]
    log: LogRange
    newest_timestamp: int = 0


def selected_messages(
    store: MessageStore, rule: TopicRule, columns: Sequence[str], properties: Sequence[str] = ()
) -> SelectedMessages:
    """The messages of a store that match a rule, and the damaged ranges of its log.

    Args:
        columns: As in `Selection`.
        properties: As in `Selection`.

    Returns:
        Messages, damage and the range that was read.
    """
    return selections_of(store, Selection(rule, columns, properties))[0]


def selections_of(store: MessageStore, *selections: Selection) -> tuple[SelectedMessages, ...]:
    """The messages of several selections, found by one read of the log. A message can be in several of them.

    Raises the errors of `selected_messages`.
    """
    batches: list[list[pa.RecordBatch]] = [[] for _ in selections]
    damage: list[CorruptRange] = []
    reader = SelectionReader(store, *selections)
    for part in reader.read():
        if isinstance(part, CorruptRange):
            damage.append(part)
        else:
            number, batch = part
            batches[number].append(batch)
    log = LogRange(reader.start, reader.position)
    return tuple(
        SelectedMessages(
            pa.Table.from_batches(found, selection.schema), tuple(damage), log, max(reader.newest_timestamp, 0)
        )
        for selection, found in zip(selections, batches, strict=True)
    )


def batches_of(store: MessageStore, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The messages of a selection, batch by batch, without the damage of the log.

    Raises the errors of `selected_messages`.
    """
    return (part[1] for part in SelectionReader(store, selection).read() if not isinstance(part, CorruptRange))


class SelectionReader:
    """Reads the selected messages batch by batch, for a table that does not keep them; see `selections_of`.

    `start` is the commit log offset at which the log begins. `position` is the offset after the last record that was
    read, and `newest_timestamp` the newest store time so far.
    """

    def __init__(self, store: MessageStore, *selections: Selection) -> None:
        self._log = CommitLog.open(store.location)
        self.start = self._log.segments[0].base if self._log.segments else 0
        self.position = self.start
        self.newest_timestamp = -(1 << 63)
        self._choices = [_Choice(selection) for selection in selections]

    def read(self) -> Iterator[tuple[int, pa.RecordBatch] | CorruptRange]:
        """Batches of selected messages with the selection's number, and damage, of which missing ranges come first."""
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.kernels.dispatch import QueueTable
        from spark_mq.store.log.joined_chunks import joined_chunks
        from spark_mq.store.log.split_reader import read_split

        yield from self._log.stray
        yield from self._log.gaps
        queues, plan = QueueTable(), uuid.uuid4().hex
        for split in plan_splits(self._log, _WHOLE_SEGMENT):
            for part in joined_chunks(read_split(split, plan)):
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
        self._rule = selection.rule
        self._columns = list(selection.columns)
        self._properties = [name.encode() for name in selection.properties]
        self._tags = [tags.encode() for tags in sorted(selection.rule.tags)]
        self._check_crc = selection.check_crc
        self._schema = selection.schema
        self._is_selected: list[bool] = []
        """For each queue of the table of queues: whether all its messages are selected."""

    def batches(self, messages: MessageColumns, queues: QueueTable, numbers: Int32s) -> Iterator[pa.RecordBatch]:
        """The selected messages of a chunk, whose messages are of the queues `numbers`."""
        from spark_mq.format.kernels.batches import message_batches

        mask = self._mask(messages, queues, numbers)
        if not mask.any():
            return
        frames = messages.frames if mask.all() else messages.frames[mask]
        if self._rule.tags:
            frames = frames[messages.with_frames(frames).can_have_tags(self._tags)]
        for part in message_batches(messages.buffer, frames, self._columns, _MAX_ROWS, check_crc=self._check_crc):
            columns = part.record_batch(self._columns).columns
            texts = part.property_texts(self._properties)
            yield pa.RecordBatch.from_arrays([*columns, *texts], schema=self._schema)

    def _mask(self, messages: MessageColumns, queues: QueueTable, numbers: Int32s) -> npt.NDArray[np.bool_]:
        import numpy as np

        for number in range(len(self._is_selected), queues.count):
            self._is_selected.append(self._rule.accepts(queues.topic(number).decode("utf-8", "replace")))
        mask: npt.NDArray[np.bool_] = np.array(self._is_selected, np.bool_)[numbers]
        if self._rule.transaction_types:
            types = np.array([name in self._rule.transaction_types for name in TRANSACTION_TYPE_NAMES])
            mask |= types[(messages.frames.sys_flag & TRANSACTION_TYPE_MASK) >> 2]
        if self._rule.properties:
            names = [name.encode() for name in self._rule.properties]
            mask |= messages.has_any_property(names)  # of all messages: to copy the frames of the others takes longer
        return mask
