"""What is refused before Spark starts; a statement that Spark would run never is."""

from __future__ import annotations

import pytest

from spark_mq.errors import OptionError
from spark_mq.query.statement_check import StatementCheck
from spark_mq.query.table_names import unknown_table

ARCHIVES = {"old": {"messages": "delta.`/lake`"}}


def check(*statements: str, stores: tuple[str, ...] = ("prod",), has_empty_catalog: bool = True) -> None:
    checks = StatementCheck(dict.fromkeys(stores, "/data/store"), ARCHIVES, has_empty_catalog)
    for statement in statements:
        checks.check(statement)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELEKT 1", "SELEKT begins no statement; did you mean SELECT"),
        ("SELECT 'a", "quote ' is not closed"),
        ("SELECT (1, [2)", "not closed|closes nothing"),
        ("SELECT 1 /* /* */", "comment is not closed"),
        ("SELECT * FROM prodd.messages", "no table prodd.messages; did you mean prod.messages"),
        ("SELECT * FROM prod.topic", "did you mean prod.topics"),
        ("SELECT * FROM prod.nothing", "no table prod.nothing; Tables of prod: messages"),
        ("SELECT * FROM mesages m JOIN queues", "did you mean messages"),
        ("SELECT * FROM prod.messages WHERE EXISTS (SELECT 1 FROM prod.queue)", "did you mean prod.queues"),
        ("SELECT * FROM old.message", "did you mean old.messages"),
        ("SELECT * FROM messages WHERE", "cannot be parsed"),
        ("CREATE VIEW v AS SELECT * FROM messages", "can be read by queries"),
        ("DESCRIBE nope", "no table nope; Tables of prod: messages"),
        ("DESC TABLE EXTENDED prod.nope", "no table prod.nope; Tables of prod: messages"),
        ("DESCRIBE prod.messages topik", "did you mean topic"),
    ],
)
def test_what_is_certainly_wrong_is_refused(statement: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        check(statement)


def test_with_several_stores_a_table_needs_the_name_of_one() -> None:
    with pytest.raises(OptionError, match=r"did you mean prod\.messages or dev\.messages or old\.messages\?"):
        check("SELECT * FROM messages", stores=("prod", "dev"))


@pytest.mark.parametrize(
    "statement",
    [
        *(
            "SELECT 1",
            "SELECT ')', \"(\", `[` FROM t -- (",
            "SELECT r'\\' FROM t",
            "SELECT /*+ BROADCAST(t) */ 1 FROM t",
        ),
        *("SET x = it's (", "OPTIMIZE t", "FLURB t", "lable: BEGIN SELECT 1; END", "SELECT 1 WHERE ${x", "  ", "-- '"),
        *("SELECT * FROM default.messages", "SELECT * FROM parquet.messages", "SELECT * FROM csv.`/prod/messages`"),
        *("SELECT * FROM prod.`/data/x.parquet`", "SELECT * FROM jsn.messages"),
        *("SELECT * FROM nothing", "SELECT * FROM other.table", "SELECT * FROM c.prodd.messages"),
        *(
            "WITH mesages AS (SELECT 1) SELECT * FROM mesages",
            "SELECT * FROM range(3)",
            "SELECT * FROM VALUES (1) messags",
        ),
        *("INSERT INTO mesages SELECT * FROM messages", "CREATE TABLE prodd.messages (a INT)", "SHOW TABLES IN other"),
        *(
            "FROM mesages |> SELECT 1",
            "SELECT * FROM messages('a')",
            "DROP TABLE prod.mesages",
            "SELECT 1 NEW SYNTAX x y",
        ),
    ],
)
def test_what_spark_may_run_is_left_to_it(statement: str) -> None:
    check(statement)


def test_names_are_sparks_to_know_if_it_can_have_tables() -> None:
    check("SELECT * FROM prod.nothing", "CREATE VIEW v AS SELECT * FROM messages", has_empty_catalog=False)
    check("CREATE DATABASE prodd", "SELECT * FROM prodd.messages")
    check("CREATE TEMP VIEW queue AS SELECT 1", "SELECT * FROM queue")
    with pytest.raises(OptionError, match="did you mean"):
        check("SELECT * FROM messages", "SELECT * FROM queue")


def test_what_spark_did_not_find() -> None:
    assert "did you mean prod.messages" in (unknown_table("`prodd`.`messages`", ["prod"], {}) or "")
    assert "only be named in" in (unknown_table("`prod`.`messages`", ["prod"], {}) or "")
    assert unknown_table("`other`.`things`", ["prod"], {}) is None
    assert unknown_table("`a`.`prodd`.`messages`", ["prod"], {}) is None
