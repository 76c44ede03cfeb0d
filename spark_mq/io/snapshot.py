"""The files of a folder over a network, as they were when they were first asked for.

Each question about a file of an object store is a request, and so is opening a file. A listing of a whole tree is one
request for 1000 files. So a reader that shows a store as it was when it was opened asks for the first 1000 files, which
are all files of most stores. Of a larger store it asks once for the store's own folder, and once for each folder in it
of which it needs a file and that the first 1000 files do not contain. Its files stay open, with the blocks that were
read last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from spark_mq.io.remote_file import RemoteFile
from spark_mq.io.retry import repeated
from spark_mq.io.s3_objects import S3Objects

if TYPE_CHECKING:
    from spark_mq.io.location import Location

_OPEN_FILES: Final = 64


class Snapshot:
    """What is in and below the folder `root`. A copy in another process asks again."""

    def __init__(self, root: Location) -> None:
        self._root = root
        self._trees: dict[str, dict[str, list[fs.FileInfo]]] = {}
        self._page: _Page | None = None
        self._has_page = False
        self._files: OrderedDict[tuple[str, int | None], RemoteFile] = OrderedDict()
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
        top = self._top(folder)
        if top is None:
            return None
        with self._lock:
            if top not in self._trees:
                self._trees[top] = self._tree(top)
            return self._trees[top].get(folder, [])

    def listed_size(self, path: str) -> int | None:
        """The size of a file in a folder that was listed already; None for any other file."""
        folder, _, name = path.rpartition("/")
        top = self._top(folder)
        with self._lock:
            entries = [] if top is None else self._trees.get(top, {}).get(folder, [])
        found = (info.size for info in entries if info.base_name == name and info.type == fs.FileType.File)
        return next(found, None)

    def listed_etag(self, path: str) -> str | None:
        """The ETag of a file in the first page of the listing; None for any other file."""
        with self._lock:
            return None if self._page is None else self._page.etags.get(path)

    def file(self, location: Location, size: int | None = None) -> RemoteFile:
        """The file at the location, which stays open until 64 other files were opened.

        Args:
            location: A file below the root.
            size: The bytes of the file that are used, if they are known.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: It cannot be opened.

        """
        key = location.path, size if self.listed_size(location.path) is None else None
        with self._lock:
            file = self._files.get(key)
        if file is None:
            file = RemoteFile(location, size)  # without the lock: several files are opened at the same time
        with self._lock:
            file = self._files.setdefault(key, file)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)
            self._files.move_to_end(key)
            return file

    def _top(self, folder: str) -> str | None:
        """The folder of the root in which a folder is, empty for the root itself; None for one outside the root."""
        root = self._root.path
        if folder != root and not folder.startswith(f"{root}/"):
            return None
        return folder.removeprefix(root).strip("/").partition("/")[0]

    def _tree(self, top: str) -> dict[str, list[fs.FileInfo]]:
        """The entries of the folder `top` of the root and of the folders below it; of the root itself for no name."""
        root = self._root.path
        if not self._has_page:
            self._page, self._has_page = _first_page(self._root), True
        if self._page is not None and self._page.has(top):
            return self._page.folders
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
        return _by_folder(repeated(str(self._root), lambda: self._root.filesystem.get_file_info(selector)))


@dataclass(frozen=True)
class _Page:
    """The first files of a tree by the order of their paths, their ETags, and the folders that they are in.

    `end` is the path of the last file, relative to the root; None if the page has all files.
    """

    folders: dict[str, list[fs.FileInfo]]
    etags: dict[str, str]
    end: str | None

    def has(self, top: str) -> bool:
        """Whether the page has all files below the folder `top` of the root, or of the root itself for no name."""
        # No path of a file below `top` is after `top0`: 0 is the character after the slash.
        return self.end is None or (top != "" and f"{top}0" <= self.end)


def _first_page(root: Location) -> _Page | None:
    """The first page of the listing of a tree; None if pyarrow must list it."""
    objects = S3Objects.of(root.uri)
    page = None if objects is None else repeated(str(root), lambda: objects.page(root.path))
    if page is None:
        return None
    paths = [info.path.removeprefix(f"{root.path}/") for info in page.files]
    if not page.is_whole and (not paths or paths != sorted(paths)):
        return None  # not every service lists files in the order of their paths
    folders = {f"{root.path}/{path[:at]}" for path in paths for at in range(len(path)) if path[at] == "/"}
    infos = [fs.FileInfo(folder, fs.FileType.Directory) for folder in folders]
    return _Page(_by_folder([*page.files, *infos]), page.etags, None if page.is_whole else paths[-1])


def _by_folder(infos: Sequence[fs.FileInfo]) -> dict[str, list[fs.FileInfo]]:
    """Files and folders by the folder in which they are, in the order of their names."""
    folders: dict[str, list[fs.FileInfo]] = {}
    for info in sorted(infos, key=lambda info: info.base_name):
        folders.setdefault(info.path.rpartition("/")[0], []).append(info)
    return folders
