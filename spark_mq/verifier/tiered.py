"""Tiered storage: its files against the metadata, the units and index entries of each queue against its records.

First the entries of each index file are checked as far as a file shows it, and sorted by queue. Then the log of each
queue is read once, and its units and entries are compared with its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spark_mq.errors import CorruptIndexError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.consume_queue_ext import MAX_ADDRESS
from spark_mq.format.index_file import index_key_hash
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskRunner
from spark_mq.store.log.commit_log import Segment, Split
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.tiered_storage import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    ENTRY_DTYPE,
    INDEX,
    INDEX_HEADER_DTYPE,
    INDEX_TOPIC,
    SLOT_DTYPE,
    TieredQueue,
    TieredSegment,
    TieredStorage,
    file_name,
    read_index,
)
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.records import TIME_CODES, record_findings
from spark_mq.verifier.result import FindingSink, Summary

Entries = np.ndarray[Any, Any]
_STAGED_DTYPE = np.dtype([*ENTRY_DTYPE.descr, ("number", "i4"), ("begin_timestamp", "i8"), ("owner", "i8")])
"""An entry, its number in its file, the time from which the file counts, and a number of its topic and queue."""


@dataclass(frozen=True)
class _StagedEntries:
    """The entries of an index file, sorted by queue; `parts` are those of each queue."""

    file: Segment
    sorted: Location
    parts: dict[int, tuple[int, int]]
    count: int
    summary: Summary

    def read(self, owner: int) -> Entries:
        start, stop = self.parts.get(owner, (0, 0))
        with FileReader(self.sorted) as reader:
            size = _STAGED_DTYPE.itemsize
            return np.frombuffer(reader.read(start * size, (stop - start) * size), _STAGED_DTYPE)


def check_tiered(
    storage: TieredStorage,
    work: Location,
    runner: TaskRunner,
    found: Location,
    *,
    has_extensions: bool,
    is_running: bool,
) -> list[Summary]:
    """Check all of tiered storage; findings are written into the folder `found`, sorted entries into `work`.

    Args:
        has_extensions: Whether the store's queues have extensions. Tags codes can then be addresses of their units.
        is_running: Whether a broker can upload: a file that follows all files of the metadata is then not a finding.
    """
    segments, queues = storage.segments(), storage.queues()
    topics = storage.metadata.topics
    owners = [_owner(topics.get(queue.topic, (-1, 0))[0], queue.queue_id) for queue in queues]
    index = [one for one in segments if one.type == INDEX and one.file is not None and one.file.size]
    with FindingSink(found) as sink:
        for one in segments:
            if one.problem is not None and not (is_running and one.listed is None and one.is_last):
                path, name = _path(one.topic, one.queue_id, one.type, one.base), (one.topic, one.queue_id)
                size = "no file" if one.file is None else f"{one.file.size} bytes"
                sink.add([findings("TIERED_FILE", path, one.problem, size, queue=name)])
    staged = runner.each("check tiered index", "files", index, partial(_stage, known=owners, work=work, found=found))
    listed = {(one.topic, one.queue_id, one.base): one for one in segments if one.type == COMMIT_LOG}
    logs = [(queue, owner, _logs(queue, listed)) for queue, owner in zip(queues, owners, strict=True)]
    check = partial(_check_queue, entries=staged, found=found, has_extensions=has_extensions)
    return [sink.summary, *(one.summary for one in staged), *runner.each("check tiered queues", "queues", logs, check)]


def _logs(queue: TieredQueue, listed: Mapping[tuple[str, int, int], TieredSegment]) -> list[TieredSegment]:
    name = queue.topic, queue.queue_id
    new = [TieredSegment(*name, COMMIT_LOG, file.base, None, file, is_last=True) for file in queue.log]
    return [replace(listed.get((*name, one.base), one), file=one.file) for one in new]


def _owner(topic_id: Any, queue_id: Any) -> Any:
    return topic_id << 32 | queue_id


def _path(topic: str, queue_id: int, kind: str, base: int) -> str:
    return f"tiered storage: {topic}/{queue_id}/{kind}/{file_name(base)}"


def _stage(one: TieredSegment, known: Sequence[int], work: Location, found: Location) -> _StagedEntries:
    """Check an index file as far as it shows its damage, and sort its entries by queue."""
    assert one.file is not None
    path, target = _path(one.topic, one.queue_id, INDEX, one.base), work / f"tiered-{one.base}"
    entries = np.empty(0, _STAGED_DTYPE)
    with FindingSink(found) as sink:
        try:
            header, slots, read = read_index(one.file)
        except CorruptIndexError as error:
            sink.add([findings("TIERED_INDEX", path, "an index file", str(error))])
        else:
            entries = np.empty(read.size, _STAGED_DTYPE)
            for name in ENTRY_DTYPE.names or ():
                entries[name] = read[name]
            entries["number"], entries["begin_timestamp"] = np.arange(read.size), header["begin_timestamp"]
            entries["owner"] = _owner(read["topic_id"].astype(np.int64), read["queue_id"])
            sink.add(_index_findings(path, one, header, slots, entries, known))
    entries = entries[np.argsort(entries["owner"], kind="stable")]
    with target.open_output() as file:
        file.write(entries.tobytes())
    owners, starts = np.unique(entries["owner"], return_index=True)
    parts = dict(zip(owners.tolist(), pairwise([*starts.tolist(), entries.size]), strict=True))
    return _StagedEntries(one.file, target, parts, entries.size, sink.summary)


def _index_findings(
    path: str, one: TieredSegment, header: Entries, slots: Entries, entries: Entries, known: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """What is wrong with the header and the slots of an index file, and entries of queues that are not there."""
    counted = int((slots["length"] > 0).sum())
    expected = {"slots": counted}
    if one.listed is not None:
        expected |= {"begin_timestamp": one.listed.begin, "end_timestamp": one.listed.end}
    for name, value in expected.items():
        if header[name] != value:
            yield findings("TIERED_INDEX", path, f"{name} {value}", f"{name} {header[name]}", position=0)
    size = ENTRY_DTYPE.itemsize
    hashes = np.abs(entries["key_hash"].astype(np.int64)) % slots.size
    lengths = np.bincount(hashes, minlength=slots.size) * size
    first = INDEX_HEADER_DTYPE.itemsize + slots.nbytes
    starts = first + np.cumsum(lengths) - lengths
    wrong = np.flatnonzero((slots["length"] != lengths) | (slots["position"] != starts))
    if wrong.size:
        yield findings(
            "TIERED_INDEX",
            path,
            text("entries at ", starts[wrong], ", bytes ", lengths[wrong]),
            text("entries at ", slots["position"][wrong], ", bytes ", slots["length"][wrong]),
            position=INDEX_HEADER_DTYPE.itemsize + wrong * SLOT_DTYPE.itemsize,
        )
    lone = ~np.isin(entries["owner"], known)
    if lone.any():
        yield _entry_findings(path, entries[lone], first, "an entry of a queue that is there")


def _entry_findings(path: str, entries: Entries, first: int, expected: str) -> pa.RecordBatch:
    values = (entries[name].astype(np.int64) for name in ("key_hash", "topic_id", "queue_id", "commit_log_offset"))
    words = ("hash ", ", topic ", ", queue ", ", offset ")
    found = text(*(piece for pair in zip(words, values, strict=True) for piece in pair))
    position = first + entries["number"].astype(np.int64) * ENTRY_DTYPE.itemsize
    return findings("TIERED_INDEX", path, expected, found, position=position)


def _check_queue(
    item: tuple[TieredQueue, int, Sequence[TieredSegment]],
    entries: Sequence[_StagedEntries],
    found: Location,
    has_extensions: bool,
) -> Summary:
    queue, owner, segments = item
    with FindingSink(found) as sink:
        check = _QueueCheck(queue, has_extensions)
        for one in segments:
            sink.add(check.file_findings(one))
        sink.add(check.unit_findings())
        for staged in entries:
            sink.add(check.entry_findings(staged, staged.read(owner)))
    return sink.summary


class _QueueCheck:
    """The check of one queue, file by file of its log; what a record needs of it stays in arrays."""

    def __init__(self, queue: TieredQueue, has_extensions: bool) -> None:
        self._queue, self._name, self._has_extensions = queue, (queue.topic, queue.queue_id), has_extensions
        self._has_record: Flags = np.zeros(queue.written.size, np.bool_)
        self._newest: int | None = None
        self._offsets, self._sizes, self._times = ([np.empty(0, np.int64)] for _ in range(3))
        self._keys: list[Int64s] = [np.empty(0, np.int64)]
        self._count = 0
        self._no_key = index_key_hash(queue.topic.encode("utf-8", "replace"), b"")
        """The hash of the empty key, which a broker puts for two spaces between keys (`constructIndexFile0`@5.3.3)."""

    def file_findings(self, one: TieredSegment) -> Iterator[pa.RecordBatch]:
        """What is wrong with the records of a file, and with the times of the file in the metadata."""
        from spark_mq.store.log.split_reader import read_split

        assert one.file is not None
        path, before, is_whole = _path(*self._name, COMMIT_LOG, one.base), self._count, True
        for part in read_split(Split(one.file, 0, one.file.size)):
            if isinstance(part, CorruptRange):
                at, is_whole = part.commit_log_offset, False
                found = f"{part.length} bytes: {part.reason}"
                place = at - one.base
                yield findings(
                    "TIERED_CORRUPT", path, "a record", found, queue=self._name, position=place, commit_log_offset=at
                )
            else:
                yield from self._records(part.buffer, part.frames, path, one.base)
        listed = one.listed
        times = np.concatenate(self._times)[before:] if self._count > before else np.empty(0, np.int64)
        if listed is None or not times.size or not is_whole or listed.size != one.file.size:
            return
        first, last = int(times.min()), int(times.max())
        if listed.begin != first or (listed.end < last if one.is_last else listed.end != last):
            found = f"{listed.begin} to {listed.end}"
            yield findings("TIERED_TIMES", path, f"store times {first} to {last}", found, queue=self._name)

    def _records(self, buffer: Any, frames: Any, path: str, base: int) -> Iterator[pa.RecordBatch]:
        from spark_mq.format.kernels.big_endian import int64s_at
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.kernels.index_keys import index_keys
        from spark_mq.format.kernels.properties import checked_pieces

        columns, queue = MessageColumns(buffer, frames), self._queue
        offsets, places = (columns.column(name).to_numpy() for name in ("commit_log_offset", "queue_offset"))
        units, codes = queue.units(places), np.zeros(frames.size, np.int64)
        keys = index_keys(buffer, frames, tags_codes=codes)
        has_unit: Flags = (units["commit_log_offset"] == offsets) & (units["store_size"] == frames.store_size)
        wrong = has_unit & (units["tags_code"] != codes)
        wrong &= (units["tags_code"] > MAX_ADDRESS) | (not self._has_extensions)
        self._has_record[np.searchsorted(queue.written, places[has_unit])] = True
        times, wrong_pieces = int64s_at(buffer, frames.store_timestamp_at), checked_pieces(buffer, frames)[0]

        def batch(code: str, which: Flags, expected: Any, found: Any) -> pa.RecordBatch:
            place = {"position": offsets[which] - base, "commit_log_offset": offsets[which]}
            return findings(code, path, expected, found, queue=self._name, **place)

        if wrong.any():
            yield batch("TIERED_UNIT", wrong, text("tags code ", codes[wrong]), text("", units["tags_code"][wrong]))
        other = ~columns.topic_is(queue.topic.encode("utf-8", "replace"))
        other |= columns.column("queue_id").to_numpy() != queue.queue_id
        if other.any():
            yield batch("TIERED_RECORD", other, "a record of the queue", "a record of another queue")
        if not has_unit.all():
            yield batch("TIERED_NO_UNIT", ~has_unit, "a unit", text("queue offset ", places[~has_unit]))
            for some in record_findings(buffer, frames[~has_unit], wrong_pieces[~has_unit], path, base):
                if some["code"][0].as_py() not in TIME_CODES:
                    yield some
        if has_unit.any():
            yield from record_findings(buffer, frames[has_unit], wrong_pieces[has_unit], path, base, self._newest)
            self._newest = int(times[has_unit][-1])
        owners = np.repeat(np.arange(self._count, self._count + frames.size), keys.entry_count)
        self._keys.append(owners << 32 | keys.key_hash)
        for arrays, values in zip(
            (self._offsets, self._sizes, self._times), (offsets, frames.store_size, times), strict=True
        ):
            arrays.append(values.astype(np.int64))
        self._count += frames.size

    def unit_findings(self) -> Iterator[pa.RecordBatch]:
        """Units that lead to no record, and units of records that a broker does not offer.

        It takes the smallest queue offset from the first record, and the units before it are of deleted files.
        """
        queue, offsets = self._queue, self._queue.written
        is_offered, start = offsets >= queue.min_offset, queue.log[0].base if queue.log else 1 << 62
        units = queue.units(offsets)
        wrong = np.where(is_offered, ~self._has_record, units["commit_log_offset"] >= start)
        if wrong.any():
            where = np.where(is_offered, "a record of queue offset ", "a smaller first queue offset in the log than ")
            yield findings(
                "TIERED_UNIT",
                f"tiered storage: {queue.topic}/{queue.queue_id}/{CONSUME_QUEUE}",
                text(pa.array(where[wrong]), offsets[wrong]),
                text("offset ", units["commit_log_offset"][wrong], ", size ", units["store_size"][wrong]),
                queue=self._name,
                position=offsets[wrong] * UNIT_SIZE,
            )

    def entry_findings(self, staged: _StagedEntries, entries: Entries) -> Iterator[pa.RecordBatch]:
        """The entries of a file that do not lead to a record with their key; those before the log's start expired."""
        offsets, sizes, times, keys = map(np.concatenate, (self._offsets, self._sizes, self._times, self._keys))
        start = self._queue.log[0].base if self._queue.log else 1 << 62
        entries = entries[entries["commit_log_offset"] >= start]
        if not entries.size or not offsets.size:  # without a record, the log or the units have findings
            return
        at = np.minimum(np.searchsorted(offsets, entries["commit_log_offset"]), offsets.size - 1)
        hashes = entries["key_hash"].astype(np.int64)
        differences = times[at] - entries["begin_timestamp"]
        seconds = np.where(differences < 0, -(-differences // 1000), differences // 1000)
        is_right = (offsets[at] == entries["commit_log_offset"]) & (sizes[at] == entries["store_size"])
        is_right &= (np.isin(at << 32 | hashes, keys) | (hashes == self._no_key)) & (
            seconds == entries["time_difference"]
        )
        if not is_right.all():
            path = _path(INDEX_TOPIC, 0, INDEX, staged.file.base)
            first = staged.file.size - ENTRY_DTYPE.itemsize * staged.count
            yield _entry_findings(path, entries[~is_right], first, "an entry that leads to a record with its key")
