"""The batch reader of a table of several stores: the reader of each store, and columns that name the store.

The stores are looked for once, when Spark asks for the reader. Each partition says which store it belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.errors import SparkMqError
from spark_mq.store.config.named_stores import STORE_COLUMNS, NamedStore, is_unreadable, named_error

_Answer = TypeVar("_Answer")
_LOG = logging.getLogger(__name__)


@dataclass
class StorePartition(InputPartition):
    """A partition of the reader with this number."""

    store: int
    partition: InputPartition


class SeveralStoresReader(DataSourceReader):
    """The reader of the rows of all stores."""

    def __init__(
        self, readers: Sequence[tuple[NamedStore, DataSourceReader]], columns: Sequence[str], skips_unreadable: bool
    ) -> None:
        """`columns` are those that the query reads, in order, with those that name the store."""
        self._readers = list(readers)
        self._columns = list(columns)
        self._skips_unreadable = skips_unreadable

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of all stores."""
        found: list[InputPartition] = []
        skipped: list[Exception] = []
        for number, (store, reader) in enumerate(self._readers):
            partitions = answer_of(store, reader.partitions, self._skips_unreadable, skipped)
            found += [StorePartition(number, partition) for partition in partitions or ()]
        if skipped and len(skipped) == len(self._readers):
            raise type(skipped[0])(f"none of the {len(skipped)} stores can be read; the first: {skipped[0]}")
        return found

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition.

        A table that one task reads whole is left out with a warning, too, if its store cannot be read.
        """
        if not isinstance(partition, StorePartition):
            return
        store, reader = self._readers[partition.store]
        is_whole_table = type(partition.partition) is InputPartition
        has_rows = False
        try:
            for batch in reader.read(partition.partition):
                yield named_batch(batch, store, self._columns)
                has_rows = True
        except (SparkMqError, OSError) as error:
            if not (is_whole_table and self._skips_unreadable and is_unreadable(error)) or has_rows:
                raise named_error(error, store) from error
            _warn_of_skipped(store, error)


def named_batch(batch: pa.RecordBatch, store: NamedStore, columns: Sequence[str]) -> pa.RecordBatch:
    """The columns of a batch, with those that name the store, in the order of `columns`."""
    names = dict(zip(STORE_COLUMNS, store.names, strict=True))
    arrays, fields = [], []
    for name in columns:
        if name in names:
            arrays.append(pa.repeat(pa.scalar(names[name], pa.string()), batch.num_rows))
            fields.append(pa.field(name, pa.string()))
        else:
            arrays.append(batch.column(name))
            fields.append(batch.schema.field(name))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def answer_of(
    store: NamedStore, ask: Callable[[], _Answer], skips_unreadable: bool, skipped: list[Exception] | None = None
) -> _Answer | None:
    """The answer of a store, whose errors name it; None if it cannot be read, and is left out with a warning."""
    try:
        return ask()
    except (SparkMqError, OSError) as error:
        if not skips_unreadable or not is_unreadable(error):
            raise named_error(error, store) from error
        if skipped is not None:
            skipped.append(error)
        _warn_of_skipped(store, error)
        return None


def _warn_of_skipped(store: NamedStore, error: Exception) -> None:
    _LOG.warning("store %s is left out: %s", store, error)
