"""The page in a real browser: no error, plots drawn, tables sorted, nothing fetched, readable on a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.reporter.report import report
from tests.support.browser import CHROMIUM, Page, browser_page
from tests.support.stores import WORKLOAD, Unpack

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium")
OVERFLOWING = """[...document.querySelectorAll("body *")]
    .filter(one => !one.closest(".scroll, .narrow, .wide, code, .hidden"))
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 80))"""
SHOWN_PLOTS = """[...document.querySelectorAll("figure svg")].filter(one => one.getBoundingClientRect().width > 0)"""
SMALLEST_TEXT = f"""Math.min(...{SHOWN_PLOTS}.flatMap(one => [...one.querySelectorAll("text")]
    .map(text => parseFloat(getComputedStyle(text).fontSize) * one.getScreenCTM().a)))"""
CUT_TEXTS = f"""{SHOWN_PLOTS}.flatMap(one => [...one.querySelectorAll("text")].filter(text => {{
    const a = text.getBoundingClientRect(), b = one.getBoundingClientRect();
    return a.left < b.left - 2 || a.right > b.right + 2; }}).map(text => text.textContent))"""
NAMELESS = """[...document.querySelectorAll("button, a, summary, svg, [role=region]")]
    .filter(one => !one.textContent.trim() && !one.getAttribute("aria-label")).map(one => one.outerHTML.slice(0, 80))"""
COLUMN = """[...document.querySelectorAll("#s0-retained tbody tr")].map(row => row.cells[2].dataset.sort)"""


@pytest.fixture(scope="module")
def file(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    report(str(unpacked(WORKLOAD)), str(path), broker_conf=str(WORKLOAD.broker_conf))
    return path


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser_page(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_is_drawn_and_readable(page: Page, file: Path, width: int, dark: bool) -> None:
    page.open(file, width, dark)
    assert page.errors == []
    assert page.fetched == [file.as_uri()]
    assert page.run(f"{SHOWN_PLOTS}.length") == page.run("document.querySelectorAll('figure').length") > 10
    assert page.run(f"{SHOWN_PLOTS}.every(one => one.querySelectorAll('path').length > 2)")
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.run(OVERFLOWING) == []
    assert page.run(SMALLEST_TEXT) >= 9
    assert page.run(CUT_TEXTS) == []
    assert page.run(NAMELESS) == []
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark


def test_tables_are_sorted_by_keyboard(page: Page, file: Path) -> None:
    page.open(file, 1280)
    page.run("document.querySelector('#s0-retained details').open = true")
    page.run("document.querySelectorAll('#s0-retained th button')[2].focus()")
    page.press("Enter", 13)
    largest = [int(value) for value in page.run(COLUMN)]
    assert largest == sorted(largest, reverse=True)
    assert len(set(largest)) > 5
    page.press("Enter", 13)
    assert [int(value) for value in page.run(COLUMN)] == sorted(largest)
    header = "document.querySelectorAll('#s0-retained th')[2].ariaSort"
    assert page.run(header) == "ascending"
    assert page.run("document.getElementById('said').textContent") == "sorted by messages, ascending"
    assert page.errors == []


def test_a_query_is_copied_or_selected(page: Page, file: Path) -> None:
    page.open(file, 1280)
    page.run("document.querySelector('#s0-tags .copy').click()")
    page.run("new Promise(done => setTimeout(done, 200))")
    assert page.run("document.querySelector('#s0-tags .copy').textContent") in ("Copied", "Selected")
    assert page.errors == []


def test_a_page_is_printed_with_its_tables(page: Page, file: Path) -> None:
    page.open(file, 1280)
    short = page.pdf()
    page.run("document.querySelectorAll('details').forEach(one => one.remove())")
    assert short.startswith(b"%PDF")
    assert short.count(b"/Type /Page\n") > page.pdf().count(b"/Type /Page\n") > 0


def test_keys_reach_everything_that_can_be_used(page: Page, file: Path) -> None:
    page.open(file, 1280)
    reached = set()
    for _ in range(60):
        page.press("Tab", 9)
        reached.add(page.run("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "BUTTON"} <= reached
