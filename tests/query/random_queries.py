"""Random queries over stores' tables, for tests that compare two ways of answering them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp")
"""The columns that every relation of a query has; all queries give these."""


@dataclass(frozen=True)
class Vocabulary:
    """What queries are made of: names of tables, constants to compare each column with, kinds of joins, operators."""

    tables: tuple[str, ...]
    constants: dict[str, tuple[str, ...]]
    joins: tuple[str, ...] = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
    operators: tuple[str, ...] = ("=", "=", "=", "<", "<=", ">", ">=", "<>")


@dataclass
class _Query:
    """What of a query is there already."""

    words: Vocabulary
    aliases: count[int] = field(default_factory=count)
    common_tables: list[str] = field(default_factory=list)
    places: int = 0

    def alias(self) -> str:
        return f"r{next(self.aliases)}"


@st.composite
def queries(draw: DrawFn, words: Vocabulary) -> str:
    """A query that gives `COLUMNS`, with joins of every kind, subqueries, unions, common table expressions."""
    query = _Query(words)
    definitions = []
    for _ in range(draw(st.integers(0, 2))):
        definition = draw(_selects(query, 1))
        name = draw(st.sampled_from(["c", "messages"])) + str(len(definitions))
        definitions.append(f"{name} AS ({definition})")
        query.common_tables.append(name)
    arms = [draw(_selects(query, 0)) for _ in range(draw(st.sampled_from([1, 1, 2])))]
    with_ = f"WITH {', '.join(definitions)} " if definitions else ""
    return with_ + draw(st.sampled_from([" UNION ALL ", " UNION ", " EXCEPT "])).join(arms)


@st.composite
def _selects(draw: DrawFn, query: _Query, depth: int) -> str:
    text, visible = draw(_relations(query, depth))
    where = f" WHERE {draw(_conditions(query, visible, depth))}" if draw(st.integers(0, 3)) else ""
    chosen = draw(st.sampled_from(visible))
    kind = draw(st.sampled_from(["columns", "columns", "star", "group", "window", "limit", "distinct", "renamed"]))
    plain = ", ".join(f"{chosen}.{name}" for name in COLUMNS)
    if kind == "star":
        return f"SELECT {'*' if len(visible) == 1 and draw(st.booleans()) else f'{chosen}.*'} FROM {text}{where}"
    if kind == "group":
        having = draw(st.sampled_from(["", " HAVING count(*) > 1"]))
        return f"SELECT {plain} FROM {text}{where} GROUP BY {plain}{having}"
    if kind == "window":
        rank = f"CAST(count(*) OVER (PARTITION BY {chosen}.topic) AS INT)"
        return f"SELECT {plain.replace(f'{chosen}.queue_id', f'{rank} AS queue_id')} FROM {text}{where}"
    if kind == "limit":
        first = f"SELECT {plain} FROM {text}{where} ORDER BY 1, 2, 3, 4 LIMIT {draw(st.integers(1, 6))}"
        return f"SELECT * FROM ({first}) {query.alias()}"
    if kind == "renamed":
        shifted = f"{chosen}.topic, CAST({chosen}.queue_offset AS INT) AS queue_id, {chosen}.queue_id AS queue_offset"
        return f"SELECT {shifted}, {chosen}.store_timestamp FROM {text}{where}"
    return f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{plain} FROM {text}{where}"


@st.composite
def _relations(draw: DrawFn, query: _Query, depth: int) -> tuple[str, list[str]]:
    """The text of a FROM clause, and the names that columns can have before them."""
    text, visible = draw(_relation(query, depth))
    while query.places < 4 and draw(st.booleans()):
        right, names = draw(_relation(query, depth))
        kind = draw(st.sampled_from(query.words.joins))
        if kind == "CROSS JOIN":
            text = f"{text} CROSS JOIN {right}"
        else:
            text = f"{text} {kind} {right} ON {draw(_conditions(query, [*visible, *names], 2))}"
        visible = visible if "SEMI" in kind or "ANTI" in kind else [*visible, *names]
    return text, visible


@st.composite
def _relation(draw: DrawFn, query: _Query, depth: int) -> tuple[str, list[str]]:
    query.places += 1
    alias = query.alias()
    kinds = ["table", "table"] + ["common"] * len(query.common_tables) * 2
    kinds += ["subquery", "parentheses"] if depth < 2 and query.places < 3 else []
    kind = draw(st.sampled_from(kinds))
    if kind == "common":
        return f"{draw(st.sampled_from(query.common_tables))} {alias}", [alias]
    if kind == "subquery":
        return f"({draw(_selects(query, depth + 1))}) {alias}", [alias]
    if kind == "parentheses":
        text, visible = draw(_relations(query, depth + 1))
        return (f"({text})" if len(visible) > 1 else text), visible
    return f"{draw(st.sampled_from(query.words.tables))} AS {alias}", [alias]


@st.composite
def _conditions(draw: DrawFn, query: _Query, visible: list[str], depth: int) -> str:
    parts = draw(st.lists(_atoms(query, visible, depth), min_size=1, max_size=3))
    connectors = draw(st.lists(st.sampled_from(["AND", "AND", "OR"]), min_size=len(parts), max_size=len(parts)))
    text = parts[0]
    for connector, part in zip(connectors, parts[1:], strict=False):
        text = draw(st.sampled_from(["{} {} {}", "({} {} {})", "{} {} ({})"])).format(text, connector, part)
    return text


@st.composite
def _atoms(draw: DrawFn, query: _Query, visible: list[str], depth: int) -> str:
    alias = draw(st.sampled_from(visible))
    name = draw(st.sampled_from(COLUMNS))
    bare = draw(st.sampled_from([name, name.upper()]))
    column = f"{alias}.{name}" if len(visible) > 1 or draw(st.booleans()) else bare
    constants = st.sampled_from(query.words.constants[name])
    kinds = ["compare", "compare", "compare", "in", "between", "or", "column", "null", "not"]
    kind = draw(st.sampled_from([*kinds, "exists", "subquery"] if depth < 2 and query.places < 4 else kinds))
    operator = draw(st.sampled_from(query.words.operators))
    if kind == "in":
        negation = draw(st.sampled_from(["", "", "NOT "]))
        return f"{column} {negation}IN ({', '.join(draw(st.lists(constants, min_size=1, max_size=3)))})"
    if kind == "between":
        return f"{column} BETWEEN {draw(constants)} AND {draw(constants)}"
    if kind == "or":
        return f"({column} = {draw(constants)} OR {draw(constants)} = {column})"
    if kind == "column":
        return f"{column} {operator} {draw(st.sampled_from(visible))}.{name}"
    if kind == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "not":
        return f"NOT {column} {operator} {draw(constants)}"
    if kind == "subquery":
        return f"{column} IN (SELECT s.{name} FROM ({draw(_selects(query, 2))}) s)"
    if kind == "exists":
        inner, names = draw(_relation(query, 2))
        condition = draw(_conditions(query, names, 2))
        exists = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
        return f"{exists} (SELECT * FROM {inner} WHERE {names[0]}.{name} = {column} AND ({condition}))"
    return draw(st.sampled_from([f"{column} {operator} {draw(constants)}", f"{draw(constants)} {operator} {column}"]))
