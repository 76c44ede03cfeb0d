"""The readers of a table of several stores: the readers of each store, and columns that name the store.

The stores are looked for once, when Spark asks for the reader. Each partition says which store it belongs to. The
stream of table `messages` has one offset for all stores.

A store can be added when the stream starts again: it begins where the options say, as a new stream would. A store that
is no longer given would be a loss of messages, so it is an error, unless `failOnDataLoss` is false.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from spark_mq._compat import SupportsTriggerAvailableNow
from spark_mq.errors import DataLossError, OptionError, SparkMqError
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import StreamOptions, parse_stream_options
from spark_mq.source.schema import columns_of_one_store
from spark_mq.source.store_choice import StoreChoice
from spark_mq.source.stream_offset import StreamOffset, not_ours
from spark_mq.store.config.named_stores import STORE_COLUMNS, NamedStore, is_unreadable, named_error
from spark_mq.tables.messages import MESSAGES

_Answer = TypeVar("_Answer")
_LOG = logging.getLogger(__name__)

VERSION = 3

Names = tuple[str, str, str]
"""Cluster, broker and store."""
OneOffset = Mapping[str, Any]
"""The JSON values of `StreamOffset`."""


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


class SeveralStoresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of the messages of all stores."""

    def __init__(
        self, stores: Sequence[tuple[NamedStore, StreamOptions]], columns: Sequence[str], skips_unreadable: bool = False
    ) -> None:
        """Read several stores, each with its options; the limits of a batch are those of all stores together.

        `columns` are those that the query reads, in order, with those that name the store.
        """
        if not stores:
            raise OptionError("the stream has no store: give at least one path")
        self._columns = list(columns)
        self._skips_unreadable = skips_unreadable
        self._fails_on_loss = stores[0][1].fail_on_data_loss
        self._first = stores[0][0].names
        inner = columns_of_one_store(MESSAGES.name, self._columns)
        self._stores: list[NamedStore] = []
        self._readers: list[MessagesStreamReader] = []
        for store, options in stores:
            reader = self._of_store(store, partial(MessagesStreamReader, _shared(options, len(stores)), inner))
            if reader is not None:
                self._stores.append(store)
                self._readers.append(reader)
        if not self._readers:
            raise OptionError("none of the stream's stores can be read")
        self._last: SeveralOffset | None = None
        self._removed: set[Names] = set()
        """Stores that the checkpoint has, and that are not given; of each, this was logged once."""

    @classmethod
    def of(cls, choice: StoreChoice, columns: Sequence[str]) -> Self:
        """The reader of the stores that options choose. Raises `OptionError` for invalid options."""
        stores = [(store, parse_stream_options(options)) for store, options in choice.each(is_stream=True)]
        return cls(stores, columns, choice.skips_unreadable)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a new stream. Raises the errors of a stream over one store, which name it."""
        found = {}
        for store, reader in self._all():
            offset = self._of_store(store, reader.initialOffset)
            if offset is not None:
                found[store.names] = offset
        self._last = SeveralOffset(found)
        return self._last.to_json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The end of the batch that starts at `start`; `start` itself if no store has a new message.

        Spark before 4.2 passes no arguments.
        """
        before = self._last if start is None else SeveralOffset.of_json(start, self._first)
        known = {} if before is None else before.offsets
        self._check_removed(known)
        # The offsets of stores that are not given, or cannot be read now, are kept.
        offsets: dict[Names, OneOffset] = dict(known)
        begins: dict[Names, OneOffset] = {}
        for store, reader in self._all():
            found = self._of_store(store, partial(_next, reader, known.get(store.names), limit))
            if found is None:
                continue
            begin, offsets[store.names] = found
            if store.names not in known:
                begins[store.names] = begin
        # If nothing is new, the offset must be the same text, although a store was new in the batch before.
        is_same = before is not None and offsets == before.offsets
        self._last = before if is_same and before is not None else SeveralOffset(offsets, begins)
        return self._last.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of a batch, from the options."""
        return self._readers[0].getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the ends of all logs: messages that are appended from now on are for the next query."""
        for store, reader in self._all():
            self._of_store(store, reader.prepareForTriggerAvailableNow)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The live ends when the readers last looked for them, for the query's progress."""
        seen = {store.names: reader.reportLatestOffset() for store, reader in self._all()}
        found = {names: offset for names, offset in seen.items() if offset is not None}
        return SeveralOffset(found).to_json() if found else None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The partitions of all stores between two offsets."""
        first, last = (SeveralOffset.of_json(values, self._first) for values in (start, end))
        self._check_removed(last.offsets)
        found: list[InputPartition] = []
        for number, (store, reader) in enumerate(self._all()):
            stop = last.offsets.get(store.names)
            begin = first.offsets.get(store.names, last.begins.get(store.names))
            if stop is None:
                continue
            if begin is None:
                raise OptionError(f"store {store}: the checkpoint does not say where its messages begin")
            if stop == begin:  # nothing of this store is in the batch; a log that was cut would be read again
                continue
            try:
                found += [StorePartition(number, partition) for partition in reader.partitions(begin, stop)]
            except (SparkMqError, OSError) as error:  # also with skipUnreadable: the batch has messages of the store
                raise named_error(error, store) from error
        self._last = last
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        if not isinstance(partition, StorePartition):
            return
        store = self._stores[partition.store]
        try:
            for batch in self._readers[partition.store].read(partition.partition):
                yield named_batch(batch, store, self._columns)
        except (SparkMqError, OSError) as error:
            raise named_error(error, store) from error

    def _all(self) -> Iterator[tuple[NamedStore, MessagesStreamReader]]:
        return zip(self._stores, self._readers, strict=True)

    def _of_store(self, store: NamedStore, ask: Callable[[], _Answer]) -> _Answer | None:
        return answer_of(store, ask, self._skips_unreadable)

    def _check_removed(self, known: Mapping[Names, OneOffset]) -> None:
        given = {store.names for store in self._stores}
        for names in sorted(known.keys() - given - self._removed):
            cluster, broker, store = names
            what = f"the checkpoint has store {cluster}/{broker} ({store}), which the stream no longer reads"
            if self._fails_on_loss and not self._skips_unreadable:
                raise DataLossError(
                    f"{what}: give it again under these names; with failOnDataLoss=false the stream continues without "
                    "it, and keeps its offset"
                )
            _LOG.warning("%s; its offset is kept", what)
            self._removed.add(names)


def _next(reader: MessagesStreamReader, known: OneOffset | None, limit: object) -> tuple[OneOffset, OneOffset]:
    """The begin and the end of the next batch of one store, which begins as a new stream if it is not known yet."""
    begin = reader.initialOffset() if known is None else known
    return begin, reader.latestOffset(begin, limit)


def _shared(options: StreamOptions, stores: int) -> StreamOptions:
    """The options of one of the stores, which share the limits of a batch."""
    limits = [None if limit is None else max(limit // stores, 1) for limit in (options.max_bytes, options.max_messages)]
    return replace(options, max_bytes=limits[0], max_messages=limits[1])


@dataclass(frozen=True)
class SeveralOffset:
    """The offsets of several stores: JSON with one offset for each store, in the order of their names.

    | version | keys, in this order |
    | --- | --- |
    | 1, 2 | those of a stream over one store (`stream_offset`): the offset is that of the first store that is given |
    | 3 | `version`, `stores`: objects with `cluster`, `broker`, `store`, `offset`, and `begin` if the batch adds it |

    `offset` and `begin` have the keys of versions 1 and 2. The batch in which a store is new begins at its `begin`: the
    offset before it does not have the store, and the batch may be repeated when the log starts elsewhere.
    """

    offsets: Mapping[Names, OneOffset]
    begins: Mapping[Names, OneOffset] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark. Equal offsets have the same text."""
        stores: list[dict[str, Any]] = []
        for names in sorted(self.offsets):
            begin = {"begin": dict(self.begins[names])} if names in self.begins else {}
            stores.append(
                {**dict(zip(STORE_COLUMNS, names, strict=True)), "offset": dict(self.offsets[names]), **begin}
            )
        return {"version": VERSION, "stores": stores}

    @classmethod
    def of_json(cls, values: Mapping[str, Any], first: Names) -> Self:
        """The offset of a checkpoint."""
        if values.get("version") != VERSION:
            return cls({first: StreamOffset.of_json(values).to_json()})
        listed = values.get("stores")
        if not isinstance(listed, list):
            raise not_ours(values)
        offsets: dict[Names, OneOffset] = {}
        begins: dict[Names, OneOffset] = {}
        for entry in listed:
            found = [entry.get(name) for name in STORE_COLUMNS] if isinstance(entry, Mapping) else []
            texts = [name for name in found if isinstance(name, str)]
            if len(texts) != len(STORE_COLUMNS):
                raise not_ours(values)
            names = (texts[0], texts[1], texts[2])
            if names in offsets:
                raise not_ours(values)
            offsets[names] = _one(values, entry.get("offset"))
            if entry.get("begin") is not None:
                begins[names] = _one(values, entry["begin"])
        return cls(offsets, begins)


def _one(values: Mapping[str, Any], offset: object) -> OneOffset:
    if not isinstance(offset, Mapping):
        raise not_ours(values)
    return StreamOffset.of_json(offset).to_json()
