"""Each row of docs/differences.md names the tests that try it, in a comment that a reader does not see.

docs/store-format.md names its tests in its text, and has the bytes of real stores.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.format_page import page
from tests.support.stores import PROJECT

PAGE = (PROJECT / "docs" / "differences.md").read_text(encoding="utf-8")
SOURCE_ONLY = "<!-- source only -->"
"""The mark of a row that no store can show."""
ROWS = re.findall(r"^\| (?!---)(?!.*\n\|(?: --- \|)+).*", PAGE, re.MULTILINE)
FORMAT = (PROJECT / "docs" / "store-format.md").read_text(encoding="utf-8")
NAMED = sorted({*re.findall(r"<!-- (tests/\S+) -->", PAGE), *re.findall(r"`(tests/\S+::\w+)`", FORMAT)})


def test_each_row_names_a_test() -> None:
    assert len(ROWS) > 30
    assert [row for row in ROWS if "<!-- tests/" not in row and SOURCE_ONLY not in row] == []
    assert sum(SOURCE_ONLY in row for row in ROWS) < 4


@pytest.mark.parametrize("name", NAMED)
def test_each_named_test_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    assert re.search(rf"^ *def {function}\(", Path(PROJECT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_page_of_the_format_has_the_bytes_of_real_stores() -> None:
    """`python -m tests.support.format_page` writes it again."""
    assert page(FORMAT) == FORMAT
    assert len(re.findall(r"^ +\d+  [0-9a-f]{2} ", FORMAT, re.MULTILINE)) > 40
