"""The messages of many keys: what `KeyIndex.find_messages` finds for each of them, in one pass over the index files.

The slots of a file are read in their order, and each record once, in the order of the log. If a slot, an entry or the
record of an entry is damaged, the keys that need it are looked up one by one by `KeyIndex`, which then reads the log.
The same is done for files over a network.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.array_types import Flags, Int32s, Int64s, is_in
from spark_mq.format.dispatch import record_keys
from spark_mq.format.kernels.batches import message_batches, rows_of_keys, stored_keys
from spark_mq.format.kernels.big_endian import int32s_at
from spark_mq.format.kernels.index_keys import hash_keys, index_keys
from spark_mq.format.kernels.index_look_up import FoundEntries, find_entries
from spark_mq.format.message_row import message_row, message_table
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, KEY, KEY_FIELDS, KEY_TYPE
from spark_mq.format.record import FRAME, MAX_RECORD_SIZE, MIN_RECORD_SIZE
from spark_mq.io.file_reader import FileReader
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.index.key_index import KeyIndex
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_reader import Records, joined_chunks
from spark_mq.store.log.scan import splits_of
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.queue.unit_cover import cost_of
from spark_mq.store.queue.unit_reader import read_into, records_of_units

_MAX_ROWS = 16384
_Rows = tuple[Int64s, pa.RecordBatch]


class ManyKeys:
    """The look-up of some pairs of topic and key in a store."""

    def __init__(
        self,
        index: KeyIndex,
        topics: pa.Array,
        keys: pa.Array,
        columns: Sequence[str],
    ) -> None:
        """Prepare.

        Args:
            topics: The topic of each pair; neither topics nor keys are NULL.
            keys: The key of each pair. Each pair must be there once.
            columns: Columns of table `messages_by_key`.
        """
        self.index, self.records, self.columns = index, index.records, columns
        hashes = hash_keys(topics, keys)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]
        self._distinct, self._firsts, self._counts = np.unique(self._hashes, return_index=True, return_counts=True)
        self.topics, self.keys = (values.take(pa.array(self._order)) for values in (topics, keys))
        self._found: list[tuple[Int64s, Int64s]] = []

    def batches(self) -> Iterator[_Rows]:
        """A row for each pair and message that has the key, in the order of the log but for damaged parts.

        With each batch come the numbers of the pairs of its rows.
        """
        hashes = self._distinct[np.argsort(self._distinct % self.index.layout.hash_slot_num)]
        is_doubtful = np.zeros(hashes.size, np.bool_)
        parts = self.index.parts
        entries = [self._entries(part, hashes, is_doubtful) for part in parts if isinstance(part, IndexedRange)]
        yield from self._indexed(entries, hashes, is_doubtful)
        for part in parts:
            if isinstance(part, LogRange):
                yield from self._scanned(part, hashes)
        yield from self._one_by_one(np.flatnonzero(is_in(self._hashes, hashes[is_doubtful])))

    def _entries(self, span: IndexedRange, hashes: Int32s, is_doubtful: Flags) -> FoundEntries:
        """The entries of a file with these hashes, of messages in its part of the log; marks the damaged hashes."""
        layout, location, nothing = self.index.layout, span.info.location, np.empty(0, np.int64)
        try:
            with FileReader(location) as file:
                if file.descriptor is None:
                    raise CorruptIndexError(f"{location} is not on this machine")
                layout.check_file_size(os.fstat(file.descriptor).st_size, location.path)
                data = np.frombuffer(mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
            header = self.index.index_file(span.info).header()
            last = max(header.end_commit_log_offset, span.header.end_commit_log_offset)
            found = find_entries(data, layout, header, last, hashes)
        except (CorruptIndexError, OptionError):
            is_doubtful[:] = True
            return FoundEntries(nothing, nothing, is_doubtful)
        is_doubtful |= found.is_damaged
        is_here = (found.commit_log_offset >= span.start) & (found.commit_log_offset < span.stop)
        return FoundEntries(found.hash_index[is_here], found.commit_log_offset[is_here], found.is_damaged)

    def _indexed(self, entries: Sequence[FoundEntries], hashes: Int32s, is_doubtful: Flags) -> Iterator[_Rows]:
        """The rows of the messages to which entries lead; marks the hashes whose entries lead to something else."""
        if not entries:
            return
        entry_offsets = np.concatenate([one.commit_log_offset for one in entries])
        order = np.argsort(entry_offsets)
        entry_offsets, hash_index = entry_offsets[order], np.concatenate([one.hash_index for one in entries])[order]
        is_first = np.diff(entry_offsets, prepend=-1) > 0
        offsets, entry_of = entry_offsets[is_first], np.cumsum(is_first) - 1
        sizes = self._sizes(offsets)
        numbers = np.flatnonzero(sizes)
        is_right = np.zeros(entry_offsets.size, np.bool_)
        gap = cost_of(self.records.store).gap
        for chunk, which in records_of_units(self.records, offsets[numbers], sizes[numbers], gap):
            first, stop = np.searchsorted(entry_of, (numbers[which.start], numbers[which.stop - 1] + 1)).tolist()
            row = np.searchsorted(numbers[which], entry_of[first:stop])
            keys = index_keys(chunk.buffer, chunk.frames, has_tags=None)
            owners = np.repeat(np.arange(chunk.frames.size, dtype=np.int64), keys.entry_count)
            stored = owners << 32 | np.maximum(keys.key_hash, ~keys.key_hash)
            asked = row << 32 | hashes[hash_index[first:stop]]
            is_right[first:stop] = is_in(asked, stored)
            yield from self._rows(chunk, asked)
        is_doubtful[hash_index[~is_right]] = True

    def _sizes(self, offsets: Int64s) -> Int64s:
        """The sizes that are stored at offsets; 0 where none is, or one that a record cannot have."""
        sizes = np.zeros(offsets.size, np.int64)
        for segment in self.records.segments:
            first, stop = np.searchsorted(offsets, (segment.base, segment.end_offset - FRAME.size + 1)).tolist()
            starts = offsets[first:stop] - segment.base
            data = np.empty(4 * starts.size, np.uint8)
            if starts.size and read_into(data, segment, starts, starts + 4):
                sizes[first:stop] = int32s_at(data, np.arange(starts.size, dtype=np.int64) * 4)
        sizes[(sizes < MIN_RECORD_SIZE) | (sizes > MAX_RECORD_SIZE)] = 0
        return sizes

    def _scanned(self, log_range: LogRange, hashes: Int32s) -> Iterator[_Rows]:
        """The rows of the messages of a part of the log; damage is skipped."""
        for split in splits_of(self.records.store, log_range):
            for part in joined_chunks(read_split(split)):
                if not isinstance(part, list):
                    keys = index_keys(part.buffer, part.frames)
                    owners = np.repeat(np.arange(part.frames.size), keys.entry_count)
                    is_asked = is_in(keys.key_hash, hashes)
                    rows, row = np.unique(owners[is_asked], return_inverse=True)
                    asked = row << 32 | keys.key_hash[is_asked]
                    yield from self._rows(Records(part.buffer, part.frames[rows]), asked)

    def _rows(self, chunk: Records, asked: Int64s) -> Iterator[_Rows]:
        """The rows of messages: `asked` has the number of a message << 32 | the hash of a key for which it is read."""
        columns, first = [name for name in self.columns if name not in KEY_FIELDS], 0
        for messages in message_batches(chunk.buffer, chunk.frames, columns, _MAX_ROWS):
            keys = stored_keys(messages)
            topics = messages.column("topic").take(pa.array(keys.message))
            hashes = hash_keys(topics, keys.key)
            number = np.flatnonzero(is_in((keys.message + first) << 32 | hashes, asked))
            first += messages.frames.size
            same = np.searchsorted(self._distinct, hashes[number])
            pairs = self._counts[same]
            starts = self._firsts[same] + pairs - pairs.cumsum()
            number, pair = np.repeat(number, pairs), np.repeat(starts, pairs) + np.arange(pairs.sum())
            is_same = np.ones(number.size, np.bool_)
            for stored, of_pairs in ((topics, self.topics), (keys.key, self.keys)):
                is_same &= np.asarray(pc.equal(stored.take(pa.array(number)), of_pairs.take(pa.array(pair))))
            number, pair = number[is_same], pair[is_same]
            # If a message has a key twice, the first one counts; unique keys come first.
            _, once = np.unique(keys.message[number] * self._hashes.size + pair, return_index=True)
            keys, pair = keys.take(number[once]), pair[once]
            if pair.size:
                self._found.append((pair, messages.column("commit_log_offset").to_numpy()[keys.message]))
                yield self._order[pair], rows_of_keys(messages, keys, self.columns)

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
            topic, key = self.topics[pair].as_py(), self.keys[pair].as_py()
            rows = [
                message_row(record) | {KEY: key, KEY_TYPE: record_keys(record)[key].value}
                for record in self.index.find_messages(topic, key)
                if record.commit_log_offset not in known.get(pair, ())
            ]
            for batch in message_table(rows, fields).to_batches():
                yield np.full(batch.num_rows, self._order[pair]), batch
