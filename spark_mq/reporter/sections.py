"""The sections of a store's page, in order: about its files, and about its messages (`message_sections`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

import pandas as pd
import pyarrow as pa

from spark_mq.format.amounts import size_text
from spark_mq.format.timestamp import iso_text, moment_of_millis
from spark_mq.reporter import plots
from spark_mq.reporter.figures import CELLS, ArchiveFigures, Figures, StoreFigures
from spark_mq.reporter.message_sections import MessageSections
from spark_mq.reporter.plot import Plot
from spark_mq.reporter.section import Column, Section, frame_of, in_order, rows_of


def sections(figures: Figures, most_rows: int) -> Iterator[Section]:
    """The sections of a store's page, in the order of the page; a table has at most so many rows."""
    yield from _KINDS[type(figures)](figures, most_rows).all()


class _ArchiveSections(MessageSections):
    """Makes the sections of a store in an archive, which can have several stores."""

    _figures: ArchiveFigures

    def _source(self, at: str) -> str:
        return f"--archive s={shlex.quote(self._figures.archive)}"

    def _from(self, table: str) -> str:
        from spark_mq.archive.archive_tables import sql_text

        names = " AND ".join(f"{name} = {sql_text(value)}" for name, value in self._figures.names.items())
        return f"FROM (SELECT * FROM {table} WHERE {names})"


class _StoreSections(MessageSections):
    _figures: StoreFigures

    def all(self) -> Iterator[Section]:
        yield self._damage()
        yield self._retained()
        yield self._lag()
        yield self._losses()
        yield self._expiry()
        yield from self._waiting()
        yield self._disk()
        yield from self._statistics()

    def _damage(self) -> Section:
        check, damage = self._figures.check, self._figures.damage
        rows = [
            {
                "severity": str(code.severity),
                "code": name,
                "count": check.counts[name],
                "first": check.first[name][0].place,
                "meaning": code.meaning,
                "remedy": code.remedy,
            }
            for name, code in check.codes()
        ]
        columns = (
            Column("severity", "severity"),
            Column("code", "finding"),
            Column("count", "number", "count"),
            Column("first", "first place"),
            Column("meaning", "what it means"),
            Column("remedy", "what to do"),
        )
        say = "Every record, queue unit, index entry and file of config/ was compared with the log."
        query = f"spark-mq verify {self._store} --report findings.parquet"
        return self._section("damage", "Damage", say, columns, rows, query, lambda: self._damage_map(damage))

    def _damage_map(self, damage: pa.Table) -> Plot:
        figures = self._figures
        rows = enumerate(rows_of(figures.tables["queues"]))
        queues = {(row["topic"], row["queue_id"]): number for number, row in rows}
        files = [] if figures.state.index is None else [file.name for file in figures.state.index.files]
        cells = []
        for row in damage.to_pylist():
            tree, _, name = (row["file"] or "").partition("/")
            place = None
            if row["cell"] is not None:
                place = 0, row["cell"], CELLS
            elif tree.startswith("consumequeue") and (row["topic"], row["queue_id"]) in queues:
                place = 1, queues[row["topic"], row["queue_id"]], len(queues)
            elif tree == "index" and name in files:
                place = 2, files.index(name), len(files)
            if place is not None:
                strip, number, count = place
                cells.append((strip, number / count, (number + 1) / count, row["severity"]))
        log = figures.state.log
        trees = [
            ("commit log", f"offset {log.start:,}", f"{log.end:,}"),
            ("queues", "first", f"{len(queues):,} queues"),
            ("index files", "oldest", f"{len(files):,} files"),
        ]
        found = pd.DataFrame(sorted(set(cells)), columns=["tree", "start", "stop", "severity"])
        return plots.damage_map(found, trees, figures.summary["errors"])

    def _retained(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("queue_id", "queue"),
            Column("messages", "messages", "count", "max_offset - min_offset"),
            Column("first_store_timestamp", "first message", "time"),
            Column("last_store_timestamp", "last message", "time"),
            self._aged("first_store_timestamp", "age of the first"),
            Column("state", "state"),
        )
        rows = in_order(rows_of(self._figures.tables["queues"]), "first_store_timestamp", "topic", "queue_id")
        for row in rows:
            has_ends = row["min_offset"] is not None
            row["messages"] = row["max_offset"] - row["min_offset"] if has_ends else None
            row["age_millis"] = self._age(row, "first_store_timestamp")
        frame = frame_of(rows, "topic", "first_store_timestamp", "last_store_timestamp")
        topics = frame.groupby("topic", as_index=False)
        by_topic = topics.agg(first=("first_store_timestamp", "min"), last=("last_store_timestamp", "max"))
        at, hours = pd.Timestamp(self._figures.at, unit="ms", tz="UTC"), self._figures.retention.reserved_hours.value
        title = "How far back messages go"
        say = "The first and the last message of each queue, as a broker offers them; the oldest come first."
        query = self._sql(columns, "FROM queues ORDER BY first_store_timestamp NULLS LAST, topic, queue_id")
        return self._section("retained", title, say, columns, rows, query, lambda: plots.retained(by_topic, at, hours))

    def _losses(self) -> Section:
        columns = (
            Column("consumer_group", "consumer group"),
            Column("topic", "topic"),
            Column("queue_id", "queue"),
            Column("unread", "unread messages", "count"),
            Column("loses", "loses then", "count"),
            Column("lost", "lost already", "count"),
            Column("delete_timestamp", "deleted at", "time"),
        )
        rows = [
            {**vars(one), "delete_timestamp": moment_of_millis(one.delete_timestamp)}
            for one in self._figures.retention.unread
        ]
        title = "Who loses unread messages at the next expiry"
        say = "A broker deletes whole segments, whether their messages were read or not. The first loss comes first."
        return self._section("losses", title, say, columns, rows, self._retention())

    def _retention(self, more: str = "") -> str:
        return f"spark-mq retention {self._store} --at {iso_text(self._figures.at)}{more} --json"

    def _expiry(self) -> Section:
        columns = (
            Column("file", "segment"),
            Column("last_store_timestamp", "last message", "time"),
            Column("expire_timestamp", "expires", "time"),
            Column("delete_timestamp", "deleted at", "time"),
            Column("freed_bytes", "frees", "bytes"),
        )
        names = [column.name for column in columns]
        rows = [{name: getattr(one, name) for name in names} for one in self._figures.retention.segments]
        for row in rows:
            row |= {name: moment_of_millis(row[name]) for name in names[1:4]}
        figures = self._figures
        say = "Each segment, and when a broker deletes it."
        if figures.archive is not None:
            to, end = figures.archived_to, figures.state.log.end
            left = "all of the log" if to is not None and to >= end else f"the log up to commit log offset {to:,}"
            known = "Without Spark it is not known what the archive has" if to is None else f"The archive has {left}"
            say = f"{say} {known}: {figures.archive}."
        return self._section("expiry", "What expires when", say, columns, rows, self._retention())

    def _disk(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count"),
            Column("log_bytes", "bytes of the log", "bytes"),
            Column("expired_bytes", "of these expired", "bytes"),
        )
        found = self._figures.retention
        rows = [vars(one) for one in found.topics or ()]
        by_topic = pd.Series({one.topic: one.log_bytes for one in found.topics or ()}, dtype="int64")
        ages = {_age_name(one.from_hours, one.to_hours): one.log_bytes for one in found.ages}
        by_age = pd.Series(ages, dtype="int64")
        by_tree = pd.Series({use.tree: use.size for use in self._figures.state.disk}, dtype="int64")
        draws = (
            partial(plots.share, by_topic, "bytes of the log", "topic", as_text=size_text),
            partial(plots.share, by_age, "bytes of the log", "age", "is the age of", as_text=size_text),
            partial(plots.share, by_tree, "bytes of the store", "folder", as_text=size_text),
        )
        say = "All topics count, also the broker's own. Age is that of the newest message of a segment."
        query = self._retention(" --by-topic")
        return self._section("disk", "Disk by topic and age", say, columns, rows, query, *draws)


_KINDS: dict[type[Figures], type[MessageSections]] = {ArchiveFigures: _ArchiveSections, StoreFigures: _StoreSections}


def _age_name(low: int, high: int | None) -> str:
    return f"{low} h or more" if high is None else f"{low} to {high} h"
