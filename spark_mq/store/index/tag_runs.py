"""Where in an index file messages have entries for their tags, found with few reads.

Brokers put such entries since 5.4.0 (rule `INDEX_TAGS`). An upgrade is in the middle of a file. So some places of a
file are looked at, and those between two that differ. An upgrade that is undone between two places is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from spark_mq.format.dispatch import record_keys, record_tags_key
from spark_mq.format.index_file import IndexLayout, index_key_hash
from spark_mq.format.index_query import Entry, IndexFile
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.store.log.record_lookup import RecordLookup

_WINDOW = 64
"""Entries that are read at once. They are of several messages, of which most have tags."""
_PARTS = 16
"""Parts of a file, of which each is looked at."""


class ShownTags(NamedTuple):
    """What an index shows about a message: whether its tags have an entry; its commit log offset; its first entry."""

    has_entry: bool
    commit_log_offset: int
    number: int


class TagsInFile:
    """What one index file shows about the tags of messages."""

    def __init__(self, info: IndexFileInfo, layout: IndexLayout, records: RecordLookup, files: FileReaders) -> None:
        """Open a file of an index; `records` has the messages of its log."""
        self._index = IndexFile(info.name, layout, files.reader(info.location).read)
        self._records = records
        self.stop = self._index.header().next_entry

    def runs(self) -> list[ShownTags]:
        """The first message of the file, and the first one after each change; an empty list if nothing is shown."""
        starts = [1 + (self.stop - 1) * part // _PARTS for part in range(_PARTS)]
        looks = [*(next(self._shown(start, start + _WINDOW), None) for start in starts), self.last()]
        shown = [one for one in looks if one is not None]
        return shown[:1] + [self._change(*two) for two in pairwise(shown) if two[0].has_entry != two[1].has_entry]

    def _change(self, before: ShownTags, after: ShownTags) -> ShownTags:
        """The first message that shows the same as `after`, of those after `before`."""
        low, high = before.number, after.number
        while high - low > _WINDOW:
            middle = (low + high) // 2
            shown = next(self._shown(middle, middle + _WINDOW), None)
            if shown is None or not low < shown.number < high:
                break
            low, high = (shown.number, high) if shown.has_entry == before.has_entry else (low, shown.number)
        changed = (one for one in self._shown(low, high + _WINDOW) if one.has_entry == after.has_entry)
        return next(changed, after)

    def last(self) -> ShownTags | None:
        """One of the last messages; None if none of them shows anything."""
        return next(self._shown(self.stop - _WINDOW, self.stop, newest_first=True), None)

    def _shown(self, start: int, stop: int, newest_first: bool = False) -> Iterator[ShownTags]:
        """What some entries show. Of the first and the last message, entries can be elsewhere: they are left out."""
        entries = [self._index.entry(number) for number in range(max(1, start), min(stop, self.stop))]
        offsets = list(dict.fromkeys(entry.commit_log_offset for entry in entries))[1:-1]
        for offset in reversed(offsets) if newest_first else offsets:
            own = [entry for entry in entries if entry.commit_log_offset == offset]
            has_entry = self._has_entry(offset, own)
            if has_entry is not None:
                yield ShownTags(has_entry, offset, own[0].number)

    def _has_entry(self, commit_log_offset: int, entries: Iterable[Entry]) -> bool | None:
        record = self._records.record(commit_log_offset)
        tags = record_tags_key(record)
        if tags is None:
            return None
        of_tags, *of_keys = (index_key_hash(record.topic, key.encode()) for key in (tags, *record_keys(record)))
        found = {entry.key_hash for entry in entries}
        if of_tags in of_keys or found not in ({*of_keys}, {*of_keys, of_tags}):
            return None
        return of_tags in found
