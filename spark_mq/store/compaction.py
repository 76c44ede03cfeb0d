"""The copies of compacted topics (`cleanup.policy=COMPACTION`), from which a broker answers pulls of such a topic.

Each queue has a log of its own in `compaction/compactionLog`. A record there has the offset in that log as its own
offset (`CompactionLog.CompactionAppendMessageCallback`@5.3.3), so it is read as a commit log is. The units in
`compaction/compactionCq` are those of batch consume queues. A compaction keeps the newest message of each key, which is
the whole property KEYS, unless its body is empty (`CompactionLog.shouldRetainMsg`@5.3.3). A message without a key never
comes into the copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import array_of
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, BatchUnits, is_written
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MAX_STORE_SIZE
from spark_mq.format.properties import KEYS, TAGS
from spark_mq.format.record import FRAME, MAGIC_BLANK, QUEUE_OFFSET_AT
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import topics_with_attribute
from spark_mq.store.config.store_paths import COMPACTION, mapped_files
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, Segment, Split, plan_splits
from spark_mq.store.log.segment_files import CorruptRange, find_data_end
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.store_files import COMPACTION_STATES

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns

_LOGS = "compactionLog"
_PLACE = ["topic", "queue_id", "queue_offset"]
UNIT_PROBLEMS = (
    "no unit",
    "its unit leads to another place",
    "its unit has other values",
    "its unit is not in the order of queue offsets",
    "a unit leads to no record",
)
"""The texts of column `problem` that are about units; all others are about records."""
_RECORD_PROBLEMS = (
    "the log has another record",
    "its body has another CRC",
    "it is a message of another queue",
    "its queue offset is not after that of the record before it",
)
_PROBLEMS = array_of([None, *_RECORD_PROBLEMS, *UNIT_PROBLEMS], pa.string())
"""What column `problem` of copies has the numbers of, until the end; a smaller number comes before another problem."""
_OTHER_RECORD = 1
_NO_QUEUE = np.iinfo(np.int64).min
_NEWEST, _SUPERSEDED, _DELETED, _NO_KEY, _MISSING, _NO_STATE = range(6)
_STATES = array_of(["NEWEST", "SUPERSEDED", "DELETED", "NO_KEY", "MISSING", None], pa.string())
_NUMBERS = ["queue_offset", "store_timestamp", "store_size", "commit_log_offset"]
_SCHEMA = pa.schema(
    [
        *(ALL_MESSAGE_FIELDS[name] for name in (*_NUMBERS, "tags")),
        ("key", pa.string()),
        ("is_empty", pa.bool_()),
        ("digest", pa.int64()),
        ("queue", pa.int64()),
        ("problem", pa.int64()),
    ]
)
"""The messages of a copy, or of the log: `queue` is the number of a topic among those that are asked for, and below
that, in 32 bits, the queue id."""
_EMPTY = pa.Table.from_batches([], _SCHEMA)
_NO_UNITS, _NO_FLAGS = np.empty(0, BATCH_UNIT_DTYPE), np.empty(0, np.bool_)


def copied_queues(store: Location, topics: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
    """The queues that have a copy, or those of some topics."""
    root = store / COMPACTION / _LOGS
    for topic in sorted(root.folders()):
        if topics is None or topic in topics:
            ids = (one for one in (root / topic).folders() if one.isascii() and one.isdigit())
            yield from ((topic, int(one)) for one in sorted(ids, key=int))


def copy_segments(store: Location, topic: str, queue_id: int) -> list[Segment]:
    """The files of the log of a queue's copy."""
    folder = store / COMPACTION / _LOGS / topic / str(queue_id)
    return [
        Segment(
            folder / info.base_name,
            int(info.base_name),
            info.size,
            find_data_end(folder / info.base_name, info.size),
            is_last=False,
        )
        for info in mapped_files(folder.entries())
    ]


def compaction_states(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The rows of table `compaction_states`. The whole log is read, for the messages that are not in a copy."""
    copies = store.location / COMPACTION / _LOGS
    names = topics_with_attribute(store.location, "cleanup.policy", "COMPACTION") | set(copies.folders())
    copied, others = [_EMPTY], []
    topics = sorted(names if topic is None else names & {topic})
    if not topics:
        return COMPACTION_STATES.schema.empty_table()
    for name, queue_id in copied_queues(store.location, topics):
        queue = _Copy(store.location, name, queue_id)
        copied.append(queue.messages((topics.index(name) << 32) + queue_id))
        others += queue.others
    rows = _with_states(pa.concat_tables(copied), store, topics)
    return pa.concat_tables([rows, *others]).sort_by([(name, "ascending") for name in _PLACE]) if others else rows


class _Copy:
    """The copy of one queue. `others` are rows about its damage, and about units without a record."""

    def __init__(self, store: Location, topic: str, queue_id: int) -> None:
        self.others: list[pa.Table] = []
        self._store, self._name = store, (topic, queue_id)

    def messages(self, queue: int) -> pa.Table:
        """The messages, each with the number of its problem; `queue` is the queue's number."""
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.kernels.crc import digests, wrong_body_crcs
        from spark_mq.format.kernels.dispatch import batch_units
        from spark_mq.store.log.record_reader import RecordChunk
        from spark_mq.store.log.split_reader import read_split

        topic, queue_id = self._name
        found, units, is_wrong, is_own = [_EMPTY], [_NO_UNITS], [_NO_FLAGS], [_NO_FLAGS]
        for segment in copy_segments(self._store, topic, queue_id):
            for part in read_split(Split(segment, 0, segment.data_end)):
                if isinstance(part, RecordChunk):
                    messages, frames = MessageColumns(part.buffer, part.frames), part.frames
                    found.append(_columns(messages, np.full(frames.size, queue), digests(part.buffer, frames)))
                    units.append(batch_units(part.buffer, frames))
                    is_wrong.append(wrong_body_crcs(part.buffer, frames))
                    has_id = messages.column("queue_id").to_numpy() == queue_id  # a record can say another one
                    is_own.append(messages.topic_is(topic.encode("utf-8", "replace")) & has_id)
                elif not is_long_blank(segment, part):
                    sizes = np.array([min(part.length, MAX_STORE_SIZE)])
                    self._add("DAMAGED", part.reason, sizes, offset_in_copy=np.array([part.commit_log_offset]))
        rows = pa.concat_tables(found)
        offsets = rows["queue_offset"].to_numpy()
        is_later = offsets > np.maximum.accumulate(np.append(-1, offsets))[:-1]
        of_units = self._wrong_units(rows, np.concatenate(units), is_sorted=bool(is_later.all()))
        cases = [np.concatenate(is_wrong), ~np.concatenate(is_own), ~is_later, *of_units]
        problems = np.select(cases, list(range(_OTHER_RECORD + 1, _OTHER_RECORD + 1 + len(cases))), 0)
        return rows.set_column(_SCHEMA.get_field_index("problem"), "problem", pa.array(problems))

    def _wrong_units(self, messages: pa.Table, wanted: BatchUnits, is_sorted: bool) -> list[Flags]:
        """Which messages have a problem of their unit, by problem; nothing if all units are as wanted, or none is."""
        topic, queue_id = self._name
        folder = self._store / COMPACTION / "compactionCq" / topic / str(queue_id)
        files = [folder / info.base_name for info in mapped_files(folder.entries())]
        parts = [
            np.frombuffer(data[: len(data) - len(data) % BATCH_UNIT_SIZE], BATCH_UNIT_DTYPE)
            for data in map(Location.read_bytes, files)
        ]
        units = np.concatenate([_NO_UNITS, *parts])
        first, others = np.split(units, [wanted.size])
        is_wanted = np.array_equal(first.view(np.uint8), wanted.view(np.uint8)) and bool(is_written(wanted).all())
        if is_sorted and is_wanted and not is_written(others).any():
            return []
        units = units[is_written(units)]
        order = np.argsort(units["queue_offset"], kind="stable")
        is_in_order = np.append(order == np.arange(order.size), False)
        units = units[order]
        places = [messages[name].to_numpy() for name in ("queue_offset", "commit_log_offset", "store_size")]
        lone = units[~np.isin(units["queue_offset"], places[0])]
        if lone.size:
            offsets = {"queue_offset": lone["queue_offset"], "offset_in_copy": lone["commit_log_offset"]}
            self._add("NO_RECORD", UNIT_PROBLEMS[-1], lone["store_size"], **offsets)
        if not wanted.size:
            return []
        at = np.searchsorted(units["queue_offset"], places[0])
        own = np.append(units, np.full(1, -1).astype(BATCH_UNIT_DTYPE))[at]
        is_own, leads = own["queue_offset"] == places[0], own["commit_log_offset"] == places[1]
        leads &= own["store_size"] == places[2]
        return [~is_own, ~leads, own != wanted, ~is_in_order[at]]

    def _add(self, state: str, problem: str, store_size: Int64s, **offsets: Int64s) -> None:
        topic, queue_id = self._name
        same = {"topic": topic, "queue_id": queue_id, "state": state, "problem": problem}
        columns = {name: [value] * store_size.size for name, value in same.items()}
        columns |= {name: array.tolist() for name, array in {"store_size": store_size, **offsets}.items()}
        schema, empty = COMPACTION_STATES.schema, [None] * store_size.size
        self.others.append(
            pa.table([pa.array(columns.get(one.name, empty), one.type) for one in schema], schema=schema)
        )


def is_long_blank(segment: Segment, part: CorruptRange) -> bool:
    """Whether a blank ends the file: if the queue's file was full first, it is longer than one of the commit log."""
    position = part.commit_log_offset - segment.base
    size = min(segment.size - position, MAX_STORE_SIZE)
    with FileReader(segment.location) as file:
        return file.read(position, FRAME.size) == FRAME.pack(size, MAGIC_BLANK)


def _sent(store: MessageStore, topics: Sequence[str], copied: pa.Table) -> tuple[pa.Table, Flags, Int64s, Flags]:
    """The messages of topics in the live log that are not the records of copies.

    Returns also which of them have the queue offset of a copy. For each copy it returns the commit log offset of the
    last record with its queue offset, or -1, and whether that is another record.
    """
    from spark_mq.format.kernels.big_endian import int64s_at
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.format.kernels.crc import digests
    from spark_mq.format.kernels.queue_table import QueueTable, bisect_each
    from spark_mq.store.log.record_reader import RecordChunk
    from spark_mq.store.log.split_reader import read_split

    queues, offsets, of_copies = (copied[name].to_numpy() for name in ("queue", "queue_offset", "digest"))
    order = np.lexsort((offsets, queues))
    # One more than copies, because a search can end after the last one.
    queues, offsets, own_digests = (np.append(values[order], -1) for values in (queues, offsets, of_copies))
    log_offsets, log_digests = np.full((2, queues.size), -1)
    names, starts = np.unique(queues[:-1], return_index=True)
    parts = dict(zip(names.tolist(), pairwise([*starts.tolist(), order.size]), strict=True))
    found, has_copy, table, known = [_EMPTY], [_NO_FLAGS], QueueTable(), list[tuple[int, int, int]]()
    for split in plan_splits(CommitLog.open(store.location, store.live_end.offset), DEFAULT_SPLIT_SIZE):
        for part in read_split(split):
            if isinstance(part, RecordChunk):
                number, frames = table.numbers(part.buffer, part.frames), part.frames
                if len(known) < table.count:
                    for new in range(len(known), table.count):
                        topic, queue_id = decode_utf8(table.topic(new)), int(table.queue_ids()[new])
                        queue = (topics.index(topic) << 32) + queue_id if topic in topics else _NO_QUEUE
                        known.append((queue, *parts.get(queue, (0, 0))))
                    of_queues = np.array(known)
                of_messages = of_queues[number]
                if not (is_asked := of_messages[:, 0] != _NO_QUEUE).all():
                    of_messages, frames = of_messages[is_asked], frames[is_asked]
                queue, start, stop = of_messages.T
                wanted, digest = int64s_at(part.buffer, frames.position + QUEUE_OFFSET_AT), digests(part.buffer, frames)
                at = np.empty(wanted.size, np.int64)
                bisect_each(offsets, wanted, start, stop, at)
                is_copied = (at < stop) & (offsets[at] == wanted)
                log_offsets[at[is_copied]] = part.base + frames.position[is_copied]
                log_digests[at[is_copied]] = digest[is_copied]
                is_other = ~is_copied | (own_digests[at] != digest)
                if is_other.any():
                    messages = MessageColumns(part.buffer, frames[is_other])
                    found.append(_columns(messages, queue[is_other], digest[is_other]))
                    has_copy.append(is_copied[is_other])
    # Of copies with the same queue offset, the search finds the first one.
    is_first = (np.diff(queues, prepend=-1) != 0) | (np.diff(offsets, prepend=-1) != 0)
    place = np.empty_like(order)
    place[order] = np.maximum.accumulate(np.where(is_first, np.arange(queues.size), 0))[:-1]
    is_other = (log_offsets[place] >= 0) & (log_digests[place] != of_copies)
    return pa.concat_tables(found), np.concatenate(has_copy), log_offsets[place], is_other


def _columns(messages: MessageColumns, queue: Int64s, digest: Int64s) -> pa.Table:
    """The messages; `is_empty` says that a message has no body."""
    size = messages.frames.size
    key, tags = messages.property_texts([KEYS, TAGS])
    numbers = messages.record_batch(_NUMBERS)
    columns = [
        *numbers.columns,
        tags,
        key,
        pa.array(messages.frames.body_length == 0),
        pa.array(digest),
        pa.array(queue),
        pa.nulls(size, pa.int64()),
    ]
    return pa.table(columns, schema=_SCHEMA)


def _with_states(copied: pa.Table, store: MessageStore, topics: Sequence[str]) -> pa.Table:
    """The rows of messages in the copies, and of messages of the log that are not there although they have to be."""
    sent, has_copy, log_offset, is_other = _sent(store, topics, copied)
    count, both = copied.num_rows, pa.concat_tables([copied, sent])
    is_newest, has_key = _newest(both)
    is_empty = both["is_empty"].to_numpy()
    is_missing = ~has_copy & (~has_key | is_newest & ~is_empty)[count:]
    problems = np.where(is_other, _OTHER_RECORD, copied["problem"].fill_null(0).to_numpy())
    states = np.select([~has_key, ~is_newest, is_empty], [_NO_STATE, _SUPERSEDED, _DELETED], _NEWEST)
    missing = sent.filter(pa.array(is_missing))
    rows = pa.concat_tables([copied, missing])
    numbers = rows["queue"].to_numpy()
    ids = numbers.astype(np.int32)
    no_copy = pa.nulls(missing.num_rows, pa.int64())
    columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {
        "topic": array_of(topics, pa.string()).take(pa.array(numbers - ids >> 32)),
        "queue_id": pa.array(ids),
        "state": _STATES.take(
            pa.array(np.append(states[:count], np.where(has_key, _MISSING, _NO_KEY)[count:][is_missing]))
        ),
        "problem": _PROBLEMS.take(pa.array(np.append(problems, np.zeros(missing.num_rows, np.int64)))),
        "offset_in_copy": pa.chunked_array([*copied["commit_log_offset"].chunks, no_copy]),
        "commit_log_offset": pa.chunked_array(
            [pa.array(log_offset, mask=log_offset < 0), *missing["commit_log_offset"].chunks]
        ),
    }
    schema = COMPACTION_STATES.schema
    found = pa.table([columns[name] for name in schema.names], schema=schema)
    offsets = rows["queue_offset"].to_numpy()
    after, below = np.diff(numbers), np.diff(offsets) < 0
    if ((after < 0) | (after == 0) & below).any():
        found = found.take(np.lexsort((offsets, numbers)))
    return found


def _newest(messages: pa.Table) -> tuple[Flags, Flags]:
    """Which messages are the newest of their key, and which have a key."""

    def numbers(array: pa.Array) -> Int64s:
        found: Int64s = array.dictionary_encode().indices.fill_null(-1).to_numpy().astype(np.int64)
        return found

    queue, keys = (numbers(messages[name].combine_chunks()) for name in ("queue", "key"))
    of_key, queue_offset = numbers(pa.array(queue * (keys.size + 1) + keys)), messages["queue_offset"].to_numpy()
    newest = np.full(keys.size, np.iinfo(np.int64).min)
    np.maximum.at(newest, of_key, queue_offset)
    return queue_offset == newest[of_key], keys >= 0
