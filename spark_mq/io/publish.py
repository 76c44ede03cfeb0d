"""Writing files whole: under its final name there is a whole file or none.

Local: written under a temporary name, flushed to the disk, renamed, and the folder flushed. Elsewhere (object stores,
HDFS) "rename" is a copy or fails on an existing file, and a stream that is dropped half-way may still create the
object; there the content is assembled first, written once, and its length checked.
"""

from __future__ import annotations

import os
import uuid

from spark_mq.errors import SparkMqError
from spark_mq.io.location import Location

_LATEST_FILE_TIME = (1 << 32) * 1000
"""Milliseconds; about the year 2106. A store time may be anything, a file's time may not."""


def publish(location: Location, content: bytes | memoryview, size: int, modified_millis: int | None = None) -> None:
    """Write a file of `size` bytes, whole or not at all: `content`, and zeros behind it (a hole, where there can be).

    Folders are made; a file that is there is replaced. `modified_millis`, where the filesystem is local, becomes the
    file's modification time. Raises `SparkMqError` where a filesystem holds another length afterwards.
    """
    if location.is_local:
        _publish_local(location.path, content, size, modified_millis)
        return
    filesystem = location.filesystem
    folder = location.path.rpartition("/")[0]
    if folder:
        filesystem.create_dir(folder, recursive=True)
    if location.is_file:
        filesystem.delete_file(location.path)
    whole = bytes(content).ljust(size, b"\0")
    with filesystem.open_output_stream(location.path) as stream:
        stream.write(whole)
    held = location.info().size
    if held != size:
        raise SparkMqError(f"{location}: wrote {size} bytes, the filesystem holds {held}; write it again")


def _publish_local(path: str, content: bytes | memoryview, size: int, modified_millis: int | None) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.truncate(size)
            file.flush()
            if modified_millis is not None:
                modified = min(max(modified_millis, 0), _LATEST_FILE_TIME) * 1_000_000
                os.utime(file.fileno(), ns=(modified, modified))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def sync_folder(path: str) -> None:
    """Flush a local folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
