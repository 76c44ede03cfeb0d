"""Tiered storage: its tables, and the messages of store and tiered storage as consumers of a real broker got them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import ConfigError, CorruptIndexError, CorruptLogError, OptionError
from spark_mq.format.index_file import index_key_hash
from tests.support.in_process import read_partitions, read_rows
from tests.support.stores import OWN_STORES, RealStore

STORES = [RealStore(name, OWN_STORES / "forms") for name in ("tiered-533", "tiered-550")]
OF_PLACE = ("commit_log_offset", "offset_message_id")
TOPIC = "SequenceDemo"
Row = dict[str, Any]


@pytest.fixture(scope="module", params=STORES, ids=lambda store: store.name)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RealStore, Path]:
    return request.param, request.param.unpack(tmp_path_factory.mktemp(request.param.name))


@pytest.fixture
def copy(store: tuple[RealStore, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(store[1], tmp_path / "copy", ignore=shutil.ignore_patterns("timer*")))


def history(folder: Path, **options: str) -> list[Row]:
    return read_rows(path=str(folder), tieredStorage=str(folder / "tiered"), **options)


def tiered(folder: Path, table: str = "tiered_messages", **options: str) -> list[Row]:
    return history(folder, table=table, **options)


def queue_files(folder: Path, queue: str, kind: str = "COMMIT_LOG") -> list[Path]:
    return sorted((folder / "tiered").glob(f"*/broker/{queue}/{kind}/*"), key=lambda file: file.name[8:])


def place(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def sorted_rows(rows: Iterable[Row]) -> list[str]:
    return sorted(map(repr, rows))


def test_the_history_is_what_consumers_got(store: tuple[RealStore, Path]) -> None:
    real, folder = store
    consumed = real.facts("consumed")
    topics = {fact["topic"] for fact in real.facts("queue")}
    rows = [row for row in history(folder) if row["topic"] in topics]
    found = [(*place(row), row["unique_key"], row["body"].decode("utf-8", "replace")) for row in rows]
    names = ("topic", "queueId", "queueOffset", "uniqKey", "body")
    assert sorted(found) == sorted(tuple(fact[name] for name in names) for fact in consumed)
    assert len({place(row) for row in rows}) == len(rows) > 380
    lone = [row for row in rows if row["commit_log_offset"] is None]
    assert len(lone) == sum(row["state"] == "COLD" for row in tiered(folder)) > 200
    assert {row["offset_message_id"] for row in lone} == {None}
    own = read_rows(path=str(folder))
    assert sorted_rows(row for row in history(folder) if row["commit_log_offset"] is not None) == sorted_rows(own)


def test_offsets_of_queues_are_those_that_a_broker_answers(store: tuple[RealStore, Path]) -> None:
    real, folder = store
    cold = {(row["topic"], row["queue_id"]): row for row in tiered(folder, "tiered_queues")}
    hot = {(row["topic"], row["queue_id"]): row for row in read_rows(path=str(folder), table="queues")}
    answered = {(fact["topic"], fact["queueId"]): (fact["min"], fact["max"]) for fact in real.facts("queue")}
    assert answered == {
        name: (min(row["min_offset"], hot[name]["min_offset"]), hot[name]["max_offset"]) for name, row in cold.items()
    }
    for name, row in cold.items():
        stored = range(hot[name]["min_offset"], hot[name]["max_offset"])
        uploaded = range(row["min_offset"], row["max_offset"])
        assert row["only_tiered_count"] == len(set(uploaded) - set(stored))
        assert row["not_uploaded_count"] == len([one for one in stored if one >= uploaded.stop])
    assert sum(row["not_uploaded_count"] for row in cold.values()) == 15
    assert cold[TOPIC, 2]["min_offset"] > 0  # its first file was deleted


def test_a_row_has_the_state_of_its_queue_offset(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    rows, own = tiered(folder), {place(row): row for row in read_rows(path=str(folder))}
    without = [row for row in rows if row["state"] == "NO_UNIT"]
    assert [place(row) for row in without] == [(TOPIC, 1, offset) for offset in (77, 78, 79)]  # uploaded twice
    again = [row for row in rows if place(row) in map(place, without) and row["state"] != "NO_UNIT"]
    assert len(again) == 3
    for row in rows:
        if row["state"] == "HOT":
            changed = {name for name, value in own[place(row)].items() if row[name] != value}
            assert changed <= set(OF_PLACE)
        elif row["state"] == "COLD":
            assert place(row) not in own
    assert {row["state"] for row in rows} == {"HOT", "COLD", "NO_UNIT"}


def test_units_and_index_entries_lead_to_records(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    rows = tiered(folder)
    by_place = {(row["topic"], row["queue_id"], row["commit_log_offset"], row["store_size"]): row for row in rows}
    units = tiered(folder, "tiered_units")
    for unit in units:
        if unit["is_offered"]:
            record = by_place[unit["topic"], unit["queue_id"], unit["commit_log_offset"], unit["store_size"]]
            assert record["queue_offset"] == unit["queue_offset"]
            assert record["state"] != "NO_UNIT"
    assert sum(unit["is_offered"] for unit in units) == len(rows) - 3
    entries = Counter[tuple[Any, ...]]()
    for entry in tiered(folder, "tiered_index_entries"):
        entries[entry["topic"], entry["queue_id"], entry["commit_log_offset"], entry["key_hash"]] += 1
    for row in rows:
        for key in {*(row["keys"] or ()), row["unique_key"]} - {None}:
            where = row["topic"], row["queue_id"], row["commit_log_offset"]
            assert entries[*where, index_key_hash(row["topic"].encode(), key.encode())] > 0
    assert len(entries) > 1000
    assert tiered(folder, "tiered_units", topic=TOPIC) == [unit for unit in units if unit["topic"] == TOPIC]


def test_a_key_has_all_its_messages(store: tuple[RealStore, Path]) -> None:
    """A broker finds fewer: it leaves out index files that it made after the messages (`IndexStoreService`)."""
    real, folder = store
    for fact in real.facts("query"):
        rows = history(folder, topic=fact["topic"], key=fact["key"])
        consumed = [
            one for one in real.facts("consumed") if fact["key"] in one["properties"].get("KEYS", "").split(" ")
        ]
        assert sorted(row["unique_key"] for row in rows) == sorted(one["uniqKey"] for one in consumed)
        found = [[row["unique_key"], str(row["queue_id"]), str(row["queue_offset"])] for row in rows]
        assert all(one in found for one in fact["found"])


def test_files_are_those_of_the_metadata(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    rows = tiered(folder, "tiered_segments")
    assert {row["problem"] for row in rows} == {None}
    assert {row["file_type"] for row in rows} == {"COMMIT_LOG", "CONSUME_QUEUE", "INDEX"}
    for row in rows:
        assert row["file_size"] == row["size"]
        assert row["file_type"] == "INDEX" or (row["begin_timestamp"] is None) == (row["size"] == 0)
    there = {file.name for file in (folder / "tiered").rglob("*") if file.is_file()}
    assert {row["file"] for row in rows} == there


@pytest.mark.parametrize(
    "options",
    [
        {"topic": TOPIC},
        {"topic": TOPIC, "queueId": "1"},
        {"conditions": '[["tags", "in", ["Tag1", "TagA"]]]'},
        {"conditions": '[["queue_offset", ">=", [20]], ["queue_offset", "<", [40]]]'},
        {"filter": "TAGS = 'Tag2'"},
        {"splitSize": "1k"},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_choose_rows(store: tuple[RealStore, Path], options: dict[str, str]) -> None:
    _, folder = store
    chosen = {
        "topic": lambda row: row["topic"] == TOPIC and row["queue_id"] in ({1} if "queueId" in options else {0, 1, 2}),
        "conditions": lambda row: (
            row["tags"] in ("Tag1", "TagA") if "tags" in options["conditions"] else 20 <= row["queue_offset"] < 40
        ),
        "filter": lambda row: row["tags"] == "Tag2",
        "splitSize": lambda _: True,
    }[next(iter(options))]
    for read in (tiered, history):
        rows = read(folder)
        found = read(folder, **options)
        assert sorted_rows(found) == sorted_rows(filter(chosen, rows))
        assert found
        assert len(found) < len(rows) or "splitSize" in options


def test_rows_of_tiered_storage_have_no_commit_log_offset(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    assert history(folder, startOffset="0") == read_rows(path=str(folder), startOffset="0")


def test_a_task_reads_many_small_queues(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    options = {"path": str(folder), "table": "tiered_messages", "tieredStorage": str(folder / "tiered")}
    (rows,) = read_partitions(**options)
    assert len({place(row)[:2] for row in rows}) > 3
    assert len(read_partitions(**options, splitSize="1k")) > 30


def test_damage_is_a_row_an_error_or_left_out(copy: Path) -> None:
    sound, file = tiered(copy), queue_files(copy, f"{TOPIC}/0")[1]
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[:4], "big")
    data[:8] = bytes(8)
    file.write_bytes(data)
    for read, offset in ((tiered, int(file.name[8:])), (history, None)):
        (damage,) = (row for row in read(copy) if row["_corrupt_record"] is not None)
        assert (damage["commit_log_offset"], damage["store_size"], damage["topic"]) == (offset, size, None)
        assert str(file) in damage["_corrupt_record"]
        assert all(row["_corrupt_record"] is None for row in read(copy, mode="DROPMALFORMED"))
        with pytest.raises(CorruptLogError, match=file.name):
            read(copy, mode="FAILFAST")
    assert len(tiered(copy, mode="DROPMALFORMED")) == len(sound) - 1


def test_a_queue_that_the_store_lacks_is_only_in_tiered_storage(copy: Path) -> None:
    before = [row for row in tiered(copy) if row["topic"] == TOPIC]
    shutil.rmtree(copy / "consumequeue" / TOPIC)
    after = [row for row in tiered(copy) if row["topic"] == TOPIC]
    assert {row["state"] for row in before} == {"COLD", "HOT", "NO_UNIT"}
    assert {row["state"] for row in after} == {"COLD", "NO_UNIT"}


def test_what_the_end_of_a_queue_lost_is_in_tiered_storage(copy: Path) -> None:
    (file,) = (copy / "consumequeue" / TOPIC / "0").iterdir()
    units = file.read_bytes()
    file.write_bytes(units[: 20 * 80] + bytes(len(units) - 20 * 80))
    states = {row["queue_offset"]: row["state"] for row in tiered(copy, topic=TOPIC, queueId="0")}
    assert {states[offset] for offset in range(80, 90)} == {"COLD"}
    assert states[79] == "HOT"


def test_a_message_before_the_smallest_offset_is_not_offered(copy: Path) -> None:
    """The smallest offset is that of the first record, also if it is damaged (`FlatMessageFile`)."""
    file = queue_files(copy, f"{TOPIC}/0")[0]
    data = bytearray(file.read_bytes())
    data[27] = 7
    file.write_bytes(data)
    states = [(row["queue_offset"], row["state"]) for row in tiered(copy, topic=TOPIC, queueId="0")]
    assert states[:8] == [(7, "NO_UNIT"), *((offset, "NO_UNIT") for offset in range(1, 7)), (7, "COLD")]


def test_a_file_that_differs_from_the_metadata_has_a_problem(copy: Path) -> None:
    cut, lost, grown = (queue_files(copy, f"{TOPIC}/{queue}") for queue in range(3))
    cut[0].write_bytes(cut[0].read_bytes()[:-1])
    lost[1].unlink()
    with grown[-1].open("ab") as file:
        file.write(b"a broker was killed before it wrote the metadata")
    shutil.copy(lost[0], lost[0].with_name("cfcd208400000000000000000001"))  # no broker gives this name
    found = {row["file"]: row["problem"] for row in tiered(copy, "tiered_segments") if row["problem"] is not None}
    assert found[cut[0].name].startswith("the metadata say ")
    assert found[cut[1].name] == f"the file before it ends at {cut[0].stat().st_size}"
    assert found[lost[1].name] == "the metadata list the file, and it is not there"
    assert found[lost[2].name] == f"the file before it ends at {int(lost[1].name[8:])}"
    assert len(found) == 4


def test_a_damaged_index_file_is_an_error(copy: Path) -> None:
    file = queue_files(copy, "rmq_sys_INDEX/0", "INDEX")[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptIndexError, match=file.name):
        tiered(copy, "tiered_index_entries")


def test_the_folder_of_the_cluster_is_enough(store: tuple[RealStore, Path], tmp_path: Path) -> None:
    _, folder = store
    (cluster,) = (folder / "tiered").iterdir()
    path = {"path": str(folder), "table": "tiered_queues"}
    assert read_rows(**path, tieredStorage=str(cluster)) == tiered(folder, "tiered_queues")
    for name in ("a", "b"):
        shutil.copytree(cluster, tmp_path / name)
    with pytest.raises(OptionError, match="more than one folder of broker"):
        read_rows(**path, tieredStorage=str(tmp_path))
    with pytest.raises(OptionError, match="no folder of broker"):
        read_rows(**path, tieredStorage=str(folder / "config"))


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, OptionError), (b"{", ConfigError), (b'{"indexFileSegmentTable":{"x":{}}}', OptionError)],
)
def test_metadata_that_cannot_be_read_are_an_error(copy: Path, content: bytes | None, error: type[Exception]) -> None:
    for name in ("tieredStoreMetadata.json", "tieredStoreMetadata.json.bak"):
        (copy / "config" / name).unlink(missing_ok=True)
    if content is not None:
        (copy / "config" / "tieredStoreMetadata.json").write_bytes(content)
    with pytest.raises(error, match="tiered"):
        tiered(copy)


def test_options_that_do_not_fit_are_errors(store: tuple[RealStore, Path]) -> None:
    _, folder = store
    with pytest.raises(OptionError, match="splitBy=queue reads only the store"):
        history(folder, topic=TOPIC, splitBy="queue")
    options = {"path": str(folder), "tieredStorage": str(folder / "tiered")}
    source = RocketMQDataSource(options)
    with pytest.raises(OptionError, match="option tieredStorage has no effect on a stream"):
        source.streamReader(source.schema())


def test_answers_of_a_queue_name_the_option(store: tuple[RealStore, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = store
    assert main(["query-by-offset", str(folder), TOPIC, "0", "5"]) == 3
    assert "Table messages with option tieredStorage has them, too" in capsys.readouterr().err
    (row,) = history(folder, topic=TOPIC, queueId="0", startQueueOffset="5", endQueueOffset="5")
    assert row["queue_offset"] == 5


def test_without_the_folder_a_table_has_no_rows(
    store: tuple[RealStore, Path], caplog: pytest.LogCaptureFixture
) -> None:
    for table in ("tiered_queues", "tiered_segments", "tiered_units", "tiered_index_entries", "tiered_messages"):
        caplog.clear()
        assert read_rows(path=str(store[1]), table=table) == []
        assert "have no rows without option tieredStorage" in caplog.text


def test_a_command_asks_for_the_folder_and_names_its_topics(
    store: tuple[RealStore, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(store[1])
    assert main(["tiered-queues", folder]) == 2
    assert capsys.readouterr().err.startswith("spark-mq: give --tiered-storage DIR")
    assert main(["tiered-queues", folder, "--tiered-storage", f"{folder}/tiered", "--topic", "SequenceDem"]) == 3
    assert "similar: SequenceDemo" in capsys.readouterr().err
