"""Giving rows of an archive another name: for a store that was archived under another one, and for what a broker lost.

A change of one table is one commit of Delta, but four tables are four. So the messages table, by which every run sees
what is archived and as what, changes last. A run that is killed before that has changed nothing that counts, and is
tried again; after it all is done.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import Row, SparkSession

from spark_mq.archive.archive_tables import ArchiveTable, StoreIdentity, sql_text
from spark_mq.archive.archived_log import LOST, LostEnd, described, names_of_log
from spark_mq.archive.checkpoints import KEYS, MESSAGES, retire_checkpoint
from spark_mq.archive.retry import retry_on_conflict
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.errors import OptionError


def settle_name(archive: StoreArchive, rename: bool) -> int:
    """See that the store's log is in the archive under its own name only; returns the number of renamed messages.

    If it is there under another name and `rename` is true, all rows of that name get the store's own. Raises
    `OptionError` if `rename` is false, if there is more than one such name, or if there are rows of the store's name:
    those messages would be there twice.
    """
    names = names_of_log(archive)
    if not names:
        return 0
    where = f"{archive.store}: the messages of this log are in {archive.place.name} already, as {described(names)}"
    if len(names) > 1 or not archive.rows(archive.place.messages).isEmpty():
        raise OptionError(
            f"{where}, and a message must be there once: keep one of the names, DELETE the rows of the others from the "
            "four tables, and archive under that name"
        )
    (name,) = names
    if not rename:
        count = archive.place.messages.read(archive.spark).where(name.condition()).count()
        raise OptionError(
            f"{where}: archive it under this name, or give the {count:,} messages there the new name with --rename"
        )
    return _rename_all(archive, name)


def _rename_all(archive: StoreArchive, old: StoreIdentity) -> int:
    new, place = archive.identity, archive.place
    for identity in (old, new):
        for stream in (MESSAGES, KEYS):
            retire_checkpoint(place, identity, stream)
    condition = (
        f"cluster = {sql_text(old.cluster)} AND broker = {sql_text(old.broker)} AND "
        f"(store = {sql_text(old.store)} OR startswith(store, {sql_text(old.store + LOST)}))"
    )
    store = f"concat({sql_text(new.store)}, substr(store, {len(old.store) + 1}))"
    changes = f"cluster = {sql_text(new.cluster)}, broker = {sql_text(new.broker)}, store = {store}"
    for table in (place.snapshots, place.segments, place.keys):
        _update(archive.spark, table, changes, condition)
    return _update(archive.spark, place.messages, changes, condition)


def rename_lost(archive: StoreArchive, lost: LostEnd) -> None:
    """Give the messages that the broker lost, and their keys, a name of their own; the stream begins at their start.

    All messages must have their keys. Segments of which a part was lost are kept again by the next run.
    """
    place, own = archive.place, archive.identity.sql_condition()
    retire_checkpoint(place, archive.identity, MESSAGES)
    changes = f"store = {sql_text(lost.name(archive.identity).store)}"
    delete = f"DELETE FROM {place.segments.sql_name} WHERE {own} AND end_offset > {lost.start}"
    retry_on_conflict(lambda: archive.spark.sql(delete).collect())
    for table in (place.keys, place.messages):
        _update(archive.spark, table, changes, f"{own} AND commit_log_offset >= {lost.start}")


def _update(spark: SparkSession, table: ArchiveTable, changes: str, condition: str) -> int:
    """Change rows, in one commit; returns their number."""
    statement = f"UPDATE {table.sql_name} SET {changes} WHERE {condition}"
    (row,) = retry_on_conflict(partial(_collected, spark, statement))
    return int(row.num_affected_rows)


def _collected(spark: SparkSession, statement: str) -> list[Row]:
    return list(spark.sql(statement).collect())
