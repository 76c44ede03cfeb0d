"""The files that a round of dispatch staged, and the check that they are unchanged.

A round has a folder of Parquet files, and files of index entries (`index/staged_entries`) in a folder that all rounds
share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_mq.indexer.index.staged_entries import STAGED_ENTRY_SIZE
from spark_mq.io.location import Location

if TYPE_CHECKING:
    from spark_mq.indexer.split_rows import SplitRow

INDEX_ENTRIES = "index-entries"
"""The folder of index entries, in the job's folder."""

_READERS = 8
"""The number of threads that read footers: on a remote filesystem each footer takes a while."""


@dataclass(frozen=True)
class StagedFile:
    """One staged file: its path in the job's folder, its size in bytes, and its rows or index entries."""

    path: str
    size: int
    rows: int


def parquet_files(folder: Location, round_name: str) -> list[StagedFile]:
    """The Parquet files of a round, in the order of their names.

    Args:
        folder: The job's folder.
        round_name: The round's folder in it.

    Raises:
        OSError, pyarrow.ArrowInvalid: A file cannot be read as Parquet.

    """
    sizes = sorted(_sizes(folder / round_name).items())
    with ThreadPoolExecutor(_READERS) as readers:
        rows = readers.map(partial(_row_count, folder / round_name), (name for name, _ in sizes))
        return [
            StagedFile(f"{round_name}/{name}", size, count) for (name, size), count in zip(sizes, rows, strict=True)
        ]


def entry_files(rows: Iterable[SplitRow]) -> list[StagedFile]:
    """The files of index entries that these splits staged; a split without an entry has no file."""
    return [
        StagedFile(f"{INDEX_ENTRIES}/{row.entries_file}", row.index_entries * STAGED_ENTRY_SIZE, row.index_entries)
        for row in rows
        if row.index_entries
    ]


def are_there(folder: Location, round_name: str, files: Sequence[StagedFile]) -> bool:
    """Whether the files of a round are exactly `files`: the same Parquet files, with the same sizes and rows.

    Args:
        folder: The job's folder.
        round_name: The round's folder in it.
        files: The files that the manifest names for the round.

    """
    if not (folder / round_name).is_directory:
        return False
    entries = _sizes(folder / INDEX_ENTRIES)
    parquet = []
    for file in files:
        parent, _, name = file.path.rpartition("/")
        if parent == round_name:
            parquet.append(file)
        elif parent != INDEX_ENTRIES or entries.get(name) != file.size or file.size != file.rows * STAGED_ENTRY_SIZE:
            return False
    sizes = {f"{round_name}/{name}": size for name, size in _sizes(folder / round_name).items()}
    if sizes != {file.path: file.size for file in parquet}:
        return False
    try:
        return parquet_files(folder, round_name) == sorted(parquet, key=lambda file: file.path)
    except (OSError, pa.ArrowException):
        return False


def _sizes(folder: Location) -> dict[str, int]:
    """The size of each data file in a folder; files of Spark's own have names that begin with `_` or `.`."""
    return {
        info.base_name: info.size
        for info in folder.entries()
        if info.type == fs.FileType.File and not info.base_name.startswith(("_", "."))
    }


def _row_count(folder: Location, name: str) -> int:
    with folder.filesystem.open_input_file((folder / name).path) as file:
        count: int = pq.ParquetFile(file).metadata.num_rows
        return count
