"""Writing files whole: a file under its final name is complete, or it does not exist.

On a local filesystem the file is written under a temporary name, flushed to the disk and renamed; then its folder is
flushed. Elsewhere (object stores, HDFS) a rename is a copy or fails if the file exists, and a stream that is dropped
half-way may still create the object. There the content is assembled first and written once, and the length is checked.
"""

from __future__ import annotations

import os
import uuid

from spark_mq.errors import SparkMqError
from spark_mq.io.location import Location

_LATEST_FILE_TIME = (1 << 32) * 1000
"""Milliseconds; about the year 2106. A store time may be any number, a file's modification time may not."""


def publish(location: Location, content: bytes | memoryview, size: int, modified_millis: int | None = None) -> None:
    """Write a file of `size` bytes, whole or not at all: `content`, followed by zeros.

    Missing folders are created. A file that exists is replaced.

    Args:
        location: The file to write.
        content: The first bytes of the file, at most `size`.
        size: The length of the file in bytes. On a local filesystem the zeros after `content` can be a hole.
        modified_millis: The file's modification time in milliseconds since the epoch, limited to the years 1970 to
            2106. None keeps the time of writing. Only local filesystems can set a time.

    Raises:
        SparkMqError: The filesystem reports another length after the write.
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
    stored = location.info().size
    if stored != size:
        raise SparkMqError(f"{location}: wrote {size} bytes, but the filesystem has {stored}; write the file again")


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
    """Flush the entries of the local folder `path` to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
