"""The page of hostile stores, of many queues and of several stores; and the figures that are kept."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import ConfigError, StorageError, StoreNotFoundError
from spark_mq.job.tasks import LocalTasks
from spark_mq.lifecycle import selected_messages, statistics
from spark_mq.reporter import figures
from spark_mq.reporter.page import HISTORY, add_to_history, html_page
from spark_mq.reporter.report import report, report_of
from spark_mq.reporter.status import status_of
from spark_mq.testing import LogWriter
from spark_mq.verifier import verify
from tests.support.index_stores import layout_of as index_layout_of
from tests.support.rebuilt import rebuild_here
from tests.support.soak import SOAKS, cases
from tests.support.stores import OWN_STORES, RealStore, Unpack

WORKLOAD, KILLED = (RealStore(name, OWN_STORES) for name in ("workload-533", "killed-533"))
NOW = 1_795_248_093_336
HOSTILE = "<script>alert(1)</script>"
_LIMIT = 3 << 20


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a few stores has no plots, as that of many has none: they take most of its time."""
    monkeypatch.setattr("spark_mq.reporter.page._DRAWN", 0)


class Parsed(HTMLParser):
    """The elements of a page, and the attributes of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile_store(folder: Path) -> Path:
    """A store whose texts are markup: tags, keys, topics, and what looks like a template."""
    writer = LogWriter(1 << 20)
    texts = [
        HOSTILE,
        '"><img src=x onerror=alert(1)>',
        "{{ 7 * 7 }}",
        "</svg><script>1</script>",
        "a\u202eb\x01&amp;",
        "'--><b>",
    ]
    for number in range(60):
        text = texts[number % len(texts)]
        properties = f"TAGS\1{text}\2KEYS\1{text}\2UNIQ_KEY\1{text}{number}\2".encode()
        writer.append(NOW + number, b"x", text.encode(), properties=properties)
        writer.append(NOW + number, b"x", f"%DLQ%{text}".encode(), properties=properties + b"RETRY_TOPIC\1<b>\2")
    return Path(writer.write(folder).path)


def test_texts_of_a_store_stay_texts(tmp_path: Path) -> None:
    store = hostile_store(tmp_path / "store <i>")
    page = Parsed(report(str(store)).html)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "i"} & {*tags}
    for text in (HOSTILE, "{{ 7 * 7 }}", "'--><b>", "&amp;"):
        assert text in page.text
    assert "\u202e" not in page.text
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)


def test_a_page_names_nothing_to_fetch(unpacked: Unpack) -> None:
    html = report(str(unpacked(WORKLOAD)), broker_conf=str(WORKLOAD.broker_conf)).html
    for _, attributes in Parsed(html).elements:
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:image/png;base64,")), value
    assert "@import" not in html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert all(name in ids for name in re.findall(r'(?:href="|url\()#([^")]+)', html))


@pytest.mark.usefixtures("no_plots")
def test_the_first_lines_say_what_is_the_matter(unpacked: Unpack) -> None:
    page = Parsed(report(str(unpacked(KILLED)), broker_conf=str(KILLED.broker_conf)).html)
    assert "Not stopped cleanly" in page.text
    assert "warning QUEUE_LAGS" in page.text


@pytest.mark.usefixtures("no_plots")
def test_a_damaged_store_that_starts_is_not_to_be_left_as_it_is(tmp_path: Path) -> None:
    """The next boot loses nothing, and an index entry is wrong."""
    store = WORKLOAD.unpack(tmp_path)
    file = min((store / "index").iterdir())
    data = bytearray(file.read_bytes())
    data[40 + 4 * index_layout_of(WORKLOAD).hash_slot_num + 20 * 5] ^= 1  # the key hash of entry 5
    file.write_bytes(data)
    (one,) = report(str(store), broker_conf=str(WORKLOAD.broker_conf)).stores
    status = status_of(one)
    assert status.word == "DAMAGED"
    assert dict(status.lines)["action"] == (
        f"`spark-mq repair {store}` shows what can be mended, and changes nothing.",
    )


@pytest.mark.usefixtures("no_plots")
def test_several_stores_are_side_by_side(unpacked: Unpack) -> None:
    stores = [str(unpacked(store)) for store in (WORKLOAD, KILLED)]
    page = Parsed(report(stores).html)
    articles = [attributes["aria-label"] for tag, attributes in page.elements if tag == "article"]
    assert articles == stores
    assert ("a", {"href": "#s1"}) in page.elements


def test_a_page_of_many_queues_is_small_and_names_the_rest(tmp_path: Path) -> None:
    writer = LogWriter(8 << 20)
    queues = 20_000 if SOAKS else 1_000
    for number in range(queues):
        topic = f"topic-with-a-rather-long-name-{number // 4}"
        writer.append(NOW + 1000 * number, b"x", topic.encode(), number % 4, properties=f"TAGS\1{topic}\2".encode())
    store, conf = writer.write(tmp_path / "store").path, tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=2000\n")
    rebuild_here(store, tmp_path / "queues", broker_conf=str(conf), only="consumequeue")
    (tmp_path / "queues" / "consumequeue").rename(tmp_path / "store" / "consumequeue")
    found = report(store, broker_conf=str(conf))
    assert len(found.html) < _LIMIT
    assert f"and {queues // 4 - 50:,} more: the query prints all." in Parsed(found.html).text


@pytest.mark.usefixtures("no_plots")
def test_figures_of_each_run_are_kept_and_shown(unpacked: Unpack, tmp_path: Path) -> None:
    store = str(unpacked(WORKLOAD))
    first = report(store, history=str(tmp_path), at=NOW + 10**9)
    assert "Over time" not in first.html
    second = report(store, history=str(tmp_path), at=NOW + 2 * 10**9)
    lines = [json.loads(line) for line in (tmp_path / HISTORY).read_text().splitlines()]
    assert lines == [{"version": 1, **one.stores[0].summary} for one in (first, second)]
    assert "2 reports from 2026-12-02 to 2026-12-14" in second.html


LINE: dict[str, Any] = {"version": 1, "store": "/data/store", "at": NOW, "messages": 5, "lag": None, "errors": 0}
"""A line as the first release wrote it: later ones must read it."""


def test_lines_of_the_first_version_are_read(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_text(json.dumps(LINE) + "\n")
    later = {**LINE, "at": NOW + 1, "lag": 7}
    del later["version"]
    assert [run["lag"] for run in add_to_history(str(tmp_path), [later])] == [None, 7]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"version": 1, "store": "/da', "line 2 is not a line of a report"),
        ('{"version": 1, "store": "/data", "at": null}', "line 2 is not a line of a report"),
        ("[]", "line 2 is not a line of a report"),
        ('{"version": 2, "store": "/data/store", "at": 1}', "line 2 is of version 2, and this spark-mq reads 1"),
    ],
)
def test_another_line_is_an_error_and_the_file_stays(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / HISTORY
    file.write_text(f"{json.dumps(LINE)}\n{line}\n")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=re.escape(why)):
        add_to_history(str(tmp_path), [LINE])
    assert file.read_bytes() == before


@pytest.mark.usefixtures("no_plots")
def test_the_command_writes_the_page_and_prints_the_state(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "store.html"
    assert main(["report", str(unpacked(WORKLOAD)), "--html", str(file), "--quiet"]) == 0
    said = capsys.readouterr()
    assert "  state           SOUND" in said.out
    assert said.err.endswith(f"spark-mq: the page is {file}\n")
    assert file.read_text().startswith("<!DOCTYPE html>")
    assert main(["report", str(unpacked(WORKLOAD)), "--html", str(file), "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stores"][0]["messages"] == 1364


def test_a_path_that_is_not_a_store_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreNotFoundError):
        report(str(tmp_path))
    assert main(["report", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.usefixtures("no_plots")
def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"--html .*/file/page.html: cannot be written"):
        report_of([], str(tmp_path / "file/page.html"), None)


@pytest.mark.usefixtures("no_plots")
def test_messages_are_read_once_and_checked_once(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def note(owner: object, name: str) -> None:
        found = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            done.append(name)
            return found(*arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    note(selected_messages._Reader, "read")
    note(verify, "check_store")
    note(figures, "store_state")
    note(statistics, "_summed")
    report(str(unpacked(WORKLOAD)), broker_conf=str(WORKLOAD.broker_conf))
    assert sorted(done) == ["check_store", "read", "store_state"]


@pytest.fixture(scope="module")
def workload(unpacked: Unpack) -> figures.StoreFigures:
    return figures.store_figures(str(unpacked(WORKLOAD)), LocalTasks(2), NOW, str(WORKLOAD.broker_conf))


@pytest.mark.parametrize("count", cases((15,), (5, 14, 15, 60)))
def test_a_page_of_many_stores_is_small(workload: figures.StoreFigures, count: int) -> None:
    """Of 14 stores all plots are drawn, in one form: no page is larger. Of 15 none is drawn."""
    html = html_page([workload] * count)
    assert len(html.encode()) < _LIMIT
    page = Parsed(html)
    assert [tag for tag, _ in page.elements].count("article") == count


def test_plots_in_one_form_leave_room_for_14_stores(
    workload: figures.StoreFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_mq.reporter.page._TWICE", 0)
    one, two = (len(html_page([workload] * count).encode()) for count in (1, 2))
    assert one + 13 * (two - one) < _LIMIT
