"""SHOW TABLES and DESCRIBE, answered without Spark and without the store."""

from __future__ import annotations

import pytest

from spark_mq.errors import OptionError
from spark_mq.query.catalog import CatalogAnswer, Store, answer_statement, with_spark_names
from spark_mq.source.schema import full_schema
from spark_mq.tables.all_tables import TABLES

STORES: dict[str, Store] = {"prod": {"path": "/data/store", "mode": "FAILFAST"}, "Dev": "/data/dev"}
ARCHIVES = {"old": {"messages": "delta.`/lake/messages`", "keys": "delta.`/lake/messages_keys`"}}


def answer(text: str) -> CatalogAnswer:
    found = answer_statement(text, STORES, ARCHIVES)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SHOW TABLES IN prod LIKE 'q*|TOPICS'", ["prod.queues", "prod.topics"]),
        ("/* all */ show tables from `dev` 'queues' -- of dev", ["Dev.queues"]),
        ("SHOW TABLES LIKE 'keys|queues|('", ["prod.queues", "Dev.queues", "old.keys"]),
        ("SHOW TABLES IN old", ["old.messages", "old.keys"]),
        ("SHOW TABLES IN prod LIKE ''", []),
    ],
)
def test_tables_of_stores_are_listed(text: str, expected: list[str]) -> None:
    found = answer(text)
    assert [f"{row[0]}.{row[1]}" for row in found.rows] == expected
    assert all(row[2] for row in found.rows)


def test_all_tables_are_those_of_the_stores_and_of_the_session() -> None:
    found = answer('SHOW TABLES LIKE "m*"')
    assert len(found.rows) == 2 * 2 + 1
    assert found.with_session_tables == 'SHOW TABLES LIKE "m*"'
    assert answer("SHOW TABLES IN prod").with_session_tables is None


def test_a_table_is_described() -> None:
    rows = answer("DESC TABLE EXTENDED prod . `Messages`").rows
    assert rows[0] == ("commit_log_offset", "bigint", "the commit log offset at which the message starts")
    assert ("keys", "array<string>", "property KEYS, split at spaces") in rows
    assert ("Location", "/data/store", "") in rows
    assert ("Options", "mode=FAILFAST", "") in rows
    assert answer("DESCRIBE dev.queues state").rows[:2] == (("col_name", "state"), ("data_type", "string"))
    with pytest.raises(OptionError, match="did you mean topic"):
        answer("DESCRIBE prod.messages topik")


def test_every_column_has_a_comment() -> None:
    for table in TABLES:
        rows = answer(f"DESCRIBE prod.{table}").rows
        assert [row[0] for row in rows] == full_schema(table).fieldNames()
        assert all(row[2] for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        *("SHOW TABLES IN default", "SHOW TABLES IN spark_catalog.prod", "SHOW TABLE EXTENDED LIKE 'm*'", "SHOW VIEWS"),
        *("DESCRIBE messages", "DESCRIBE default.messages", "DESCRIBE FUNCTION topics", "DESCRIBE prod.nothing"),
        *("DESCRIBE QUERY SELECT 1", "SELECT 'SHOW TABLES'", "DESCRIBE prod.messages AS JSON"),
    ],
)
def test_other_statements_are_sparks(text: str) -> None:
    assert answer_statement(text, STORES, ARCHIVES) is None


def test_a_table_of_an_archive_is_described_by_spark() -> None:
    assert with_spark_names("desc extended OLD.`keys` key -- of it", STORES, ARCHIVES).rstrip() == (
        "desc extended delta.`/lake/messages_keys` key"
    )
    for text in ("DESCRIBE old.nothing", "DESCRIBE prod.messages", "SELECT 1 FROM old.keys"):
        assert with_spark_names(text, STORES, ARCHIVES) == text


def test_a_name_alone_is_a_table_of_the_only_store() -> None:
    assert answer_statement("DESCRIBE queues", {"prod": "/s"}, {}) is not None
    assert answer_statement("DESCRIBE queues", {"prod": "/s"}, {}, lambda name: name == "queues") is None
