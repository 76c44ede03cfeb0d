"""The table of old and new offsets, for restores that change offsets or offset message ids.

Tasks write its Parquet files, a row for each message, beside the new store. Offsets of consumers are translated with
it, in one pass over a few of its columns: memory does not grow with the number of messages.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_mq.errors import OutputExistsError
from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.restorer.chunk import QueueCount
from spark_mq.restorer.record_columns import ChunkRows

OFFSET_MAP_SCHEMA = pa.schema(
    [
        ("old_topic", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("old_queue_offset", pa.int64()),
        ("queue_offset", pa.int64()),
        ("old_commit_log_offset", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("old_offset_message_id", pa.string()),
        ("offset_message_id", pa.string()),
    ]
)
"""A row for each message of the new store.

- `old_topic`: NULL if the source has a topic of the new name, and another one was renamed to it
- `old_queue_offset`, `queue_offset`: NULL if no queue has the message, because it is a prepared or a rolled back one
- `old_queue_offset`, `old_commit_log_offset`: NULL if the source had none
- `old_offset_message_id`, `offset_message_id`: NULL if not all messages have the same store host. An id consists of the
  store host and the commit log offset (`MessageDecoder.createMessageId`@5.3.3).
"""

_COMPLETE = "_SUCCESS"
_FILE = re.compile(r"[0-9]{20}\.parquet")
_UNFINISHED = re.compile(r"\.\w+(\.parquet)?\.[0-9a-f]{32}\.tmp")
"""The name of a file that was being written when the job was killed (`io.publish`)."""
_QUEUE_OFFSETS = ["old_topic", "queue_id", "old_queue_offset", "queue_offset"]
_NOTHING_AFTER = np.iinfo(np.int64).max

QueueOffset = tuple[str, int, int]
"""A topic, a queue id and a queue offset of the source."""


@dataclass(frozen=True)
class OffsetMap:
    """The folder of the table, and what its rows need. Tasks get a copy.

    `old_topics` has the old names of renamed topics by the new ones; None if several topics get one name.
    """

    folder: Location
    old_topics: Mapping[str, str | None]
    old_store_host: bytes | None = None
    store_host: bytes | None = None

    @classmethod
    def create(
        cls,
        folder: Location,
        topics: Mapping[str, str],
        source_topics: Collection[str],
        *,
        old_store_host: bytes | None = None,
        store_host: bytes | None = None,
    ) -> Self:
        """A new, empty table. What a killed job left in the folder is removed."""
        check_map_folder(folder)
        _remove_files(folder)
        folder.make_folder()
        counts = Counter([*topics.values(), *(name for name in source_topics if name not in topics)])
        old_topics = {new: old if counts[new] == 1 else None for old, new in topics.items()}
        return cls(folder, old_topics, old_store_host, store_host)

    def write(
        self, queues: Sequence[QueueCount], rows: ChunkRows, offsets: Int64s, queue_offsets: Int64s | None
    ) -> None:
        """Write the file of some messages of a chunk. A task that runs again writes the same file."""
        if not offsets.size:
            return
        if (rows.messages > 1).any():
            numbers = np.repeat(np.arange(offsets.size), rows.messages)
            after = np.arange(numbers.size) - np.flatnonzero(np.diff(numbers, prepend=-1))[numbers]
            rows, offsets = rows.take(numbers), offsets[numbers]
            rows.queue_offset[:] += np.where(rows.queue_offset < 0, 0, after)
            queue_offsets = None if queue_offsets is None else queue_offsets[numbers] + after
        numbers, new = pa.array(rows.queue_number), [queue.topic for queue in queues]
        old = [self.old_topics.get(topic, topic) for topic in new]
        new_offsets = rows.queue_offset if queue_offsets is None else queue_offsets
        columns = [
            pa.array(old, pa.string()).take(numbers),
            pa.array(new, pa.string()).take(numbers),
            pa.array([queue.queue_id for queue in queues], pa.int32()).take(numbers),
            pa.array(rows.queue_offset, mask=(rows.queue_offset < 0) | ~rows.has_unit),
            pa.array(new_offsets, mask=~rows.has_unit),
            pa.array(rows.commit_log_offset, mask=rows.commit_log_offset < 0),
            pa.array(offsets),
            _ids(self.old_store_host, rows.commit_log_offset),
            _ids(self.store_host, offsets),
        ]
        table = pa.Table.from_arrays(columns, schema=OFFSET_MAP_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        publish(self.folder / f"{int(offsets[0]):020d}.parquet", memoryview(content), content.size)

    def remove(self) -> None:
        """Remove the table, after an error of the job that needed it."""
        _remove_files(self.folder)
        if self.folder.is_local:
            with suppress(OSError):  # somebody put a file into it
                os.rmdir(self.folder.path)

    def new_offsets(self, wanted: Collection[QueueOffset]) -> dict[QueueOffset, int]:
        """The new queue offsets for some old ones, which consumers have; see `find_new_offsets`."""
        files = [self.folder / info.base_name for info in self.folder.entries() if _FILE.fullmatch(info.base_name)]
        return find_new_offsets(_batches(files), wanted) if files and wanted else {}


def _batches(files: Sequence[Location]) -> Iterator[pa.RecordBatch]:
    """The queue offsets in these files."""
    if files[0].is_local:
        import pyarrow.dataset as ds  # which imports pandas

        dataset = ds.dataset([file.path for file in files], OFFSET_MAP_SCHEMA, format="parquet")
        yield from dataset.to_batches(_QUEUE_OFFSETS, batch_size=256 << 10, batch_readahead=4, fragment_readahead=2)
        return
    for file in files:  # read whole, because Arrow repeats no request that failed
        yield from pq.read_table(pa.BufferReader(file.read_bytes()), columns=_QUEUE_OFFSETS).to_batches()


def check_map_folder(folder: Location) -> None:
    """Raise `OutputExistsError` if a folder has a complete table, or other files than a killed job leaves."""
    if folder.is_file or any(not _is_left(info.base_name) for info in folder.entries()):
        raise OutputExistsError(
            f"{folder} is not empty: the table of old and new offsets needs a new folder (--offset-map)"
        )


def complete_map(folder: Location) -> None:
    """Mark the table in a folder as complete, when its store is in place; a later job does not remove its files."""
    publish(folder / _COMPLETE, b"", 0)


def _remove_files(folder: Location) -> None:
    for info in folder.entries():
        if _is_left(info.base_name):
            (folder / info.base_name).delete()


def find_new_offsets(batches: Iterable[pa.RecordBatch], wanted: Collection[QueueOffset]) -> dict[QueueOffset, int]:
    """The new queue offsets at which consumers continue that have old ones.

    A consumer continues at the first kept message that it has not consumed: the smallest new offset of the messages
    whose old offset is at least the consumer's. If there is none, it continues after the last message that its old
    queue had. So no message is missed, also if two queues become one, or if their order changes. Offsets in the queue
    of half messages stay (`HALF_TOPIC`). An offset in a queue without a row is left out.
    """
    by_queue: dict[Queue, list[int]] = {}
    for topic, queue_id, offset in sorted(wanted):
        by_queue.setdefault((topic, queue_id), []).append(offset)
    searches = {queue: _Search(offsets) for queue, offsets in by_queue.items()}
    topics = pa.array({topic for topic, _ in searches}, pa.string())
    for batch in batches:
        chosen = batch.filter(pc.and_(pc.is_in(batch["old_topic"], topics), batch["old_queue_offset"].is_valid()))
        of_queues = pa.table(chosen).group_by(["old_topic", "queue_id"], use_threads=False)
        found = of_queues.aggregate([("old_queue_offset", "list"), ("queue_offset", "list")])
        names = ("old_topic", "queue_id", "old_queue_offset_list", "queue_offset_list")
        for topic, queue_id, old, new in zip(*(found[name] for name in names), strict=True):
            search = searches.get((topic.as_py(), queue_id.as_py()))
            if search is not None:
                search.add(old.values.to_numpy(), new.values.to_numpy())
    return {
        (*queue, offset): offset if queue[0] == HALF_TOPIC else new
        for queue, search in searches.items()
        if search.last >= 0
        for offset, new in zip(by_queue[queue], search.result(), strict=True)
    }


class _Search:
    """The search for new offsets in one queue; `last` is the largest one of its messages, -1 if it has none."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.last = -1
        self._offsets = np.array(wanted, np.int64)
        self._next = np.full(self._offsets.size, _NOTHING_AFTER)

    def add(self, old: Int64s, new: Int64s) -> None:
        """Look at messages of the queue, with their old and new offsets."""
        self.last = max(self.last, int(new.max()))
        order = np.argsort(old, kind="stable")
        smallest_from = np.minimum.accumulate(new[order][::-1])[::-1]
        at = np.searchsorted(old[order], self._offsets)
        has_next = at < old.size
        self._next[has_next] = np.minimum(self._next[has_next], smallest_from[at[has_next]])

    def result(self) -> list[int]:
        """The new offset for each wanted one."""
        result: list[int] = np.where(self._next == _NOTHING_AFTER, self.last + 1, self._next).tolist()
        return result


def _ids(store_host: bytes | None, offsets: Int64s) -> pa.Array:
    """The offset message ids of messages that one broker stored; NULL for an offset below 0, or without a host."""
    if store_host is None:
        return pa.nulls(offsets.size, pa.string())
    from spark_mq.format.kernels.fields import offset_message_ids

    sizes = np.full(offsets.size, len(store_host), np.int32)
    host = np.frombuffer(store_host, np.uint8)
    ids = offset_message_ids(host, np.zeros(offsets.size, np.int64), sizes, np.ascontiguousarray(offsets))
    return pc.if_else(pa.array(offsets >= 0), ids, pa.scalar(None, pa.string()))


def _is_left(name: str) -> bool:
    """Whether a killed job can have left a file of this name."""
    return (_FILE.fullmatch(name) or _UNFINISHED.fullmatch(name)) is not None
