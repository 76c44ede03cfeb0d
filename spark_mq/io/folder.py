"""Whole folders: the files in one, its bucket, and its removal."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial

from pyarrow import fs

from spark_mq.errors import StorageError
from spark_mq.io.location import Location
from spark_mq.io.retry import repeated
from spark_mq.io.s3 import is_s3


def files_below(folder: Location) -> dict[str, int]:
    """The sizes of all files in the folder and the folders in it, by their paths in the folder.

    There are none if the folder does not exist.
    """
    selector = fs.FileSelector(folder.path, recursive=True, allow_not_found=True)
    infos = repeated(str(folder), lambda: folder.filesystem.get_file_info(selector))
    # Some servers also list a folder as a file of the same name.
    folders = {info.path for info in infos if info.type == fs.FileType.Directory}
    files = [info for info in infos if info.type == fs.FileType.File and info.path not in folders]
    return {info.path.removeprefix(f"{folder.path}/"): info.size for info in files}


def check_bucket(folder: Location) -> None:
    """Check that the bucket of a folder on S3 exists, as far as the user has the right to ask; others have none.

    Raises:
        StorageError: There is no such bucket.

    """
    if not is_s3(folder.uri):
        return
    try:
        found = folder.filesystem.get_file_info(folder.path.partition("/")[0])
    except OSError:
        return
    if found.type == fs.FileType.NotFound:
        raise StorageError(f"{folder}: its bucket does not exist; create the bucket, or check its name")


def remove_folder(folder: Location) -> None:
    """Remove a folder and everything in it; if it is a symbolic link, only the link.

    Another process can remove files of the folder at the same time.

    Raises:
        OSError: A local folder does not exist, or it cannot be removed.
        StorageError: A folder over a network cannot be removed; it need not exist.

    """
    if not folder.is_local:
        with suppress(FileNotFoundError):
            repeated(str(folder), lambda: folder.filesystem.delete_dir(folder.path), "removed")
    elif os.path.islink(folder.path):
        os.unlink(folder.path)
    else:
        shutil.rmtree(folder.path, onerror=partial(_raise_unless_gone, folder.path))


def _raise_unless_gone(folder: str, _function: object, path: str, error: tuple[type, BaseException, object]) -> None:
    """Raise the error of a removal, except if another process has removed this file of the folder."""
    if path == folder or not isinstance(error[1], FileNotFoundError):
        raise error[1]


def discard_folder(folder: Location) -> None:
    """Remove a folder as far as that is possible; it need not exist."""
    if folder.is_local:
        shutil.rmtree(folder.path, ignore_errors=True)
        return
    with suppress(OSError, StorageError):
        remove_folder(folder)
