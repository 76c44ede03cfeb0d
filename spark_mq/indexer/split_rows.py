"""The results of splits, one row each, as tasks return them and the driver keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from spark_mq.indexer.staged_files import StagedEntries, StagedUnits
from spark_mq.io.location import Location
from spark_mq.store.log.segment_files import CorruptRange

CORRUPT_TYPE = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                ("file", pa.string()),
                ("commit_log_offset", pa.int64()),
                ("length", pa.int64()),
                ("code", pa.string()),
                ("reason", pa.string()),
            ]
        ),
    )
)

SPLIT_SCHEMA = pa.schema(
    [
        ("segment", pa.int64()),
        ("split_start", pa.int64()),
        ("split_stop", pa.int64()),
        ("first_position", pa.int64()),
        ("end_position", pa.int64()),
        ("messages", pa.int64()),
        ("inner_batches", pa.int64()),
        ("bytes_read", pa.int64()),
        ("first_store_timestamp", pa.int64()),
        ("last_store_timestamp", pa.int64()),
        ("newest_store_timestamp", pa.int64()),
        ("time_steps_back", pa.bool_()),
        ("corrupt", CORRUPT_TYPE),
        ("units_file", pa.string()),
        ("units", pa.int64()),
        ("runs", pa.int64()),
        ("units_size", pa.int64()),
        ("entries_file", pa.string()),
        ("index_entries", pa.int64()),
        ("trailing_messages", pa.int64()),
        ("last_unit_offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class SplitRow:
    """The result of one split; the fields are the columns of `SPLIT_SCHEMA`.

    Attributes:
        first_position: The position of the split's first record or damage; -1 if there is none.
        end_position: The position at which its last record or damage ends; -1 if there is none.
        first_store_timestamp: The store time of the first message, in milliseconds; None without a message.
        newest_store_timestamp: The latest store time of a message.
        time_steps_back: Whether a message has an earlier store time than the message before it.
        units_file: The name of the staged file of units, in the folder of staged files; None without a unit.
        units_size: Its bytes.
        entries_file: The name of the staged file of index entries; None if entries are not staged.
        index_entries: The number of entries in it; without an entry the file does not exist.
        trailing_messages: The number of messages after the message with the last entry.
        last_unit_offset: The commit log offset of the last message with a unit; None without one.
    """

    segment: int
    split_start: int
    split_stop: int
    first_position: int
    end_position: int
    messages: int
    inner_batches: int
    bytes_read: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    newest_store_timestamp: int | None
    time_steps_back: bool
    corrupt: tuple[CorruptRange, ...]
    units_file: str | None
    units: int
    runs: int
    units_size: int
    entries_file: str | None
    index_entries: int
    trailing_messages: int
    last_unit_offset: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The result of these values, with a mapping for each damage. Raises `TypeError` for other fields."""
        corrupt = tuple(CorruptRange(**damage) for damage in values["corrupt"])
        return cls(**{**values, "corrupt": corrupt})

    @property
    def start(self) -> int:
        """The commit log offset at which the split starts."""
        return self.segment + self.split_start

    def staged_units(self, folder: Location) -> StagedUnits | None:
        """The staged units in the folder of staged files; None without a unit."""
        if self.units_file is None:
            return None
        return StagedUnits(folder / self.units_file, self.units, self.runs, self.units_size)

    def staged_entries(self, folder: Location) -> StagedEntries:
        """The staged index entries in the folder of staged files."""
        return StagedEntries(folder / (self.entries_file or ""), self.index_entries)
