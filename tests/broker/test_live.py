"""A running broker as tables: rows are those of its store's files, whatever way they are found."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, SparkSession

from spark_mq import MessageStore
from spark_mq._compat import arrow_schema
from spark_mq.archive import history
from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import compared_values
from spark_mq.archive.broker_archive import archive_broker
from spark_mq.archive.history import ArchivedEnd, Rest, rests_of_cluster
from spark_mq.archive.sql import sql
from spark_mq.archive.streams import source_schema
from spark_mq.archive.writer import archive
from spark_mq.cli.main import main
from spark_mq.cli.sql import command
from spark_mq.datasource import RocketMQDataSource, register
from spark_mq.errors import LogCutError, OptionError, RemotingError
from spark_mq.format.system_topic import is_system_topic
from spark_mq.lifecycle.life.life import Lives, life
from spark_mq.lifecycle.outcomes import State
from spark_mq.lifecycle.why_not_consumed import NotConsumed, why_not_consumed
from spark_mq.live import datasource as live
from spark_mq.live.broker_life import BrokerLife
from spark_mq.live.cluster import live_brokers
from spark_mq.live.messages import KeyPartition, PullsPartition
from spark_mq.live.options import parse_live_options
from spark_mq.remoting.client import ClientSettings, RemotingClient, parse_name_servers
from spark_mq.remoting.command import SerializeType
from spark_mq.remoting.pull import QueueRange, pull
from spark_mq.remoting.requests import (
    broker_config,
    consumer_connections,
    consumer_offset,
    find_brokers,
    find_route,
    log_offsets,
    max_offset,
    min_offset,
)
from spark_mq.source.predicate import Condition, Operator, decode_conditions, encode_conditions
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.tables.store_files import QUEUES
from tests.broker import harness
from tests.support.soak import SOAKS, cases
from tests.support.stores import OWN_STORES, RealStore

pytestmark = pytest.mark.broker
STORE_NAMES = ["cluster", "broker", "store"]
DIRECT = "DirectTopic"
"""A topic that is in no `topics.json`, one key of which more messages have than a broker returns."""


@dataclass(frozen=True)
class Served:
    """A store, and the broker that runs on it."""

    packed: RealStore
    path: Path
    broker: harness.Broker

    @property
    def address(self) -> str:
        return f"rocketmq://{self.broker.name_server}"

    def client(self, kind: SerializeType = SerializeType.JSON) -> RemotingClient:
        return RemotingClient(ClientSettings(parse_name_servers(self.address), serialize_type=kind))

    def rows(self, **options: str) -> pa.Table:
        """The rows of a live read, by commit log offset where there is one."""
        given = {"path": self.address} | options
        schema = live.schema(given)
        reader = live.reader(given, schema)
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        return ordered(pa.Table.from_batches(batches, None if batches else arrow_schema(schema)))

    def stored(self, **options: str) -> pa.Table:
        """The rows of the same read of the store's files."""
        given = {"path": str(self.path)} | options
        reads = RocketMQDataSource(given)
        reader = reads.reader(reads.schema())
        batches = [batch for one in reader.partitions() for batch in reader.read(one)]
        return ordered(pa.Table.from_batches(batches, None if batches else arrow_schema(reads.schema())))


def is_handed_out(row: dict[str, Any], queues: dict[str, int]) -> bool:
    """Whether a broker with these numbers of queues hands out a message, as long as it is in the log."""
    return row["transaction_type"] in ("NONE", "COMMIT") and row["queue_id"] < queues.get(row["topic"], 0)


def ordered(rows: pa.Table) -> pa.Table:
    if "commit_log_offset" not in rows.schema.names or not rows.num_rows:
        return rows
    return rows.take(pc.sort_indices(rows["commit_log_offset"]))


@pytest.fixture(scope="module", params=cases(("4.9.7", "5.5.0"), tuple(harness.WORKLOADS)))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    packed = harness.WORKLOADS[request.param]
    path = packed.unpack(tmp_path_factory.mktemp("served"))
    harness.configure(path, DIRECT)
    with harness.Broker(request.param, path, packed.broker_conf) as broker:
        yield Served(packed, path, broker)


def test_rows_are_those_of_the_store(served: Served) -> None:
    topics = "OrderEvents,PaymentLog,user_activity,BatchIngest,%RETRY%GID_failing,%DLQ%GID_failing,RetryDemo"
    found, by_topic = served.rows(topic=f"{topics},{DIRECT}"), served.stored()
    is_own = pc.is_in(by_topic["topic"], pa.array([*topics.split(","), DIRECT]))
    in_queues = pc.is_in(by_topic["transaction_type"], pa.array(["NONE", "COMMIT"]))
    expected = by_topic.filter(pc.and_(is_own, in_queues))
    assert found.num_rows == expected.num_rows > 500
    assert found.drop_columns(STORE_NAMES).equals(expected)
    names = {tuple(row.values()) for row in found.select(STORE_NAMES).to_pylist()}
    assert names == {("DefaultCluster", "broker", served.broker.address)}


def test_an_archive_gets_the_bytes_of_the_store(served: Served) -> None:
    def rows_of(reads: Any, given: dict[str, str]) -> pa.Table:
        reader = reads(given, source_schema())
        return ordered(pa.Table.from_batches([batch for one in reader.partitions() for batch in reader.read(one)]))

    given = {"topic": "OrderEvents"}
    found = rows_of(live.reader, given | {"path": served.address})
    stored = rows_of(lambda given, schema: RocketMQDataSource(given).reader(schema), given | {"path": str(served.path)})
    assert found.num_rows > 50
    assert found.equals(stored)


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "OrderEvents", "queueId": "1"},
        {"topic": "OrderEvents", "queueId": "2", "startQueueOffset": "5", "endQueueOffset": "9"},
        {"topic": "OrderEvents", "tag": "created||paid"},
        {"topic": "PaymentLog", "filter": "amount > 100 OR region IS NOT NULL"},
        {"topic": "SequenceDemo", "key": "s0"},
        {"topic": DIRECT, "tag": "none"},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_a_selection_has_the_rows_of_the_store(served: Served, options: dict[str, str]) -> None:
    expected = served.stored(**options)
    in_queues = pc.is_in(expected["transaction_type"], pa.array(["NONE", "COMMIT"]))
    assert served.rows(**options).drop_columns(STORE_NAMES).to_pylist() == expected.filter(in_queues).to_pylist()


def test_times_at_and_between_messages(served: Served) -> None:
    stored = served.stored(topic="OrderEvents")
    times = sorted(set(stored["store_timestamp"].cast(pa.int64()).to_pylist()))
    middle, last = times[len(times) // 2] // 1000, times[-1] // 1000
    for start, end in ((middle, last), (middle + 1, last - 1), (0, middle), (middle, middle), (last + 1, last + 9)):
        given = {"topic": "OrderEvents", "startTimestamp": str(start), "endTimestamp": str(end)}
        expected = stored.filter(
            pc.and_(
                pc.greater_equal(stored["store_timestamp"].cast(pa.int64()), start * 1000),
                pc.less_equal(stored["store_timestamp"].cast(pa.int64()), end * 1000),
            )
        )
        found = served.rows(**given)
        assert found["commit_log_offset"].to_pylist() == expected["commit_log_offset"].to_pylist(), given


def test_more_messages_with_a_key_than_a_broker_returns(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    keys = served.stored(topic=DIRECT)["keys"].combine_chunks()
    key, count = max(pc.value_counts(keys.flatten()).to_pylist(), key=lambda one: one["counts"]).values()
    found = served.rows(topic=DIRECT, key=key)
    expected = served.stored(topic=DIRECT, key=key)
    assert count >= expected.num_rows > 64
    missing = set(expected["commit_log_offset"].to_pylist()) - set(found["commit_log_offset"].to_pylist())
    assert found.num_rows == expected.num_rows - len(missing)
    assert ("at least 64 messages" in caplog.text) == bool(missing)


def test_a_unique_key_and_an_offset_message_id(served: Served) -> None:
    row = served.stored(topic="OrderEvents").slice(7, 1).to_pylist()[0]
    found = served.rows(topic="OrderEvents", uniqueKey=row["unique_key"]).drop_columns(STORE_NAMES)
    assert found.to_pylist() == [row]
    assert served.rows(offsetMessageId=row["offset_message_id"]).num_rows == 0  # the store was another broker's
    offset, address = row["commit_log_offset"], served.broker.address
    given = {"path": served.address, "topicPattern": ".*"}
    reader = live.reader(given, live.schema(given))
    batches = list(reader.read(KeyPartition(("c", "b", address), commit_log_offsets=(offset,))))
    assert pa.Table.from_batches(batches).to_pylist() == [{"cluster": "c", "broker": "b", "store": address} | row]


def test_the_log_of_a_broker_is_that_of_its_store(served: Served) -> None:
    def of_store() -> tuple[int, int]:
        with MessageStore(str(served.path)) as store:
            return store.get_min_phy_offset(), store.get_max_phy_offset()

    with served.client() as client:
        before, said, after = of_store(), log_offsets(client, served.broker.address), of_store()
    assert before <= said <= after  # delayed messages can come just now
    assert said[0] == before[0]


def test_conditions_of_a_query_have_the_rows_of_the_store(served: Served) -> None:
    last = served.stored()["commit_log_offset"][-1].as_py()  # later ones can be delayed messages, which come just now
    rows = served.stored(topic="OrderEvents").to_pylist()
    offsets = [row["commit_log_offset"] for row in rows]
    middle, some = offsets[len(offsets) // 2], tuple(offsets[3:9:2])
    queues = {row["topic"]: row["read_queue_nums"] for row in served.rows(table="route").to_pylist() if row["perm"] & 4}
    row = next(row for row in rows if row["keys"] and row["tags"])
    is_order, indexed = ("topic", "in", ("OrderEvents",)), ("transaction_type", "in", ("NONE", "COMMIT"))
    for conditions in (
        [("commit_log_offset", ">", (middle,))],
        [("commit_log_offset", "<=", (offsets[1],))],
        [is_order, ("commit_log_offset", "in", some)],
        [is_order, ("commit_log_offset", ">=", (middle,)), ("commit_log_offset", "<", (offsets[-3],))],
        [is_order, ("offset_message_id", "in", (row["offset_message_id"],))],  # of an address that no broker has now
        [is_order, ("tags", "in", (row["tags"], "a || b"))],
        [indexed, ("key", "in", tuple(row["keys"]))],
        [is_order, ("commit_log_offset", ">", (offsets[-1],)), ("store_timestamp", "<", (row["store_timestamp"],))],
    ):
        text = encode_conditions([Condition(name, Operator(one), values) for name, one, values in conditions])
        found = [one for one in served.rows(conditions=text)["commit_log_offset"].to_pylist() if one <= last]
        stored = served.stored(conditions=text).to_pylist()
        assert found == [
            one["commit_log_offset"]
            for one in stored
            if one["commit_log_offset"] <= last and is_handed_out(one, queues)
        ], conditions
        other = encode_conditions([Condition("broker", Operator.IN, ("another",)), *decode_conditions(text)])
        assert not served.rows(conditions=other).num_rows


def test_a_query_starts_where_the_archive_ends(served: Served) -> None:
    """It does not pull the queues whole."""
    offsets = served.stored(topic="OrderEvents")["commit_log_offset"].to_pylist()
    after = encode_conditions([Condition("commit_log_offset", Operator.GREATER, (offsets[-8],))])
    given = {"path": served.address, "topic": "OrderEvents", "conditions": after}
    (partition,) = live.reader(given, live.schema(given)).partitions()
    assert isinstance(partition, PullsPartition)
    assert sum(one.queue.stop - one.queue.start for one in partition.ranges) == 7
    before = Condition(
        "store_timestamp", Operator.LESS, (served.stored(topic="OrderEvents")["store_timestamp"][9].as_py(),)
    )
    given["conditions"] = encode_conditions([*decode_conditions(after), before])
    assert not live.reader(given, live.schema(given)).partitions()


def archived(store: Path, identity: StoreIdentity, last: int, topic: str) -> ArchivedEnd:
    """The end of an archive that has the messages of a topic of a store up to the offset `last`."""
    reads = RocketMQDataSource({"path": str(store), "topic": topic, "endOffset": str(last)})
    reader = reads.reader(reads.schema())
    rows = pa.Table.from_batches([batch for one in reader.partitions() for batch in reader.read(one)])
    with MessageStore(str(store)) as opened:
        records = [opened.records.record(offset) for offset in sorted(rows["commit_log_offset"].to_pylist())]
    newest = {record.queue_id: Row(**compared_values(record)) for record in records}
    messages = tuple(sorted(newest.values(), key=lambda row: -row.commit_log_offset))
    return ArchivedEnd(identity, last, messages[0].commit_log_offset + messages[0].store_size, None, messages)


def test_a_broker_is_recognized_in_an_archive(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = served.stored(topic="OrderEvents")["commit_log_offset"].to_pylist()
    another = "workload-533" if served.packed.name == "workload-49x" else "workload-49x"
    other = RealStore(another, OWN_STORES).unpack(served.path.parent / "other")
    of_broker = archived(served.path, StoreIdentity("c", "b", "s"), offsets[-5], "OrderEvents")
    of_other = archived(other, StoreIdentity("c", "other", "o"), 1 << 50, "OrderEvents")
    elsewhere = tuple(Row(**(row.asDict() | {"store_host": "10.0.0.1:10911"})) for row in of_other.newest)
    of_other = replace(of_other, newest=elsewhere)  # the broker can have the port of the one that wrote it
    tables = ArchiveTables.of("/lake/messages", "")

    def rests(*ends: ArchivedEnd) -> list[Rest]:
        return rests_of_cluster({"path": served.address, "conditions": "[]"}, tables, ends)

    (rest,) = rests(of_other, of_broker)
    assert (rest.identity, rest.last) == (of_broker.identity, offsets[-5])
    (rest,) = rests()
    assert (rest.identity.broker, rest.last, caplog.text) == ("broker", -1, "")
    with pytest.raises(OptionError, match=r"no store of a broker of 127.*it has c/other/o, and the brokers are"):
        rests(of_other)
    with pytest.raises(OptionError, match="under several names"):
        rests(of_broker, replace(of_broker, identity=of_other.identity))
    lost = of_broker.newest[0].asDict()
    for change in ({"store_size": 1}, {"commit_log_offset": 1 << 40}):
        newest = (Row(**(lost | change)), *of_broker.newest[1:])
        end = replace(of_broker, newest=newest, stop=newest[0].commit_log_offset + newest[0].store_size)
        with pytest.raises(LogCutError, match=r"messages of c/b/s up to commit log offset .* in the log of b"):
            rests(end)
    named = replace(of_other, identity=StoreIdentity("DefaultCluster", "broker", "s"))
    with pytest.raises(LogCutError):
        rests(named)
    monkeypatch.setattr(history, "log_offsets", lambda *_: (named.stop + 100, named.stop + 9999))
    (rest,) = rests(named)
    assert (rest.identity, rest.last) == (named.identity, named.last)
    assert f"up to commit log offset {named.stop}, and the log of broker DefaultCluster/broker/" in caplog.text
    caplog.clear()
    assert rests(replace(named, next_segment=named.stop + 100)) == [rest]  # a blank was between them
    assert not caplog.text


@pytest.mark.skipif(not SOAKS, reason="a soak: test_broker_archive has a history with a cluster")
@pytest.mark.archive
@pytest.mark.parametrize("served", ["5.3.3"], indirect=True)
def test_history_has_each_message_of_archive_and_broker_once(
    served: Served,
    delta: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    register(delta)
    table = str(tmp_path / "messages")
    archive(delta, str(served.path), table, cluster="c", broker="b", store_name="s")
    with MessageStore(str(served.path)) as store:
        end = store.get_max_phy_offset()
    harness.send(served.broker, "sequence", 1, 40, first=5000)

    given: dict[str, dict[str, str]] = {"stores": {"prod": served.address}, "archives": {"old": table}}

    def query(text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in sql(delta, text, **given).collect()]

    queues = {"SequenceDemo": 3}
    rows = [row for row in served.stored().to_pylist() if row["commit_log_offset"] < end or is_handed_out(row, queues)]
    new = [row for row in rows if row["commit_log_offset"] >= end]
    assert len(new) == 40
    of_topic = f"(commit_log_offset < {end} OR topic = 'SequenceDemo')"
    names = "cluster, broker, store, commit_log_offset, topic, queue_offset, body"
    found = query(f"SELECT {names} FROM history WHERE {of_topic} ORDER BY commit_log_offset")
    places = ("commit_log_offset", "topic", "queue_offset", "body")
    assert found == [("c", "b", "s", *(row[name] for name in places)) for row in rows]
    first, key = new[0]["store_timestamp"].isoformat(), new[5]["keys"][0]
    recent = f"topic = 'SequenceDemo' AND store_timestamp >= TIMESTAMP '{first}'"
    assert query(f"SELECT count(*), min(commit_log_offset) FROM history WHERE {recent}") == [
        (40, new[0]["commit_log_offset"])
    ]
    of_key = f"topic = 'SequenceDemo' AND array_contains(keys, '{key}') AND transaction_type <> 'ROLLBACK'"
    assert query(f"SELECT commit_log_offset FROM history WHERE {of_key} ORDER BY 1") == [
        (row["commit_log_offset"],) for row in rows if key in (row["keys"] or ()) and row["topic"] == "SequenceDemo"
    ]
    sql(delta, f"SELECT body FROM history WHERE {recent}", **given).explain("formatted")
    scan = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("PushedFilters: ["))
    assert "EqualTo(topic,SequenceDemo)" in scan
    assert "GreaterThanOrEqual(store_timestamp," in scan
    monkeypatch.setattr(command, "spark_session", lambda *_: contextlib.nullcontext(delta))
    text = (
        f"SELECT count(*) AS all FROM history WHERE broker = 'b' AND {recent}; SELECT 1 FROM history WHERE broker = 'a'"
    )
    doors = ("--store", f"prod={served.address}", "--archive", f"old={table}", "--format", "json")
    assert main(["sql", text, *doors]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"all": 40}]


@pytest.mark.skipif(not SOAKS, reason="a soak: test_broker_archive has a history with a cluster")
@pytest.mark.archive
@pytest.mark.parametrize("served", ["5.3.3", "4.9.7"], indirect=True)
def test_history_goes_on_in_each_queue_of_a_broker_that_was_archived(
    served: Served, delta: SparkSession, tmp_path: Path
) -> None:
    register(delta)
    table = str(tmp_path / "messages")
    archive_broker(delta, served.address, table, cluster="DefaultCluster", broker="broker", store_name="s")
    archived_rows = delta.read.format("delta").load(table).count()
    harness.send(served.broker, "sequence", 1, 40, first=6000)
    topics = json.loads((served.path / "config" / "topics.json").read_text())["topicConfigTable"]
    queues = {name: one["readQueueNums"] for name, one in topics.items() if not is_system_topic(name)}
    rows = [row for row in served.stored().to_pylist() if is_handed_out(row, queues)]
    assert len(rows) == archived_rows + 40

    given: dict[str, dict[str, str]] = {"stores": {"prod": served.address}, "archives": {"old": table}}
    places = "store, topic, queue_id, queue_offset, commit_log_offset, body"

    def query(condition: str) -> list[tuple[object, ...]]:
        text = f"SELECT {places} FROM history WHERE {condition} ORDER BY commit_log_offset"
        return [tuple(row) for row in sql(delta, text, **given).collect()]

    def expected(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
        return [("s", *(row[name] for name in places.split(", ")[1:])) for row in rows]

    assert query(f"topic IN ({', '.join(map(repr, queues))})") == expected(rows)
    key = rows[-1]["keys"][0]
    of_key = [row for row in rows if row["topic"] == "SequenceDemo" and key in (row["keys"] or ())]
    assert query(f"topic = 'SequenceDemo' AND array_contains(keys, '{key}')") == expected(of_key)


def test_small_queues_share_a_partition(served: Served) -> None:
    given = {"path": served.address, "topicPattern": ".*"}
    partitions = live.reader(given, live.schema(given)).partitions()
    assert [type(one) for one in partitions] == [PullsPartition]


def test_tables_are_those_of_the_store(served: Served) -> None:
    with MessageStore(str(served.path)) as store:
        queues = {(row["topic"], row["queue_id"]): row for row in QUEUES.read(store, {}).to_pylist()}
    named = ["min_offset", "max_offset", "first_commit_log_offset", "last_commit_log_offset", "first_store_timestamp"]
    found = {(row["topic"], row["queue_id"]): row for row in served.rows(table="queues").to_pylist()}
    for key in (("OrderEvents", 0), ("%DLQ%GID_failing", 0), (DIRECT, 0), ("SCHEDULE_TOPIC_XXXX", 0)):
        assert {name: found[key][name] for name in named} == {name: queues[key][name] for name in named}
        assert (found[key]["state"], found[key]["problem"]) == (None, None)
    for table in ("topics", "subscription_groups", "consumer_offsets", "consumer_progress", "route"):
        rows = served.rows(table=table)
        assert rows.schema.names[3:] == live.schema({"path": served.address, "table": table}).fieldNames()[3:]
        assert rows.num_rows > 1
    (topic,) = [row for row in served.rows(table="topics").to_pylist() if row["topic"] == "OrderEvents"]
    assert topic["message_count"] == sum(found["OrderEvents", number]["max_offset"] for number in range(4))
    progress = {
        (row["consumer_group"], row["topic"]): row for row in served.rows(table="consumer_progress").to_pylist()
    }
    assert progress["GID_failing", "%RETRY%GID_failing"]["group_dead_letters"] == 5


def test_commands_print_tables_of_a_cluster(served: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    conf = tmp_path / "client.properties"
    conf.write_text("requestTimeout=20\n")
    assert main(["queues", served.address, "--topic", "OrderEvents", "--json", "--client-conf", str(conf)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["broker"], row["store"], row["queue_id"]) for row in rows] == [
        ("broker", served.broker.address, number) for number in range(4)
    ]
    assert main(["lag", served.address]) == 0
    assert "%RETRY%GID_failing" in capsys.readouterr().out
    assert main(["queues", served.address, "--topic", "NoSuchTopic"]) == 3
    assert main(["segments", served.address]) == 2
    assert "needs the files of a store" in capsys.readouterr().err
    assert main(["queues", str(served.path), "--client-conf", str(conf)]) == 2


def printed_rows(capsys: pytest.CaptureFixture[str], command: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the rows without the names of the store."""
    status = main([*command, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return status, [{name: value for name, value in row.items() if name not in STORE_NAMES} for row in rows]


def test_point_commands_print_the_rows_of_the_store(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    stored = served.stored(topic="OrderEvents")
    row = stored.slice(stored.num_rows // 2, 1).to_pylist()[0]
    begin, stored_at, end = (
        str(stored["store_timestamp"][number].value // 1000) for number in (9, stored.num_rows // 2, 30)
    )
    key, unique_key = row["keys"][0], row["unique_key"]
    in_topic = ["print-message", "OrderEvents"]
    for name, *asked in (
        ["query-by-key", "OrderEvents", key],
        ["query-by-key", "SequenceDemo", "s0", "--max-num", "5"],
        ["query-by-key", "OrderEvents", key, "--begin", stored_at, "--end", stored_at],
        ["query-by-key", "OrderEvents", unique_key, "--filter", "NOT (a = 1) OR TRUE"],
        ["query-by-unique-key", "OrderEvents", unique_key],
        ["query-by-unique-key", unique_key],
        ["query-by-unique-key", "OrderEvents", row["offset_message_id"], "--any-host"],
        ["query-by-id", row["offset_message_id"], "--any-host"],
        ["query-by-id", unique_key],
        ["query-by-offset", "OrderEvents", str(row["queue_id"]), str(row["queue_offset"])],
        ["query-by-offset", "OrderEvents", "0", "100000"],
        ["query-by-offset", "NoSuchTopic", "0", "0"],
        [*in_topic, "--begin", begin, "--end", end],
        [*in_topic, "--limit", "7"],
        [*in_topic, "--last", "7"],
        [*in_topic, "--newest-first", "--limit", "0", "--queue-id", "1"],
        [*in_topic, "--tag", "created || paid", "--limit", "0"],
        ["print-message", "PaymentLog", "--filter", "amount > 100 OR region IS NOT NULL", "--last", "4"],
        [*in_topic, "--key", key],
        ["print-message", "%DLQ%GID_failing"],
        ["print-message", "%RETRY%GID_failing"],
        ["print-message", "SCHEDULE_TOPIC_XXXX"],
        ["print-message", "NoSuchTopic"],
    ):
        of_files, of_broker = (
            printed_rows(capsys, [name, source, *asked]) for source in (str(served.path), served.address)
        )
        assert of_broker == of_files, (name, *asked)
        assert of_files[0] == (3 if "NoSuchTopic" in asked or "100000" in asked else 0), (name, *asked)


def test_lives_of_messages_are_those_of_the_store(served: Served) -> None:
    """All kinds: retries, dead letters, delays, transactions. Only the files tell when something expires."""
    options = parse_live_options({"path": served.address, "topicPattern": ".*"})
    facts = served.packed.facts("msg")
    keys = dict.fromkeys(one["properties"]["UNIQ_KEY"] for one in facts if "UNIQ_KEY" in one["properties"])
    states: Counter[State] = Counter()

    def told(found: Lives, is_whole: bool) -> list[object]:
        events = [[(one.kind, one.timestamp, one.text) for one in one_life.events] for one_life in found.lives]
        consumers = [[one.text for one in one_life.consumers] for one_life in found.lives]
        return [consumers, *([events, [one_life.state for one_life in found.lives]] if is_whole else [])]

    def of_files(key: str) -> Lives:
        with MessageStore(str(served.path)) as store:
            return life(store, key)

    with served.client() as client:
        (broker,) = live_brokers(client)
        of_broker = BrokerLife(broker, options)
        for key in list(keys)[::9]:
            before, found, after = of_files(key), life(of_broker, key), of_files(key)  # the broker delivers meanwhile
            states.update(one.state for one in found.lives)
            # A broker of 4.9 does not hand out op messages.
            reasons = [one.reason or "" for one in found.lives]
            hidden = [reason for reason in reasons if re.search("does not hand out the messages of .*OP_HALF", reason)]
            is_hidden = bool(hidden) or State.COMMITTED in [one.state for one in found.lives]
            is_whole = served.broker.version != "4.9.7" or not is_hidden
            assert told(found, is_whole) in (told(before, is_whole), told(after, is_whole))
            for one in found.lives:
                assert "when it expires, and whether the broker's index has all of its copies" in one.unknown[-1]
        half = next(one for one in facts if one["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC")
        (by_id,) = life(of_broker, half["msgId"]).lives
        assert by_id.unique_key == half["uniqKey"]
    assert states[State.STORED] > 90
    assert len(states) > 2


@pytest.mark.parametrize("subscribed", [{}, {"tags": "paid || TagA"}, {"expression": "price > 5"}], ids=str)
def test_why_a_group_did_not_consume_is_told_as_by_the_store(served: Served, subscribed: dict[str, Any]) -> None:
    options = parse_live_options({"path": served.address, "topicPattern": ".*"})
    reasons: Counter[NotConsumed] = Counter()
    with served.client() as client, MessageStore(str(served.path)) as store:
        of_broker = BrokerLife(live_brokers(client)[0], options)
        # The broker notes other offsets meanwhile, of its own group for transactions.
        offsets = [one for one in load_consumer_offsets(store.location) if one.consumer_group.startswith("GID_")]
        for one in offsets:
            first, stop = of_broker.queue_ends(one.topic, one.queue_id)
            for offset in {first, max(one.offset - 1, 0), one.offset, stop - 1, stop}:
                asked = one.consumer_group, one.topic, one.queue_id, offset
                found = why_not_consumed(of_broker, *asked, **subscribed)
                expected = why_not_consumed(store, *asked, **subscribed)
                reasons[found.reason] += 1
                assert replace(found, unknown=()) == replace(expected, unknown=())
                if not subscribed and found.reason in (NotConsumed.NOT_YET, NotConsumed.CONSUMED):
                    assert any("no connected consumer of the group tells it; --tag" in text for text in found.unknown)
        gone = why_not_consumed(of_broker, "GID_failing", "RetryDemo", 99, 0)
    assert len(reasons) > 1
    assert "does not hand out the messages of RetryDemo/99" in gone.text


def test_point_commands_say_at_least(
    served: Served, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    keys = served.stored(topic=DIRECT)["keys"].combine_chunks()
    key, _ = max(pc.value_counts(keys.flatten()).to_pylist(), key=lambda one: one["counts"]).values()
    _, of_files = printed_rows(capsys, ["query-by-key", str(served.path), DIRECT, key])
    _, of_broker = printed_rows(capsys, ["query-by-key", served.address, DIRECT, key])
    assert len(of_files) > 64
    assert all(row in of_files for row in of_broker)
    assert ("at least 64 messages" in caplog.text) == (len(of_broker) < len(of_files))


def test_messages_are_pulled_in_the_name_of_a_group(served: Served) -> None:
    found = served.rows(topic="OrderEvents", pullGroup="GID_failing")
    assert found.num_rows == served.rows(topic="OrderEvents").num_rows > 0
    offsets = served.rows(table="consumer_offsets", consumerGroup="GID_failing", topic="OrderEvents")
    assert offsets.num_rows == 0  # no offset came to be


@pytest.mark.parametrize("kind", SerializeType)
def test_requests_with_both_kinds_of_headers(served: Served, kind: SerializeType) -> None:
    with served.client(kind) as client:
        (broker,) = find_brokers(client)
        address = broker.address()
        assert address == served.broker.address
        route = find_route(client, "OrderEvents")
        assert route is not None
        assert [(one.broker, one.read_queue_nums) for one in route.queues] == [("broker", 4)]
        assert find_route(client, "NoSuchTopic") is None
        assert broker_config(client, address)["brokerName"] == "broker"
        assert consumer_connections(client, address, "GID_nobody") is None
        nothing = 0 if served.broker.version.startswith("4.9") else None  # 4.9 says where a new group would begin
        assert consumer_offset(client, address, "GID_nobody", "OrderEvents", 0) == nothing
        assert consumer_offset(client, address, "GID_failing", "%RETRY%GID_failing", 0) == 10
        first, stop = (read(client, address, "OrderEvents", 0) for read in (min_offset, max_offset))
        queue = QueueRange("broker", address, "OrderEvents", 0, first, stop)
        assert pull(client, queue, stop, suspend_seconds=0.5).next_offset == stop
        assert pull(client, queue, stop + 100).code.name == "PULL_OFFSET_MOVED"


@pytest.mark.parametrize("served", cases(("5.5.0",), tuple(harness.WORKLOADS)), indirect=True)
def test_a_slave_has_the_rows_of_its_master(served: Served, tmp_path: Path) -> None:
    """Whether it hands messages out itself, or leaves them to its master; a slave that lags has fewer."""
    given = {"topic": f"OrderEvents,SequenceDemo,{DIRECT}", "readFrom": "slave"}
    with pytest.raises(RemotingError, match="has no slave"):
        served.rows(**given)
    store = served.packed.unpack(tmp_path)  # a slave that starts without files gets only the last segment
    harness.configure(store, DIRECT)
    settings = dict(line.split("=", 1) for line in served.packed.broker_conf.read_text().split())
    settings |= {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": served.broker.name_server}
    settings["slaveReadEnable"] = "true"
    with harness.Broker(served.broker.version, store, settings) as slave:
        harness.send(served.broker, "sequence", 1, 40)
        expected = served.rows(topic=given["topic"]).drop_columns(STORE_NAMES)
        latest = time.monotonic() + 60
        while (found := served.rows(**given)).num_rows < expected.num_rows:
            assert time.monotonic() < latest, found.num_rows
            time.sleep(0.2)
        assert found.drop_columns(STORE_NAMES).equals(expected)
        assert set(found["store"].to_pylist()) == {slave.address} != {served.broker.address}
        last = expected["commit_log_offset"][-50].as_py()
        of_master = archived(served.path, StoreIdentity("c", "b", "s"), last, "OrderEvents")
        live_slave = {"path": served.address, "readFrom": "slave", "conditions": "[]"}
        (rest,) = rests_of_cluster(live_slave, ArchiveTables.of("/lake/messages", ""), [of_master])
        assert (rest.identity, rest.last) == (of_master.identity, last)
        after = encode_conditions([Condition("commit_log_offset", Operator.GREATER, (last,)), *rest.conditions])
        assert served.rows(**given, conditions=after).num_rows == 49
        (key, *_) = expected.filter(pc.equal(expected["topic"], "OrderEvents"))["unique_key"].drop_null().to_pylist()
        assert served.rows(topic="OrderEvents", uniqueKey=key, readFrom="slave").num_rows == 1
        queues = [served.rows(table="queues", readFrom=one) for one in ("master", "slave")]
        columns = ["topic", "queue_id", "min_offset", "max_offset", "first_commit_log_offset", "last_store_timestamp"]
        ends = [[row for row in one.select(columns).to_pylist() if row["topic"] in given["topic"]] for one in queues]
        assert ends[0] == ends[1] != []
