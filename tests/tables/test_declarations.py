"""What tables declare fits together, and what is made of the declarations is up to date."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from spark_mq.datasource import RocketMQDataSource
from spark_mq.query.catalog import table_columns
from spark_mq.source.options import ReadOptions
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.manual import filled, views
from spark_mq.tables.table import Table
from tests.support.stores import OWN_STORES, PROJECT, Unpack, stores_in

TIERED = [table for name, table in TABLES.items() if name.startswith("tiered_")]
COMMAND = "run python -m spark_mq.tables.manual"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_functions_take_the_options_that_choose_rows(table: Table) -> None:
    arguments = {option.argument for option in table.row_options}
    assert arguments <= set(ReadOptions.__dataclass_fields__) or not table.rows
    for function in filter(None, (table.rows, table.archived_rows)):
        module, _, name = function.rpartition(".")
        _, *parameters = inspect.signature(getattr(import_module(module), name)).parameters
        assert set(parameters) - {"conf"} == arguments


@pytest.mark.parametrize("table", [table for table in TABLES.values() if table.rows], ids=lambda table: table.name)
def test_an_option_that_selects_a_value_leaves_out_the_other_rows(table: Table, unpacked: Unpack) -> None:
    """So a query can have it in the place of its condition: the columns of the other options are not pushed down."""
    workload = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
    at = {"at": 1_800_000_000_000} if "at" in (option.argument for option in table.row_options) else {}
    assert table_columns(table.name).pushable == {option.column for option in table.options} - {""}
    with MessageStore(str(unpacked(workload)), broker_conf=str(workload.broker_conf)) as store:
        rows = table.read(store, at).to_pylist()
        assert rows or table.name in ("traces", "consumer_filters", "compaction_states", "epochs") or table in TIERED
        for option in table.options:
            for value in {row[option.column]: None for row in rows} if option.column else ():
                found = table.read(store, {**at, option.argument: value}).to_pylist()
                assert found == [row for row in rows if row[option.column] == value]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_column_has_one_name_and_its_own_importance(table: Table) -> None:
    assert len({column.name for column in table.columns}) == len(table.columns)
    ranks = sorted(column.importance for column in table.columns if column.importance < 99)
    assert ranks == list(range(1, len(ranks) + 1))
    assert bool(table.command) == (table.noun != "row")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_manual_has_every_option_and_column(table: Table) -> None:
    manual = RocketMQDataSource.__doc__ or ""
    section = manual.split(f"\n    {table.name}\n    --")[1].split("\n    --")[0]
    lines = [line.strip() for line in section.splitlines()]
    for option in table.options:
        assert any(line.startswith(f"{option.name} : ") for line in lines)
    for column in table.columns:
        assert any(line.startswith(f"{column.name} {column.type} : ") for line in lines)


@pytest.mark.parametrize("name", ["tables.md", "streaming.md", "write.md"])
def test_a_page_is_made_from_the_tables(name: str) -> None:
    page = (PROJECT / "docs" / name).read_text(encoding="utf-8")
    assert "<!-- made from spark_mq/tables" in page
    assert filled(page) == page, COMMAND


def test_the_sql_shell_has_a_view_of_each_table() -> None:
    text = (PROJECT / "conf/tables.sql").read_text(encoding="utf-8")
    assert text.count("CREATE OR REPLACE TEMPORARY VIEW") == len(TABLES)
    assert views(text) == text, COMMAND
