"""The index files that a store has: `index/<17 digits>`, by name, which is their order (`IndexService.load`@5.3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyarrow import fs

from spark_mq.format.index_file import HEADER_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.store.file_reader import FileReader
from spark_mq.store.filesystem import Location

INDEX = "index"


@dataclass(frozen=True)
class IndexFileInfo:
    """One file; `size` in bytes."""

    name: str
    location: Location
    size: int

    def header(self, layout: IndexLayout) -> IndexHeader:
        """Its first 40 bytes. Raises `CorruptIndexError` where there are fewer, or they count too much."""
        file = FileReader(self.location)
        try:
            return decode_header(file.read(0, HEADER_SIZE), layout, str(self.location))
        finally:
            file.close()


def index_files(store: Location) -> list[IndexFileInfo]:
    """The files of `index/`; a file whose name is no number is passed over, as in the broker."""
    folder = store / INDEX
    return [
        IndexFileInfo(info.base_name, folder / info.base_name, info.size)
        for info in folder.entries()
        if info.type == fs.FileType.File and info.base_name.isascii() and info.base_name.isdigit()
    ]


def layout_of(files: Iterable[IndexFileInfo]) -> IndexLayout | None:
    """The layout of existing files where their size tells: the broker's default. None for others, and without files."""
    sizes = {file.size for file in files}
    return IndexLayout.of_file_size(sizes.pop(), [IndexLayout()]) if len(sizes) == 1 else None
