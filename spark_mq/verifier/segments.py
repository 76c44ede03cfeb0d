"""The files of `commitlog/`: names and sizes. Their bytes are checked where the log is read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import is_segment_name, usual_size
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.finding import findings

_SECONDS, _LOOK_SECONDS = 1.0, 0.01


def settled(store: Location, folder: str, infos: list[fs.FileInfo]) -> list[fs.FileInfo]:
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


def segment_findings(
    store: Location, log: CommitLog, segment_size: int | None = None, *, has_lock: bool = False
) -> Iterator[pa.RecordBatch]:
    """What the names and sizes of the files in `commitlog/` show.

    Args:
        segment_size: Bytes of a segment by the broker's settings; None if they do not tell.
        has_lock: Whether this job has the store's lock, so that no broker runs.

    Yields:
        Findings.
    """
    entries = (store / COMMIT_LOG).entries()
    yield from foreign_entries(COMMIT_LOG, [info for info in entries if not is_segment_name(info)])
    stray = {corrupt.file.rpartition("/")[2]: corrupt for corrupt in log.stray}
    for name, corrupt in stray.items():
        yield findings(
            "SEGMENT_STRAY",
            file=f"{COMMIT_LOG}/{name}",
            commit_log_offset=corrupt.commit_log_offset,
            expected="a record with the offset that the name says",
            found=corrupt.reason,
        )
    infos = [info for info in entries if is_segment_name(info) and info.base_name not in stray]
    infos = infos if has_lock else settled(store, COMMIT_LOG, infos)
    size = segment_size or usual_size(infos)
    for info in infos:
        file, base = f"{COMMIT_LOG}/{info.base_name}", int(info.base_name)
        if not info.size:
            yield findings(
                "SEGMENT_EMPTY", file=file, commit_log_offset=base, expected=f"{size} bytes", found="0 bytes"
            )
        elif info.size != size:
            yield findings(
                "SEGMENT_SIZE",
                file=file,
                commit_log_offset=base,
                expected=f"{size} bytes",
                found=f"{info.size} bytes",
            )
    for gap in log.gaps:
        name = gap.file.rpartition("/")[2]
        yield findings(
            "SEGMENT_GAP",
            file=f"{COMMIT_LOG}/{name}",
            commit_log_offset=gap.commit_log_offset,
            expected=f"{gap.length} bytes of the log",
            found="no segment",
        )


def foreign_entries(folder: str, infos: list[fs.FileInfo]) -> Iterator[pa.RecordBatch]:
    """Files and folders in a folder of files that a broker maps, which it did not make.

    A name that begins with a dot is skipped: this package's own work folder, or a file of the filesystem.

    Args:
        infos: Its entries that are not such files.
    """
    for info in infos:
        is_folder = info.type == fs.FileType.Directory
        if is_folder and info.base_name.startswith("."):
            continue
        if not is_folder and info.type != fs.FileType.File:
            continue  # `irregular_findings`
        yield findings(
            "FOLDER_SUBFOLDER" if is_folder else "FOLDER_STRAY_FILE",
            file=f"{folder}/{info.base_name}",
            expected="only files whose names are 20 digits",
            found="a folder" if is_folder else f"a file of {info.size} bytes",
        )
