"""The rows of splits that dispatch stages, as the driver reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyspark.sql import Row

from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class SplitRow:
    """The result of one split; the fields are columns of `staged_rows.STAGED_SCHEMA`."""

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
    time_steps_back: bool
    corrupt: tuple[CorruptRange, ...]
    entries_file: str | None
    index_entries: int
    trailing_messages: int

    @classmethod
    def of(cls, row: Row) -> Self:
        """The result in a staged row of kind `split`."""
        values = row.asDict(recursive=True)
        values["corrupt"] = tuple(CorruptRange(**corrupt) for corrupt in values["corrupt"])
        return cls(**values)
