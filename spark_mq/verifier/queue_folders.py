"""The folders and files of `consumequeue/`: names and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.store.boot import irregular_files
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.config.store_paths import CONSUME_QUEUE, MAPPED_FILE_NAME
from spark_mq.store.queue.folders import queue_folders
from spark_mq.verifier.finding import findings
from spark_mq.verifier.segments import foreign_entries, settled


def not_checked(store: Location) -> Iterator[pa.RecordBatch]:
    """A note for each part of the store that has a form which is not checked."""
    for note in check_form(store, Door.FILES):
        yield findings("NOT_CHECKED", file=note.path, found=f"{note.text} ({note.setting})")


def irregular_findings(store: Location) -> Iterator[pa.RecordBatch]:
    """What is not a file although a broker opens it as one."""
    for path, kind in irregular_files(store):
        yield findings("NOT_A_FILE", file=path, expected="a file", found=kind)


def queue_folder_findings(store: Location, file_size: int, *, has_lock: bool = False) -> Iterator[pa.RecordBatch]:
    """What the names and sizes in queue folders show, also in those without queue files.

    Args:
        file_size: Bytes of a queue file; 0 if nothing shows it.
        has_lock: Whether this job has the store's lock, so that no broker runs.

    Yields:
        Findings.
    """
    for queue in queue_folders(store / CONSUME_QUEUE, with_empty=True):
        path = queue.location.path.removeprefix(f"{store.path}/")
        entries = queue.location.entries()
        yield from foreign_entries(path, [info for info in entries if not _is_queue_file(info)])
        empty = [info for info in entries if _is_queue_file(info) and not info.size]
        for info in empty if has_lock else settled(store, path, empty):
            if not info.size:
                yield findings(
                    "QUEUE_FILE_SIZE",
                    file=f"{path}/{info.base_name}",
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    expected=f"{file_size} bytes",
                    found="0 bytes",
                )
        for info in [info for info in queue.files if info.size and file_size]:
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
