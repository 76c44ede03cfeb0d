"""The folder of staged files: units (`queue/staged_units`) and index entries (`index/staged_entries`) of splits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyarrow import fs

from spark_mq.indexer.staging.split_rows import SplitRow
from spark_mq.indexer.staging.staged_entries import STAGED_ENTRY_SIZE
from spark_mq.indexer.staging.staged_units import READERS, StagedUnits
from spark_mq.io.location import Location

STAGED = "staged"
"""The folder's name in the job's folder."""


def staged_names(splits: Iterable[SplitRow]) -> set[str]:
    """The names of all files that these splits staged."""
    units = {split.units_file for split in splits if split.units_file is not None}
    return units | set(_entry_sizes(splits))


def are_complete(folder: Location, splits: Sequence[SplitRow]) -> bool:
    """Whether every staged file of these splits exists, with its size, and units with their directory."""
    sizes = {info.base_name: info.size for info in folder.entries() if info.type == fs.FileType.File}
    if any(sizes.get(name) != size for name, size in _entry_sizes(splits).items()):
        return False
    units = [staged for split in splits if (staged := split.staged_units(folder)) is not None]
    if any(sizes.get(staged.location.name) != staged.size for staged in units):
        return False
    with ThreadPoolExecutor(READERS) as readers:
        return all(readers.map(StagedUnits.has_directory, units))


def _entry_sizes(splits: Iterable[SplitRow]) -> dict[str, int]:
    """The size of each file of index entries, by its name."""
    return {
        split.entries_file: split.index_entries * STAGED_ENTRY_SIZE
        for split in splits
        if split.entries_file is not None and split.index_entries
    }
