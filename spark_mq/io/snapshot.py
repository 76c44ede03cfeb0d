"""The files of a folder over a network, as they were when they were first asked for.

Each question about a file of an object store is a request, and so is opening a file. A listing of a whole tree is one
request for 1000 files. So a reader that shows a store as it was when it was opened asks once for the store's own
folder, and once for each folder in it of which it needs a file. Its files stay open, with the blocks that were read
last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from spark_mq.io.remote_file import RemoteFile
from spark_mq.io.retry import repeated

if TYPE_CHECKING:
    from spark_mq.io.location import Location

_OPEN_FILES: Final = 64


class Snapshot:
    """What is in and below the folder `root`. A copy in another process asks again."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self._trees: dict[str, dict[str, list[fs.FileInfo]]] = {}
        self._files: OrderedDict[str, RemoteFile] = OrderedDict()
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Callable[[Location], Snapshot], tuple[Location]]:
        return Snapshot, (self._root,)

    def info(self, path: str) -> fs.FileInfo | None:
        """Type, size and time of a file or folder; None if only the filesystem can tell."""
        root = self._root.path
        if path == root:
            return fs.FileInfo(root, fs.FileType.Directory) if self.entries(root) else None
        folder, _, name = path.rpartition("/")
        entries = self.entries(folder)
        if entries is None:
            return None
        found = (info for info in entries if info.base_name == name)
        return next(found, None) or fs.FileInfo(path, fs.FileType.NotFound)

    def entries(self, folder: str) -> list[fs.FileInfo] | None:
        """The entries of a folder, by name; empty if there is no such folder, None for a folder outside the root."""
        root = self._root.path
        if folder != root and not folder.startswith(f"{root}/"):
            return None
        top = folder.removeprefix(root).strip("/").partition("/")[0]
        with self._lock:
            if top not in self._trees:
                self._trees[top] = self._tree(top)
            return self._trees[top].get(folder, [])

    def file(self, location: Location) -> RemoteFile:
        """The file at the location, which stays open until 64 other files were opened.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: It cannot be opened.

        """
        with self._lock:
            file = self._files.get(location.path)
        if file is None:
            file = RemoteFile(location)  # without the lock: several files are opened at the same time
        with self._lock:
            file = self._files.setdefault(location.path, file)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)
            self._files.move_to_end(location.path)
            return file

    def _tree(self, top: str) -> dict[str, list[fs.FileInfo]]:
        """The entries of the folder `top` of the root and of the folders below it; of the root itself for no name."""
        root = self._root.path
        if not top:
            return self._list(root, recursive=False)
        if "" not in self._trees:
            self._trees[""] = self._tree("")
        is_folder = any(
            info.base_name == top and info.type == fs.FileType.Directory for info in self._trees[""].get(root, [])
        )
        return self._list(f"{root}/{top}", recursive=True) if is_folder else {}

    def _list(self, path: str, recursive: bool) -> dict[str, list[fs.FileInfo]]:
        selector = fs.FileSelector(path, recursive=recursive, allow_not_found=True)
        found = repeated(str(self._root), lambda: self._root.filesystem.get_file_info(selector))
        folders: dict[str, list[fs.FileInfo]] = {}
        for info in sorted(found, key=lambda info: info.base_name):
            folders.setdefault(info.path.rpartition("/")[0], []).append(info)
        return folders
