"""The numbers of a page are those of the tables and commands: each query of the page gives the rows beside it."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import spark_mq
from spark_mq.cli.main import main
from spark_mq.errors import OptionError
from spark_mq.format.timestamp import parse_time
from spark_mq.job.tasks import LocalTasks
from spark_mq.reporter.figures import StoreFigures, store_figures
from spark_mq.reporter.report import report_of
from spark_mq.reporter.section import Section
from spark_mq.reporter.sections import sections
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, RealStore, Unpack

AT = 1_795_500_000_000
STORES = [RealStore(name, OWN_STORES) for name in ("workload-533", "workload-49x", "killed-533", "deleted-533")]
WORKLOAD, _, KILLED, DELETED = STORES
TEXTS = ("meaning", "remedy", "first", "severity")


@pytest.fixture(scope="module", params=cases([KILLED, DELETED], STORES), ids=str)
def figures(request: pytest.FixtureRequest, unpacked: Unpack) -> StoreFigures:
    store: RealStore = request.param
    return store_figures(str(unpacked(store)), LocalTasks(2), AT, str(store.broker_conf))


def named_rows(section: Section) -> list[dict[str, Any]]:
    names = [column.name for column in section.columns]
    return [dict(zip(names, row, strict=True)) for row in section.rows]


def test_queries_of_tables_give_the_rows(spark: SparkSession, figures: StoreFigures) -> None:
    asked = 0
    for section in sections(figures, 50):
        command, verb, *words = shlex.split(section.query)
        assert command == "spark-mq"
        if verb != "sql":
            continue
        given = dict(word.split("=", 1) for word in words[2::2])
        at = {"at": given["at"]} if "at" in given else {}
        assert not at or parse_time("at", given["at"]) == AT
        store = {"path": given["s"], "brokerConf": str(conf_of(figures)), **at}
        rows = spark_mq.sql(spark, words[0], stores={"s": store}).toArrow().to_pylist()
        assert len(rows) == section.total, section.name
        assert rows[: len(section.rows)] == named_rows(section), section.name
        asked += 1
    assert asked == 12


def conf_of(figures: StoreFigures) -> Path:
    return RealStore(Path(figures.store).name, OWN_STORES).broker_conf


def asked(section: Section, figures: StoreFigures, capsys: pytest.CaptureFixture[str]) -> Mapping[str, Any]:
    _, *words = shlex.split(section.query)
    capsys.readouterr()
    main([*words, "--broker-conf", str(conf_of(figures))])
    found: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    return found


def plain(value: object) -> object:
    return value.astimezone(UTC).isoformat(timespec="milliseconds") if isinstance(value, datetime) else value


def test_commands_give_the_rows_of_what_expires(figures: StoreFigures, capsys: pytest.CaptureFixture[str]) -> None:
    by_name = {section.name: section for section in sections(figures, 50)}
    for name, key in (("losses", "unread"), ("expiry", "segments"), ("disk", "topics")):
        section = by_name[name]
        found = asked(section, figures, capsys)[key]
        rows = [{key: plain(value) for key, value in row.items()} for row in named_rows(section)]
        times = [column.name for column in section.columns if column.kind == "time"]
        expected = [
            {key: plain(datetime.fromisoformat(row[key])) if key in times and row[key] else row[key] for key in rows[0]}
            for row in found
        ]
        assert rows == expected, name


def test_the_check_gives_the_rows_of_damage(
    figures: StoreFigures, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    section = next(section for section in sections(figures, 50) if section.name == "damage")
    _, *words = shlex.split(section.query)
    main([*words, "--broker-conf", str(conf_of(figures)), "--json", "--quiet"])
    found = json.loads(capsys.readouterr().out)
    assert {row["code"]: row["count"] for row in named_rows(section)} == found["counts"]
    assert figures.damage.num_rows <= sum(found["counts"].values())
    assert sum(figures.damage["count"].to_pylist()) == sum(found["counts"].values())


def test_the_numbers_of_messages_are_those_of_the_facts(unpacked: Unpack) -> None:
    store = WORKLOAD
    found = store_figures(str(unpacked(store)), LocalTasks(2), AT, str(store.broker_conf))
    own = [
        fact
        for fact in store.facts("msg")
        if not fact["topic"].startswith(
            ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK")
        )
    ]
    by_name = {section.name: named_rows(section) for section in sections(found, 50)}
    delays = {row["topic"]: row for row in by_name["delays"]}
    for topic in {fact["topic"] for fact in own}:
        times = sorted(max(0, fact["storeTimestamp"] - fact["bornTimestamp"]) for fact in own if fact["topic"] == topic)
        middle, slow = times[-(-len(times) // 2) - 1], times[-(-len(times) * 99 // 100) - 1]
        assert (delays[topic]["messages"], delays[topic]["median"], delays[topic]["slow"]) == (len(times), middle, slow)
        assert delays[topic]["most"] == times[-1]
    assert sum(row["messages"] for row in by_name["tags"]) == len(own)
    assert sum(row["messages"] for row in by_name["producers"]) == len(own)
    assert found.summary["dead_letters"] == sum(fact["topic"].startswith("%DLQ%") for fact in store.facts("msg"))


def test_each_delivered_message_is_as_late_as_its_times_say(unpacked: Unpack) -> None:
    """The time at which a message of the timer, or of a level, was stored again, by the facts of a broker."""
    found = store_figures(str(unpacked(WORKLOAD)), LocalTasks(2), AT, str(WORKLOAD.broker_conf))
    (section,) = (section for section in sections(found, 50) if section.name == "delayed")
    (plot,) = (draw() for draw in section.draws)
    stored = {fact["offset"]: fact["storeTimestamp"] for fact in WORKLOAD.facts("msg")}
    rows = [row for row in found.tables["delayed"].to_pylist() if row["state"] == "DELIVERED"]
    lates = sorted(stored[row["delivered_offsets"][0]] - row["due_timestamp"].timestamp() * 1000 for row in rows)
    drawn, overdue = plot.figure.axes[0].collections
    assert sorted(np.asarray(drawn.get_offsets())[:, 1]) == pytest.approx([max(late, 0.5) for late in lates], abs=0.6)
    assert len(np.asarray(overdue.get_offsets())) == found.summary["overdue"] > 0


@pytest.mark.parametrize("figures", cases([KILLED], STORES), ids=str, indirect=True)
def test_the_plots_of_a_section_are_those_of_the_page(figures: StoreFigures) -> None:
    found = report_of([figures], None, None)
    for section in sections(figures, 1):
        titles = [plot.title for plot in found.plots(section.name)]
        assert titles == [draw().title for draw in section.draws]
        assert [title for title in titles if title not in html.unescape(found.html)] == []
    with pytest.raises(OptionError, match=r"no section 'lags': damage, retained, lag,"):
        found.plots("lags")
