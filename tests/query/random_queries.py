"""Random queries over stores' tables, for tests that compare two ways of answering them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp")
"""The columns that every relation of a query has; all queries give these."""
_MOST_TABLES = 4
_DEEPEST = 2


@dataclass(frozen=True)
class Vocabulary:
    """What queries are made of: names of tables, constants to compare each column with, kinds of joins, operators."""

    tables: tuple[str, ...]
    constants: dict[str, tuple[str, ...]]
    joins: tuple[str, ...] = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
    operators: tuple[str, ...] = ("=", "=", "=", "<", "<=", ">", ">=", "<>")


def random_query(random: Random, words: Vocabulary) -> str:
    """A query that gives `COLUMNS`, with joins of every kind, subqueries, unions, common table expressions."""
    return _Writer(random, words).query()


class _Writer:
    """Writes one query. `visible` are always the names that columns can have before them."""

    def __init__(self, random: Random, words: Vocabulary) -> None:
        self._random = random
        self._words = words
        self._aliases = 0
        self._tables = 0
        self._common_tables: list[str] = []

    def query(self) -> str:
        definitions: list[str] = []
        for number in range(self._random.choice([0, 0, 1, 2])):
            name = self._random.choice(["c", "messages"]) + str(number)
            definitions.append(f"{name} AS ({self._select(1)})")
            self._common_tables.append(name)
        with_ = f"WITH {', '.join(definitions)} " if definitions else ""
        arms = [self._select(0) for _ in range(self._random.choice([1, 1, 2]))]
        return with_ + self._random.choice([" UNION ALL ", " UNION ", " EXCEPT "]).join(arms)

    def _select(self, depth: int) -> str:
        text, visible = self._relations(depth)
        where = f" WHERE {self._condition(visible, depth)}" if self._random.random() < 0.7 else ""
        chosen = self._random.choice(visible)
        plain = ", ".join(f"{chosen}.{name}" for name in COLUMNS)
        kind = self._random.choice(["plain", "star", "group", "window", "limit", "distinct", "renamed"])
        if kind == "star" and "(" not in text:  # SQLite loses the names of columns that come out of parentheses
            return f"SELECT {'*' if len(visible) == 1 else f'{chosen}.*'} FROM {text}{where}"
        if kind == "group":
            having = self._random.choice(["", " HAVING count(*) > 1"])
            return f"SELECT {plain} FROM {text}{where} GROUP BY {plain}{having}"
        if kind == "window":
            rank = f"CAST(count(*) OVER (PARTITION BY {chosen}.topic) AS INT) AS queue_id"
            return f"SELECT {plain.replace(f'{chosen}.queue_id', rank)} FROM {text}{where}"
        if kind == "limit":
            first = f"SELECT {plain} FROM {text}{where} ORDER BY 1, 2, 3, 4 LIMIT {self._random.randint(1, 4)}"
            alias = self._alias()
            above = f" WHERE {self._condition([alias], _DEEPEST)}"
            return f"SELECT * FROM ({first}) {alias}{above}"
        if kind == "renamed":
            shifted = f"CAST({chosen}.queue_offset AS INT) AS queue_id, {chosen}.queue_id AS queue_offset"
            return f"SELECT {chosen}.topic, {shifted}, {chosen}.store_timestamp FROM {text}{where}"
        return f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{plain} FROM {text}{where}"

    def _relations(self, depth: int) -> tuple[str, list[str]]:
        text, visible = self._relation(depth)
        while self._tables < _MOST_TABLES and self._random.random() < 0.5:
            right, names = self._relation(depth)
            kind = self._random.choice(self._words.joins)
            text = f"{text} {kind} {right}"
            if not kind.startswith("CROSS"):
                text += f" ON {self._condition([*visible, *names], _DEEPEST)}"
            visible = visible if "SEMI" in kind or "ANTI" in kind else [*visible, *names]
        return text, visible

    def _relation(self, depth: int) -> tuple[str, list[str]]:
        self._tables += 1
        kinds = ["table", "table"] + ["common"] * len(self._common_tables) * 2
        kinds += ["subquery", "parentheses"] if depth < _DEEPEST and self._tables < _MOST_TABLES else []
        kind = self._random.choice(kinds)
        if kind == "parentheses":
            text, visible = self._relations(depth + 1)
            return (f"({text})" if len(visible) > 1 else text), visible
        alias = self._alias()
        if kind == "common":
            return f"{self._random.choice(self._common_tables)} {alias}", [alias]
        if kind == "subquery":
            return f"({self._select(depth + 1)}) {alias}", [alias]
        return f"{self._random.choice(self._words.tables)} AS {alias}", [alias]

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def _condition(self, visible: list[str], depth: int) -> str:
        text = self._atom(visible, depth)
        for _ in range(self._random.choice([0, 1, 1, 2])):
            connector = self._random.choice(["AND", "AND", "AND", "OR"])
            template = self._random.choice(["{} {} {}", "({} {} {})", "{} {} ({})"])
            text = template.format(text, connector, self._atom(visible, depth))
        return text

    def _atom(self, visible: list[str], depth: int) -> str:
        choice = self._random.choice
        name = choice(COLUMNS)
        column = f"{choice(visible)}.{name}"
        if len(visible) == 1 and choice([True, False]):
            column = choice([name, name.upper()])
        operator, constant, another = choice(self._words.operators), self._constant(name), self._constant(name)
        kinds = ["compare"] * 5 + ["in", "between", "or", "column", "null", "not"]
        kind = choice([*kinds, "exists", "subquery"] if depth < _DEEPEST and self._tables < _MOST_TABLES else kinds)
        if kind == "in":
            return f"{column} {choice(['', 'NOT '])}IN ({constant}, {another})"
        if kind == "between":
            return f"{column} BETWEEN {constant} AND {another}"
        if kind == "or":
            return f"({column} = {constant} OR {another} = {column})"
        if kind == "column":
            return f"{column} {operator} {choice(visible)}.{name}"
        if kind == "null":
            return f"{column} IS {choice(['', 'NOT '])}NULL"
        if kind == "not":
            return f"NOT {column} {operator} {constant}"
        if kind == "subquery":
            return f"{column} IN (SELECT s.{name} FROM ({self._select(_DEEPEST)}) s)"
        if kind == "exists":
            inner, names = self._relation(_DEEPEST)
            condition = f"{names[0]}.{name} = {column} AND {self._condition(names, _DEEPEST)}"
            return f"{choice(['', 'NOT '])}EXISTS (SELECT * FROM {inner} WHERE {condition})"
        return choice([f"{column} {operator} {constant}", f"{constant} {operator} {column}"])

    def _constant(self, name: str) -> str:
        return self._random.choice(self._words.constants[name])
