"""What messages mean out of an archive, against what the stores say that were archived."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archived_store import ArchivedStore
from spark_mq.archive.small_tables import NewestSnapshot
from spark_mq.archive.sql import Archives
from spark_mq.cli.main import main
from spark_mq.errors import CorruptLogError, OptionError
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.timestamp import epoch_millis
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.life.life import Lives, MessageLife, life
from spark_mq.lifecycle.retries import dead_letters_rows, retries_rows
from spark_mq.lifecycle.statistics import duplicates_rows, hot_keys_rows, rates_rows, skew_rows
from spark_mq.lifecycle.traces import traces_rows
from spark_mq.lifecycle.transactions import transaction_rows
from spark_mq.query.sql import run_statement
from spark_mq.reporter.figures import Figures, archive_figures
from spark_mq.reporter.sections import sections
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_store import MessageStore
from tests.support.archives import A, Archive, B
from tests.support.soak import cases
from tests.support.store_history import expire
from tests.support.stores import Unpack

pytestmark = pytest.mark.archive

Tables = dict[str, pa.Table]
ARCHIVED = {"x": A, "y": B}
EXPIRED = "y"
"""The broker whose first segments expired after they were archived."""
TOPIC = "OrderEvents"
WITH_TIME = ("transactions", "delayed", "retries", "consumer_progress")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that loses its head after it was archived."""
    return ARCHIVED[EXPIRED].unpack(tmp_path_factory.mktemp("expired"))


@pytest.fixture(scope="module")
def lake(filled: Archive, own: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shared archive, in which one store was archived again without its head; no test may change it."""
    lake = filled.copy(tmp_path_factory.mktemp("lake") / "lake")
    with MessageStore(str(own)) as store:
        before = transaction_rows(store, 0).num_rows
    expire(own, 3)
    with MessageStore(str(own)) as store:
        assert transaction_rows(store, 0).num_rows < before
    assert lake.run(own, EXPIRED).rows == 0
    return lake.table


def opened(delta: SparkSession, lake: str, broker: str) -> ArchivedStore:
    return ArchivedStore.open(delta, lake, broker=broker, broker_conf=str(ARCHIVED[broker].broker_conf))


def newest_minute(store: MessageStore) -> int:
    """A time at which some delayed messages wait, and others are overdue."""
    return epoch_millis(max(rates_rows(store)["minute"].to_pylist()))


def tables_of(path: Path, conf: str, at: int) -> Tables:
    with MessageStore(str(path)) as store:
        return {
            "transactions": transaction_rows(store, at, BrokerConf.of(conf)),
            "delayed": delayed_rows(store, at, BrokerConf.of(conf)),
            "retries": retries_rows(store, at=at),
            "dead_letters": dead_letters_rows(store),
            "consumer_progress": consumer_progress_rows(store, at=at),
            "duplicates": duplicates_rows(store),
            "hot_keys": hot_keys_rows(store),
            "rates": rates_rows(store),
            "skew": skew_rows(store),
        }


@pytest.mark.parametrize("broker", ARCHIVED)
def test_tables_are_those_of_the_whole_store(delta: SparkSession, lake: str, unpacked: Unpack, broker: str) -> None:
    """Also after the head of the store expired. The timer log of 5.x is not archived.

    Of the store that expired, the tables are enough whose rows come from several messages.
    """
    packed = ARCHIVED[broker]
    path = unpacked(packed)
    with MessageStore(str(path)) as store:
        at = newest_minute(store)
        events = traces_rows(store, TOPIC)
    expected = tables_of(path, str(packed.broker_conf), at)
    assert min(table.num_rows for table in expected.values()) >= 4
    archived = opened(delta, lake, broker)
    for name, table in expected.items():
        if broker == EXPIRED and name not in WITH_TIME:
            continue
        found = archived.table(name, at=at if name in WITH_TIME else None)
        if name == "delayed":
            assert found["slot_timestamp"].null_count == found.num_rows
            found, table = found.drop_columns("slot_timestamp"), table.drop_columns("slot_timestamp")
        assert found.schema == table.schema
        assert found.to_pylist() == table.to_pylist(), name
    if broker == EXPIRED:
        return
    assert archived.table("traces", topic=TOPIC).to_pylist() == events.to_pylist()
    assert archived.table("rates", topic=TOPIC).num_rows == pc.sum(pc.equal(expected["rates"]["topic"], TOPIC)).as_py()


def test_a_state_without_its_evidence_is_unknown(delta: SparkSession, lake: str) -> None:
    whole = opened(delta, lake, "x")
    rows = whole.table("transactions").to_pylist()
    states = Counter(row["state"] for row in rows)
    assert set(states) == {"COMMITTED", "ROLLED_BACK", "DISCARDED", "PENDING"}

    lacking = opened(delta, lake, "x")
    lacking.source.snapshot = NewestSnapshot()
    found = lacking.table("transactions")
    assert Counter(found["state"].to_pylist()) == states - Counter(PENDING=99) + Counter(UNKNOWN=states["PENDING"])
    reasons = {row["reason"] for row in found.to_pylist() if row["state"] == "UNKNOWN"}
    assert reasons == {"there is no file checkpoint, which would show whether the end of the log is lost"}

    # The messages that ended two transactions are missing.
    committed = next(row for row in rows if row["state"] == "COMMITTED")
    rolled_back = next(row for row in rows if row["state"] == "ROLLED_BACK")
    gone = [*committed["commit_offsets"], *rolled_back["op_offsets"]]
    cut = opened(delta, lake, "x")
    assert cut.source.cover.damage == ()
    del cut.source.cover
    cut.source.messages = cut.source.messages.where(~F.col("commit_log_offset").isin(gone))
    damage: tuple[CorruptRange, ...] = cut.source.cover.damage
    assert [hole.commit_log_offset for hole in damage] == [min(gone)]
    found = cut.table("transactions").to_pylist()
    assert [row["half_offsets"] for row in found] == [row["half_offsets"] for row in rows]
    assert {row["state"] for row in found} > {"UNKNOWN"}
    for row, before in zip(found, rows, strict=True):
        if row["state"] == "UNKNOWN":
            assert "the archive lacks" in row["reason"]
        else:
            assert (row["state"], before) not in ((row["state"], committed), (row["state"], rolled_back))
            assert row["state"] == before["state"]


def test_an_archive_that_ends_before_its_snapshot_says_so(delta: SparkSession, lake: str) -> None:
    """A run that was killed made a snapshot, and did not archive all messages that were there."""
    short = opened(delta, lake, "x")
    stop = short.source.cover.log.stop
    short.source.snapshot = dataclasses.replace(short.source.snapshot, log_end=stop + 1)
    assert short.source.known_until == short.source.cover.newest_timestamp
    reasons = {row["reason"] for row in short.table("transactions").to_pylist() if row["state"] == "UNKNOWN"}
    assert len(reasons) == 1
    assert f"the archive ends at commit log offset {stop}, and the log ended at {stop + 1}" in reasons.pop()


def test_rows_of_two_logs_under_one_name_are_an_error(delta: SparkSession, lake: str) -> None:
    doubled = opened(delta, lake, "x")
    rows = doubled.source.messages
    moved = rows.where(F.col("queue_id") == 0).withColumn("commit_log_offset", F.col("commit_log_offset") + 8)
    doubled.source.messages = rows.union(moved)
    with pytest.raises(CorruptLogError, match="archived under one name"):
        doubled.table("transactions")


def test_what_the_archive_cannot_know_is_refused(delta: SparkSession, lake: str) -> None:
    archived = opened(delta, lake, "x")
    with pytest.raises(OptionError, match="knows the store until"):
        archived.table("delayed", at=archived.source.known_until + 1)
    assert set(archived.table("delayed")["state"].to_pylist()) == {"DELIVERED", "OVERDUE"}
    with pytest.raises(OptionError, match=r"\d stores: choose one of them .*--broker x .*--broker y"):
        ArchivedStore.open(delta, lake)
    with pytest.raises(OptionError, match="has no effect on table duplicates"):
        archived.table("duplicates", topic=TOPIC)
    with pytest.raises(OptionError, match="similar: delayed"):
        archived.table("delaid")


def session_of(delta: SparkSession) -> Callable[..., AbstractContextManager[SparkSession]]:
    """What gives a command the session of the tests."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SparkSession]:
        yield delta

    return session


def test_commands_read_an_archive(
    delta: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session_of(delta))
    columns = ["--json", "--columns", "unique_key,state"]
    assert main(["transactions", lake, "--broker", "x", *columns]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = opened(delta, lake, "x").dataframe("transactions").select("unique_key", "state").collect()
    assert printed == [row.asDict() for row in rows]
    assert main(["dead-letters", lake, "--broker", "y", "--consumer-group", "nobody"]) == 3
    assert "of group nobody" in capsys.readouterr().err
    assert main(["retries", lake]) == 2
    assert "--broker x --store-name s" in capsys.readouterr().err


def one_life(lives: Lives) -> MessageLife:
    (told,) = lives.lives
    return told


def keys_of(store: MessageStore, at: int, conf: str) -> dict[str, str]:
    """A unique key of a message of each kind."""
    settings = BrokerConf.of(conf)
    keys = {row["state"]: row["unique_key"] for row in transaction_rows(store, at, settings).to_pylist()}
    keys |= {row["state"]: row["unique_key"] for row in delayed_rows(store, at, settings).to_pylist()}
    keys["DEAD"] = dead_letters_rows(store)["unique_key"][0].as_py()
    return {kind: keys[kind] for kind in ("DEAD", "PENDING", "ROLLED_BACK", "WAITING")}


def test_lives_are_those_of_the_store(delta: SparkSession, lake: str, unpacked: Unpack) -> None:
    packed = ARCHIVED["x"]
    conf = str(packed.broker_conf)
    archived = opened(delta, lake, "x")
    with MessageStore(str(unpacked(packed)), broker_conf=conf) as store:
        at = newest_minute(store)
        for kind, key in keys_of(store, at, conf).items():
            expected = one_life(life(store, key, at=at))
            told = one_life(archived.life(key, at=at))
            if kind == "DEAD":
                assert "cover" not in vars(archived.source), "the state needed no read of all rows"
            following = tuple(text for text in expected.next if not text.startswith("segment "))
            assert told == dataclasses.replace(expected, expiries=(), next=following), kind
        first = next(store.records.record(segment.base) for segment in store.records.segments[1:])
        offset_message_id = encode_offset_message_id(first.store_host, first.commit_log_offset)
        events = one_life(archived.life(offset_message_id)).events
        assert events == one_life(life(store, offset_message_id)).events
    assert archived.life("no such key").lives == ()
    with pytest.raises(OptionError, match="knows the store until"):
        archived.life("no such key", at=1 << 42)


def test_what_expired_comes_from_the_archive(
    delta: SparkSession,
    lake: str,
    own: Path,
    unpacked: Unpack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    packed = ARCHIVED[EXPIRED]
    conf = str(packed.broker_conf)
    archived = opened(delta, lake, EXPIRED)
    with (
        MessageStore(str(unpacked(packed)), broker_conf=conf) as whole,
        MessageStore(str(own), broker_conf=conf) as store,
    ):
        at, start = newest_minute(whole), store.get_min_phy_offset()
        rows = [row for row in transaction_rows(whole, at, BrokerConf.of(conf)).to_pylist() if row["op_offsets"]]
        spanning = next(row for row in rows if row["half_offsets"][0] < start <= row["op_offsets"][-1])
        gone = next(row for row in rows if row["op_offsets"][-1] < start)
        for key in (spanning["unique_key"], gone["unique_key"]):
            expected = one_life(life(whole, key, at=at))
            told = one_life(archived.life(key, store, at=at))
            assert (told.state, told.reason, told.unknown) == (expected.state, expected.reason, expected.unknown)
            assert (told.events, told.consumers) == (expected.events, expected.consumers)
        assert life(store, gone["unique_key"], at=at).lives == ()
        by_id = one_life(archived.life(str(expected.events[0].offset_message_id), store, at=at))
        assert (by_id.events, by_id.state) == (expected.events, expected.state)

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session_of(delta))
    command = ["life", str(own), lake, spanning["unique_key"], "--json", "--broker-conf", conf]
    assert main(command) == 0
    (message,) = json.loads(capsys.readouterr().out)["messages"]
    offsets = [event["commit_log_offset"] for event in message["events"]]
    assert [
        event.commit_log_offset for event in one_life(archived.life(spanning["unique_key"], at=at)).events
    ] == offsets
    assert main([*command, "--broker", "x"]) == 2
    assert "give these names" in capsys.readouterr().err
    assert main(["life", lake, "no-key", "--broker", "x"]) == 3
    assert "has no key and no id no-key" in capsys.readouterr().err


def test_a_report_has_the_numbers_of_the_queries_on_it(
    delta: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a store that expired: those of the whole store as its broker wrote it, and those of each query of the page."""
    html, conf = tmp_path / "archive.html", str(ARCHIVED[EXPIRED].broker_conf)
    words = ["--broker", EXPIRED, "--broker-conf", conf, "--quiet"]
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session_of(delta))
    made: list[Figures] = []

    def noted(archived: ArchivedStore) -> Figures:
        made.append(archive_figures(archived))
        return made[0]

    monkeypatch.setattr("spark_mq.reporter.figures.archive_figures", noted)
    assert main(["report", lake, "--html", str(html), *words]) == 0
    assert "  state           COMPLETE" in capsys.readouterr().out
    (figures,) = made
    messages = ARCHIVED[EXPIRED].facts("msg")
    assert figures.summary["messages"] == len(messages)
    assert figures.summary["dead_letters"] == sum(fact["topic"].startswith("%DLQ%") for fact in messages)
    of_page = {section.name: section for section in sections(figures, 50)}
    assert len(of_page) == 11
    archives = Archives({"s": lake}, conf, is_alone=True)
    for section in map(of_page.__getitem__, cases([*of_page][::6], [*of_page])):
        _, verb, text, option, name = shlex.split(section.query)
        assert (verb, option, name) == ("sql", "--archive", f"s={lake}")
        names = [column.name for column in section.columns]
        rows = [dict(zip(names, row, strict=True)) for row in section.rows]
        archives.prepare(delta, text)
        found = run_statement(delta, text, None, {}, archives.tables, archives.load).toArrow().to_pylist()
        assert len(found) == section.total, section.name
        assert found[: len(rows)] == rows, section.name
    page = html.read_text()
    assert page.count("<section ") == len(of_page)
    assert f"{lake} (DefaultCluster, {EXPIRED}, s)" in page


def test_options_of_stores_have_no_effect_on_a_report_of_an_archive(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--at", "now"], ["--archive", lake], ["--broker-version", "5.3.3"], ["--cores", "1"]):
        assert main(["report", lake, *words]) == 2
        assert f"{words[0]} has no effect on an archive: leave it out" in capsys.readouterr().err
    assert main(["report", lake, lake]) == 2
    assert "give one archive alone" in capsys.readouterr().err
