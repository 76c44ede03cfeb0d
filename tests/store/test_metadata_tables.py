"""The tables beside `messages`, without Spark, against what the brokers said and what lies in the files."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.errors import ConfigError
from spark_mq.store import metadata_tables
from spark_mq.store.file_tables import plan_queue_splits, unit_batches
from spark_mq.store.queue.folders import queue_folders
from spark_mq.tables.store_files import CONSUME_QUEUE
from tests.support.stores import OWN_STORES, SHARED_STORES, STORES, RealStore, usual_stores

each_store = pytest.mark.parametrize("store", usual_stores(), ids=str)


Described = Callable[[RealStore], MessageStore]


def units(store: MessageStore, share_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    folders = list(queue_folders(store.location / "consumequeue"))
    names = CONSUME_QUEUE.schema.names
    batches = [
        batch
        for shares in plan_queue_splits(folders, share_bytes)
        for share in shares
        for batch in unit_batches(share, store.records, store.get_max_phy_offset(), names)
    ]
    return list(pa.Table.from_batches(batches, CONSUME_QUEUE.schema).to_pylist())


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], tuple[int, int]]:
    places = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (row["commit_log_offset"], row["store_size"])
        for row in rows
    }
    assert len(places) == len(rows)
    return places


@each_store
def test_live_units_are_those_of_the_messages(store: RealStore, described: Described) -> None:
    live = [row for row in units(described(store)) if row["state"] == "LIVE"]
    assert by_place(live) == {
        (fact["topic"], fact["queueId"], fact["queueOffset"]): (fact["offset"], fact["size"])
        for fact in store.facts("msg")
        if fact["sysFlag"] & 0xC in (0, 8)
    }


@pytest.mark.parametrize(
    ("path", "states"),
    [
        (OWN_STORES / "workload-533", {"LIVE": 1282, "PRE_BLANK": 50}),
        (SHARED_STORES / "deleted-533", {"LIVE": 4715, "EXPIRED": 1652 + 30}),
        (SHARED_STORES / "stale-533", {"LIVE": 501, "STALE": 92}),
    ],
    ids=str,
)
def test_units_that_are_not_live_are_marked(path: Path, states: dict[str, int], described: Described) -> None:
    """Numbers: shared/stores/README (two queues of 15 dead units each are counted apart there); own: 450 % 100."""
    if not path.with_name(path.name + ".tar.gz").is_file():
        pytest.skip(f"{path.parent} is not here")
    store = RealStore(path.name, path.parent)
    if path.parent == OWN_STORES:
        states = states | {"LIVE": sum(fact["sysFlag"] & 0xC in (0, 8) for fact in store.facts("msg"))}
    assert Counter(row["state"] for row in units(described(store))) == states


def test_shares_hold_each_unit_once_whatever_their_size(described: Described) -> None:
    store = described(STORES["workload-533"])
    wanted = units(store)
    for share_bytes in (1, 5000, 1 << 30):
        assert by_place(units(store, share_bytes)) == by_place(wanted)
    folders = list(queue_folders(store.location / "consumequeue"))
    assert len(plan_queue_splits(folders, 1 << 30)) == 1
    assert len(plan_queue_splits(folders, 1)) == sum(len(folder.files) for folder in folders)
    assert plan_queue_splits([]) == []


@each_store
def test_queues_are_what_the_broker_says(store: RealStore, described: Described) -> None:
    rows = metadata_tables.queues(described(store)).to_pylist()
    facts = {(fact["topic"], fact["queueId"]): fact for fact in store.facts("queue")}
    assert [(row["topic"], row["queue_id"]) for row in rows] == sorted(facts)
    stored = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    for row in rows:
        fact = facts[row["topic"], row["queue_id"]]
        assert (row["min_offset"], row["max_offset"]) == (fact["min"], fact["max"])
        if row["topic"] == "MovedQueue":  # its first units are pre-blank
            continue
        ends = row["first_commit_log_offset"], row["last_commit_log_offset"]
        assert ends == ((fact["firstPhy"], fact["lastPhy"]) if fact["min"] < fact["max"] else (None, None))
        times = [row[f"{end}_store_timestamp"] for end in ("first", "last")]
        millis = [None if time is None else round(time.timestamp() * 1000) for time in times]
        assert millis == [None if end is None else stored[end] for end in ends]


@each_store
def test_segments_are_the_files(store: RealStore, described: Described) -> None:
    found = described(store)
    rows = metadata_tables.segments(found).to_pylist()
    files = sorted(Path(found.location.path, "commitlog").iterdir())
    (fact,) = store.facts("store")
    assert [(row["file"], row["file_size"]) for row in rows] == [(file.name, file.stat().st_size) for file in files]
    size, end = fact["mappedFileSizeCommitLog"], fact["maxPhyOffset"]
    for row, file in zip(rows, files, strict=True):
        base = int(file.name)
        assert (row["commit_log_offset"], row["end_offset"]) == (base, max(base, min(base + size, end)))
        assert row["state"] == ("FULL" if base + size <= end else "APPENDING" if base <= end else "BEHIND")
        assert row["modification_timestamp"].timestamp() == pytest.approx(file.stat().st_mtime, abs=1e-5)
    firsts = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    times = [None if (time := row["first_store_timestamp"]) is None else round(time.timestamp() * 1000) for row in rows]
    assert times == [firsts.get(row["commit_log_offset"]) for row in rows]


def test_odd_segments_are_marked(tmp_path: Path) -> None:
    folder = STORES["workload-533"].unpack(tmp_path)
    log = folder / "commitlog"
    names = sorted(file.name for file in log.iterdir())
    os.truncate(log / names[1], 100_000)
    os.truncate(log / names[2], 0)
    (log / f"{655360:020d}").write_bytes(bytes(131072))
    (log / "notes.txt").write_text("not a segment")
    rows = metadata_tables.segments(MessageStore(str(folder))).to_pylist()
    assert [row["state"] for row in rows] == ["FULL", "WRONG_SIZE", "EMPTY", "FULL", "APPENDING", "BEHIND"]
    assert rows[-1]["first_store_timestamp"] is None


@each_store
def test_topics_are_those_of_the_config_and_of_the_queues(store: RealStore, described: Described) -> None:
    found = described(store)
    file = Path(found.location.path, "config", "topics.json")
    configured = json.loads(file.read_text())["topicConfigTable"] if file.is_file() else {}
    counts: Counter[str] = Counter()
    for fact in store.facts("queue"):
        counts[fact["topic"]] += fact["max"] - fact["min"]
    rows = {row["topic"]: row for row in metadata_tables.topics(found).to_pylist()}
    assert sorted(rows) == sorted({*configured, *counts})
    for topic, row in rows.items():
        config = configured.get(topic, {})
        settings = [row[name] for name in ("perm", "read_queue_nums", "write_queue_nums", "is_order")]
        assert settings == [config.get(key) for key in ("perm", "readQueueNums", "writeQueueNums", "order")]
        assert row["message_count"] == counts[topic]
        assert row["queue_count"] == sum(fact["topic"] == topic for fact in store.facts("queue"))
        assert (dict(row["attributes"]) if config else {}) == config.get("attributes", {})


@each_store
def test_lag_is_what_is_left_of_the_queue(store: RealStore, described: Described) -> None:
    found = described(store)
    file = Path(found.location.path, "config", "consumerOffset.json")
    table = re.findall(r'"([^"]+)@([^"]+)":\{([^}]*)\}', file.read_text()) if file.is_file() else []
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
    wanted = {
        (group, topic, int(queue_id)): (int(offset), ends.get((topic, int(queue_id)), 0) - int(offset))
        for topic, group, offsets in table
        for queue_id, offset in re.findall(r'"?(\d+)"?:(\d+)', offsets)
    }
    rows = metadata_tables.consumer_offsets(found).to_pylist()
    got = {(row["consumer_group"], row["topic"], row["queue_id"]): (row["consumer_offset"], row["lag"]) for row in rows}
    assert got == wanted
    # A broker never commits an offset past its queue's end; below the queue's minimum it is too small.
    starts = {(fact["topic"], fact["queueId"]): fact["min"] for fact in store.facts("queue")}
    for row in rows:
        is_too_small = row["consumer_offset"] < starts.get((row["topic"], row["queue_id"]), 0)
        assert row["state"] == ("TOO_SMALL" if is_too_small else "IN_RANGE")


@each_store
def test_subscription_groups_are_those_of_the_config(store: RealStore, described: Described) -> None:
    found = described(store)
    file = Path(found.location.path, "config", "subscriptionGroup.json")
    groups = json.loads(file.read_text())["subscriptionGroupTable"] if file.is_file() else {}
    rows = metadata_tables.subscription_groups(found).to_pylist()
    assert [row["consumer_group"] for row in rows] == sorted(groups)
    for row in rows:
        config = groups[row["consumer_group"]]
        assert (row["consume_enable"], row["retry_max_times"]) == (config["consumeEnable"], config["retryMaxTimes"])
        assert row["group_sys_flag"] == config.get("groupSysFlag")  # 4.9 has none
    if rows:
        only = metadata_tables.subscription_groups(found, rows[-1]["consumer_group"]).to_pylist()
        assert only == rows[-1:]


@each_store
def test_delayed_messages_wait_from_the_delay_offset_on(store: RealStore, described: Described) -> None:
    found = described(store)
    file = Path(found.location.path, "config", "delayOffset.json")
    offsets = re.findall(r'"?(\d+)"?:(\d+)', file.read_text().partition("offsetTable")[2]) if file.is_file() else []
    ends = {fact["queueId"]: fact["max"] for fact in store.facts("queue") if fact["topic"] == "SCHEDULE_TOPIC_XXXX"}
    rows = metadata_tables.delay_offsets(found).to_pylist()
    assert [(row["delay_level"], row["delay_offset"], row["lag"]) for row in rows] == [
        (int(level), int(offset), ends.get(int(level) - 1, 0) - int(offset)) for level, offset in offsets
    ]


def test_a_checkpoint_is_one_row_whatever_the_file_contains(tmp_path: Path) -> None:
    folder = STORES["lagging-533"].unpack(tmp_path)
    whole = (folder / "checkpoint").read_bytes()

    def row_of(content: bytes | None) -> dict[str, Any]:
        (folder / "checkpoint").unlink(missing_ok=True)
        if content is not None:
            (folder / "checkpoint").write_bytes(content)
        (row,) = metadata_tables.checkpoint(MessageStore(str(folder))).to_pylist()
        return dict(row)

    physic = struct.unpack_from(">q", whole)[0]
    row = row_of(whole)
    assert round(row["physic_msg_timestamp"].timestamp() * 1000) == physic
    assert round(row["min_timestamp"].timestamp() * 1000) == physic - 3000
    assert (row["is_clean"], row["problem"]) == (True, None)
    odd = {None: "no file", b"": "0 of 4096", whole[:12]: "12 of 4096", b"\xff" * 4096: "negative"}
    for content, problem in odd.items():
        assert problem in row_of(content)["problem"]
    assert row_of(whole[:8])["logics_msg_timestamp"] is None
    (folder / "abort").touch()
    assert row_of(struct.pack(">5q", *[(1 << 63) - 1] * 5).ljust(4096, b"\0"))["is_clean"] is False


def test_offsets_out_of_range_are_marked(tmp_path: Path) -> None:
    folder = STORES["deleted-533"].unpack(tmp_path)
    fact = next(fact for fact in STORES["deleted-533"].facts("queue") if fact["topic"] == "user_activity")
    low, high = fact["min"], fact["max"]

    def rows_of(offsets: dict[str, int]) -> list[dict[str, Any]]:
        """The rows for groups of the queue at these offsets, and for two of a queue that is not there."""
        content = ",".join(f'"user_activity@{group}":{{0:{offset}}}' for group, offset in offsets.items())
        more = '"nothing@e":{7:5},"nothing@f":{7:0}'
        (folder / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{{content},{more}}}}}')
        return list(metadata_tables.consumer_offsets(MessageStore(str(folder))).to_pylist())

    rows = rows_of({"a": low - 1, "b": low, "c": high})
    assert [(row["consumer_group"], row["state"], row["lag"]) for row in rows] == [
        ("a", "TOO_SMALL", high - low + 1),
        ("b", "IN_RANGE", high - low),
        ("c", "IN_RANGE", 0),
        ("e", "NO_QUEUE", None),
        ("f", "IN_RANGE", 0),
    ]
    assert [row["problem"] is None for row in rows] == [True, True, True, False, True]
    only = metadata_tables.consumer_offsets(MessageStore(str(folder)), topic="nothing", consumer_group="e").to_pylist()
    assert [row["consumer_group"] for row in only] == ["e"]
    assert [row["last_consumed_timestamp"] is None for row in rows] == [True, True, False, True, True]
    rows = rows_of({"a": low, "d": high + 1})
    assert [(row["consumer_group"], row["state"], row["lag"]) for row in rows] == [
        ("a", "IN_RANGE", None),  # another group shows that the queue lost its end
        ("d", "TOO_LARGE", None),
        ("e", "NO_QUEUE", None),
        ("f", "IN_RANGE", 0),
    ]
    assert [row["problem"] is None for row in rows] == [False, False, False, True]


CONFIG_TABLES = {
    "topics.json": metadata_tables.topics,
    "consumerOffset.json": metadata_tables.consumer_offsets,
    "subscriptionGroup.json": metadata_tables.subscription_groups,
    "delayOffset.json": metadata_tables.delay_offsets,
}
BROKEN = [
    "{",
    '{"topicConfigTable":{"T":5},"offsetTable":{"t@g":5},"subscriptionGroupTable":{"G":5}}',
    '{"topicConfigTable":[5],"offsetTable":{0:5},"subscriptionGroupTable":{"G":{"consumeEnable":"false"}}}',
]


@pytest.mark.parametrize("name", CONFIG_TABLES)
@pytest.mark.parametrize("content", BROKEN)
def test_an_unreadable_config_is_an_error_that_names_it(name: str, content: str, tmp_path: Path) -> None:
    folder = STORES["stale-533"].unpack(tmp_path)
    for file in (folder / "config").glob(f"{name}*"):
        file.write_text(content)
    with pytest.raises(ConfigError, match=name):
        CONFIG_TABLES[name](MessageStore(str(folder)))


@pytest.mark.parametrize("value", ["1e999", "99999999999", '"x"', "null", "{}", "true", "1.5"])
def test_numbers_of_a_config_that_fit_nowhere_are_errors(value: str, tmp_path: Path) -> None:
    folder = STORES["stale-533"].unpack(tmp_path)
    shutil.rmtree(folder / "config")
    (folder / "config").mkdir()
    config = f'{{"perm":{value},"readQueueNums":1,"writeQueueNums":1}}'
    (folder / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{"T":{config}}}}}')
    if value == "true":
        assert metadata_tables.topics(MessageStore(str(folder))).num_rows == 2
        return
    with pytest.raises(ConfigError, match="topics"):
        metadata_tables.topics(MessageStore(str(folder)))


def test_damaged_units_are_rows_and_never_an_exception(tmp_path: Path) -> None:
    folder = STORES["workload-533"].unpack(tmp_path)
    file = next((folder / "consumequeue" / "OrderEvents" / "0").iterdir())
    wild = (-1, -1, -1), ((1 << 63) - 1, 0x7FFFFFF0, 5), (-(1 << 63), 1, 0)
    file.write_bytes(b"".join(struct.pack(">qiq", *values) for values in wild) + file.read_bytes()[60:])
    store = MessageStore(str(folder))
    rows = [row for row in units(store) if (row["topic"], row["queue_id"]) == ("OrderEvents", 0)]
    assert [row["commit_log_offset"] for row in rows[:3]] == [-1, (1 << 63) - 1, -(1 << 63)]
    files = (folder / "consumequeue").rglob("0???*")
    folders = {(file.parent.parent.name, int(file.parent.name)) for file in files if file.is_file()}
    queue_rows = metadata_tables.queues(store).to_pylist()
    assert {(row["topic"], row["queue_id"]) for row in queue_rows} == folders
    damaged = [(row["topic"], row["queue_id"]) for row in queue_rows if row["problem"] is not None]
    assert damaged == [("OrderEvents", 0)]
