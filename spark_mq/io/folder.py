"""Whole folders: the files in one, and its removal."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.io.retry import repeated


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


def remove_folder(folder: Location) -> None:
    """Remove a folder and everything in it; if it is a symbolic link, only the link.

    Raises:
        OSError: The folder does not exist, or cannot be removed.

    """
    if not folder.is_local:
        folder.filesystem.delete_dir(folder.path)
    elif os.path.islink(folder.path):
        os.unlink(folder.path)
    else:
        shutil.rmtree(folder.path)


def discard_folder(folder: Location) -> None:
    """Remove a folder as far as that is possible; it need not exist."""
    if folder.is_local:
        shutil.rmtree(folder.path, ignore_errors=True)
        return
    with suppress(OSError):
        folder.filesystem.delete_dir(folder.path)
