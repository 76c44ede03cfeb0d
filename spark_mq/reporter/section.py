"""A section of a page: a question about a store, with a plot, a table, and the query that gives the rows of the table.

A query is a command of a shell. The rows of a section are the first ones of its query, value by value.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from spark_mq.format.timestamp import iso_text
from spark_mq.reporter.figures import Figures
from spark_mq.reporter.plot import Plot

_TABLES = {"lag": "consumer_progress", "retained": "queues"}
"""The tables of sections that do not have their names."""


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
        problem: Why the rows are not known; empty if they are.
        draws: Each draws a plot; the form of plots can be changed before that (`plot.narrow`).
    """

    name: str
    title: str
    say: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total: int
    query: str
    problem: str = ""
    draws: Sequence[Callable[[], Plot]] = ()


class SectionMaker:
    """Makes sections of the figures of a store."""

    def __init__(self, figures: Figures, most_rows: int) -> None:
        self._figures = figures
        self._most_rows = most_rows
        self._store = shlex.quote(figures.store)

    def _section(
        self,
        name: str,
        title: str,
        say: str,
        columns: Sequence[Column],
        rows: Sequence[dict[str, Any]],
        query: str,
        *draws: Callable[[], Plot],
    ) -> Section:
        problem = self._figures.problems.get(_TABLES.get(name, name), "")
        shown = [[row[column.name] for column in columns] for row in rows[: self._most_rows]]
        return Section(name, title, say, columns, shown, len(rows), query, problem, draws)

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

    def _age(self, row: dict[str, Any], column: str) -> int | None:
        time = row[column]
        return None if time is None else self._figures.at - pa.scalar(time, pa.timestamp("ms", "UTC")).value

    def _aged(self, column: str, title: str = "age") -> Column:
        return Column("age_millis", title, "millis", f"{self._figures.at} - unix_millis({column})")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def in_order(rows: Sequence[dict[str, Any]], *names: str, largest: bool = False) -> list[dict[str, Any]]:
    """The rows by columns, from the least value on or the largest; NULL is last."""
    for name in reversed(names):
        known = sorted((row for row in rows if row[name] is not None), key=lambda row: row[name], reverse=largest)
        rows = [*known, *(row for row in rows if row[name] is None)]
    return list(rows)


def frame_of(rows: Sequence[dict[str, Any]], *names: str) -> pd.DataFrame:
    """Columns of rows, for a plot."""
    return pd.DataFrame({name: [row[name] for row in rows] for name in names})
