"""The folders `commitlog/`, `consumequeue/` and `index/`: names, sizes and order. The bytes are checked elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import CorruptIndexError, OptionError, SparkMqError
from spark_mq.format.index_file import ENTRY, ENTRY_SIZE, IndexLayout
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.boot_obstacles import irregular_files
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import Door, check_form, log_folders
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX, mapped_files
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout, layout_of_full_file, newest_layout
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import usual_size
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.finding import findings

_SECONDS, _LOOK_SECONDS = 1.0, 0.01


def form_findings(store: Location) -> Iterator[pa.RecordBatch]:
    """What is of a form that is not checked, and what is not a file although a broker opens it as one."""
    for note in check_form(store, Door.CHECK):
        yield findings("NOT_CHECKED", note.path, found=f"{note.text} ({note.setting})")
    for path, kind in irregular_files(store):
        yield findings("NOT_A_FILE", path, "a file", kind)


def segment_findings(
    store: Location, log: CommitLog, segment_size: int | None = None, *, has_lock: bool = False
) -> Iterator[pa.RecordBatch]:
    """What the names and sizes of the files of the log show."""
    stray = {corrupt.file.removeprefix(f"{store}/"): corrupt for corrupt in log.stray}
    for path, corrupt in stray.items():
        yield findings(
            "SEGMENT_STRAY",
            path,
            "a record with the offset that the name says",
            corrupt.reason,
            commit_log_offset=corrupt.commit_log_offset,
        )
    for folder in log_folders(store):
        infos, foreign = _mapped_files(store, folder)
        yield from foreign
        infos = [info for info in infos if f"{folder}/{info.base_name}" not in stray]
        infos = infos if has_lock else settled(store, folder, infos)
        size = segment_size or usual_size(infos)
        for info in infos:
            if info.size != size or not info.size:
                yield findings(
                    "SEGMENT_SIZE" if info.size else "SEGMENT_EMPTY",
                    f"{folder}/{info.base_name}",
                    f"{size} bytes",
                    f"{info.size} bytes",
                    commit_log_offset=int(info.base_name),
                )
    for gap in log.gaps:
        yield findings(
            "SEGMENT_GAP",
            gap.file.removeprefix(f"{store}/"),
            f"{gap.length} bytes of the log",
            "no segment",
            commit_log_offset=gap.commit_log_offset,
        )


def queue_folder_findings(store: Location, file_size: int, *, has_lock: bool = False) -> Iterator[pa.RecordBatch]:
    """What the names and sizes in queue folders show, also in those without queue files; without a size it is 0."""
    for folder in queue_folders(store / CONSUME_QUEUE, with_empty=True):
        path = folder.location.path.removeprefix(f"{store.path}/")
        queue = folder.topic, folder.queue_id
        infos, foreign = _mapped_files(store, path)
        yield from foreign
        empty = [info for info in infos if not info.size]
        if not has_lock:
            empty = [info for info in settled(store, path, empty) if not info.size]
        for info in [*empty, *(info for info in folder.files if info.size and file_size)]:
            file = f"{path}/{info.base_name}"
            if info.size != file_size or not info.size:
                yield findings("QUEUE_FILE_SIZE", file, f"{file_size} bytes", f"{info.size} bytes", queue=queue)
            if info.size and int(info.base_name) % file_size:
                yield findings("QUEUE_FILE_NAME", file, f"a multiple of {file_size}", info.base_name, queue=queue)


def _mapped_files(store: Location, folder: str) -> tuple[list[fs.FileInfo], list[pa.RecordBatch]]:
    """The files of a folder whose names are 20 digits, and findings about files and folders that no broker made.

    A folder whose name begins with a dot is skipped: this package's own work folder, or one of the filesystem.
    """
    entries = (store / folder).entries()
    files, foreign = mapped_files(entries), []
    names = {info.base_name for info in files}
    for info in (info for info in entries if info.base_name not in names):
        path = f"{folder}/{info.base_name}"
        if info.type == fs.FileType.File:
            found = f"a file of {info.size} bytes"
            foreign.append(findings("FOLDER_STRAY_FILE", path, "only files whose names are 20 digits", found))
        elif info.type == fs.FileType.Directory and not info.base_name.startswith("."):
            foreign.append(findings("FOLDER_SUBFOLDER", path, "only files whose names are 20 digits", "a folder"))
    return files, foreign


def settled(store: Location, folder: str, infos: Sequence[fs.FileInfo]) -> list[fs.FileInfo]:
    """The files of a folder, with the sizes that a running broker gives to new ones.

    A broker creates a file without bytes, and sets its size next (`DefaultMappedFile.init`@5.3.3, `MappedFile.init`
    @4.9.7). So a file without bytes is looked at again for a second while a broker runs.
    """
    deadline = time.monotonic() + _SECONDS
    found = list(infos)
    for index, info in enumerate(infos):
        while not found[index].size and time.monotonic() < deadline and is_locked(store):
            time.sleep(_LOOK_SECONDS)
            found[index] = (store / folder / info.base_name).info()
    return [info for info in found if info.type == fs.FileType.File]


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
    by_name = []
    for info in infos:
        try:
            info.check_size(layout)
        except CorruptIndexError:
            sizes = f"{layout.file_size} bytes", f"{info.size} bytes"
            batches.append(findings("INDEX_FILE_SIZE", f"{INDEX}/{info.name}", *sizes))
        else:
            by_name.append(info)
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
    """The layout, by the settings, by all files, by the newest ones, or by most of them if a file is damaged."""
    if conf.index_layout is not None or not infos:
        return conf.index_layout or IndexLayout()
    try:
        return index_layout(store, conf)
    except OptionError:
        pass
    if Counter(info.size for info in infos).most_common(1)[0][0] == IndexLayout().file_size:
        return IndexLayout()
    with suppress(SparkMqError, OSError):
        if (newest := newest_layout(infos)) is not None:
            return newest
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
