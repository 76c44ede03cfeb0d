"""The sections about messages of a page: consumers, messages that wait, rates, sizes, keys, tags and producers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.timestamp import moment_of_millis
from spark_mq.lifecycle.statistics import NOT_OF_USERS, is_of_users
from spark_mq.reporter import plots
from spark_mq.reporter.plot import Plot, nothing
from spark_mq.reporter.section import Column, Section, SectionMaker, frame_of, in_order, rows_of

_NO_TAG = "(no tag)"
_USERS = f"NOT topic RLIKE '{NOT_OF_USERS}'"
_OF_USERS = "Messages that producers sent count; those of the broker's own topics, retries and dead letters do not."


class MessageSections(SectionMaker):
    """Makes the sections of what the messages of a store say."""

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

    def _from_users(self, table: str) -> str:
        return f"{self._from(table)} WHERE {_USERS}"

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
        rows = rows_of(self._figures.tables["consumer_progress"])
        rows = in_order(rows, "consumer_group", "topic")
        rows = in_order(in_order(rows, "lag", largest=True), "lag_millis", largest=True)
        frame = frame_of(rows, "consumer_group", "topic", "lag", "lag_millis")
        order = "ORDER BY lag_millis DESC NULLS LAST, lag DESC NULLS LAST, consumer_group NULLS LAST, topic"
        title = "Who lags, and by how much time"
        say = "By the offsets in config/, which a broker writes every few seconds."
        query = self._sql(columns, f"{self._from('consumer_progress')} {order}", has_time=True)
        return self._section("lag", title, say, columns, rows, query, lambda: plots.lag_time(frame))

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
        title = "Delayed messages that were not delivered"
        say = "OVERDUE is due and not delivered, because the broker has stopped or is late."
        states = ("OVERDUE", "WAITING", "UNKNOWN")
        rows, query = self._open("delayed", columns, "due_timestamp", "store_timestamp", *states)
        draw = partial(plots.deliveries, self._deliveries())
        return self._section("delayed", title, say, columns, rows, query, draw)

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
        say = "PENDING: the producer has neither committed nor rolled back the half message, and the broker asks it."
        rows, query = self._open("transactions", columns, "born_timestamp", "born_timestamp", "PENDING", "UNKNOWN")
        return self._section("transactions", "Transactions without an end", say, columns, rows, query)

    def _open(
        self, table: str, columns: Sequence[Column], order: str, aged: str, *states: str
    ) -> tuple[list[dict[str, Any]], str]:
        """The rows in these states by a time, each with its age since another, and their query."""
        rows = in_order(self._figures.open(table, *states), order, "unique_key")
        for row in rows:
            row["age_millis"] = self._age(row, aged)
        named = ", ".join(f"'{state}'" for state in states)
        rest = f"{self._from(table)} WHERE state IN ({named}) ORDER BY {order} NULLS LAST, unique_key NULLS LAST"
        return rows, self._sql(columns, rest, has_time=True)

    def _dead_letters(self) -> Section:
        columns = (
            Column("consumer_group", "consumer group"),
            Column("origin_topic", "topic"),
            Column("reconsume_times", "consumed in vain", "count"),
            Column("store_timestamp", "given up", "time"),
            self._aged("store_timestamp"),
            Column("unique_key", "unique key"),
        )
        rows = in_order(rows_of(self._figures.tables["dead_letters"]), "store_timestamp", "unique_key")
        for row in rows:
            row["age_millis"] = self._age(row, "store_timestamp")
        counts = pd.Series(Counter(row["consumer_group"] for row in rows), dtype="int64")
        draws = [lambda: plots.share(counts, "dead letters", "consumer group")] if rows else []
        order = "ORDER BY store_timestamp NULLS LAST, unique_key NULLS LAST"
        say = "Messages that consumer groups gave up. `spark-mq resend` sends them again."
        query = self._sql(columns, f"{self._from('dead_letters')} {order}")
        return self._section("dead_letters", "Dead letters", say, columns, rows, query, *draws)

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
        query = self._sql(columns, f"{self._from_users('rates')} GROUP BY topic ORDER BY messages DESC, topic")
        return self._section("rates", "Messages over time", _OF_USERS, columns, rows, query, lambda: _heat_map(rates))

    def _delays(self) -> Section:
        delay = "greatest(0, unix_millis(store_timestamp) - unix_millis(born_timestamp))"
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count", "count(*)"),
            *_quantiles(delay, "millis"),
        )
        whole, rows = _ranges(self._figures.tables["delays"], "slow")
        frame = frame_of(rows, "topic", "messages", "median", "slow")
        say = f"{_OF_USERS} A message that was sent in a transaction or with a delay keeps the time of its birth."
        query = self._sql(columns, f"{self._from_users('messages')} GROUP BY topic ORDER BY slow DESC, topic")
        draw = partial(plots.delays, frame, whole.get("median", 0))
        return self._section("delays", "From the producer to the store", say, columns, rows, query, draw)

    def _sizes(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("messages", "messages", "count", "count(*)"),
            Column("bytes", "bytes", "bytes", "sum(store_size)"),
            *_quantiles("store_size", "bytes"),
        )
        whole, rows = _ranges(self._figures.tables["sizes"], "total")
        say = f"{_OF_USERS} A size is that of the record in the log."
        query = self._sql(columns, f"{self._from_users('messages')} GROUP BY topic ORDER BY bytes DESC, topic")
        draw = partial(plots.sizes, _doublings(self._figures.sizes), whole.get("median", 0), whole.get("most", 0))
        return self._section("sizes", "Sizes", say, columns, rows, query, draw)

    def _tags(self) -> Section:
        columns = (
            Column("tags", "tag"),
            Column("messages", "messages", "count", "sum(message_count)"),
            Column("bytes", "bytes", "bytes", "sum(log_bytes)"),
        )
        rates, functions = _users(self._figures.tables["rates"]), [("message_count", "sum"), ("log_bytes", "sum")]
        rows = _grouped(rates, "tags", functions, columns)
        counts: Counter[str] = Counter()
        for row in rows:
            counts[_NO_TAG if row["tags"] is None else row["tags"]] += row["messages"]
        by_tag = pd.Series(counts, dtype="int64")
        query = self._sql(columns, f"{self._from_users('rates')} GROUP BY tags ORDER BY messages DESC, tags NULLS LAST")
        draw = partial(plots.share, by_tag, "messages", "tag", absent=_NO_TAG)
        return self._section("tags", "Tags", _OF_USERS, columns, rows, query, draw)

    def _hot_keys(self) -> Section:
        columns = (
            Column("topic", "topic"),
            Column("key", "key"),
            Column("message_count", "messages", "count"),
            Column("log_bytes", "bytes", "bytes"),
            Column("first_store_timestamp", "first", "time"),
            Column("last_store_timestamp", "last", "time"),
        )
        rows = rows_of(self._figures.tables["hot_keys"])
        say = "The keys of most messages, and those of most bytes. The broker's own topics do not count."
        query = self._sql(columns, f"{self._from('hot_keys')} ORDER BY message_count DESC, log_bytes DESC, topic, key")
        return self._section("hot_keys", "Hot keys", say, columns, rows, query)

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
        frame = frame_of(rows, "topic", "queues", "messages", "most")
        inner = f"SELECT topic, queue_id, sum(message_count) AS messages {self._from_users('skew')} GROUP BY ALL"
        title = "How evenly queues are used"
        say = f"{_OF_USERS} One consumer reads the fullest queue, and the topic is not read faster than that."
        query = self._sql(columns, f"FROM ({inner}) GROUP BY topic ORDER BY most DESC, topic")
        return self._section("skew", title, say, columns, rows, query, lambda: plots.uneven(frame))

    def _producers(self) -> Section:
        columns = (
            Column("host", "address", "text", "regexp_replace(born_host, ':[0-9]+$', '')"),
            Column("messages", "messages", "count", "count(*)"),
            Column("bytes", "bytes", "bytes", "sum(store_size)"),
        )
        producers, functions = _users(self._figures.tables["producers"]), [("count", "sum"), ("store_size", "sum")]
        rows = _grouped(producers, "born_host", functions, columns)
        counts = pd.Series({row["host"]: row["messages"] for row in rows}, dtype="int64")
        say = f"{_OF_USERS} All clients of a machine count together."
        query = self._sql(columns, f"{self._from_users('messages')} GROUP BY host ORDER BY messages DESC, host")
        draw = partial(plots.share, counts, "messages", "producer's machine", "sent")
        return self._section("producers", "Producers", say, columns, rows, query, draw)


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
    return in_order(in_order(rows, names[0]), names[largest], largest=True)


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
    whole, *topics = rows_of(table) or [{}]
    ordered = in_order(in_order(topics, "topic"), largest, largest=True)
    return whole, [{**row, "bytes": row["total"]} for row in ordered]


def _heat_map(rates: pa.Table) -> Plot:
    known = rates.filter(pc.is_valid(rates["minute"]))
    frame = frame_of(known.to_pylist(), "minute", "topic", "message_count")
    if frame.empty:
        return nothing("There are no messages")
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
