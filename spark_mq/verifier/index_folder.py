"""The files of `index/`: names, sizes and order, and the layout that they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, SparkMqError
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, HEADER, HEADER_SIZE, IndexHeader, IndexLayout
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout, layout_of_full_file
from spark_mq.verifier.finding import findings


@dataclass(frozen=True)
class IndexFolder:
    """The index files that can be checked, in the order of their entries, and what is wrong with the others.

    Attributes:
        layout: The numbers of slots and entries; None if no file shows them.
        files: The files whose size is that of the layout, in the order of their entries.
        findings: What names, sizes and order show.
    """

    layout: IndexLayout | None
    files: tuple[IndexFileInfo, ...]
    findings: tuple[pa.RecordBatch, ...]
    file_count: int


def list_index(store: Location, conf: BrokerConf) -> IndexFolder:
    """The index files of a store."""
    infos = index_files(store)
    batches = list(_folders(store))
    layout = _layout(store, infos, conf)
    if layout is None:
        found = f"{len(infos)} files; give --broker-conf with maxHashSlotNum and maxIndexNum"
        return IndexFolder(None, (), (*batches, findings("NOT_CHECKED", file=INDEX, found=found)), len(infos))
    wrong = [info for info in infos if info.size != layout.file_size]
    kept = [info for info in infos if info.size == layout.file_size]
    batches += [
        findings(
            "INDEX_FILE_SIZE",
            file=f"{INDEX}/{info.name}",
            expected=f"{layout.file_size} bytes",
            found=f"{info.size} bytes",
        )
        for info in wrong
    ]
    ordered = _ordered(kept, layout)
    batches += _order_findings(kept, ordered)
    return IndexFolder(layout, tuple(ordered), tuple(batches), len(infos))


def _folders(store: Location) -> Iterator[pa.RecordBatch]:
    """Folders with the name of an index file, which a broker cannot open (`IndexService.load`@5.3.3)."""
    for info in (store / INDEX).entries():
        if info.type == fs.FileType.Directory and info.base_name.isascii() and info.base_name.isdigit():
            path = f"{INDEX}/{info.base_name}"
            yield findings("FOLDER_SUBFOLDER", file=path, expected="an index file", found="a folder")


def _layout(store: Location, infos: Sequence[IndexFileInfo], conf: BrokerConf) -> IndexLayout | None:
    """The layout, by the settings, by all files, or by most of them if a file is damaged."""
    if conf.index_layout is not None or not infos:
        return conf.index_layout or IndexLayout()
    try:
        return index_layout(store, conf)
    except OptionError:
        pass
    if Counter(info.size for info in infos).most_common(1)[0][0] == IndexLayout().file_size:
        return IndexLayout()
    votes = Counter(layout for info in infos if (layout := _full_layout(info)) is not None)
    return votes.most_common(1)[0][0] if votes else None


def _full_layout(info: IndexFileInfo) -> IndexLayout | None:
    """The layout of a file if it is full; None if it is not, or if it cannot be read."""
    try:
        return layout_of_full_file(info)
    except (SparkMqError, OSError, ValueError):
        return None


def _ordered(infos: Sequence[IndexFileInfo], layout: IndexLayout) -> list[IndexFileInfo]:
    """The files in the order of their entries. A file whose header contradicts its first entry stays in its place."""
    begins: list[int] = []
    for info in infos:
        begin = _begin(info, layout)
        begins.append(begin if begin is not None else (begins[-1] if begins else 0))
    return [info for _, info in sorted(zip(begins, infos, strict=True), key=lambda pair: pair[0])]


def _begin(info: IndexFileInfo, layout: IndexLayout) -> int | None:
    """The commit log offset of a file's first entry, if the header has it, too."""
    with FileReader(info.location) as reader:
        data = reader.read(0, HEADER_SIZE)
        header = IndexHeader(*HEADER.unpack(data))
        if header.next_entry == 1:
            return None
        first = ENTRY.unpack(reader.read(layout.entries_at + ENTRY_SIZE, ENTRY_SIZE))
    return int(first[1]) if first[1] == header.begin_commit_log_offset else None


def _order_findings(by_name: Sequence[IndexFileInfo], ordered: Sequence[IndexFileInfo]) -> Iterator[pa.RecordBatch]:
    for named, is_there in zip(by_name, ordered, strict=True):
        if named.name != is_there.name:
            yield findings(
                "INDEX_ORDER",
                file=f"{INDEX}/{named.name}",
                expected=f"the entries of {is_there.name}",
                found="entries of another part of the log",
            )
