"""The broker's settings that shape the rebuilt files, each with its source: most of them are in no file of a store."""

from __future__ import annotations

from spark_mq.indexer.index.build import find_time_zone
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.store.config.sourced import FileSetting, Sourced
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import find_index_layout, index_files
from spark_mq.store.queue.folders import find_queue_file_size, listed


def file_settings(request: RebuildRequest) -> tuple[FileSetting, ...]:
    """The settings of the files that a request rebuilds. Only names, sizes and headers of files are read."""
    conf, settings = request.broker_conf, []
    if request.selection.has_queues:
        trees = [request.store / CONSUME_QUEUE, request.committer.output / CONSUME_QUEUE]
        size = find_queue_file_size(conf, listed(trees if request.resume else trees[:1]))
        settings.append(FileSetting("queue files", f"{size.value:,} bytes each", size.source))
    if request.selection.has_index:
        layout = find_index_layout(request.store, conf)
        slots, entries = layout.value.hash_slot_num, layout.value.index_num
        settings.append(FileSetting("index files", f"{slots:,} slots and {entries:,} entries each", layout.source))
        zone = (
            find_time_zone(index_files(request.store), layout.value)
            if request.time_zone is None
            else Sourced(request.time_zone, "--time-zone")
        )
        settings.append(FileSetting("names of index files", f"in the time zone {zone.value}", zone.source))
    versions = request.broker_versions
    settings.append(FileSetting("rules", f"of a broker of version {versions}", versions.evidence))
    return tuple(settings)
