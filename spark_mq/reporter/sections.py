"""The sections of a store's page: for each question a plot, a table, and the query that gives the table's rows.

A query is a command of a shell. The rows of a section are the first ones of its query, value by value.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.amounts import size_text
from spark_mq.format.timestamp import iso_text, moment_of_millis
from spark_mq.lifecycle.statistics import NOT_OF_USERS, is_of_users
from spark_mq.reporter import plots
from spark_mq.reporter.figures import CELLS, ArchiveFigures, Figures, StoreFigures

_NO_TAG = "(no tag)"
_USERS = f"NOT topic RLIKE '{NOT_OF_USERS}'"
_OF_USERS = "Messages that producers sent count; those of the broker's own topics, retries and dead letters do not."


@dataclass(frozen=True)
class Column:
    """A column of a section's table; `kind` is `text`, `count`, `bytes`, `millis` (a duration) or `time`.

    `sql` is the expression that gives its values, if that is not the name.
    """

    name: str
    title: str
    kind: str = "text"
    sql: str = ""


@dataclass(frozen=True)
class Section:
    """A question about a store, and its answer.

    Attributes:
        say: What the numbers count.
        rows: The first rows of the table, of `total`.
        query: The command that prints all rows.
        problem: Why the rows are not known; empty if they are.
        draws: Each draws a plot; the form of plots can be changed before that (`plots.narrow`).
    """

    name: str
    title: str
    say: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total: int
    query: str
    problem: str = ""
    draws: Sequence[Callable[[], plots.Plot]] = ()


def sections(figures: Figures, most_rows: int) -> Iterator[Section]:
    """The sections of a store's page, in the order of the page; a table has at most so many rows."""
    yield from _KINDS[type(figures)](figures, most_rows).all()


class _Sections:
    """Makes the sections of what the messages of a store say."""

    def __init__(self, figures: Figures, most_rows: int) -> None:
        self._figures = figures
        self._most_rows = most_rows
        self._store = shlex.quote(figures.store)

    def all(self) -> Iterator[Section]:
        """The sections."""
        yield self._lag()
        yield from self._waiting()
        yield from self._statistics()

    def _waiting(self) -> Iterator[Section]:
        yield self._delayed()
        yield self._half_messages()
        yield self._dead_letters()

    def _statistics(self) -> Iterator[Section]:
        yield self._rates()
        yield self._delays()
        yield self._sizes()
        yield self._tags()
        yield self._hot_keys()
        yield self._skew()
        yield self._producers()

    def _section(
        self,
        name: str,
        title: str,
        say: str,
        columns: Sequence[Column],
        rows: Sequence[dict[str, Any]],
        query: str,
        *draws: Callable[[], plots.Plot],
        table: str = "",
    ) -> Section:
        shown = [[row[column.name] for column in columns] for row in rows[: self._most_rows]]
        return Section(name, title, say, columns, shown, len(rows), query, self._figures.problems.get(table, ""), draws)

    def _sql(self, columns: Sequence[Column], rest: str, has_time: bool = False) -> str:
        """The command of a query that selects these columns."""
        at = f" --option at={iso_text(self._figures.at)}" if has_time else ""
        selected = (f"{column.sql} AS {column.name}" if column.sql else column.name for column in columns)
        text = f"SELECT {', '.join(selected)} {rest}"
        return f"spark-mq sql {shlex.quote(text)} {self._source(at)}"

    def _source(self, at: str) -> str:
        """The arguments with which a query finds the tables; `at` are those with the time of the question."""
        return f"--store s={self._store}{at}"

    def _from(self, table: str) -> str:
        """`FROM` with the rows of this store."""
        return f"FROM {table}"

    def _from_users(self, table: str) -> str:
        return f"{self._from(table)} WHERE {_USERS}"

    def _age(self, row: dict[str, Any], column: str) -> int | None:
        time = row[column]
        return None if time is None else self._figures.at - pa.scalar(time, pa.timestamp("ms", "UTC")).value

    def _aged(self, column: str, title: str = "age") -> Column:
        return Column("age_millis", title, "millis", f"{self._figures.at} - unix_millis({column})")

    def _lag(self) -> Section:
        columns = (
            Column("consumer_group", "consumer group"),
            Column("topic", "topic"),
            Column("state", "state"),
            Column("lag", "unread messages", "count"),
            Column("lag_millis", "age of the oldest", "millis"),
            Column("expired_messages", "of these expired", "count"),
            Column("group_retries", "retries", "count"),
            Column("group_dead_letters", "dead letters", "count"),
            Column("reason", "why it is not known"),
        )
        rows = _rows(self._figures.tables["consumer_progress"])
        rows = _ordered(rows, "consumer_group", "topic")
        rows = _ordered(_ordered(rows, "lag", largest=True), "lag_millis", largest=True)
        frame = _frame(rows, "consumer_group", "topic", "lag", "lag_millis")
        order = "ORDER BY lag_millis DESC NULLS LAST, lag DESC NULLS LAST, consumer_group NULLS LAST, topic"
        return self._section(
            "lag",
            "Who lags, and by how much time",
            "By the offsets in config/, which a broker writes every few seconds.",
            columns,
            rows,
            self._sql(columns, f"{self._from('consumer_progress')} {order}", has_time=True),
            lambda: plots.lag_time(frame),
            table="consumer_progress",
        )

    def _delayed(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("state", "state"),
            Column("delayed_by", "delayed by"),
            Column("due_timestamp", "due", "time"),
            Column("store_timestamp", "stored", "time"),
            self._aged("store_timestamp"),
            Column("unique_key", "unique key"),
            Column("reason", "why it is not known"),
        )
        return self._open(
            "delayed",
            "Delayed messages that were not delivered",
            "OVERDUE is due and not delivered, because the broker has stopped or is late.",
            columns,
            ("OVERDUE", "WAITING", "UNKNOWN"),
            "due_timestamp",
            "store_timestamp",
            lambda: plots.deliveries(self._deliveries()),
        )

    def _deliveries(self) -> pd.DataFrame:
        """The delayed messages that are due, and how late each was delivered or is."""
        rows = self._figures.open("delayed", "DELIVERED", "OVERDUE")
        due = [row["due_timestamp"] for row in rows]
        ends = [row["delivered_timestamp"] or moment_of_millis(self._figures.at) for row in rows]
        late = [
            None if None in both else max((both[1] - both[0]).total_seconds() * 1000, 0)
            for both in zip(due, ends, strict=True)
        ]
        return pd.DataFrame({"due": due, "late": late, "is_delivered": [row["state"] == "DELIVERED" for row in rows]})

    def _half_messages(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("state", "state"),
            Column("producer_group", "producer group"),
            Column("checks", "checks", "count"),
            Column("born_timestamp", "sent", "time"),
            self._aged("born_timestamp"),
            Column("unique_key", "unique key"),
            Column("reason", "why it is not known"),
        )
        return self._open(
            "transactions",
            "Transactions without an end",
            "PENDING: the producer has neither committed nor rolled back the half message, and the broker asks it.",
            columns,
            ("PENDING", "UNKNOWN"),
            "born_timestamp",
            "born_timestamp",
        )

    def _open(
        self,
        table: str,
        title: str,
        say: str,
        columns: Sequence[Column],
        states: tuple[str, ...],
        order: str,
        aged: str,
        *draws: Callable[[], plots.Plot],
    ) -> Section:
        rows = _ordered(self._figures.open(table, *states), order, "unique_key")
        for row in rows:
            row["age_millis"] = self._age(row, aged)
        named = ", ".join(f"'{state}'" for state in states)
        rest = f"{self._from(table)} WHERE state IN ({named}) ORDER BY {order} NULLS LAST, unique_key NULLS LAST"
        query = self._sql(columns, rest, has_time=True)
        return self._section(table, title, say, columns, rows, query, *draws, table=table)

    def _dead_letters(self) -> Section:
        columns = (
            Column("consumer_group", "consumer group"),
            Column("origin_topic", "topic"),
            Column("reconsume_times", "consumed in vain", "count"),
            Column("store_timestamp", "given up", "time"),
            self._aged("store_timestamp"),
            Column("unique_key", "unique key"),
        )
        rows = _ordered(_rows(self._figures.tables["dead_letters"]), "store_timestamp", "unique_key")
        for row in rows:
            row["age_millis"] = self._age(row, "store_timestamp")
        counts = pd.Series(Counter(row["consumer_group"] for row in rows), dtype="int64")
        draws = [lambda: plots.share(counts, "dead letters", "consumer group")] if rows else []
        order = "ORDER BY store_timestamp NULLS LAST, unique_key NULLS LAST"
        return self._section(
            "dead_letters",
            "Dead letters",
            "Messages that consumer groups gave up. `spark-mq resend` sends them again.",
            columns,
            rows,
            self._sql(columns, f"{self._from('dead_letters')} {order}"),
            *draws,
            table="dead_letters",
        )

    def _rates(self) -> Section:
        rates = _users(self._figures.tables["rates"])
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count", "sum(message_count)"),
            Column("bytes", "bytes", "bytes", "sum(log_bytes)"),
            Column("first", "first minute", "time", "min(minute)"),
            Column("last", "last minute", "time", "max(minute)"),
        )
        functions = [("message_count", "sum"), ("log_bytes", "sum"), ("minute", "min"), ("minute", "max")]
        rows = _grouped(rates, "topic", functions, columns)
        return self._section(
            "rates",
            "Messages over time",
            _OF_USERS,
            columns,
            rows,
            self._sql(columns, f"{self._from_users('rates')} GROUP BY topic ORDER BY messages DESC, topic"),
            lambda: _heat_map(rates),
        )

    def _delays(self) -> Section:
        delay = "greatest(0, unix_millis(store_timestamp) - unix_millis(born_timestamp))"
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count", "count(*)"),
            *_quantiles(delay, "millis"),
        )
        whole, rows = _ranges(self._figures.tables["delays"], "slow")
        frame = _frame(rows, "topic", "messages", "median", "slow")
        return self._section(
            "delays",
            "From the producer to the store",
            f"{_OF_USERS} A message that was sent in a transaction or with a delay keeps the time of its birth.",
            columns,
            rows,
            self._sql(columns, f"{self._from_users('messages')} GROUP BY topic ORDER BY slow DESC, topic"),
            lambda: plots.delays(frame, whole.get("median", 0)),
        )

    def _sizes(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count", "count(*)"),
            Column("bytes", "bytes", "bytes", "sum(store_size)"),
            *_quantiles("store_size", "bytes"),
        )
        whole, rows = _ranges(self._figures.tables["sizes"], "total")
        counts = self._figures.sizes
        return self._section(
            "sizes",
            "Sizes",
            f"{_OF_USERS} A size is that of the record in the log.",
            columns,
            rows,
            self._sql(columns, f"{self._from_users('messages')} GROUP BY topic ORDER BY bytes DESC, topic"),
            lambda: plots.sizes(_doublings(counts), whole.get("median", 0), whole.get("most", 0)),
        )

    def _tags(self) -> Section:
        columns = (
            Column("tags", "tag"),
            Column("messages", "messages", "count", "sum(message_count)"),
            Column("bytes", "bytes", "bytes", "sum(log_bytes)"),
        )
        rows = _grouped(
            _users(self._figures.tables["rates"]), "tags", [("message_count", "sum"), ("log_bytes", "sum")], columns
        )
        counts: Counter[str] = Counter()
        for row in rows:
            counts[_NO_TAG if row["tags"] is None else row["tags"]] += row["messages"]
        by_tag = pd.Series(counts, dtype="int64")
        return self._section(
            "tags",
            "Tags",
            _OF_USERS,
            columns,
            rows,
            self._sql(
                columns,
                f"{self._from_users('rates')} GROUP BY tags ORDER BY messages DESC, tags NULLS LAST",
            ),
            lambda: plots.share(by_tag, "messages", "tag", absent=_NO_TAG),
        )

    def _hot_keys(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("key", "key"),
            Column("message_count", "messages", "count"),
            Column("log_bytes", "bytes", "bytes"),
            Column("first_store_timestamp", "first", "time"),
            Column("last_store_timestamp", "last", "time"),
        )
        rows = _rows(self._figures.tables["hot_keys"])
        order = "ORDER BY message_count DESC, log_bytes DESC, topic, key"
        return self._section(
            "hot_keys",
            "Hot keys",
            "The keys of most messages, and those of most bytes. The broker's own topics do not count.",
            columns,
            rows,
            self._sql(columns, f"{self._from('hot_keys')} {order}"),
        )

    def _skew(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("queues", "queues with messages", "count", "count(*)"),
            Column("messages", "messages", "count", "sum(messages)"),
            Column("most", "in the fullest queue", "count", "max(messages)"),
        )
        found = _users(self._figures.tables["skew"])
        by_queue = found.group_by(["topic", "queue_id"], use_threads=False).aggregate([("message_count", "sum")])
        functions = [("queue_id", "count"), ("message_count_sum", "sum"), ("message_count_sum", "max")]
        rows = _grouped(by_queue, "topic", functions, columns, largest=3)
        frame = _frame(rows, "topic", "queues", "messages", "most")
        inner = f"SELECT topic, queue_id, sum(message_count) AS messages {self._from_users('skew')} GROUP BY ALL"
        return self._section(
            "skew",
            "How evenly queues are used",
            f"{_OF_USERS} One consumer reads the fullest queue, and the topic is not read faster than that.",
            columns,
            rows,
            self._sql(columns, f"FROM ({inner}) GROUP BY topic ORDER BY most DESC, topic"),
            lambda: plots.uneven(frame),
        )

    def _producers(self) -> Section:
        columns = (
            Column("host", "address", "text", "regexp_replace(born_host, ':[0-9]+$', '')"),
            Column("messages", "messages", "count", "count(*)"),
            Column("bytes", "bytes", "bytes", "sum(store_size)"),
        )
        rows = _grouped(
            _users(self._figures.tables["producers"]), "born_host", [("count", "sum"), ("store_size", "sum")], columns
        )
        counts = pd.Series({row["host"]: row["messages"] for row in rows}, dtype="int64")
        return self._section(
            "producers",
            "Producers",
            f"{_OF_USERS} All clients of a machine count together.",
            columns,
            rows,
            self._sql(columns, f"{self._from_users('messages')} GROUP BY host ORDER BY messages DESC, host"),
            lambda: plots.share(counts, "messages", "producer's machine", "sent"),
        )


class _ArchiveSections(_Sections):
    """Makes the sections of a store in an archive, which can have several stores."""

    _figures: ArchiveFigures

    def _source(self, at: str) -> str:
        return f"--archive s={shlex.quote(self._figures.archive)}"

    def _from(self, table: str) -> str:
        from spark_mq.archive.archive_tables import sql_text

        names = " AND ".join(f"{name} = {sql_text(value)}" for name, value in self._figures.names.items())
        return f"FROM (SELECT * FROM {table} WHERE {names})"


class _StoreSections(_Sections):
    """Makes the sections of a store directory."""

    _figures: StoreFigures

    def all(self) -> Iterator[Section]:
        """The sections."""
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
        return self._section(
            "damage",
            "Damage",
            "Every record, queue unit, index entry and file of config/ was compared with the log.",
            columns,
            rows,
            f"spark-mq verify {self._store} --report findings.parquet",
            lambda: self._damage_map(damage),
        )

    def _damage_map(self, damage: pa.Table) -> plots.Plot:
        figures = self._figures
        queues = {(row["topic"], row["queue_id"]): number for number, row in enumerate(_rows(figures.tables["queues"]))}
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
        rows = _ordered(_rows(self._figures.tables["queues"]), "first_store_timestamp", "topic", "queue_id")
        for row in rows:
            has_ends = row["min_offset"] is not None
            row["messages"] = row["max_offset"] - row["min_offset"] if has_ends else None
            row["age_millis"] = self._age(row, "first_store_timestamp")
        topics = _frame(rows, "topic", "first_store_timestamp", "last_store_timestamp").groupby("topic", as_index=False)
        by_topic = topics.agg(first=("first_store_timestamp", "min"), last=("last_store_timestamp", "max"))
        at, hours = pd.Timestamp(self._figures.at, unit="ms", tz="UTC"), self._figures.retention.reserved_hours.value
        return self._section(
            "retained",
            "How far back messages go",
            "The first and the last message of each queue, as a broker offers them; the oldest come first.",
            columns,
            rows,
            self._sql(columns, "FROM queues ORDER BY first_store_timestamp NULLS LAST, topic, queue_id"),
            lambda: plots.retained(by_topic, at, hours),
            table="queues",
        )

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
        return self._section(
            "losses",
            "Who loses unread messages at the next expiry",
            "A broker deletes whole segments, whether their messages were read or not. The first loss comes first.",
            columns,
            rows,
            self._retention(),
        )

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
        by_age = pd.Series(
            {_age_name(one.from_hours, one.to_hours): one.log_bytes for one in found.ages}, dtype="int64"
        )
        by_tree = pd.Series({use.tree: use.size for use in self._figures.state.disk}, dtype="int64")
        return self._section(
            "disk",
            "Disk by topic and age",
            "All topics count, also the broker's own. Age is that of the newest message of a segment.",
            columns,
            rows,
            self._retention(" --by-topic"),
            lambda: plots.share(by_topic, "bytes of the log", "topic", as_text=size_text),
            lambda: plots.share(by_age, "bytes of the log", "age", "is the age of", as_text=size_text),
            lambda: plots.share(by_tree, "bytes of the store", "folder", as_text=size_text),
        )


_KINDS: dict[type[Figures], type[_Sections]] = {ArchiveFigures: _ArchiveSections, StoreFigures: _StoreSections}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _ordered(rows: Sequence[dict[str, Any]], *names: str, largest: bool = False) -> list[dict[str, Any]]:
    """The rows by columns, from the least value on or the largest; NULL is last."""
    for name in reversed(names):
        known = sorted((row for row in rows if row[name] is not None), key=lambda row: row[name], reverse=largest)
        rows = [*known, *(row for row in rows if row[name] is None)]
    return list(rows)


def _users(table: pa.Table) -> pa.Table:
    """The rows of topics to which producers send."""
    return table.filter(pa.array([is_of_users(topic) for topic in table["topic"].to_pylist()], pa.bool_()))


def _grouped(
    table: pa.Table, by: str, functions: Sequence[tuple[str, str]], columns: Sequence[Column], largest: int = 1
) -> list[dict[str, Any]]:
    """Sums by a column, as rows of `columns`, whose first is that column; the largest value of one column first."""
    sums = table.group_by([by], use_threads=False).aggregate(list(functions))
    selected = sums.select([by, *(f"{column}_{function}" for column, function in functions)])
    names = [column.name for column in columns]
    rows = [dict(zip(names, row.values(), strict=True)) for row in selected.to_pylist()]
    return _ordered(_ordered(rows, names[0]), names[largest], largest=True)


def _quantiles(value: str, kind: str) -> tuple[Column, ...]:
    def quantile(part: float) -> str:
        return f"percentile_disc({part}) WITHIN GROUP (ORDER BY {value})"

    return (
        Column("median", "half have at most", kind, quantile(0.5)),
        Column("slow", "99 % have at most", kind, quantile(0.99)),
        Column("most", "largest", kind, f"max({value})"),
    )


def _ranges(table: pa.Table, largest: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of all topics of `value_ranges`, and the rows of the topics, those with the largest value first."""
    whole, *topics = _rows(table) or [{}]
    ordered = _ordered(_ordered(topics, "topic"), largest, largest=True)
    return whole, [{**row, "bytes": row["total"]} for row in ordered]


def _frame(rows: Sequence[dict[str, Any]], *names: str) -> pd.DataFrame:
    return pd.DataFrame({name: [row[name] for row in rows] for name in names})


def _heat_map(rates: pa.Table) -> plots.Plot:
    known = rates.filter(pc.is_valid(rates["minute"]))
    frame = _frame(known.to_pylist(), "minute", "topic", "message_count")
    if frame.empty:
        return plots.nothing("There are no messages")
    step, name = plots.time_step(frame["minute"].min(), frame["minute"].max())
    step, name = max((step, name), (pd.Timedelta("1min"), "minute"), key=lambda one: one[0])
    frame["time"] = frame["minute"].dt.floor(step)
    counts = frame.groupby(["time", "topic"], as_index=False)["message_count"].sum()
    return plots.heat_map(counts.assign(messages=counts["message_count"]), step, name)


def _doublings(counts: pa.Table) -> pd.DataFrame:
    """How many messages have which size: bars between a size and its double."""
    frame = pd.DataFrame({name: counts[name].to_pylist() for name in ("value", "count")}, dtype="int64")
    bars = frame.assign(bar=[max(int(value), 1).bit_length() - 1 for value in frame["value"]])
    found = bars.groupby("bar", as_index=False)["count"].sum()
    return pd.DataFrame({"left": 2.0 ** found["bar"], "right": 2.0 ** (found["bar"] + 1), "messages": found["count"]})


def _age_name(low: int, high: int | None) -> str:
    return f"{low} h or more" if high is None else f"{low} to {high} h"
