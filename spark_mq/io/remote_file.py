"""Files over a network: few and large reads, a snapshot of what was listed, and bytes that are kept for a while.

A request for 20 bytes takes as long as one for 256 KiB. So a read gets the block around it, and a small file whole.
Reads that follow one another get more with each request, up to 2 MiB. A database says that its blocks are smaller.

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
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyarrow import fs

from spark_mq.errors import StoreChangedError
from spark_mq.io.s3 import shown

if TYPE_CHECKING:
    from spark_mq.io.storage import NetworkStorage, Page

_OPEN_FILES: Final = 64
READ_SIZE: Final = 8 << 20
"""The number of bytes of a request for a part of a long range."""

_SMALL_FILE: Final = 4
"""The number of blocks of a file that is read whole."""
_MOST_BLOCKS: Final = 8
KEPT_BLOCKS: Final = 16
REQUESTS_TOGETHER: Final = 8


class Snapshot:
    """What is in and below the folder `root`. A copy in another process asks again."""

    def __init__(self, storage: NetworkStorage, root: str) -> None:
        self._storage, self._root = storage, root
        self._trees: dict[str, dict[str, list[fs.FileInfo]]] = {}
        self._files: OrderedDict[tuple[str, int | None], RemoteFile] = OrderedDict()
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Callable[[NetworkStorage, str], Snapshot], tuple[NetworkStorage, str]]:
        return Snapshot, (self._storage, self._root)

    def info(self, path: str) -> fs.FileInfo | None:
        """Type, size and time of a file or folder; None if only the filesystem can tell."""
        root = self._root
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

    def tells_only_zeros(self, path: str, size: int) -> bool:
        """Whether the first page of the listing tells that a file has this size, and certainly only zeros."""
        if self.listed_size(path) != size:
            return False
        with self._lock:
            page, _ = self._page
        return page is not None and page.tells_only_zeros(path, size)

    def file(self, path: str, size: int | None = None) -> RemoteFile:
        """The file at a path, open until 64 others were opened. Its size in a listing counts more than `size`."""
        listed = self.listed_size(path)
        key = path, size if listed is None else None
        with self._lock:
            file = self._files.get(key)
        if file is None:
            size = size if listed is None else listed
            file = RemoteFile(self._storage, path, size)  # without the lock: several files are opened at the same time
        with self._lock:
            file = self._files.setdefault(key, file)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)
            self._files.move_to_end(key)
            return file

    @cached_property
    def _page(self) -> tuple[Page | None, dict[str, list[fs.FileInfo]]]:
        """The first page of the listing, and its entries by folder."""
        page = self._storage.first_page(self._root)
        return page, {} if page is None else _by_folder(page.infos)

    def _top(self, folder: str) -> str | None:
        """The folder of the root in which a folder is, empty for the root itself; None for one outside the root."""
        root = self._root
        if folder != root and not folder.startswith(f"{root}/"):
            return None
        return folder.removeprefix(root).strip("/").partition("/")[0]

    def _tree(self, top: str) -> dict[str, list[fs.FileInfo]]:
        """The entries of the folder `top` of the root and of the folders below it; of the root itself for no name."""
        root = self._root
        page, folders = self._page
        if page is not None and self._is_on_page(page, top):
            return folders
        if not top:
            return _by_folder(self._storage.entries(root))
        if "" not in self._trees:
            self._trees[""] = self._tree("")
        is_folder = any(
            info.base_name == top and info.type == fs.FileType.Directory for info in self._trees[""].get(root, [])
        )
        return _by_folder(self._storage.entries(f"{root}/{top}", recursive=True)) if is_folder else {}

    def _is_on_page(self, page: Page, top: str) -> bool:
        """Whether the page has all files below the folder `top` of the root, or of the root itself for no name."""
        # No path of a file below `top` is after `top0`: 0 is the character after the slash.
        return page.end is None or (top != "" and f"{self._root}/{top}0" <= page.end)


def _by_folder(infos: Sequence[fs.FileInfo]) -> dict[str, list[fs.FileInfo]]:
    """Files and folders by the folder in which they are, in the order of their names."""
    folders: dict[str, list[fs.FileInfo]] = {}
    for info in sorted(infos, key=lambda info: info.base_name):
        folders.setdefault(info.path.rpartition("/")[0], []).append(info)
    return folders


class RemoteFile:
    """One open file. `size` is that when the file was listed or opened, if it is not given."""

    def __init__(self, storage: NetworkStorage, path: str, size: int | None = None) -> None:
        """Raise `FileNotFoundError` if the file does not exist, `StorageError` if it cannot be opened."""
        self._storage, self._path = storage, path
        self._file = storage.open(path, size)
        self.size, self._block = self._file.size, storage.block
        self._is_small = self.size <= _SMALL_FILE * self._block
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next = -1
        """The block after those that the last request got: a read of it goes on where that request ended."""
        self._count = 1
        self._lock = threading.Lock()

    def read(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on; fewer only if the file ends before. Blocks are kept."""
        stop = min(position + length, self.size)
        if position >= stop:
            return b""
        with self._lock:
            return self._read(position, stop)

    def _read(self, position: int, stop: int) -> bytes:
        first, last = position // self._block, (stop - 1) // self._block
        missing = [block for block in range(first, last + 1) if block not in self._blocks]
        if missing and last - first >= KEPT_BLOCKS:
            return self._request(position, stop - position)
        if missing:
            self._fetch(missing[0], missing[-1] + 1)
        parts = []
        for block in range(first, last + 1):
            self._blocks.move_to_end(block)
            parts.append(self._blocks[block])
        while len(self._blocks) > KEPT_BLOCKS:
            self._blocks.popitem(last=False)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        start = position - first * self._block
        return data[start : start + stop - position]

    def read_range(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on, by one request; fewer only if the file ends before.

        Only a small file is kept.
        """
        if self._is_small:
            return self.read(position, length)
        length = min(length, self.size - position)
        return self._request(position, length) if length > 0 else b""

    def _request(self, position: int, length: int) -> bytes:
        def request() -> bytes:
            data = self._file.read(position, length)
            if len(data) < length:
                raise OSError(f"only {len(data)} of {length} bytes at {position} arrived")
            return data

        try:
            return self._storage.asked(self._path, request)
        except FileNotFoundError:
            name = shown(self._storage.uri(self._path))
            raise StoreChangedError(f"{name} was removed while it was read; read the store again") from None

    def _fetch(self, start: int, stop: int) -> None:
        """Get the blocks from `start` to `stop` (not included), and more if reads follow one another."""
        block = self._block
        if self._is_small:
            start, stop = 0, -(-self.size // block)
        elif start == self._next:
            self._count = min(2 * self._count, _MOST_BLOCKS)
            stop = max(stop, min(start + self._count, -(-self.size // block)))
        else:
            self._count = stop - start
        data = memoryview(self._request(start * block, min((stop - start) * block, self.size - start * block)))
        for number in range(start, stop):
            at = (number - start) * block
            self._blocks[number] = bytes(data[at : at + block])
        self._next = stop
