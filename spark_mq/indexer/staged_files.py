"""The files that a round of dispatch staged: which they are, and whether they are still there as they were.

A round has a folder of Parquet files, and files of index entries (`entries_file`) in a folder that all rounds share.
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
"""Footers are read side by side: elsewhere than on a local disk each takes a while."""


@dataclass(frozen=True)
class StagedFile:
    """One staged file: its path in the job's folder, its size in bytes, and its rows or index entries."""

    path: str
    size: int
    rows: int


def parquet_files(folder: Location, round_name: str) -> list[StagedFile]:
    """The Parquet files of a round, by name.

    Args:
        folder: The job's folder.
        round_name: The round's folder in it.

    Raises:
        OSError, pyarrow.ArrowInvalid: A file cannot be read as Parquet.

    """
    found = sorted(_sizes(folder / round_name).items())
    with ThreadPoolExecutor(_READERS) as readers:
        rows = readers.map(partial(_row_count, folder / round_name), (name for name, _ in found))
        return [
            StagedFile(f"{round_name}/{name}", size, count) for (name, size), count in zip(found, rows, strict=True)
        ]


def entry_files(rows: Iterable[SplitRow]) -> list[StagedFile]:
    """The files of index entries that these splits staged; a split without an entry has none."""
    return [
        StagedFile(f"{INDEX_ENTRIES}/{row.entries_file}", row.index_entries * STAGED_ENTRY_SIZE, row.index_entries)
        for row in rows
        if row.index_entries
    ]


def are_there(folder: Location, round_name: str, files: Sequence[StagedFile]) -> bool:
    """Whether `files` are what a round staged: no Parquet file more or less, each with its size and its rows.

    Args:
        folder: The job's folder.
        round_name: The round's folder in it.
        files: What the manifest names for the round.

    """
    if not (folder / round_name).is_directory:
        return False
    entries = _sizes(folder / INDEX_ENTRIES)
    parquet = []
    for file in files:
        place, _, name = file.path.rpartition("/")
        if place == round_name:
            parquet.append(file)
        elif place != INDEX_ENTRIES or entries.get(name) != file.size or file.size != file.rows * STAGED_ENTRY_SIZE:
            return False
    sizes = {f"{round_name}/{name}": size for name, size in _sizes(folder / round_name).items()}
    if sizes != {file.path: file.size for file in parquet}:
        return False
    try:
        return parquet_files(folder, round_name) == sorted(parquet, key=lambda file: file.path)
    except (OSError, pa.ArrowException):
        return False


def _sizes(folder: Location) -> dict[str, int]:
    """The size of each file in a folder that Spark reads: names that begin with `_` or `.` are its own notes."""
    return {
        info.base_name: info.size
        for info in folder.entries()
        if info.type == fs.FileType.File and not info.base_name.startswith(("_", "."))
    }


def _row_count(folder: Location, name: str) -> int:
    with folder.filesystem.open_input_file((folder / name).path) as file:
        count: int = pq.ParquetFile(file).metadata.num_rows
        return count
