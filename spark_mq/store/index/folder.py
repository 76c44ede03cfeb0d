"""The index files that a store has: `index/<17 digits>`, by name, which is their order (`IndexService.load`@5.3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow import fs

from spark_mq.errors import OptionError
from spark_mq.format.index_file import HEADER_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import INDEX


@dataclass(frozen=True)
class IndexFileInfo:
    """One file; `size` in bytes."""

    name: str
    location: Location
    size: int

    def header(self, layout: IndexLayout) -> IndexHeader:
        """The file's header. Raises `CorruptIndexError` if it is cut, or counts more than `layout` has room for."""
        with FileReader(self.location) as file:
            return decode_header(file.read(0, HEADER_SIZE), layout, str(self.location))


def index_files(store: Location) -> list[IndexFileInfo]:
    """The files of `index/`, by name; a file whose name is not a number is skipped, as in the broker."""
    folder = store / INDEX
    return [
        IndexFileInfo(info.base_name, folder / info.base_name, info.size)
        for info in folder.entries()
        if info.type == fs.FileType.File and info.base_name.isascii() and info.base_name.isdigit()
    ]


def index_layout(store: Location, conf: BrokerConf) -> IndexLayout:
    """The numbers of slots and entries of the store's index files, from the broker's settings or the files' size.

    A size alone (4 bytes per slot and 20 per entry) shows only that a file has the broker's default numbers. Without
    files the result is the default, too.

    Raises:
        OptionError: The settings are not given, and a file has another size.

    """
    if conf.index_layout is not None:
        return conf.index_layout
    sizes = {file.size: file for file in index_files(store)}
    for size, file in sizes.items():
        if IndexLayout.of_file_size(size, [IndexLayout()]) is None:
            raise OptionError(
                f"{file.location} has {size} bytes, which does not show how many slots and entries it has: give the "
                "broker's settings (--broker-conf, option brokerConf) with maxHashSlotNum and maxIndexNum"
            )
    return IndexLayout()
