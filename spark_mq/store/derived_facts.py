"""Facts of queues and index files that no message of the log shows, as values that JSON can have.

- The next offset of a queue: if all its messages expired, only its files have it.
- The names of index files: a broker names a file after the moment at which it made it.
- The slots and entries of an index file, which are settings of the broker.
- Whether tags have index entries, which depends on the broker's version.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from spark_mq.errors import OptionError, SparkMqError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.index_file import IndexLayout
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.broker_versions import TagsInFile
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import existing_file_size
from spark_mq.store.queue.queue_database import in_files


def queue_facts(store: MessageStore) -> dict[str, Any] | None:
    """The size of a queue file in bytes, None if queues are in RocksDB, and the ends of each; None without a queue."""
    if not store.queue_names:
        return None
    found = dict(sorted(store.queues.items()))
    queues, log_start = [], store.get_min_phy_offset()
    for topic, queue_id in found:
        max_offset = store.get_max_offset_in_queue(topic, queue_id)
        min_offset = found[topic, queue_id].min_offset(max_offset, log_start, by_halving=True)
        queues.append({"topic": topic, "queue_id": queue_id, "min_offset": min_offset, "max_offset": max_offset})
    return {"file_size": existing_file_size(in_files(queue.folder for queue in found.values())), "queues": queues}


def next_offsets(facts: Mapping[str, Any] | None) -> dict[Queue, int]:
    """The offset that the next message of each queue gets, out of `queue_facts`."""
    queues = [] if facts is None else facts["queues"]
    return {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in queues}


def index_facts(store: Location) -> dict[str, Any] | None:
    """Name, size, header and tags of each index file; None if there are no index files.

    `files`: objects with `name`, `size` (bytes), the fields of the header, and `tag_runs`, objects with the
    `commit_log_offset` from which on tags have entries, or have none (`has_entry`); `hash_slot_num` and `index_num`:
    the slots and entries of a file, None if the files do not show them.
    """
    if not (store / INDEX).is_directory:
        return None
    try:
        layout: IndexLayout | None = index_layout(store, BrokerConf.of(None))
    except OptionError:
        layout = None
    files = []
    for file in index_files(store):
        header = {name: value for name, value in vars(file.stored_header()).items() if name != "hash_slot_count"}
        runs = [] if layout is None else _tag_runs(store, file, layout)
        files.append({"name": file.name, "size": file.size, **header, "tag_runs": runs})
    if not files:
        return None
    slots, entries = (None, None) if layout is None else (layout.hash_slot_num, layout.index_num)
    return {"files": files, "hash_slot_num": slots, "index_num": entries}


def _tag_runs(store: Location, file: IndexFileInfo, layout: IndexLayout) -> list[dict[str, Any]]:
    """What a file shows about tags; nothing if it, or the log, is damaged."""
    try:
        with closing(FileReaders()) as readers:
            runs = TagsInFile(file, layout, RecordLookup(store, readers)).runs()
    except (SparkMqError, OSError):
        return []
    return [{"has_entry": run.has_entry, "commit_log_offset": run.commit_log_offset} for run in runs]
