"""Renaming rows of an archive: of a store that was archived under another name, and of messages that a broker lost.

Delta commits a change of one table at once, but a change of four tables in four commits. Every run learns from the
messages table what is archived, and under which name, so that table changes last. If a run is killed before that, the
next run repeats the whole rename.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Row, SparkSession

from spark_mq.archive.archive_tables import ArchiveTable, StoreArchive, StoreIdentity, sql_text
from spark_mq.archive.archived_log import LOST, LostEnd, described, names_of_log
from spark_mq.archive.delta_log import is_empty, retry_on_conflict
from spark_mq.archive.last_run import KEYS, MESSAGES, retire_checkpoint
from spark_mq.errors import OptionError


def settle_name(archive: StoreArchive, rename: bool) -> int:
    """The number of renamed messages; afterwards the store's log is in the archive under its own name only.

    Args:
        rename: If the log is in the archive under another name, give all rows of that name the store's own name.
    """
    if is_empty(archive.tables.messages):
        return 0
    names = names_of_log(archive)
    if not names:
        return 0
    problem = f"{archive.store}: the messages of this log are in {archive.tables.name} already, as {described(names)}"
    if len(names) > 1 or not archive.rows(archive.tables.messages).isEmpty():
        raise OptionError(
            f"{problem}, and a message must be there once: keep one of the names, DELETE the rows of the others from "
            "the four tables, and archive under that name"
        )
    (name,) = names
    if not rename:
        count = archive.tables.messages.read(archive.spark).where(name.condition()).count()
        raise OptionError(
            f"{problem}: archive it under this name, or give the {count:,} messages there the new name with --rename"
        )
    return _rename_all(archive, name)


def _rename_all(archive: StoreArchive, old: StoreIdentity) -> int:
    new, tables = archive.identity, archive.tables
    for identity in (old, new):
        for stream in (MESSAGES, KEYS):
            retire_checkpoint(tables, identity, stream)
    condition = (
        f"cluster = {sql_text(old.cluster)} AND broker = {sql_text(old.broker)} AND "
        f"(store = {sql_text(old.store)} OR startswith(store, {sql_text(old.store + LOST)}))"
    )
    store = f"concat({sql_text(new.store)}, substr(store, {len(old.store) + 1}))"
    changes = f"cluster = {sql_text(new.cluster)}, broker = {sql_text(new.broker)}, store = {store}"
    for table in (tables.snapshots, tables.segments, tables.keys):
        _update(archive.spark, table, changes, condition)
    return _update(archive.spark, tables.messages, changes, condition)


def rename_lost(archive: StoreArchive, lost: LostEnd) -> None:
    """Give the messages that the broker lost, and their keys, another name; the stream will start where they start.

    The keys of all messages must have been written before. The next run writes the segments of the lost part again.
    """
    tables, own = archive.tables, archive.identity.sql_condition()
    retire_checkpoint(tables, archive.identity, MESSAGES)
    changes = f"store = {sql_text(lost.name(archive.identity).store)}"
    delete = f"DELETE FROM {tables.segments.sql_name} WHERE {own} AND end_offset > {lost.start}"
    retry_on_conflict(lambda: archive.spark.sql(delete).collect())
    for table in (tables.keys, tables.messages):
        _update(archive.spark, table, changes, f"{own} AND commit_log_offset >= {lost.start}")


def _update(spark: SparkSession, table: ArchiveTable, changes: str, condition: str) -> int:
    """The number of rows that were changed, in one commit."""
    statement = f"UPDATE {table.sql_name} SET {changes} WHERE {condition}"
    (row,) = retry_on_conflict(partial(_collected, spark, statement))
    return int(row.num_affected_rows)


def _collected(spark: SparkSession, statement: str) -> list[Row]:
    return list(spark.sql(statement).collect())
