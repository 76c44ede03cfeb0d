"""The files of `index/`: names, sizes and order, and the layout that they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, SparkMqError
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, IndexLayout
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout, layout_of_full_file
from spark_mq.verifier.finding import findings
from spark_mq.verifier.folders import settled


@dataclass(frozen=True)
class IndexFolder:
    """The index files that can be checked, in the order of their entries, and what is wrong with the others.

    The layout is None if no file shows it.
    """

    layout: IndexLayout | None
    files: tuple[IndexFileInfo, ...]
    findings: tuple[pa.RecordBatch, ...]
    file_count: int


def list_index(store: Location, conf: BrokerConf) -> IndexFolder:
    """The index files of a store."""
    infos = index_files(store)
    if not all(info.size for info in infos):
        settled(store, INDEX, (store / INDEX).entries())
        infos = index_files(store)
    # A broker cannot open a folder with the name of an index file (`IndexService.load`@5.3.3).
    batches = [
        findings("FOLDER_SUBFOLDER", f"{INDEX}/{info.base_name}", "an index file", "a folder")
        for info in (store / INDEX).entries()
        if info.type == fs.FileType.Directory and info.base_name.isascii() and info.base_name.isdigit()
    ]
    layout = _layout(store, infos, conf)
    if layout is None:
        found = f"{len(infos)} files; give --broker-conf with maxHashSlotNum and maxIndexNum"
        return IndexFolder(None, (), (*batches, findings("NOT_CHECKED", INDEX, found=found)), len(infos))
    batches += [
        findings("INDEX_FILE_SIZE", f"{INDEX}/{info.name}", f"{layout.file_size} bytes", f"{info.size} bytes")
        for info in infos
        if info.size != layout.file_size
    ]
    by_name = [info for info in infos if info.size == layout.file_size]
    ordered = _ordered(by_name, layout)
    batches += [
        findings(
            "INDEX_ORDER",
            f"{INDEX}/{named.name}",
            f"the entries of {is_there.name}",
            "entries of another part of the log",
        )
        for named, is_there in zip(by_name, ordered, strict=True)
        if named.name != is_there.name
    ]
    return IndexFolder(layout, tuple(ordered), tuple(batches), len(infos))


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
    votes: Counter[IndexLayout | None] = Counter()
    for info in infos:
        with suppress(SparkMqError, OSError, ValueError):  # a file that cannot be read says nothing
            votes[layout_of_full_file(info)] += 1
    del votes[None]
    return votes.most_common(1)[0][0] if votes else None


def _ordered(infos: Sequence[IndexFileInfo], layout: IndexLayout) -> list[IndexFileInfo]:
    """The files in the order of their entries. One whose header contradicts its first entry keeps its neighbour."""
    begins: dict[str, int] = {}
    begin = 0
    for info in infos:
        header = info.stored_header()
        with FileReader(info.location) as reader:
            first = ENTRY.unpack(reader.read(layout.entries_at + ENTRY_SIZE, ENTRY_SIZE))
        if header.next_entry != 1 and first[1] == header.begin_commit_log_offset:
            begin = int(first[1])
        begins[info.name] = begin
    return sorted(infos, key=lambda info: begins[info.name])
