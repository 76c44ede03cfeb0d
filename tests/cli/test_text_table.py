"""Tables on terminals of any width, and for programs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_mq.cli.output.text_table import TableStyle, TextTable, print_lines
from spark_mq.cli.output.value_text import cut, display_width
from spark_mq.format.amounts import size_text

STYLE = TableStyle(
    importance=("name", "number", "text", "id"), least={"text": 8}, whole=("id",), sizes=("size",), hint="HINT"
)
COLUMNS = ("number", "name", "text", "id", "size")
LINES = [(1, "订单号", "a long text that goes on", "0123456789", 1536), (22, "b", "short", "x", 1 << 30)]


def printed(capsys: pytest.CaptureFixture[str], width: int | None, style: TableStyle = STYLE) -> tuple[list[str], str]:
    table = TextTable(COLUMNS, style, width)
    table.write(LINES)
    return capsys.readouterr().out.splitlines(), " ".join(table.notes())


def test_a_wide_terminal_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    lines, notes = printed(capsys, 80)
    assert lines == [
        "number  name    text                      id             size",
        "     1  订单号  a long text that goes on  0123456789  1.5 KiB",
        "    22  b       short                     x           1.0 GiB",
    ]
    assert notes == ""


@pytest.mark.parametrize("width", range(8, 62))
def test_no_line_is_wider_than_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines, notes = printed(capsys, width)
    assert max(map(display_width, lines)) <= width
    shown = lines[0].split()
    assert "name" in shown  # the most important column
    hidden = [column for column in COLUMNS if column not in shown]
    assert ("hidden columns: " + ", ".join(hidden) in notes) == bool(hidden)
    assert ("…" in "".join(lines)) == ("… stands for text" in notes)
    assert "HINT" in notes or not notes
    assert "0123456789" in lines[1] or "id" in hidden  # an id is whole or hidden


def test_an_id_is_cut_at_its_beginning() -> None:
    assert cut("FD0001", 6, keeps_end=True) == "FD0001"
    assert cut("FD000000000012AB", 6, keeps_end=True) == "…012AB"
    assert cut("订单号AB", 5, keeps_end=True) == "…号AB"


def test_a_long_value_moves_only_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    TextTable(["name", "number"]).write([("x" * 200, 1), ("y", 2)])
    assert list(map(len, capsys.readouterr().out.splitlines())) == [72, 208, 72]


def test_named_columns_are_all_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines, notes = printed(capsys, 20, TableStyle(least={"text": 8}, whole=("id",), shows_all=True))
    assert lines[0].split() == list(COLUMNS)
    assert lines[1].split()[2:4] == ["a", "long"]
    assert "hidden" not in notes


def test_a_program_gets_whole_values_and_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    lines, notes = printed(capsys, None)
    assert lines[1].split() == ["1", "订单号", "a", "long", "text", "that", "goes", "on", "0123456789", "1536"]
    assert notes == ""
    long = "x" * 5000
    print_lines([(long, 1), ("y", 2)], ("text", "number"))
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == [long, "1"]
    assert len(out[2]) < 300  # a long value does not fill the other lines with spaces


def test_rows_that_come_later_fit_into_the_first_layout(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable(("text", "time"), None, 40)
    moment = datetime(2026, 11, 20, tzinfo=UTC)
    table.write([("short", moment)])
    table.write([("much longer than before", moment)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert {display_width(line) for line in lines[1:]} == {len(lines[1])}
    assert "…" in lines[2]


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("订单", 4), ("é", 1), ("ｶﾅ", 2), ("ＡＢ", 4), ("한글", 4), ("", 0)]
)
def test_the_width_of_a_text_on_a_terminal(text: str, width: int) -> None:
    assert display_width(text) == width
    assert cut(text, max(width, 1)) == text
    for room in range(1, width):
        assert display_width(cut(text, room)) <= room
        assert cut(text, room).endswith("…")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1258291, "1.2 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
    ],
)
def test_a_size_has_a_unit(size: int, text: str) -> None:
    assert size_text(size) == text
