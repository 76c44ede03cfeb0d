"""The folders and files of `consumequeue/`: names and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.config.store_paths import CONSUME_QUEUE, MAPPED_FILE_NAME
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.verifier.finding import findings
from spark_mq.verifier.new_file import settled
from spark_mq.verifier.segments import foreign_entries


def not_checked(store: Location) -> Iterator[pa.RecordBatch]:
    """A note for each part of the store that has a form which is not checked."""
    for note in check_form(store, Door.FILES):
        yield findings("NOT_CHECKED", file=note.path, found=f"{note.text} ({note.setting})")


def queue_folder_findings(store: Location, queues: Sequence[QueueFolder], file_size: int) -> Iterator[pa.RecordBatch]:
    """What the names and sizes of queue files show.

    Args:
        store: The store.
        queues: The queues that have files.
        file_size: Bytes of a queue file.

    Yields:
        Findings.

    """
    for queue in queues:
        path = f"{CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
        if queue.topic.startswith(LIGHT_PREFIX):
            yield findings(
                "NOT_CHECKED",
                file=path,
                topic=queue.topic,
                queue_id=queue.queue_id,
                found="the units of light message queues are not checked",
            )
        entries = (store / path).entries()
        yield from foreign_entries(path, [info for info in entries if not _is_queue_file(info)])
        empty = [info for info in entries if _is_queue_file(info) and not info.size]
        for info in settled(store, path, empty):
            if not info.size:
                yield findings(
                    "QUEUE_FILE_SIZE",
                    file=f"{path}/{info.base_name}",
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    expected=f"{file_size} bytes",
                    found="0 bytes",
                )
        for info in queue.files:
            start = int(info.base_name)
            columns: dict[str, Any] = {
                "file": f"{path}/{info.base_name}",
                "topic": queue.topic,
                "queue_id": queue.queue_id,
            }
            if info.size != file_size:
                yield findings("QUEUE_FILE_SIZE", expected=f"{file_size} bytes", found=f"{info.size} bytes", **columns)
            if start % file_size:
                yield findings(
                    "QUEUE_FILE_NAME", expected=f"a multiple of {file_size}", found=info.base_name, **columns
                )


def _is_queue_file(info: fs.FileInfo) -> bool:
    return info.type == fs.FileType.File and MAPPED_FILE_NAME.fullmatch(info.base_name) is not None
