"""Messages of an archive, found without Spark: its Delta tables are read by the package `deltalake`.

Files are skipped by the statistics in Delta's log, and row groups by those of Parquet. First only positions are read;
bodies are read of the messages that are asked for.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cached_property, reduce
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from spark_mq.archive.archive_tables import IDENTITY, POSITION, ArchiveTable, ArchiveTables
from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.format.message_id import V4_MAPPED, decode_offset_message_id, parse_host
from spark_mq.format.message_row import host_text
from spark_mq.format.message_schema import RECORD_COLUMNS
from spark_mq.format.properties import encode_properties
from spark_mq.format.record import (
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    HOST_V4_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC,
    STORE_HOST_V6_FLAG,
    TRANSACTION_ROLLBACK_TYPE,
    Record,
)
from spark_mq.format.timestamp import EPOCH
from spark_mq.io.object_store import ObjectStore
from spark_mq.io.s3 import is_s3, shown
from spark_mq.lifecycle.life.situation import Situations
from spark_mq.source.predicate import IN_QUEUES
from spark_mq.store.config.named_stores import NamedRecord

ARCHIVED_COLUMNS = (*RECORD_COLUMNS, "body", "properties")
"""The columns that `record_of` needs. An archive that an older spark-mq wrote lacks some of them: they are NULL."""

_TIMES = ("born_timestamp", "store_timestamp")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AT_ONCE = 500
"""Messages whose bodies are read together."""


def record_of(row: Mapping[str, Any]) -> Record:
    """The record of a row with `ARCHIVED_COLUMNS`.

    If the row lacks the stored body, the record has the decompressed one, and no flag of a compression.
    """
    sys_flag, stored = row["sys_flag"], row["stored_body"]
    topic = row["topic"].encode("utf-8")
    properties = {name.encode(): value.encode() for name, value in row["properties"] or ()}
    return Record(
        topic=topic,
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        commit_log_offset=row["commit_log_offset"],
        body=(row["body"] or b"") if stored is None else stored,
        properties=row["properties_bytes"] or encode_properties(properties),
        flag=row["flag"],
        sys_flag=sys_flag & ~COMPRESSED_FLAG if stored is None else sys_flag,
        born_timestamp=row["born_timestamp_millis"],
        born_host=_host(row["born_host"], sys_flag & BORN_HOST_V6_FLAG),
        store_timestamp=row["store_timestamp_millis"],
        store_host=_host(row["store_host"], sys_flag & STORE_HOST_V6_FLAG),
        reconsume_times=row["reconsume_times"],
        prepared_transaction_offset=row["prepared_transaction_offset"],
        magic=MAGIC_V2 if len(topic) > MAX_V1_TOPIC else MAGIC_V1,
        body_crc=row["body_crc"],
    )


def _host(text: str, is_v6: int) -> bytes:
    """The stored bytes of a host; Java prints an IPv4 address in an IPv6 field as an IPv4 address."""
    host = parse_host(text, any_port=True)
    return V4_MAPPED + host if is_v6 and len(host) == HOST_V4_SIZE else host


class ArchivedMessages:
    """The messages of an archive, which is a local folder, or on S3.

    Messages of one store are found in the order of its log; those of several stores in the order of their store times.
    A look-up opens the tables that it needs. It raises `OptionError` if the package `deltalake` is not installed, and
    `UnsupportedStoreError` if a table needs a feature of Delta Lake that `deltalake` does not have.
    """

    def __init__(self, table: str) -> None:
        self._tables = ArchiveTables.of(table if "/" in table else f"./{table}", checkpoint="")
        self._table = shown(table)
        if not (self._tables.messages.is_local or is_s3(table)):
            raise OptionError(
                f"{self._table} is neither on a local disk nor on S3: ask `spark-mq sql --archive old={self._table}`"
            )

    def with_key(
        self,
        key: str,
        topic: str | None = None,
        is_unique: bool = False,
        begin: int | None = None,
        end: int | None = None,
    ) -> Iterator[NamedRecord]:
        """The messages that have a key, newest first; as in the index, there is none of transaction type ROLLBACK."""
        condition = _where(begin, end, key=key, topic=topic, key_type="UNIQ_KEY" if is_unique else None)
        found = self._messages(self._positions(self._keys, condition)[::-1])
        return (one for one in found if one.record.transaction_type != TRANSACTION_ROLLBACK_TYPE)

    def with_id(self, offset_message_id: str, any_host: bool = False) -> Iterator[NamedRecord]:
        """The messages that have an offset message id, of the broker that it names or of any."""
        host, offset = decode_offset_message_id(offset_message_id)
        condition = _where(commit_log_offset=offset, store_host=None if any_host else host_text(host))
        return self._messages(self._positions(self._rows, condition))

    def of_topic(
        self,
        topic: str,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        begin: int | None = None,
        end: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[NamedRecord]:
        """The messages of a topic that are in queues, read as they are asked for; `begin` and `end` are milliseconds.

        At a queue offset there is one of each store, unless a log has the offset twice.
        """
        condition = _where(begin, end, topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        condition &= ds.field("transaction_type").isin(sorted(IN_QUEUES))
        positions = self._positions(self._rows, condition)
        return self._messages(positions[::-1] if newest_first else positions)

    def situations(self, names: tuple[str, str, str]) -> Situations:
        """What records mean of the store with these names; an archive's snapshots are not read for it."""
        return Situations(None)

    @cached_property
    def _rows(self) -> ds.Dataset:
        return self._dataset(self._tables.messages)

    @cached_property
    def _keys(self) -> ds.Dataset:
        return self._dataset(self._tables.keys)

    def _dataset(self, table: ArchiveTable) -> ds.Dataset:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError:
            raise OptionError(
                f"{self._table} is an archive, which needs the package deltalake: install spark-mq[delta]"
            ) from None
        address = self._tables.address_of(table)
        try:
            files: fs.FileSystem
            if is_s3(address):
                bucket, path = ObjectStore.of(address)
                opened = DeltaTable(f"s3://{quote(path)}", storage_options=bucket.delta_options)
                files = bucket.arrow_files
            else:
                opened, path, files = DeltaTable(address), address, fs.LocalFileSystem()
            # The default is in Python: a thread of Arrow that still uses it when the process ends aborts it.
            return opened.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(path, files))
        except DeltaError as error:
            raise UnsupportedStoreError(
                f"{table.name} cannot be read without Spark: {error}: ask `spark-mq sql --archive old={self._table}`"
            ) from error
        except OSError as error:  # several lines with colours, and the whole answer of a server
            reason = " ".join(_COLOUR.sub("", str(error)).partition("<?xml")[0].replace("\u21b3", "").split())
            raise StorageError(f"{shown(address)} cannot be read: {reason}") from error

    def _positions(self, rows: ds.Dataset, condition: ds.Expression) -> pa.Table:
        is_message = ds.field("topic").is_valid()  # the row of a corrupt range has no topic
        found = rows.to_table([*POSITION, "store_timestamp", "topic"], filter=condition & is_message)
        # A message can have one text as a key in KEYS and as its unique key.
        found = found.group_by([*found.schema.names]).aggregate([])
        is_one_log = found.select(IDENTITY).group_by([*IDENTITY]).aggregate([]).num_rows == 1
        order = POSITION if is_one_log else ("store_timestamp", *POSITION)
        return found.sort_by([(name, "ascending") for name in order])

    def _messages(self, positions: pa.Table) -> Iterator[NamedRecord]:
        for start in range(0, positions.num_rows, _AT_ONCE):
            part = positions.slice(start, _AT_ONCE)
            condition = ds.field("topic").isin(pc.unique(part["topic"]))
            condition &= ds.field("commit_log_offset").isin(part["commit_log_offset"])
            columns = dict.fromkeys((*POSITION, *ARCHIVED_COLUMNS, *_TIMES))
            read = [name for name in columns if name in self._rows.schema.names]
            rows = self._rows.to_table(read, filter=condition).to_pylist()
            by_position = {tuple(row[name] for name in POSITION): row for row in rows}
            for place in part.select(POSITION).to_pylist():
                row = by_position.get(tuple(place.values()))
                if row is not None:
                    times = {f"{name}_millis": row[name] for name in _TIMES if row[name] is not None}
                    millis = {name: (time - EPOCH) // timedelta(milliseconds=1) for name, time in times.items()}
                    known = dict.fromkeys(ARCHIVED_COLUMNS) | row | millis
                    yield NamedRecord((row["cluster"], row["broker"], row["store"]), record_of(known))


def _where(begin: int | None = None, end: int | None = None, **values: Any) -> ds.Expression:
    """The condition that columns have these values, and a store time from `begin` to `end`; None is any."""
    given = [ds.field(name) == value for name, value in values.items() if value is not None]
    if begin is not None:
        given.append(ds.field("store_timestamp") >= _moment(begin))
    if end is not None:
        given.append(ds.field("store_timestamp") <= _moment(end))
    return reduce(operator.and_, given)


def _moment(millis: int) -> pa.Scalar:
    return pa.scalar(millis * 1000, pa.timestamp("us", tz="UTC"))
