"""The broker versions that are possible for a store, as its files and what is in them show.

What `versions_of_files` finds out is cheap. If it leaves a rule open, these parts are read, of which each shows the
oldest version that makes it:

| part | what it shows |
| --- | --- |
| the newest entries of the index | 5.4.0: a message has an entry for its tags |
| the newest op message | 5.1.0: it names half messages in a list, with a comma after each |
| the header of the newest index file | 5.0.0: it counts 1 although the file has no entry |

That one of them is missing shows nothing: a broker of a newer version can have been started later.

Brokers put entries of tags since 5.4.0 (rule `INDEX_TAGS`). An upgrade is in the middle of a file. So some places of a
file are looked at, and those between two that differ. An upgrade that is undone between two places is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from spark_mq.errors import SparkMqError
from spark_mq.format import broker_version as rules
from spark_mq.format.broker_version import ALL_VERSIONS, BrokerVersions, VersionRule
from spark_mq.format.dispatch import record_keys, record_tags_key
from spark_mq.format.index_file import Entry, IndexFile, IndexLayout, index_key_hash
from spark_mq.format.system_topic import OP_TOPIC
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.file_versions import versions_of_files
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import IndexFileInfo, index_files, newest_layout
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folder

_WINDOW = 64
"""Entries that are read at once. They are of several messages, of which most have tags."""
_LOOKED_AT = 16
"""Parts of a file, of which each is looked at."""


class ShownTags(NamedTuple):
    """What an index shows about a message: whether its tags have an entry; its commit log offset; its first entry."""

    has_entry: bool
    commit_log_offset: int
    number: int


class TagsInFile:
    """What one index file shows about the tags of messages."""

    def __init__(self, info: IndexFileInfo, layout: IndexLayout, records: RecordLookup) -> None:
        """Open a file of an index; `records` has the messages of its log."""
        self._index = IndexFile(info.name, layout, records.files.reader(info.location).read)
        self._records = records
        self.stop = self._index.header().next_entry

    def runs(self) -> list[ShownTags]:
        """The first message of the file, and the first one after each change; an empty list if nothing is shown."""
        starts = [1 + (self.stop - 1) * part // _LOOKED_AT for part in range(_LOOKED_AT)]
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


def find_broker_versions(store: Location, given: str | None = None) -> BrokerVersions:
    """The versions of the broker that are possible for a store, with the evidence.

    Args:
        given: What a person says. `5.1.0` is that version. Of a line such as `5` or `4.9`, the versions count that the
            files allow. None if only the files tell.
    """
    if given is None:
        return _shown(store)
    versions = BrokerVersions.parse(given)
    return versions if versions.first == versions.last else versions.within(_shown(store))


def _shown(store: Location) -> BrokerVersions:
    versions = versions_of_files(store)
    if versions is not ALL_VERSIONS and not versions.decide(rules.STATE_VERSION):
        return versions  # 4.9 wrote config/ last: what only 5 makes is older
    with closing(FileReaders()) as files:
        for rule, shows, what in _PARTS:
            with suppress(SparkMqError, OSError):  # what is damaged shows nothing
                if versions.decide(rule) is None and shows(store, files):
                    assert rule.since is not None
                    return replace(versions, first=rule.since, evidence=what)
    return versions


def _has_tag_entries(store: Location, files: FileReaders) -> bool:
    infos = index_files(store)
    layout = newest_layout(infos) if infos else None
    if layout is None:
        return False
    shown = TagsInFile(infos[-1], layout, RecordLookup(store, files)).last()
    return shown is not None and shown.has_entry


def _has_op_list(store: Location, files: FileReaders) -> bool:
    folder = queue_folder(store / CONSUME_QUEUE, OP_TOPIC, 0)
    if folder is None:
        return False
    queue = ConsumeQueue(folder, files)
    commit_log_offset, store_size, _ = queue.unit(queue.written_end - 1)
    return b"," in RecordLookup(store, files).record(commit_log_offset, store_size).body


def _has_flushed_empty_file(store: Location, files: FileReaders) -> bool:
    infos = index_files(store)
    if not infos:
        return False
    header = infos[-1].stored_header()
    return header.index_count == 1 and not (header.begin_commit_log_offset or header.end_commit_log_offset)


_PARTS: tuple[tuple[VersionRule, Callable[[Location, FileReaders], bool], str], ...] = (
    (rules.INDEX_TAGS, _has_tag_entries, "the index has entries for tags"),
    (rules.OP_QUEUE_OFFSET_LISTS, _has_op_list, "an op message has a list of half messages"),
    (rules.INDEX_FLUSHED_AT_STOP, _has_flushed_empty_file, "an index file without an entry counts 1"),
)
