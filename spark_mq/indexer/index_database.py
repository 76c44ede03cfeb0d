"""The database of index records out of a staged log, with the timers and transactions that the store's database has.

Index records, timers and transactions are three column families of `rocksdbstore/`. Only index records can be made out
of the log as they were: the others say what a broker did since, and are copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing

from spark_mq.errors import StorageError
from spark_mq.indexer.report import Written
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase, make_database, write_table
from spark_mq.store.config.store_kind import message_database
from spark_mq.store.config.store_paths import ABORT, ROCKSDB_STORE
from spark_mq.store.index.index_database import progress_records
from spark_mq.store.log.segment_files import CorruptRange

_COPIED = ("timer", "trans")
"""The column families of timers and transactions."""


def lost_families(store: Location) -> Iterator[CorruptRange]:
    """The damage because of which timers and transactions cannot be copied."""
    folder = message_database(store)
    if folder is None:
        return
    try:
        with closing(RocksDatabase(folder)) as database:
            for _ in (item for family in _COPIED for item in database.items(family)):
                pass
            unlisted = [] if (store / ABORT).is_file else database.unlisted_tables()
        reason = f"its MANIFEST does not name {', '.join(unlisted)}" if unlisted else ""
    except StorageError as error:
        reason = str(error)
    if reason:
        reason += "; its timers and transactions are not copied"
        yield CorruptRange(ROCKSDB_STORE, 0, 0, "INDEX_DATABASE", reason)


def write_index_database(store: Location, staged: StagedLog, target: Location, *, is_copied: bool) -> Written:
    """Make the database in the new folder `target`.

    Timers and transactions are copied if the check of the store found nothing lost (`lost_families`).
    """
    tables = [table for split in staged.splits for table in split.record_tables]
    files = [(staged.folder / table.name).path for table in tables]
    if tables:
        files.append((staged.folder / "progress.sst").path)
        last, newest = max(table.last_offset for table in tables), max(table.newest_timestamp for table in tables)
        write_table(files[-1], progress_records(last, newest))
    shutil.rmtree(target.path, ignore_errors=True)
    folder = message_database(store)
    families: dict[str, Iterable[tuple[bytes, bytes]]] = dict.fromkeys(_COPIED, ())
    with ExitStack() as opened:
        if folder is not None and is_copied:
            database = opened.enter_context(closing(RocksDatabase(folder)))
            families = {name: database.items(name) for name in _COPIED}
        make_database(target.path, files, families)
    return Written(
        index_records=sum(table.records for table in tables), bytes_written=sum(table.size for table in tables)
    )
