"""Which stores the options of a read choose, and the options of each of them; without Spark."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import OptionError, SparkMqError, StoreNotFoundError
from spark_mq.source.options import parse_options
from spark_mq.source.predicate import Condition, Operator, encode_conditions
from spark_mq.source.schema import default_schema
from spark_mq.source.several_stores import SeveralStoresReader
from spark_mq.source.store_choice import StoreChoice
from spark_mq.tables.all_tables import TABLES
from tests.support.stores import OWN_STORES, Unpack, stores_in

NEW, OLD = (next(one for one in stores_in(OWN_STORES) if one.name == name) for name in ("workload-533", "workload-49x"))
A, B = '{"path": "/a", "broker": "a"}', '{"path": "/b", "broker": "b"}'


def paths_of(**options: str) -> list[str]:
    return [store.path for store in StoreChoice.of(options).stores()]


def test_stores_are_chosen_by_paths_patterns_or_a_file(tmp_path: Path) -> None:
    for name in ("x1", "x2"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    assert paths_of(path="/a") == ["/a"]
    assert paths_of(paths='["/b", "/a"]') == ["/b", "/a"]
    assert paths_of(path=f"{tmp_path}/x*") == [f"{tmp_path}/x1", f"{tmp_path}/x2"]
    assert paths_of(PATHS=json.dumps(["/a", f"{tmp_path}/x*"])) == ["/a", f"{tmp_path}/x1", f"{tmp_path}/x2"]
    assert paths_of(Stores=f"[{A}, {B}]") == ["/a", "/b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": '["/a", "/a/"]'}, "/a is given twice"),
        ({"paths": "[1]"}, "not a JSON list"),
        ({"paths": "/a"}, "not a JSON list"),
        ({"paths": '["/a", ""]'}, "path is missing"),
        ({"path": "/a", "stores": f"[{A}]"}, "both select stores"),
        ({"path": "/a", "skipUnreadable": "true"}, "skipUnreadable has no effect on one store"),
        ({"stores": f"[{A}]", "skipUnreadable": "yes"}, "skipUnreadable='yes'"),
    ],
)
def test_a_wrong_choice_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        StoreChoice.of(options).stores()


def test_columns_name_the_store_if_the_options_can_select_several(tmp_path: Path) -> None:
    for table in TABLES:
        one = RocketMQDataSource({"path": "/a", "table": table}).schema()
        assert one == default_schema(table)
        for several in ({"paths": '["/a","/b"]'}, {"path": "/data/*"}, {"stores": f"[{A}]"}):
            names = RocketMQDataSource({**several, "table": table}).schema().fieldNames()
            assert names == ["cluster", "broker", "store", *one.fieldNames()]
    with pytest.raises(OptionError, match="did you mean topic"):
        RocketMQDataSource({"paths": '["/a","/b"]', "topik": "x"}).schema()


def test_each_store_has_its_own_options() -> None:
    stores = [
        {"path": "/a", "options": {"mode": "FAILFAST"}},
        {"path": "s3://bucket/b", "options": {"fs.s3a.endpoint": "http://127.0.0.1:1"}},
    ]
    options = {"stores": json.dumps(stores), "mode": "DROPMALFORMED", "fs.s3a.endpoint": "x", "topic": "t"}
    (_, first), (_, second) = StoreChoice.of(options).each()
    assert first == {"path": "/a", "mode": "FAILFAST", "topic": "t"}
    assert second == {"path": "s3://bucket/b", "mode": "DROPMALFORMED", "fs.s3a.endpoint": "http://127.0.0.1:1"} | {
        "topic": "t"
    }
    (_, segments), _ = StoreChoice.of({"stores": json.dumps(stores), "table": "segments"}).each()
    assert segments == {"path": "/a", "table": "segments"}
    for name in ("path", "stores", "startingOffsets", "modee"):
        wrong = json.dumps([{"path": "/a", "options": {name: "x"}}])
        with pytest.raises(OptionError, match=f"option {name} is not an option of one store"):
            StoreChoice.of({"stores": wrong}).each()


def test_settings_of_a_broker_belong_to_its_store_and_to_tables_that_have_them(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=named\n")
    stores = json.dumps([{"path": "/a", "broker_conf": str(tmp_path / "broker.conf")}, {"path": "/b"}])
    for table, conf in (("index_files", "brokerConf"), ("segments", None)):
        (first, own), (second, other) = StoreChoice.of({"stores": stores, "table": table}).each()
        assert (first.broker, second.broker) == ("named", "DEFAULT_BROKER")
        assert (conf in own, "brokerConf" in other) == (conf is not None, False)
    (_, stream), _ = StoreChoice.of({"stores": stores, "startingOffsets": "latest"}).each(is_stream=True)
    assert stream == {"path": "/a", "startingOffsets": "latest"}


def test_a_condition_on_names_leaves_stores_out() -> None:
    def chosen(column: str, *values: str) -> list[str]:
        conditions = encode_conditions([Condition(column, Operator.IN, values)])
        return paths_of(stores=f"[{A}, {B}]", conditions=conditions)

    assert chosen("broker", "b") == ["/b"]
    assert chosen("store", "/a", "/b") == ["/a", "/b"]
    assert chosen("cluster", "none") == []


def read(columns: list[str], **options: str) -> list[dict[str, object]]:
    """The rows, as Spark gets them from readers that it sends to other processes."""
    schema = default_schema(StoreChoice.of(options).table(), is_of_several=True)
    source = RocketMQDataSource(options)
    reader = pickle.loads(pickle.dumps(source.reader(StructType([schema[name] for name in columns]))))
    partitions = pickle.loads(pickle.dumps(list(reader.partitions())))
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    for batch in batches:
        assert from_arrow_schema(batch.schema).fieldNames() == columns
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_only_names_can_be_read(unpacked: Unpack) -> None:
    rows = read(["broker"], path=str(unpacked(NEW)), table="queues")
    queues = len(NEW.facts("queue"))
    assert queues
    assert rows == [{"broker": "DEFAULT_BROKER"}] * queues


def test_a_store_that_cannot_be_read_is_named_or_left_out(
    unpacked: Unpack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = str(unpacked(NEW)), str(tmp_path / "none")
    paths = {"paths": json.dumps([good, bad])}
    for table in ("messages", "queues", "index_entries", "consume_queue"):
        with pytest.raises(StoreNotFoundError, match=bad):
            read(["store"], **paths, table=table)
        with caplog.at_level(logging.WARNING):
            rows = read(["store"], **paths, table=table, skipUnreadable="true")
        assert {row["store"] for row in rows} == {good}
        assert f"{bad}) is left out" in caplog.text
        caplog.clear()
    with pytest.raises(StoreNotFoundError, match="none of the 2 stores can be read"):
        read(["store"], paths=json.dumps([bad, f"{bad}2"]), skipUnreadable="true")


def test_a_table_whose_files_cannot_be_read_is_named_or_left_out(
    unpacked: Unpack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = OLD.unpack(tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (broken / "config" / name).write_text("{")
    paths = {"paths": json.dumps([str(unpacked(NEW)), str(broken)]), "table": "topics"}
    with pytest.raises(SparkMqError, match=str(broken)):
        read(["store"], **paths)
    with caplog.at_level(logging.WARNING):
        rows = read(["store"], **paths, skipUnreadable="true")
    assert {row["store"] for row in rows} == {str(unpacked(NEW))}
    assert "is left out" in caplog.text


def test_damage_is_an_error_although_unreadable_stores_are_left_out(unpacked: Unpack, tmp_path: Path) -> None:
    damaged = OLD.unpack(tmp_path)
    segment = sorted((damaged / "commitlog").iterdir())[0]
    content = bytearray(segment.read_bytes())
    content[200:300] = b"\xff" * 100
    segment.write_bytes(content)
    paths = json.dumps([str(unpacked(NEW)), str(damaged)])
    with pytest.raises(SparkMqError, match=str(damaged)):
        read(["topic"], paths=paths, skipUnreadable="true", mode="FAILFAST")


def test_an_id_is_answered_by_the_store_that_has_it(unpacked: Unpack) -> None:
    stores = {str(unpacked(store)): store for store in (NEW, OLD)}
    owners: dict[str, set[str]] = {}
    for path, store in stores.items():
        for fact in store.facts("msg"):
            owners.setdefault(str(fact["msgId"]), set()).add(path)
    shared = [message_id for message_id, paths in owners.items() if len(paths) > 1]
    single = [message_id for message_id, paths in owners.items() if len(paths) == 1]
    for message_id in (*single[:: len(single) // 20], *shared[:2]):
        rows = read(["store", "offset_message_id"], paths=json.dumps(list(stores)), offsetMessageId=message_id)
        assert {row["store"] for row in rows} == owners[message_id]
        assert {row["offset_message_id"] for row in rows} == {message_id}


def test_no_store_that_matches_gives_no_row() -> None:
    reader = SeveralStoresReader([], ["topic"], skips_unreadable=True)
    assert list(reader.partitions()) == []
    assert list(reader.read(None)) == []


def test_an_option_of_several_stores_is_refused_for_one() -> None:
    for name in ("paths", "stores", "skipUnreadable"):
        with pytest.raises(OptionError, match=name):
            parse_options({"path": "/a", name: "x"})


@pytest.mark.parametrize("table", ["messages", "messages_by_key", "consume_queue"])
def test_a_topic_that_does_not_exist_is_said(unpacked: Unpack, caplog: pytest.LogCaptureFixture, table: str) -> None:
    store = str(unpacked(NEW))
    with caplog.at_level(logging.WARNING):
        assert read(["queue_offset"], path=store, table=table, topic="OrderEvent") == []
    assert "there is no queue of topic OrderEvent; similar topics: OrderEvents" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read(["queue_offset"], path=store, table=table, topic="OrderEvents")
    assert not caplog.records
