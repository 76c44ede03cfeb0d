"""The index that a broker with `indexRocksDBEnable=true` has in RocksDB: its records, and what the broker finds in it.

The broker has it beside the index files, or instead of them (`indexFileWriteEnable=false`). It answers from the
database if `indexFileReadEnable=false`. Column family `default` of `rocksdbstore/` has a record for each key of a
message that has a unique key (`IndexRocksDBRecord`, `MessageRocksDBStorage`@5.5.0):

| key | value |
| --- | --- |
| i64 store time in whole hours, `@topic@K@key@uniqKey@` (T: tags), i64 commit log offset | i64 store time |
| i64 store time in whole hours, `@topic@U@uniqKey@`, i64 commit log offset | i64 store time |
| `lastOffsetPy`, `lastStoreTimeStamp`: of the last message whose records are all there | i64 |
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import islice

from spark_mq.format.index_file import QueryOffsetResult
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, RocksDatabase, can_read_rocksdb
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import message_database

_INT64 = struct.Struct(">q")
_LAST_OFFSET, _LAST_TIME = b"lastOffsetPy", b"lastStoreTimeStamp"
HOUR = 3_600_000
"""Milliseconds."""
_DAY = 24 * HOUR
_MAX_HOURS = 720
"""`MixAll.getHours`@5.5.0 gives no more."""


def index_database(store: Location) -> Location | None:
    """The folder of the database that can have index records, if it is there and can be read."""
    return message_database(store) if can_read_rocksdb() else None


def answers_from_database(conf: BrokerConf) -> bool:
    """Whether a broker with these settings looks keys up in the database (`DefaultMessageStore.queryMessage`@5.5.0)."""
    return conf.is_enabled("indexRocksDBEnable") and not conf.is_enabled("indexFileReadEnable", default=True)


def query_database(
    database: RocksDatabase, conf: BrokerConf, topic: str, index_type: str, key: str, max_num: int, begin: int, end: int
) -> QueryOffsetResult:
    """The commit log offsets that `IndexRocksDBStore.queryOffset`@5.5.0 finds, in the order of hours and unique keys.

    A time range without a begin, or without an end, is that of the last `maxRocksDBIndexQueryDays` days before now. A
    longer one is not answered.
    """
    limit = conf.max_rocksdb_index_query_days * _DAY
    if begin == 0 or end == (1 << 63) - 1:
        end = int(time.time() * 1000)
        begin = end - limit
    if begin > end or end - begin > limit:
        return QueryOffsetResult((), 0, 0)
    name = f"@{topic}@{index_type}@{key}@".encode("utf-8", "replace")

    def offsets() -> Iterator[int]:
        hours = range(begin // HOUR * HOUR, end // HOUR * HOUR + 1, HOUR)[:_MAX_HOURS]
        for hour in hours:
            prefix = _INT64.pack(hour) + name
            for found, value in database.items(DEFAULT, prefix):
                if not found.startswith(prefix):
                    break
                if len(value) >= _INT64.size and begin <= _INT64.unpack_from(value)[0] <= end:
                    yield _INT64.unpack(found[-_INT64.size :])[0]

    found = tuple(islice(offsets(), min(max_num, conf.max_msgs_num_batch)))
    return QueryOffsetResult(found, _number(database, _LAST_TIME), last_offset(database))


def last_offset(database: RocksDatabase, family: str = DEFAULT) -> int:
    """The commit log offset of the last message whose records are all in a column family; 0 if it is not known."""
    return _number(database, _LAST_OFFSET, family)


def progress_records(last: int, newest: int) -> list[tuple[bytes, bytes]]:
    """The two records after those of a log: its last message that has records, and the newest store time of one."""
    return [(_LAST_OFFSET, _INT64.pack(last)), (_LAST_TIME, _INT64.pack(newest))]


def _number(database: RocksDatabase, name: bytes, family: str = DEFAULT) -> int:
    values = [value for _, value in database.items(family, name, name + b"\0")]
    return int(_INT64.unpack(values[0])[0]) if values and len(values[0]) == _INT64.size else 0
