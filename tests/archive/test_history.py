"""conf/history.sql and the recipes, run as the SQL shell runs them, against what Apache RocketMQ said of the stores."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from spark_mq.archive.archive_tables import StoreIdentity
from spark_mq.archive.streams import archive_rows, source_schema
from spark_mq.datasource import register
from spark_mq.format.record import FRAME
from tests.support.store_history import cut_log, expire, grow_log, record_ends
from tests.support.stores import OWN_STORES, PROJECT, Fact, RealStore, segment_files

pytestmark = pytest.mark.archive

CONF = PROJECT / "conf"
RECIPES = {file.stem for file in (CONF / "recipes").glob("*.sql")}
STORE, OTHER = RealStore("workload-533", OWN_STORES), RealStore("deleted-533", OWN_STORES)
CLUSTER = "c"
TOPIC = "OrderEvents"

Place = tuple[str, int, str]
"""Broker, commit log offset and digest of the body of a message."""


@dataclass(frozen=True)
class Shell:
    """Runs files of SQL in the session, with variables in them."""

    spark: SparkSession

    def run(self, file: Path, **variables: str) -> DataFrame:
        """All statements of a file (no comment in it has a semicolon); gives the last one's answer."""
        for name, value in variables.items():
            self.spark.conf.set(name, value)
        try:
            answers = [self.spark.sql(text) for text in file.read_text().split(";") if text.strip()]
        finally:
            for name in variables:
                self.spark.conf.unset(name)
        return answers[-1]

    def make_history(self, archive_sql: str, store: Path, broker: str = "a") -> None:
        self.run(CONF / "history.sql", archive=archive_sql, store=str(store), **identity(broker))

    def places(self) -> list[Place]:
        rows = self.spark.sql("SELECT broker, commit_log_offset, md5(body) AS digest FROM history").collect()
        return sorted((row.broker, row.commit_log_offset, row.digest) for row in rows)


def identity(broker: str) -> dict[str, str]:
    return {"cluster": CLUSTER, "broker": broker, "store_name": "s"}


def places_of(store: RealStore, broker: str, before: int = 1 << 63) -> list[Place]:
    facts = (fact for fact in store.facts("msg") if fact["offset"] < before)
    return sorted((broker, fact["offset"], fact["bodyMd5"]) for fact in facts)


@pytest.fixture(scope="module")
def shell(delta: SparkSession) -> Iterator[Shell]:
    yield Shell(delta)
    for view in delta.sql("SHOW VIEWS").where("isTemporary").collect():
        delta.catalog.dropTempView(view.viewName)  # it would come before a table of that name in `spark_mq.sql`


@dataclass(frozen=True)
class Lake:
    """An archive in which another store is, and then, version by version, more of the one in question."""

    table: str
    ends: dict[int, int]
    """By version of the table: the commit log offset behind the last message that it has of the store."""

    def sql_name(self, version: int) -> str:
        """How SQL calls a version of it: the archive as it was then."""
        return f"delta.`{self.table}@v{version}`"


def append(spark: SparkSession, store: Path, table: str, broker: str, start: int = 0, end: int = 1 << 53) -> None:
    """Append what begins at these offsets, as a batch of the archive does."""
    reader = spark.read.format("rocketmq").schema(source_schema())
    messages = reader.options(startOffset=str(start), endOffset=str(end - 1)).load(str(store))
    rows = archive_rows(messages, StoreIdentity(CLUSTER, broker, "s"))
    rows.write.format("delta").mode("append").save(table)


@pytest.fixture(scope="module")
def lake(delta: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """It is shared: no test may change it."""
    folder = tmp_path_factory.mktemp("history")
    table = str(folder / "messages")
    register(delta)
    append(delta, OTHER.unpack(folder), table, "b")
    store, ends = STORE.unpack(folder), record_ends(STORE)
    segment = STORE.facts("store")[0]["mappedFileSizeCommitLog"]
    before_filler = max(end for end in ends if end < segment)
    cuts = [0, before_filler, ends[len(ends) // 2], ends[-1]]
    for start, end in pairwise(cuts):
        append(delta, store, table, "a", start, end)
    return Lake(table, dict(enumerate(cuts)))


def middle(lake: Lake) -> int:
    """A version that ends in the middle of the log, with whole segments before it."""
    return len(lake.ends) // 2


def expire_archived(store: Path, end: int) -> None:
    """Delete the segments whose messages are all before `end`, but the one that a broker would write on."""
    segment = STORE.facts("store")[0]["mappedFileSizeCommitLog"]
    needed = {fact["offset"] // segment for fact in STORE.facts("msg") if fact["offset"] >= end}
    bases = [int(file.name) // segment for file in segment_files(store)[:-1]]
    expire(store, sum(base not in needed for base in bases))


def test_no_message_is_lost_or_doubled_wherever_the_archive_ends(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    store = STORE.unpack(tmp_path)
    count = len(segment_files(store))
    expected = sorted(places_of(STORE, "a") + places_of(OTHER, "b"))
    for version, end in lake.ends.items():
        expire_archived(store, end)
        shell.make_history(lake.sql_name(version), store)
        assert shell.places() == expected, end
    assert len(segment_files(store)) == 1 < count


def test_a_store_that_is_not_archived_is_read_whole(shell: Shell, lake: Lake, tmp_path: Path) -> None:
    shell.make_history(lake.sql_name(max(lake.ends)), STORE.unpack(tmp_path), broker="x")
    assert shell.places() == sorted(places_of(STORE, "a") + places_of(OTHER, "b") + places_of(STORE, "x"))


def test_the_archive_grows_while_the_view_stays(shell: Shell, tmp_path: Path) -> None:
    ends, table = record_ends(STORE), str(tmp_path / "messages")
    first, second = ends[len(ends) // 3], ends[len(ends) // 2]
    whole = STORE.unpack(tmp_path)
    store = cut_log(whole, tmp_path / "store", first)
    append(shell.spark, store, table, "a")
    grow_log(whole, store, second)

    shell.make_history(f"delta.`{table}`", store)
    assert shell.places() == places_of(STORE, "a", second)
    grow_log(whole, store)
    append(shell.spark, store, table, "a", start=first)
    assert shell.places() == places_of(STORE, "a")


def test_damage_at_the_seam_comes_once(shell: Shell, tmp_path: Path) -> None:
    facts = STORE.facts("msg")
    at = facts[len(facts) // 2]["offset"]
    store, table = STORE.unpack(tmp_path), str(tmp_path / "messages")
    segment = max((file for file in segment_files(store) if int(file.name) <= at), key=lambda file: int(file.name))
    with segment.open("r+b") as file:
        file.seek(at - int(segment.name))
        file.write(b"\xff" * FRAME.size)
    append(shell.spark, store, table, "a", end=at + 1)
    shell.make_history(f"delta.`{table}`", store)
    rows = shell.spark.sql("SELECT commit_log_offset, _corrupt_record IS NOT NULL AS damaged FROM history").collect()
    assert sorted((row.commit_log_offset, row.damaged) for row in rows) == sorted(
        (fact["offset"], fact["offset"] == at) for fact in facts
    )


@pytest.fixture(scope="module")
def history(shell: Shell, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell whose `history` is half in the archive, where the first half expired, and half in the store."""
    store = STORE.unpack(tmp_path_factory.mktemp("half"))
    version = middle(lake)
    expire_archived(store, lake.ends[version])
    assert int(segment_files(store)[0].name) > 0
    shell.make_history(lake.sql_name(version), store)
    return shell


def recipe(shell: Shell, name: str, **variables: str) -> list[Row]:
    return shell.run(CONF / "recipes" / f"{name}.sql", **variables).collect()


def all_facts(topic: str | None = None) -> list[tuple[str, Fact]]:
    """Brokers and the facts of their messages."""
    facts = [("a", fact) for fact in STORE.facts("msg")] + [("b", fact) for fact in OTHER.facts("msg")]
    return [(broker, fact) for broker, fact in facts if topic in (None, fact["topic"])]


def stored_at(fact: Fact) -> datetime:
    return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(milliseconds=fact["storeTimestamp"])


def ids(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(row.broker, row.offset_message_id) for row in rows]


def ids_of(facts: Iterable[tuple[str, Fact]]) -> list[tuple[str, str]]:
    return [(broker, fact["msgId"]) for broker, fact in facts]


def keys_of(fact: Fact) -> set[str]:
    return {*(fact["keys"] or "").split(), fact["uniqKey"]}


class TestRecipes:
    """One test for each file."""

    def test_messages_of_a_key(self, history: Shell, lake: Lake) -> None:
        end = lake.ends[middle(lake)]
        sides: dict[str, set[bool]] = {}
        for broker, fact in all_facts(TOPIC):
            for key in keys_of(fact):
                sides.setdefault(key, set()).add(broker == "a" and fact["offset"] >= end)
        both = next(key for key in sorted(sides) if len(sides[key]) == 2)
        unique = next(fact["uniqKey"] for _, fact in all_facts(TOPIC) if fact["uniqKey"])
        for key in (both, unique):
            expected = [(broker, fact) for broker, fact in all_facts(TOPIC) if key in keys_of(fact)]
            expected.sort(key=lambda one: (-one[1]["storeTimestamp"], -one[1]["offset"], one[0]))
            assert ids(recipe(history, "messages_of_a_key", topic=TOPIC, key=key)) == ids_of(expected)

    def test_per_minute_and_topic(self, history: Shell) -> None:
        times = sorted(stored_at(fact) for _, fact in all_facts())
        begin, end = times[0] + timedelta(seconds=1), times[-1]
        counts: Counter[tuple[datetime, str]] = Counter()
        sizes: Counter[tuple[datetime, str]] = Counter()
        for _, fact in all_facts():
            if begin <= stored_at(fact) < end:
                group = stored_at(fact).replace(second=0, microsecond=0), fact["topic"]
                counts[group] += 1
                sizes[group] += fact["size"]
        assert 0 < counts.total() < len(times)
        found = recipe(history, "per_minute_and_topic", begin=str(begin), end=str(end))
        assert [tuple(row) for row in found] == [(*group, counts[group], sizes[group]) for group in sorted(counts)]

    def test_largest(self, history: Shell) -> None:
        ordered = sorted(all_facts(), key=lambda one: (-one[1]["size"], one[0], one[1]["offset"]))[:20]
        found = recipe(history, "largest", count="20")
        assert ids(found) == ids_of(ordered)
        assert [(row.store_size, row.body_size) for row in found] == [(f["size"], f["bodyLen"]) for _, f in ordered]

    def test_by_tag(self, history: Shell) -> None:
        by_tag: dict[str | None, list[Fact]] = {}
        for _, fact in all_facts(TOPIC):
            by_tag.setdefault(fact["tags"], []).append(fact)
        expected = [
            (tag, len(facts), sum(fact["size"] for fact in facts), min(times), max(times))
            for tag, facts in by_tag.items()
            for times in [[stored_at(fact) for fact in facts]]
        ]
        expected.sort(key=lambda row: (-row[1], (row[0] is not None, (row[0] or "").encode())))
        found = recipe(history, "by_tag", topic=TOPIC)
        assert [(row.tags, row.messages, row.bytes, row["first"], row["last"]) for row in found] == expected

    def test_by_property(self, history: Shell) -> None:
        name, value = "region", "上海"
        expected = [(broker, fact) for broker, fact in all_facts(TOPIC) if fact["properties"].get(name) == value]
        expected.sort(key=lambda one: (one[1]["storeTimestamp"], one[0], one[1]["offset"]))
        found = recipe(history, "by_property", topic=TOPIC, property=name, value=value)
        assert ids(found) == ids_of(expected)
        assert {hashlib.md5(row.body).hexdigest() for row in found} == {fact["bodyMd5"] for _, fact in expected}

    def test_consumers_behind(self, history: Shell) -> None:
        offsets = history.spark.table("consumer_offsets").where("lag > 0").collect()
        messages = {(f["topic"], f["queueId"], f["queueOffset"]): stored_at(f) for f in in_a_queue(STORE)}
        expected = [
            (
                one.consumer_group,
                one.topic,
                one.queue_id,
                one.lag,
                messages[one.topic, one.queue_id, one.consumer_offset],
            )
            for one in sorted(offsets, key=lambda one: (-one.lag, one.consumer_group, one.topic, one.queue_id))
        ]
        assert expected
        found = recipe(history, "consumers_behind", **identity("a"))
        assert [(r.consumer_group, r.topic, r.queue_id, r.lag, r.waiting_since) for r in found] == expected


def in_a_queue(store: RealStore) -> list[Fact]:
    """The messages but those of transaction types PREPARED and ROLLBACK (`MessageSysFlag`@5.3.3)."""
    return [fact for fact in store.facts("msg") if fact["sysFlag"] & 0b1100 in (0, 0b1000)]


def test_every_recipe_has_a_test() -> None:
    assert {name.removeprefix("test_") for name in dir(TestRecipes) if name.startswith("test_")} == RECIPES
