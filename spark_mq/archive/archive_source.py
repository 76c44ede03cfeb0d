"""A store in an archive as the source of the tables of what messages mean (`LogSource`).

Of the table of messages, Delta reads the files whose statistics cover the selected topics, and of these the requested
columns. The driver gets the selected messages, and nothing else of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import MESSAGES, ArchivedRows
from spark_mq.archive.log_cover import LogCover, log_cover
from spark_mq.archive.small_tables import NewestSnapshot, newest_snapshot
from spark_mq.archive.snapshot_files import snapshot_location
from spark_mq.errors import OptionError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.timestamp import iso_text
from spark_mq.io.location import Location
from spark_mq.lifecycle.delayed import due_by_level
from spark_mq.lifecycle.selected_messages import LogSource, SelectedMessages, Selection, TopicRule
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.retention import moment_of

_REAL_TOPIC = "REAL_TOPIC"
_MAX_TOPICS = 1_000
"""Real topics that a condition names; with more of them, the messages of all topics are looked at."""
_BATCH_ROWS = 1 << 16
_WRONG_BODY_CRC = "BODY_CRC: the CRC of the stored body is not the body CRC of the record"


class ArchiveSource(LogSource):
    """One store of an archive, as its last run left it.

    Files of `config/` are those of the newest snapshot. Timer logs are not archived, nor are consume queues, so a
    delayed message is due by the settings of the broker.
    """

    timer_location: Location | None = None

    def __init__(self, archive: ArchivedRows, conf: BrokerConf) -> None:
        self.archive, self.conf = archive, conf

    @cached_property
    def snapshot(self) -> NewestSnapshot:
        """The newest snapshot of the store."""
        return newest_snapshot(self.archive)

    @cached_property
    def cover(self) -> LogCover:
        """The part of the log that the archive has."""
        tables = self.archive.tables
        segments, stored = self.archive.rows(tables.segments), self.column("store_timestamp_millis")
        return log_cover(self.messages, segments, stored, tables.name)

    @cached_property
    def messages(self) -> DataFrame:
        """The store's rows of the table of messages."""
        return self.archive.rows(self.archive.tables.messages)

    @cached_property
    def location(self) -> Location:
        """The folder with the files of the newest snapshot."""
        return snapshot_location(self.snapshot.files, self.archive.tables.snapshots.name)

    @cached_property
    def broker_versions(self) -> BrokerVersions:
        return find_broker_versions(self.location)

    @property
    def config_end(self) -> int:
        return self.snapshot.log_end

    @property
    def known_until(self) -> int:
        """The newest time of which the archive knows the store, in milliseconds.

        That is when the newest snapshot was made, if all messages before it are archived, or else when the newest
        archived message was stored.
        """
        # A clock can have been wrong, or bytes damaged: the archive knows nothing of the future.
        snapshot, newest = self.snapshot, min(self.cover.newest_timestamp, moment_of(None))
        has_all = snapshot.timestamp is not None and self.cover.log.stop >= snapshot.log_end
        return max(newest, snapshot.timestamp or 0) if has_all else newest

    def moment(self, at: int | datetime | None) -> int:
        """The time `at`; `known_until` for None."""
        if at is None:
            return self.known_until
        moment = moment_of(at)
        if moment > self.known_until:
            raise OptionError(
                f"at={iso_text(moment)}: the archive {self.archive.tables.name} knows the store until "
                f"{iso_text(self.known_until)}: give that time or an earlier one"
            )
        return moment

    def lost_end(self, newest_timestamp: int) -> str | None:
        """Why the end of the log can be missing in the archive; None if it is there."""
        if self.cover.log.stop < self.snapshot.log_end:
            return (
                f"the archive ends at commit log offset {self.cover.log.stop}, and the log ended at "
                f"{self.snapshot.log_end} when the newest snapshot was made: run spark-mq archive"
            )
        return lost_end(self.location, newest_timestamp)

    def due_times(
        self, commit_log_offset: Int64s, queue_id: Int64s, queue_offset: Int64s, stored: Int64s
    ) -> tuple[Int64s, Flags]:
        is_known: Flags = stored >= 0
        return due_by_level(queue_id, stored, self.conf), is_known

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        cover = self.cover
        return tuple(
            SelectedMessages(self._selected(selection), cover.damage, cover.log, cover.newest_timestamp)
            for selection in selections
        )

    def batches_of(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        yield from self._selected(selection).to_batches(_BATCH_ROWS)

    def _selected(self, selection: Selection) -> pa.Table:
        rule = selection.rule
        conditions = [F.col("topic").startswith(prefix) for prefix in rule.prefixes]
        for name, values in (("topic", rule.names), ("transaction_type", rule.transaction_types)):
            if values:
                conditions.append(F.col(name).isin(sorted(values)))
        is_named = reduce(Column.__or__, conditions, F.lit(False))
        found = self._read(is_named, selection)
        if rule.properties:
            found = pa.concat_tables([found, self._read(self._with_properties(found, rule) & ~is_named, selection)])
        return found.sort_by("commit_log_offset")

    def _with_properties(self, found: pa.Table, rule: TopicRule) -> Column:
        """The condition that a message has one of the rule's properties, and a topic that `found` names as real."""
        has_one = reduce(Column.__or__, (F.col("properties")[name].isNotNull() for name in rule.properties))
        if _REAL_TOPIC not in found.column_names:
            return has_one
        topics = pc.drop_null(pc.unique(found[_REAL_TOPIC])).to_pylist()
        return has_one & F.col("topic").isin(topics) if len(topics) <= _MAX_TOPICS else has_one

    def _read(self, condition: Column, selection: Selection) -> pa.Table:
        schema = selection.schema
        if selection.rule.tags:
            is_damaged = F.contains(self.column("properties_bytes"), F.lit(b"\0"))
            condition &= F.col("tags").isin(sorted(selection.rule.tags)) | is_damaged
        columns = [self.column(name, selection.check_crc) for name in selection.columns]
        columns += [F.col("properties")[name].alias(name) for name in selection.properties]
        rows = self.messages.where(F.col("topic").isNotNull() & condition).select(*columns).toArrow()
        return pa.table([rows[field.name].cast(field.type) for field in schema], schema=schema)

    def column(self, name: str, check_crc: bool = False) -> Column:
        """A column of table `messages`, out of the columns of the archive."""
        if name in ("born_timestamp_millis", "store_timestamp_millis"):
            known = F.unix_millis(name.removesuffix("_millis"))
            return (F.coalesce(known, self._own(name)) if name in self.messages.columns else known).alias(name)
        if name == "properties_bytes":
            return F.coalesce(self._own(name), F.lit(b"")).alias(name)
        if name == CORRUPT_RECORD and check_crc:
            stored = F.coalesce(self._own("stored_body"), F.col("body"))
            is_wrong = (F.length(stored) > 0) & (F.crc32(stored).bitwiseAND(0x7FFFFFFF) != F.col("body_crc"))
            return F.coalesce(F.col(name), F.when(is_wrong, F.lit(_WRONG_BODY_CRC))).alias(name)
        return self._own(name)

    def _own(self, name: str) -> Column:
        """A column that older archives lack; NULL then."""
        if name in self.messages.columns:
            return F.col(name)
        return F.lit(None).cast(MESSAGES.columns()[name].dataType).alias(name)
