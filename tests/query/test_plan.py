"""Which references to stores a query has, and what is pushed down to each: expectations are written by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_mq.errors import OptionError
from spark_mq.query.comparisons import TableColumns
from spark_mq.query.plan import QueryPlan, plan_references

MESSAGES = TableColumns(
    default=(
        *("commit_log_offset", "topic", "queue_id", "queue_offset", "tags", "keys"),
        *("transaction_type", "store_timestamp", "body"),
    ),
    extra=("store_timestamp_millis",),
    pushable=frozenset(("topic", "queue_id", "queue_offset", "store_timestamp", "store_timestamp_millis")),
    enumerated=frozenset(("transaction_type",)),
    searchable=frozenset(("keys",)),
)
QUEUES = TableColumns(
    default=("topic", "queue_id", "min_offset", "max_offset"), extra=(), pushable=frozenset(("topic",))
)


def columns(table: str) -> TableColumns:
    return QUEUES if table == "queues" else MESSAGES


def plan(query: str, *stores: str, taken: tuple[str, ...] = ()) -> QueryPlan:
    return plan_references(query, stores or ("prod",), columns, lambda name: name in taken)


def pushed_down(query: str, *stores: str) -> list[set[str]]:
    """The comparisons that are pushed down to each reference, in the order of the text."""
    return [set(map(str, reference.comparisons)) for reference in plan(query, *stores).references]


NOTHING: set[str] = set()

PUSHED_DOWN = {
    # one relation
    "SELECT * FROM messages WHERE topic = 'a'": [{"topic IN ('a')"}],
    "SELECT * FROM prod.messages WHERE 'a' = topic AND (queue_id) >= 3": [{"topic IN ('a')", "queue_id >= 3"}],
    "SELECT * FROM messages WHERE 3 < queue_id AND ((topic = 'a') AND queue_offset <= -1)": [
        {"queue_id > 3", "topic IN ('a')", "queue_offset <= (-1)"}
    ],
    "SELECT * FROM messages m WHERE m.queue_id IN (1, 2L) AND messages.topic = 'a'": [{"queue_id IN (1, 2L)"}],
    "SELECT * FROM messages WHERE queue_offset BETWEEN 1 AND 1 + 2 * 3": [
        {"queue_offset >= 1", "queue_offset <= (1 + (2 * 3))"}
    ],
    "SELECT * FROM messages WHERE topic = 'a' OR (topic = 'b' OR TOPIC IN ('c'))": [{"topic IN ('a', 'b', 'c')"}],
    "SELECT * FROM messages WHERE topic = \"it's\" AND tags = 'x'": [{'topic IN ("it\'s")'}],
    r"SELECT * FROM messages WHERE topic = 'a\'b\\'": [{r"topic IN ('a\'b\\')"}],
    "SELECT * FROM messages WHERE store_timestamp >= TIMESTAMP '2026-11-20 08:00:00' - INTERVAL 1 DAY": [
        {"store_timestamp >= (TIMESTAMP '2026-11-20 08:00:00' - INTERVAL '1' DAY)"}
    ],
    "SELECT * FROM messages WHERE store_timestamp < DATE'2026-11-20' AND store_timestamp > CAST('2026' AS TIMESTAMP)": [
        {"store_timestamp < DATE'2026-11-20'", "store_timestamp > try_cast('2026' AS TIMESTAMP)"}
    ],
    "SELECT * FROM messages WHERE topic = :topic AND queue_id = ?": [{"topic IN (:topic)"}],
    "SELECT topic, count(*) FROM messages WHERE queue_id = 1 GROUP BY 1 HAVING topic = 'a' ORDER BY 2 LIMIT 3": [
        {"queue_id IN (1)"}
    ],
    "SELECT row_number() OVER (ORDER BY queue_offset) FROM messages WHERE topic = 'a'": [{"topic IN ('a')"}],
    "FROM messages SELECT topic WHERE topic = 'a'": [{"topic IN ('a')"}],
    "EXPLAIN FORMATTED SELECT * FROM messages WHERE topic = 'a'": [{"topic IN ('a')"}],
    "/* all /* of */ it */ SELECT * FROM messages -- all of 'it\n WHERE topic = 'a'": [{"topic IN ('a')"}],
    "SELECT * FROM messages WHERE array_contains(keys, 'a') AND 'b' <> transaction_type": [
        {"keys CONTAINS ('a')", "transaction_type NOT IN ('b')"}
    ],
    "SELECT * FROM (SELECT keys AS k FROM messages) WHERE array_contains(k, 'a') OR array_contains(k, :b)": [
        {"keys CONTAINS ('a', :b)"}
    ],
    "SELECT * FROM messages m JOIN messages n ON array_contains(n.keys, 'a') WHERE m.transaction_type NOT IN ('b')": [
        {"transaction_type NOT IN ('b')"},
        {"keys CONTAINS ('a')"},
    ],
    # not certain for any row
    "SELECT * FROM messages WHERE array_contains(keys, 'a') OR topic = 'a'": [NOTHING],
    "SELECT * FROM messages WHERE NOT array_contains(keys, 'a') AND array_contains(keys, tags)": [NOTHING],
    "SELECT * FROM messages WHERE array_contains(array('a'), topic) AND array_contains(split(tags, ' '), 'a')": [
        NOTHING
    ],
    "SELECT * FROM messages WHERE transaction_type <> 'a' OR transaction_type <> 'b'": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'a' OR queue_id = 1": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'a' OR topic > 'b'": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'a' OR topic = tags": [NOTHING],
    "SELECT * FROM messages WHERE NOT topic = 'a' AND NOT (queue_id = 1 AND queue_offset = 2)": [NOTHING],
    "SELECT * FROM messages WHERE topic <> 'a' AND topic NOT IN ('b') AND queue_id NOT BETWEEN 1 AND 2": [NOTHING],
    "SELECT * FROM messages WHERE topic <=> 'a' AND topic IS NOT NULL AND topic LIKE 'a'": [NOTHING],
    "SELECT * FROM messages WHERE topic = NULL OR (queue_id = 1 IS NULL)": [NOTHING],
    "SELECT * FROM messages WHERE upper(topic) = 'A' AND queue_id + 1 = 2 AND CAST(queue_id AS STRING) = '1'": [
        NOTHING
    ],
    "SELECT * FROM messages WHERE topic = tags AND topic = upper('a') AND topic = 'a' || 'b'": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'a' COLLATE UTF8_LCASE AND topic COLLATE UTF8_LCASE = 'a'": [NOTHING],
    "SELECT * FROM messages WHERE queue_id = 1.0 AND queue_id = 1e0 AND queue_id = 1D AND queue_id = 1BD": [NOTHING],
    "SELECT * FROM messages WHERE store_timestamp > now() AND store_timestamp < current_timestamp() - INTERVAL 1 DAY": [
        NOTHING
    ],
    "SELECT * FROM messages WHERE store_timestamp > TIMESTAMP 'now' AND store_timestamp < CAST('today' AS DATE)": [
        NOTHING
    ],
    "SELECT * FROM messages WHERE queue_id = (SELECT 1) AND queue_id = ANY (SELECT 1)": [NOTHING],
    "SELECT * FROM messages WHERE tags = 'a' AND body = 'b' AND properties.topic = 'c'": [NOTHING],
    "SELECT * FROM messages WHERE CASE WHEN topic = 'a' THEN true ELSE false END": [NOTHING],
    "SELECT count(*) FILTER (WHERE topic = 'a'), any(topic = 'b') FROM messages": [NOTHING],
    "SELECT * FROM messages WHERE exists(array(1), queue_id -> queue_id = 1)": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'it''s' AND queue_id = 'a' 'b'": [NOTHING],
    # which relation a column belongs to
    "SELECT * FROM messages m JOIN messages n ON m.topic = n.topic WHERE m.topic = 'a' AND n.queue_id = 1": [
        {"topic IN ('a')"},
        {"queue_id IN (1)"},
    ],
    "SELECT * FROM messages m, messages n WHERE topic = 'a'": [NOTHING, NOTHING],
    "SELECT * FROM messages m, messages m WHERE m.topic = 'a'": [NOTHING, NOTHING],
    "SELECT * FROM messages m, other WHERE topic = 'a' AND m.queue_id = 1": [{"queue_id IN (1)"}],
    "SELECT * FROM messages JOIN queues WHERE queue_offset = 1 AND min_offset = 2 AND topic = 'a'": [
        {"queue_offset IN (1)"},
        NOTHING,
    ],
    "SELECT * FROM messages AS m (topic, queue_id) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM messages LATERAL VIEW explode(keys) k AS key WHERE topic = 'a'": [{"topic IN ('a')"}],
    "SELECT * FROM messages LATERAL VIEW OUTER explode(keys) k AS topic WHERE topic = 'a'": [NOTHING],
    "SELECT prod.messages.topic FROM prod.messages WHERE prod.messages.topic = 'a'": [{"topic IN ('a')"}],
    "SELECT * FROM prod.messages, dev.messages WHERE prod.messages.topic = 'a' AND dev.messages.topic = 'b'": None,
    "SELECT * FROM messages JOIN messages n USING (topic) WHERE topic = 'a' AND n.topic = 'b'": [
        NOTHING,
        {"topic IN ('b')"},
    ],
    "SELECT * FROM messages NATURAL JOIN queues q WHERE topic = 'a' AND queue_offset = 1 AND q.topic = 'b'": [
        NOTHING,
        {"topic IN ('b')"},
    ],
    # outer, semi and anti joins: m is preserved on the left, n filled with NULL
    "SELECT * FROM messages m LEFT JOIN messages n ON m.topic = 'a' AND n.topic = 'b' WHERE n.queue_id = 1": [
        NOTHING,
        {"topic IN ('b')", "queue_id IN (1)"},
    ],
    "SELECT * FROM messages m RIGHT OUTER JOIN messages n ON m.topic = 'a' AND n.topic = 'b' WHERE n.queue_id = 1": [
        {"topic IN ('a')"},
        {"queue_id IN (1)"},
    ],
    "SELECT * FROM messages m FULL JOIN messages n ON m.topic = 'a' AND n.topic = 'b' WHERE n.queue_id = 1": [
        NOTHING,
        {"queue_id IN (1)"},
    ],
    "SELECT * FROM messages m FULL JOIN messages n ON true WHERE m.topic = 'a' OR n.topic = 'a'": [NOTHING, NOTHING],
    "SELECT * FROM messages m LEFT SEMI JOIN messages n ON m.topic = 'a' AND n.topic = 'b' WHERE queue_id = 1": [
        {"topic IN ('a')", "queue_id IN (1)"},
        {"topic IN ('b')"},
    ],
    "SELECT * FROM messages m ANTI JOIN messages n ON m.topic = 'a' AND n.topic = 'b' WHERE queue_id = 1": [
        {"queue_id IN (1)"},
        {"topic IN ('b')"},
    ],
    "SELECT * FROM messages m JOIN messages n ON m.topic = 'a' AND n.topic = 'b' AND (m.queue_id = 1 OR true)": [
        {"topic IN ('a')"},
        {"topic IN ('b')"},
    ],
    "SELECT * FROM t LEFT JOIN (messages m JOIN messages n ON m.topic = 'a') ON n.topic = 'b' AND t.x = 1": [
        {"topic IN ('a')"},
        {"topic IN ('b')"},
    ],
    "SELECT * FROM (messages m LEFT JOIN messages n ON m.topic = 'a') JOIN t ON n.topic = 'b'": [
        NOTHING,
        {"topic IN ('b')"},
    ],
    "SELECT * FROM (messages m JOIN t ON m.topic = 'a') x WHERE m.queue_id = 1": [NOTHING],
    "SELECT * FROM messages m ASOF JOIN t ON m.topic = 'a' WHERE m.topic = 'b'": [NOTHING],
    # each SELECT filters only its own relations
    "SELECT * FROM messages WHERE topic = 'a' UNION ALL SELECT * FROM messages WHERE topic = 'b'": [
        {"topic IN ('a')"},
        {"topic IN ('b')"},
    ],
    "SELECT * FROM messages WHERE queue_id IN (SELECT queue_id FROM messages WHERE topic = 'a')": [
        NOTHING,
        {"topic IN ('a')"},
    ],
    "SELECT 1 FROM messages m WHERE topic = 'a' AND EXISTS (SELECT 1 FROM queues WHERE topic = 'b' AND m.tags = '')": [
        {"topic IN ('a')"},
        {"topic IN ('b')"},
    ],
    "SELECT (SELECT max(queue_id) FROM messages WHERE topic = 'a') FROM messages": [{"topic IN ('a')"}, NOTHING],
    "SELECT 1 FROM t, LATERAL (SELECT * FROM messages m WHERE topic = t.x AND m.queue_id = 1) l WHERE l.topic = 'a'": [
        {"queue_id IN (1)"}
    ],
    "SELECT * FROM messages TABLESAMPLE (5 ROWS) m WHERE m.topic = 'a'": [NOTHING],
    "SELECT * FROM messages PIVOT (count(body) FOR queue_id IN (1, 2)) WHERE topic = 'a'": [NOTHING],
    "INSERT INTO t SELECT * FROM messages WHERE topic = 'a'": [{"topic IN ('a')"}],
    "CREATE TABLE t AS SELECT * FROM messages WHERE topic = 'a'": [{"topic IN ('a')"}],
    # through subqueries and common table expressions that are read once
    "SELECT * FROM (SELECT * FROM messages WHERE queue_id = 1) WHERE topic = 'a'": [
        {"queue_id IN (1)", "topic IN ('a')"}
    ],
    "SELECT * FROM (SELECT topic AS t, queue_id AS topic FROM messages) s WHERE s.t = 'a' AND s.topic = 1": [
        {"topic IN ('a')", "queue_id IN (1)"}
    ],
    "WITH w AS (SELECT m.* FROM messages m JOIN t ON true) SELECT * FROM t LEFT JOIN w ON w.topic = 'a'": [
        {"topic IN ('a')"}
    ],
    "WITH v AS (SELECT * FROM messages), w AS (SELECT * FROM v) SELECT * FROM w WHERE topic = 'a'": [
        {"topic IN ('a')"}
    ],
    "WITH w AS (SELECT * FROM messages) SELECT * FROM w a JOIN w b WHERE a.topic = 'a'": [NOTHING],
    "WITH w AS (SELECT * FROM messages) SELECT * FROM w WHERE topic = 'a' UNION SELECT * FROM w": [NOTHING],
    "SELECT * FROM (SELECT upper(topic) AS topic FROM messages) WHERE topic = 'A'": [NOTHING],
    "SELECT * FROM (SELECT *, 'a' AS topic FROM messages) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT topic, count(*) FROM messages GROUP BY topic) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT * FROM messages LIMIT 3) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT DISTINCT topic FROM messages) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT topic, row_number() OVER (ORDER BY body) FROM messages) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT * FROM messages) AS s (topic) WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM (SELECT * FROM messages UNION ALL SELECT * FROM messages) WHERE topic = 'a'": [NOTHING, NOTHING],
    "WITH RECURSIVE w AS (SELECT topic FROM messages UNION SELECT topic FROM w) SELECT 1 FROM w WHERE topic = 'a'": [
        NOTHING
    ],
    # texts that the parser may read differently from Spark
    "SELECT * FROM messages -- see below \\\n WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM messages WHERE tags = r'\\' AND topic = 'a' OR tags = 'b'": [NOTHING],
    "SELECT * FROM messages WHERE topic = 'a' AND ${more}": [NOTHING],
    "FROM messages |> WHERE topic = 'a'": [NOTHING],
    "SELECT * FROM messages WHERE store_timestamp > TIMESTAMP '2026-11-20' - INTERVAL 2 DAYS 3 HOURS": [NOTHING],
}


@pytest.mark.parametrize("query", PUSHED_DOWN)
def test_comparisons_that_all_rows_of_the_result_pass_are_pushed_down(query: str) -> None:
    expected = PUSHED_DOWN[query]
    if expected is None:
        with pytest.raises(OptionError, match="give them aliases"):
            plan(query, "prod", "dev")
    else:
        assert pushed_down(query) == expected


REWRITTEN = {
    "select topic from prod.messages": "select topic from {messages_0} AS messages",
    "SELECT 1 FROM `PROD` . `Messages`, dev.queues q": "SELECT 1 FROM {messages_0} AS `Messages`, {queues_1} q",
    "SELECT prod.messages.topic, prod.messages.* FROM prod.messages": (
        "SELECT messages.topic, messages.* FROM {messages_0} AS messages"
    ),
    "SELECT 1 FROM prod.messages m WHERE EXISTS (SELECT 1 FROM prod.queues WHERE prod.queues.topic = m.topic)": (
        "SELECT 1 FROM {messages_0} m WHERE EXISTS (SELECT 1 FROM {queues_1} AS queues WHERE queues.topic = m.topic)"
    ),
    "SELECT '{topic}' AS `{}` FROM prod.messages m -- {": "SELECT '{{topic}}' AS `{{}}` FROM {messages_0} m -- {{",
    "SELECT 'prod.messages', messages.x FROM other.messages -- prod.messages": (
        "SELECT 'prod.messages', messages.x FROM other.messages -- prod.messages"
    ),
    "SELECT * FROM prod.messages TABLESAMPLE (5 ROWS), prod.queues PIVOT (count(1) FOR x IN (1))": (
        "SELECT * FROM {messages_0} TABLESAMPLE (5 ROWS), {queues_1} AS queues PIVOT (count(1) FOR x IN (1))"
    ),
    "SELECT * FROM catalog.prod.messages, messages": "SELECT * FROM catalog.prod.messages, messages",
    "SELECT * FROM prod.messages('x'), prod.nothing, rocketmq_lookup(path => 'x')": (
        "SELECT * FROM prod.messages('x'), prod.nothing, rocketmq_lookup(path => 'x')"
    ),
    "SET x = {1}": "SET x = {{1}}",
    "INSERT INTO messages SELECT * FROM prod.queues": "INSERT INTO messages SELECT * FROM {queues_0} AS queues",
    "SHOW TABLES IN prod": "SHOW TABLES IN prod",
}


@pytest.mark.parametrize("query", REWRITTEN)
def test_only_names_of_stores_tables_are_replaced(query: str) -> None:
    assert plan(query, "prod", "dev").template == REWRITTEN[query]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM messages", 1),
        ("SELECT * FROM Messages, queues", 1),  # a view of the session takes precedence over the store's table
        ("WITH messages AS (SELECT 1) SELECT * FROM messages", 0),
        ("WITH Messages AS (SELECT * FROM messages) SELECT * FROM MESSAGES", 1),
        ("WITH RECURSIVE messages AS (SELECT 1 UNION ALL SELECT * FROM messages) SELECT * FROM messages", 0),
        ("WITH a AS (SELECT * FROM messages), messages AS (SELECT * FROM a) SELECT * FROM messages", 1),
        ("WITH messages AS (SELECT 1) SELECT * FROM (SELECT * FROM messages), prod.messages", 1),
        ("SELECT * FROM (WITH messages AS (SELECT 1) SELECT * FROM messages), messages", 1),
        ("SELECT (WITH messages AS (SELECT 1 x) SELECT x FROM messages) FROM messages m JOIN messages n", 2),
        ("WITH a AS (WITH messages AS (SELECT 1) SELECT * FROM messages) SELECT * FROM a, messages", 1),
        ("CREATE TABLE messages AS SELECT * FROM messages", 1),
    ],
)
def test_a_name_alone_means_what_is_nearest(query: str, found: int) -> None:
    assert len(plan(query, taken=("queues",)).references) == found
    with_two_stores = plan(query, "prod", "dev").references
    assert [reference.store for reference in with_two_stores] == ["prod"] * query.count("prod.")


COLUMNS = {
    "SELECT topic FROM messages WHERE queue_id = 1": ("topic", "queue_id"),
    "SELECT count(*), count(1) FROM messages": ("commit_log_offset",),
    "SELECT m.body FROM messages m ORDER BY m.TOPIC": ("topic", "body"),
    "SELECT * FROM messages": None,
    "SELECT m.*, 1 FROM messages m": None,
    "SELECT struct(*) FROM messages": None,
    "SELECT count(m.*) FROM messages m": None,
    "SELECT * EXCEPT (body) FROM messages": None,
    "SELECT store_timestamp_millis FROM messages": ("store_timestamp_millis",),
    "SELECT store_timestamp_millis FROM messages, other": ("commit_log_offset",),
    "SELECT m.store_timestamp_millis FROM messages m, other": ("store_timestamp_millis",),
    "SELECT 1 AS store_timestamp_millis FROM messages": ("commit_log_offset",),
    "SELECT 1 FROM messages NATURAL JOIN other": None,
    "SELECT 1 FROM messages JOIN other USING (topic)": ("topic",),
    "SELECT 1 FROM messages PIVOT (count(1) FOR topic IN ('a'))": None,
    "SELECT 1 FROM other WHERE EXISTS (SELECT * FROM messages m WHERE m.topic = x)": ("topic",),
    "SELECT 1 FROM other WHERE x IN (SELECT * FROM messages)": None,
    "SELECT topic FROM (SELECT * FROM messages WHERE queue_id = 1)": ("topic", "queue_id"),
    "WITH w AS (SELECT * FROM messages) SELECT a.topic FROM w a JOIN w b ON a.tags = b.tags": ("topic", "tags"),
    "WITH w AS (SELECT * FROM messages) SELECT topic FROM w UNION SELECT * FROM w": None,
    "WITH w AS (SELECT * FROM messages), v AS (SELECT * FROM w) SELECT tags FROM v": ("tags",),
    "WITH w (a, b) AS (SELECT * FROM messages) SELECT a FROM w": None,
    "SELECT a FROM (SELECT * FROM messages) AS s (a, b)": None,
    "SELECT topic FROM (SELECT DISTINCT * FROM messages)": None,
    "SELECT topic FROM (SELECT * FROM messages ORDER BY ALL LIMIT 1)": None,
    "SELECT topic FROM (SELECT * FROM messages UNION SELECT * FROM messages)": None,
    "SELECT topic FROM messages UNION SELECT tags FROM other": ("topic",),
    "INSERT INTO t SELECT * FROM messages": None,
    "SELECT topic FROM messages WHERE ${more}": None,
    "(SELECT topic FROM messages) ORDER BY queue_id": ("topic", "queue_id"),
}


@pytest.mark.parametrize("query", COLUMNS)
def test_columns_that_a_query_cannot_use_are_not_read(query: str) -> None:
    assert plan(query).references[0].columns == COLUMNS[query]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT * FROM messages WHERE", "cannot be parsed: .*line 1"),
        ("SELECT 'a FROM messages", "cannot be parsed"),
        ("SELECT 1 FROM messages; SELECT 2", "one statement"),
        ("INSERT INTO prod.messages SELECT 1", "read-only"),
        ("CREATE TABLE prod.queues AS SELECT * FROM messages", "read-only"),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT * FROM messages", "createOrReplaceTempView"),
        ("SELECT prod.messages.topic FROM prod.messages, x messages", "give them aliases"),
        (
            "SELECT 1 FROM prod.messages WHERE EXISTS (SELECT 1 FROM messages WHERE prod.messages.topic = 'a')",
            "aliases",
        ),
    ],
)
def test_what_cannot_be_done_is_said(query: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        plan(query)


def test_what_names_no_store_is_left_to_spark() -> None:
    for query in (
        *("", "SELECT FROM WHERE", "SELECT 'a", "MERGE INTO x USING y", "CREATE VIEW v AS SELECT * FROM t"),
        *("SELECT 'prod' SOME NEW SYNTAX FROM production", "CREATE TEMP VIEW messages AS SELECT 1"),
    ):
        assert plan(query) == QueryPlan(query, ())


def test_a_table_with_another_name_gets_it() -> None:
    named = {"old": {"messages": "delta.`/lake/{x}`"}}
    query = "SELECT old.messages.topic, '{' FROM old.messages JOIN prod.queues q ON q.topic = old.messages.topic"
    found = plan_references(query, ["prod"], columns, named=named)
    assert found.template == (
        "SELECT messages.topic, '{{' FROM delta.`/lake/{{x}}` AS messages JOIN {queues_0} q ON q.topic = messages.topic"
    )
    found = plan_references("SELECT '{' FROM old.Messages o, messages", ["prod", "dev"], columns, named=named)
    assert (found.references, found.text) == ((), "SELECT '{' FROM delta.`/lake/{x}` o, messages")
    with pytest.raises(OptionError, match="read-only"):
        plan_references("INSERT INTO old.messages SELECT 1", ["prod"], columns, named=named)


def test_history_is_a_table_of_one_store_and_one_archive() -> None:
    old = {"old": {"messages": "delta.`/lake/messages`"}}
    query = "SELECT h.topic, store FROM History h WHERE h.topic = 'a' AND broker = 'b'"
    for stores in (["prod"], ["prod", "all"]):
        (reference,) = plan_references(query, stores, columns, named=old).references
        assert (reference.store, reference.table, reference.is_history) == ("prod", "messages", True)
        assert reference.columns == ("broker", "store", "topic")
        assert [one.column for one in reference.comparisons] == ["topic"]
    plan = plan_references("SELECT history.topic FROM history", ["prod"], columns, named=old)
    assert plan.template == "SELECT history.topic FROM {messages_0} AS history"
    for stores, named in ((["prod", "dev"], old), (["prod"], {}), (["prod"], old | {"new": {}}), ([], old)):
        assert not plan_references(query, stores, columns, named=named).references
    for other in ("WITH history AS (SELECT 1) SELECT * FROM history", "SELECT 1 FROM old.history", "SELECT history"):
        assert not plan_references(other, ["prod"], columns, named=old).references
    assert not plan_references(query, ["prod"], columns, lambda name: name == "history", old).references
    with pytest.raises(OptionError, match="cannot be parsed"):
        plan_references("SELECT FROM history WHERE", ["prod"], columns, named=old)


def test_long_conditions_need_no_deep_stack() -> None:
    ors = " OR ".join(f"topic = '{number}'" for number in range(3000))
    ands = " AND ".join(f"queue_offset > {number}" for number in range(3000))
    (found,) = plan(f"SELECT * FROM messages WHERE ({ors}) AND {ands}").references
    assert len(found.comparisons) == 3001
    assert sorted(found.comparisons[0].values, key=str) == sorted(f"'{number}'" for number in range(3000))


def test_planning_needs_no_spark_and_nothing_else_needs_the_parser() -> None:
    def loaded(module: str, other: str) -> bool:
        code = f"import sys, {module}; print({other!r} in sys.modules)"
        return (
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
        )

    assert not loaded("spark_mq.query.plan", "pyspark")
    assert not loaded("spark_mq.datasource", "sqlglot")
    assert not loaded("spark_mq.cli.main", "sqlglot")
