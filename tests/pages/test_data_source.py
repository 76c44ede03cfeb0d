"""What the pages say of the tables and options of the data source is what it has."""

from __future__ import annotations

from spark_mq.source.options import STREAM_NAMES, Table, names_of
from spark_mq.source.write_options import WRITE_NAMES
from tests.support.pages import names_in, table_rows

COMMON = set(names_of(Table.SEGMENTS))
"""The options that each table has."""


def documented_names(page: str) -> list[str]:
    """The options in the table of a page."""
    return [name for cells in table_rows("option | meaning", page) for name in names_in(cells[0])]


def test_every_table_has_a_row() -> None:
    rows = [name for cells in table_rows("table | one row is", "tables.md") for name in names_in(cells[0])]
    assert sorted(rows) == sorted(Table)


def test_the_options_of_messages_have_rows() -> None:
    own = sorted(set(names_of(Table.MESSAGES)) - COMMON)
    assert sorted(documented_names("options.md")) == sorted([*own, "path"])


def test_the_options_of_the_other_tables_have_rows() -> None:
    said = {table: set(names_in(cells[1])) for cells in table_rows("table | options") for table in names_in(cells[0])}
    others = [table for table in Table if not table.startswith("messages")]
    assert said == {str(table): own for table in others if (own := set(names_of(table)) - COMMON)}


def test_the_options_of_a_stream_have_rows() -> None:
    assert sorted(documented_names("streaming.md")) == sorted(STREAM_NAMES)


def test_the_options_of_a_write_have_rows() -> None:
    assert sorted([*documented_names("write.md"), "table"]) == sorted(WRITE_NAMES)
