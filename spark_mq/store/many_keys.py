"""The messages of many keys: what `KeyIndex.find_messages` finds for each of them, in one pass over the index files.

The slots of a file are read in their order, and each record once, in the order of the log. If a slot, an entry or the
record of an entry is damaged, the keys that need it are looked up one by one by `KeyIndex`, which then reads the log.
The same is done for files over a network.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.array_types import Flags, Int64s, is_in
from spark_mq.format.dispatch import record_keys
from spark_mq.format.kernels.batches import MessageKeys, message_batches, rows_of_keys
from spark_mq.format.kernels.frames import new_frames
from spark_mq.format.kernels.gather import MOST_READ, read_records
from spark_mq.format.kernels.index_keys import AskedKeys, hash_keys, index_keys
from spark_mq.format.kernels.index_look_up import FoundEntries, find_entries
from spark_mq.format.message_row import message_row, message_table
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, KEY, KEY_FIELDS, KEY_TYPE
from spark_mq.format.record import MIN_RECORD_SIZE
from spark_mq.io.file_reader import FileReader
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.index.key_index import KeyIndex
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_reader import Records, joined_chunks
from spark_mq.store.log.scan import splits_of
from spark_mq.store.log.split_reader import read_split

_MAX_ROWS = 16384
_Rows = tuple[Int64s, pa.RecordBatch]


class ManyKeys:
    """The look-up of some pairs of topic and key in a store."""

    def __init__(self, index: KeyIndex, topics: pa.Array, keys: pa.Array, columns: Sequence[str]) -> None:
        """Prepare.

        Args:
            topics: The topic of each pair; neither topics nor keys are NULL.
            keys: The key of each pair. A pair that is there twice has its rows twice.
            columns: Columns of table `messages_by_key`.
        """
        self.index, self.records, self.columns = index, index.records, columns
        hashes = hash_keys(topics, keys)
        self._order = np.argsort((hashes % index.layout.hash_slot_num).astype(np.int64) << 32 | hashes)
        hashes = hashes[self._order]
        firsts = np.flatnonzero(np.diff(hashes.astype(np.int64), prepend=-1))
        topics, keys = (values.take(pa.array(self._order)) for values in (topics, keys))
        self._asked = AskedKeys(topics, keys, hashes[firsts], np.append(firsts, hashes.size))
        self._found: list[tuple[Int64s, Int64s]] = []

    def batches(self) -> Iterator[_Rows]:
        """A row for each pair and message that has the key, in the order of the log except damaged parts.

        With each batch come the numbers of the pairs of its rows.
        """
        is_doubtful = np.zeros(self._asked.hashes.size, np.bool_)
        parts = self.index.parts
        entries = [self._entries(part, is_doubtful) for part in parts if isinstance(part, IndexedRange)]
        yield from self._indexed(entries, is_doubtful)
        for part in parts:
            if isinstance(part, LogRange):
                yield from self._scanned(part, is_doubtful)
        yield from self._one_by_one(np.flatnonzero(np.repeat(is_doubtful, np.diff(self._asked.firsts))))

    def _entries(self, span: IndexedRange, is_doubtful: Flags) -> FoundEntries:
        """The entries of a file with the asked hashes, of messages in its part of the log; marks the damaged hashes."""
        layout, location, nothing = self.index.layout, span.info.location, np.empty(0, np.int64)
        try:
            with FileReader(location) as file:
                if file.descriptor is None:
                    raise CorruptIndexError(f"{location} is not on this machine")
                layout.check_file_size(os.fstat(file.descriptor).st_size, location.path)
                data = np.frombuffer(mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
            header = self.index.index_file(span.info).header()
            last = max(header.end_commit_log_offset, span.header.end_commit_log_offset)
            found = find_entries(data, layout, header, last, self._asked.hashes)
        except (CorruptIndexError, OptionError):
            is_doubtful[:] = True
            return FoundEntries(nothing, nothing, is_doubtful)
        is_doubtful |= found.is_damaged
        is_here = (found.commit_log_offset >= span.start) & (found.commit_log_offset < span.stop)
        return FoundEntries(found.hash_index[is_here], found.commit_log_offset[is_here], found.is_damaged)

    def _indexed(self, entries: Sequence[FoundEntries], is_doubtful: Flags) -> Iterator[_Rows]:
        """The rows of the messages to which entries lead; marks the hashes whose entries lead to something else."""
        if not entries:
            return
        entry_offsets = np.concatenate([one.commit_log_offset for one in entries])
        order = np.argsort(entry_offsets)
        entry_offsets, hash_index = entry_offsets[order], np.concatenate([one.hash_index for one in entries])[order]
        is_first = np.diff(entry_offsets, prepend=-1) > 0
        offsets, offset_of = entry_offsets[is_first], np.cumsum(is_first) - 1
        is_read = np.zeros(offsets.size, np.bool_)
        for chunk, numbers in self._records(offsets):
            is_read[numbers] = True
            first, stop = np.searchsorted(offset_of, (numbers[0], numbers[-1] + 1)).tolist()
            message = np.searchsorted(numbers, offset_of[first:stop])
            is_here = numbers[message] == offset_of[first:stop]
            yield from self._rows(chunk, message[is_here], hash_index[first:stop][is_here], is_doubtful)
        is_doubtful[hash_index[~is_read[offset_of]]] = True

    def _records(self, offsets: Int64s) -> Iterator[tuple[Records, Int64s]]:
        """The records at ascending offsets, each until the next ones are read, and the numbers of their offsets."""
        buffer = np.empty(MOST_READ, np.uint8)
        frames, numbers = new_frames(offsets.size), np.empty(offsets.size, np.int64)
        filled = count = 0
        for segment in self.records.segments:
            reached, stop = np.searchsorted(offsets, (segment.base, segment.end_offset)).tolist()
            if reached == stop:
                continue
            with FileReader(segment.location) as file:
                starts = offsets[reached:stop] - segment.base
                file.announce(starts.tolist(), (starts + MIN_RECORD_SIZE).tolist())
                while reached < stop:
                    place = cast(int, file.descriptor), segment.base, segment.end_offset, offsets[:stop], reached
                    reached, filled, count = read_records(*place, buffer, filled, frames, numbers, count)
                    if reached < stop and count:
                        yield Records(buffer, frames[:count]), numbers[:count]
                    filled, count = (filled, count) if reached == stop else (0, 0)
        if count:
            yield Records(buffer, frames[:count]), numbers[:count]

    def _scanned(self, log_range: LogRange, is_doubtful: Flags) -> Iterator[_Rows]:
        """The rows of the messages of a part of the log; damage is skipped."""
        hashes = self._asked.hashes
        order = np.argsort(hashes)
        for split in splits_of(self.records.store, log_range):
            for part in joined_chunks(read_split(split)):
                if not isinstance(part, list):
                    keys = index_keys(part.buffer, part.frames)
                    owners = np.repeat(np.arange(part.frames.size), keys.entry_count)
                    at = np.searchsorted(hashes, keys.key_hash, sorter=order)
                    hash_index = order[np.minimum(at, order.size - 1)]
                    is_asked = hashes[hash_index] == keys.key_hash
                    found = Records(part.buffer, part.frames)
                    yield from self._rows(found, owners[is_asked], hash_index[is_asked], is_doubtful)

    def _rows(self, chunk: Records, message: Int64s, hash_index: Int64s, is_doubtful: Flags) -> Iterator[_Rows]:
        """The rows of messages of which entries say that they have asked hashes; marks the hashes that one has not."""
        parts = chunk.buffer, chunk.frames
        found, pair, is_unique, is_right = self._asked.of_messages(*parts, message, hash_index)
        is_doubtful[hash_index[~is_right]] = True
        columns, first = [name for name in self.columns if name not in KEY_FIELDS], 0
        for messages in message_batches(chunk.buffer, chunk.frames[found], columns, _MAX_ROWS):
            which = slice(first, first + messages.frames.size)
            first, rows = which.stop, np.arange(messages.frames.size)
            keys = MessageKeys(rows, self._asked.keys.take(pa.array(pair[which])), is_unique[which])
            self._found.append((pair[which], messages.column("commit_log_offset").to_numpy()))
            yield self._order[pair[which]], rows_of_keys(messages, keys, self.columns)

    def _one_by_one(self, pairs: Int64s) -> Iterator[_Rows]:
        """The messages of some pairs that were not found yet, each pair looked up by itself."""
        if not pairs.size:
            return
        fields = pa.schema([(KEY_FIELDS | ALL_MESSAGE_FIELDS)[name] for name in self.columns])
        known: dict[int, set[int]] = {}
        for numbers, offsets in self._found:
            is_one = is_in(numbers, pairs)
            for number, offset in zip(numbers[is_one].tolist(), offsets[is_one].tolist(), strict=True):
                known.setdefault(number, set()).add(offset)
        for pair in pairs.tolist():
            topic, key = self._asked.topics[pair].as_py(), self._asked.keys[pair].as_py()
            rows = [
                message_row(record) | {KEY: key, KEY_TYPE: record_keys(record)[key].value}
                for record in self.index.find_messages(topic, key)
                if record.commit_log_offset not in known.get(pair, ())
            ]
            for batch in message_table(rows, fields).to_batches():
                yield np.full(batch.num_rows, self._order[pair]), batch
