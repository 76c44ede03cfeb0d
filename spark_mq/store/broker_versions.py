"""The broker versions that are possible for a store, as its files and what is in them show.

What `versions_of_files` finds out is cheap. If it leaves a rule open, these parts are read, of which each shows the
oldest version that makes it:

| part | what it shows |
| --- | --- |
| the newest entries of the index | 5.4.0: a message has an entry for its tags |
| the newest op message | 5.1.0: it names half messages in a list, with a comma after each |
| the header of the newest index file | 5.0.0: it counts 1 although the file has no entry |

That one of them is missing shows nothing: a broker of a newer version can have been started later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_mq.errors import SparkMqError
from spark_mq.format import broker_version as rules
from spark_mq.format.broker_version import ALL_VERSIONS, BrokerVersions, VersionRule
from spark_mq.format.system_topic import OP_TOPIC
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.file_versions import versions_of_files
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import index_files, newest_layout
from spark_mq.store.index.tag_runs import TagsInFile
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folder


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
    files = FileReaders()
    try:
        for rule, shows, what in _PARTS:
            if versions.decide(rule) is None and _is_shown(shows, store, files):
                assert rule.since is not None
                return replace(versions, first=rule.since, evidence=what)
    finally:
        files.close()
    return versions


def _is_shown(shows: Callable[[Location, FileReaders], bool], store: Location, files: FileReaders) -> bool:
    try:
        return shows(store, files)
    except (SparkMqError, OSError):  # what is damaged shows nothing
        return False


def _has_tag_entries(store: Location, files: FileReaders) -> bool:
    """Whether one of the newest entries of the index is certainly that of a message's tags."""
    infos = index_files(store)
    layout = newest_layout(infos) if infos else None
    if layout is None:
        return False
    shown = TagsInFile(infos[-1], layout, RecordLookup(store, files), files).last()
    return shown is not None and shown.has_entry


def _has_op_list(store: Location, files: FileReaders) -> bool:
    """Whether the newest op message has a list of half messages."""
    folder = queue_folder(store / CONSUME_QUEUE, OP_TOPIC, 0)
    if folder is None:
        return False
    queue = ConsumeQueue(folder, files)
    commit_log_offset, store_size, _ = queue.unit(queue.written_end - 1)
    return b"," in RecordLookup(store, files).record(commit_log_offset, store_size).body


def _has_flushed_empty_file(store: Location, files: FileReaders) -> bool:
    """Whether the newest index file has no entry, and was flushed."""
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
