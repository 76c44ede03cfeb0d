"""The copies of compacted topics (`cleanup.policy=COMPACTION`), from which a broker answers pulls of such a topic.

Each queue has a log of its own in `compaction/compactionLog`. A record there has the offset in that log as its own
offset (`CompactionLog.CompactionAppendMessageCallback`@5.3.3), so it is read as a commit log is. The units in
`compaction/compactionCq` are those of batch consume queues. A compaction keeps the newest message of each key, which is
the whole property KEYS, unless its body is empty (`CompactionLog.shouldRetainMsg`@5.3.3). A message without a key never
comes into the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Bytes, Flags, Int64s
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, is_written
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.format.record import FRAME, MAGIC_BLANK
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import topics_with_attribute
from spark_mq.store.config.store_paths import COMPACTION, mapped_files
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, Segment, Split, plan_splits
from spark_mq.store.log.segment_files import CorruptRange, find_data_end
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.store_files import COMPACTED_MESSAGES

if TYPE_CHECKING:
    from spark_mq.format.kernels.frames import Frames

_COPIED = ("topic", "queue_id", "queue_offset", "tags", "store_timestamp", "store_size", "commit_log_offset", "body")
_KEY = ["topic", "queue_id", "key"]
_PLACE = ["topic", "queue_id", "queue_offset"]
_NO_UNIT, _WRONG_UNIT, _NO_RECORD = "no unit", "its unit leads to another place", "a unit leads to no record"
_OTHER_UNIT, _MISPLACED_UNIT = "its unit has other values", "its unit is not in the order of queue offsets"
UNIT_PROBLEMS = (_NO_UNIT, _WRONG_UNIT, _NO_RECORD, _OTHER_UNIT, _MISPLACED_UNIT)
"""The texts of column `problem` that are about units; all others are about records."""
_MOST_ROWS = 8192
_MOST_BYTES = (1 << 31) - 1
"""What column `store_size`, and the size of a blank, can hold."""
_SCHEMA = pa.schema(
    [
        *(ALL_MESSAGE_FIELDS[name] for name in _COPIED),
        ("key", pa.string()),
        ("is_empty", pa.bool_()),
        ("digest", pa.int64()),
        ("unit", pa.binary(BATCH_UNIT_SIZE)),
        ("problem", pa.string()),
    ]
)
_EMPTY = pa.Table.from_batches([], _SCHEMA)


def compacted_messages(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The rows of table `compacted_messages`. The whole log is read, for the messages that are not in a copy."""
    root = store.location / COMPACTION / "compactionLog"
    names = topics_with_attribute(store.location, "cleanup.policy", "COMPACTION") | set(root.folders())
    copied, others = [_EMPTY], []
    topics = sorted(names if topic is None else names & {topic})
    if not topics:
        return COMPACTED_MESSAGES.schema.empty_table()
    for name in topics:
        for queue_id in (root / name).folders():
            if queue_id.isascii() and queue_id.isdigit():
                queue = _Copy(store.location, name, int(queue_id))
                copied.append(queue.messages())
                others += queue.others
    rows = _with_states(pa.concat_tables(copied), _sent(store, topics))
    return pa.concat_tables([rows, *others]).sort_by([(name, "ascending") for name in _PLACE])


class _Copy:
    """The copy of one queue. `others` are rows about its damage, and about units without a record."""

    def __init__(self, store: Location, topic: str, queue_id: int) -> None:
        self.others: list[pa.Table] = []
        self._log, self._queue = (
            store / COMPACTION / tree / topic / str(queue_id) for tree in ("compactionLog", "compactionCq")
        )
        self._name = topic, queue_id

    def messages(self) -> pa.Table:
        """The messages, each with the problem of its unit."""
        from spark_mq.store.log.record_reader import RecordChunk
        from spark_mq.store.log.split_reader import read_split

        found = [_EMPTY]
        for info in mapped_files(self._log.entries()):
            data_end = find_data_end(self._log / info.base_name, info.size)
            segment = Segment(self._log / info.base_name, int(info.base_name), info.size, data_end, is_last=False)
            for part in read_split(Split(segment, 0, data_end)):
                if isinstance(part, RecordChunk):
                    found.append(_columns(part.buffer, part.frames, with_body=True))
                elif not _is_long_blank(segment, part):
                    sizes = np.array([min(part.length, _MOST_BYTES)])
                    self._add("DAMAGED", part.reason, sizes, offset_in_copy=np.array([part.commit_log_offset]))
        messages = pa.concat_tables(found)
        problems = pc.coalesce(self._record_problems(messages), self._problems(messages))
        columns = dict(zip(messages.schema.names, messages.columns, strict=True)) | {"problem": problems}
        own = dict(zip(("topic", "queue_id"), map(pa.scalar, self._name), strict=True))  # a record can say another one
        columns |= {name: pa.repeat(value, messages.num_rows) for name, value in own.items()}
        return pa.table(columns).cast(_SCHEMA)

    def _record_problems(self, messages: pa.Table) -> pa.Array:
        """What is wrong with the records themselves; `problem` says whether the CRC of the body is wrong."""
        offsets = messages["queue_offset"].to_numpy()
        is_later = offsets > np.maximum.accumulate(np.append(-1, offsets))[:-1]
        is_own = pc.and_(pc.equal(messages["topic"], self._name[0]), pc.equal(messages["queue_id"], self._name[1]))
        order = pc.if_else(pa.array(is_later), None, "its queue offset is not after that of the record before it")
        found = pc.if_else(is_own, order, "it is a message of another queue")
        return pc.coalesce(messages["problem"], found)

    def _problems(self, messages: pa.Table) -> pa.Array:
        files = [self._queue / info.base_name for info in mapped_files(self._queue.entries())]
        parts = [
            np.frombuffer(data[: len(data) - len(data) % BATCH_UNIT_SIZE], BATCH_UNIT_DTYPE)
            for data in map(Location.read_bytes, files)
        ]
        units = np.concatenate([np.empty(0, BATCH_UNIT_DTYPE), *parts])
        units = units[is_written(units)]
        order = np.argsort(units["queue_offset"], kind="stable")
        is_in_order = np.append(order == np.arange(order.size), False)
        units = units[order]
        wanted = [messages[name].to_numpy() for name in ("queue_offset", "commit_log_offset", "store_size")]
        lone = units[~np.isin(units["queue_offset"], wanted[0])]
        if lone.size:
            offsets = {"queue_offset": lone["queue_offset"], "offset_in_copy": lone["commit_log_offset"]}
            self._add("NO_RECORD", _NO_RECORD, lone["store_size"], **offsets)
        at = np.searchsorted(units["queue_offset"], wanted[0])
        own = np.append(units, np.full(1, -1).astype(BATCH_UNIT_DTYPE))[at]
        is_own, leads = own["queue_offset"] == wanted[0], own["commit_log_offset"] == wanted[1]
        leads &= own["store_size"] == wanted[2]
        stated = messages["unit"].combine_chunks().buffers()[1]
        wanted_units = np.frombuffer(stated or b"", BATCH_UNIT_DTYPE, messages.num_rows)
        cases = [~is_own, ~leads, own != wanted_units, ~is_in_order[at]]
        found = np.select(cases, [_NO_UNIT, _WRONG_UNIT, _OTHER_UNIT, _MISPLACED_UNIT], "")
        problems = pa.array(found, pa.string())
        return pc.if_else(pc.equal(problems, ""), None, problems)

    def _add(self, state: str, problem: str, store_size: Int64s, **offsets: Int64s) -> None:
        topic, queue_id = self._name
        same = {"topic": topic, "queue_id": queue_id, "state": state, "problem": problem}
        columns = {name: [value] * store_size.size for name, value in same.items()}
        columns |= {name: array.tolist() for name, array in {"store_size": store_size, **offsets}.items()}
        schema, empty = COMPACTED_MESSAGES.schema, [None] * store_size.size
        self.others.append(
            pa.table([pa.array(columns.get(one.name, empty), one.type) for one in schema], schema=schema)
        )


def _is_long_blank(segment: Segment, part: CorruptRange) -> bool:
    """Whether a blank ends the file: if the queue's file was full first, it is longer than one of the commit log."""
    position = part.commit_log_offset - segment.base
    size = min(segment.size - position, _MOST_BYTES)
    with FileReader(segment.location) as file:
        return file.read(position, FRAME.size) == FRAME.pack(size, MAGIC_BLANK)


def _sent(store: MessageStore, topics: Sequence[str]) -> pa.Table:
    """The messages of topics in the live log."""
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.store.log.record_reader import RecordChunk
    from spark_mq.store.log.split_reader import read_split

    log, found = CommitLog.open(store.location).ending_at(store.live_end.offset), [_EMPTY]
    for split in plan_splits(log, DEFAULT_SPLIT_SIZE):
        for part in read_split(split):
            if isinstance(part, RecordChunk):
                columns = MessageColumns(part.buffer, part.frames)
                is_own: Flags = np.any([columns.topic_is(topic.encode("utf-8", "replace")) for topic in topics], axis=0)
                found.append(_columns(part.buffer, part.frames[is_own], with_body=False))
    return pa.concat_tables(found)


def _columns(buffer: Bytes, frames: Frames, *, with_body: bool) -> pa.Table:
    """The messages of a chunk. `is_empty` says that a message has no body, and `key` is NULL if it has no keys."""
    from spark_mq.format.kernels.batches import message_batches
    from spark_mq.format.kernels.crc import digests, wrong_body_crcs
    from spark_mq.format.kernels.dispatch import batch_units

    tables = [_EMPTY]
    numbers, units = digests(buffer, frames), batch_units(buffer, frames) if with_body else None
    wrong = wrong_body_crcs(buffer, frames) if with_body else np.zeros(frames.size, np.bool_)
    first = 0
    for messages in message_batches(buffer, frames, ["body"] if with_body else [], _MOST_ROWS):
        columns = {name: messages.column(name) for name in _COPIED if with_body or name != "body"}
        key = pc.map_lookup(messages.column("properties"), pa.scalar("KEYS"), "first")
        columns["key"] = pc.if_else(pc.equal(key, ""), None, key)
        columns["is_empty"] = pa.array(messages.frames.body_length == 0)
        part = slice(first, first + messages.frames.size)
        first = part.stop
        columns["digest"] = pa.array(numbers[part])
        columns["problem"] = pc.if_else(pa.array(wrong[part]), "its body has another CRC", pa.scalar(None, pa.string()))
        if units is not None:
            unit = pa.binary(BATCH_UNIT_SIZE)
            columns["unit"] = pa.Array.from_buffers(unit, part.stop - part.start, [None, pa.py_buffer(units[part])])
        empty = pa.nulls(messages.frames.size)
        tables.append(pa.table([columns.get(one.name, empty).cast(one.type) for one in _SCHEMA], schema=_SCHEMA))
    return pa.concat_tables(tables)


def _with_states(copied: pa.Table, sent: pa.Table) -> pa.Table:
    """The rows of messages in the copies, and of messages of the log that are not there although they have to be."""
    places = pa.concat_tables([copied.select([*_KEY, "queue_offset"]), sent.select([*_KEY, "queue_offset"])])
    newest = places.filter(places["key"].is_valid()).group_by(_KEY).aggregate([("queue_offset", "max")])
    missing = sent.join(copied.select(_PLACE), _PLACE, join_type="left anti").join(newest, _KEY)
    copied = copied.rename_columns({"commit_log_offset": "offset_in_copy"}).join(newest, _KEY)
    of_log = sent.select([*_PLACE, "commit_log_offset", "digest"]).rename_columns({"digest": "digest_of_log"})
    copied = copied.join(of_log, _PLACE)
    differs = pc.fill_null(pc.not_equal(copied["digest"], copied["digest_of_log"]), False)
    problem = pc.if_else(differs, "the log has another record", copied["problem"])
    copied = copied.set_column(copied.schema.get_field_index("problem"), "problem", problem)
    is_newest = pc.equal(missing["queue_offset"], missing["queue_offset_max"])
    is_kept = pc.and_(pc.fill_null(is_newest, False), pc.invert(missing["is_empty"]))
    no_key = pc.is_null(missing["key"])
    missing = missing.append_column("state", pc.if_else(no_key, "NO_KEY", "MISSING")).filter(pc.or_(no_key, is_kept))
    missing = missing.append_column("offset_in_copy", pa.nulls(missing.num_rows, pa.int64()))
    is_older = pc.less(copied["queue_offset"], copied["queue_offset_max"])
    state = pc.if_else(is_older, "SUPERSEDED", pc.if_else(copied["is_empty"], "DELETED", "NEWEST"))
    names = COMPACTED_MESSAGES.schema.names
    copied = copied.append_column("state", state)
    return pa.concat_tables([copied.select(names), missing.select(names)]).cast(COMPACTED_MESSAGES.schema)
