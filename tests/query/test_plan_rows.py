"""Pushdown does not change the rows of random queries: SQLite judges, because it answers quickly."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from spark_mq.query.comparisons import TableColumns
from spark_mq.query.plan import Reference, plan_references
from tests.query.random_queries import COLUMNS, Vocabulary, random_query

NUMBERS = ("0", "1", "2", "1 + 1", "-1", "(2)", "NULL")
WORDS = Vocabulary(
    tables=("prod.messages", "messages"),
    constants={"topic": ("'a'", "'b'", "'A'", "NULL"), **dict.fromkeys(COLUMNS[1:], NUMBERS)},
    operators=(*Vocabulary.operators, "IS"),
)
VALUES = (("a", "b", "A", None), *[(0, 1, 2, None)] * 3)
KNOWN = TableColumns((*COLUMNS, "body"), pushable=frozenset(COLUMNS), enumerated=frozenset(COLUMNS))

pytestmark = pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 39), reason="SQLite has no FULL JOIN before 3.39")


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE whole ({', '.join(COLUMNS)})")
        yield connection


def answer(database: sqlite3.Connection, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(database.execute(query))


def needed(reference: Reference) -> str:
    """A query of the rows and columns that are read for a reference."""
    columns = COLUMNS if reference.columns is None else [name for name in reference.columns if name in COLUMNS]
    where = " AND ".join(map(str, reference.comparisons)) or "true"
    return f"SELECT {', '.join(columns) or '1'} FROM whole WHERE {where}"


@settings(max_examples=1000)
@given(random=st.randoms(use_true_random=True))
def test_pushdown_does_not_change_the_rows_of_any_query(database: sqlite3.Connection, random: Random) -> None:
    query = random_query(random, WORDS)
    rows = [[random.choice(values) for values in VALUES] for _ in range(random.randint(1, 10))]
    plan = plan_references(query, ["prod"], lambda table: KNOWN)
    database.execute("DELETE FROM whole")
    database.executemany("INSERT INTO whole VALUES (?, ?, ?, ?)", rows)
    for reference in plan.references:
        database.execute(f"DROP VIEW IF EXISTS {reference.name}")
        database.execute(f"CREATE VIEW {reference.name} AS {needed(reference)}")
    names = [reference.name for reference in plan.references]
    note(f"{query}\n{rows}")
    judged = answer(database, plan.template.format(**dict.fromkeys(names, "whole")))
    assert answer(database, plan.template.format(**dict(zip(names, names, strict=True)))) == judged
