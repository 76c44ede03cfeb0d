"""`verify --tiered-storage`: that of a broker is sound, and each damage is found, harmless or in a named field."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import SparkMqError
from spark_mq.format.consume_queue_ext import MAX_ADDRESS
from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks, TaskRunner
from spark_mq.store.tiered_storage import TieredStorage
from spark_mq.verifier.codes import CODES, Severity
from spark_mq.verifier.result import Summary
from spark_mq.verifier.tiered import check_tiered
from tests.support.in_process import read_rows
from tests.support.random_damages import damage_bytes
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, tree_of
from tests.support.verified import check, grave

STORES = [RealStore(name, OWN_STORES / "forms") for name in ("tiered-533", "tiered-550")]
TRIES = 500 if SOAKS else 40
TOPIC = "SequenceDemo"
METADATA = "config/tieredStoreMetadata.json"
TABLES = ("tiered_messages", "tiered_units", "tiered_queues", "tiered_segments", "tiered_index_entries")
NOT_SEEN = {
    *("flag", "sys_flag", "born_timestamp", "born_host", "store_host", "offset_message_id", "reconsume_times"),
    *("prepared_transaction_offset", "properties", "store_timestamp"),
    *("status", "create_timestamp", "begin_timestamp", "end_timestamp", "reserve_hours", "size"),
}
"""Columns with fields that have no second copy, as docs/verify.md says."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STORES[-1].unpack(tmp_path_factory.mktemp("tiered"))


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("timer*", "rocksdbstore")
    return Path(shutil.copytree(original, tmp_path / "store", ignore=ignored))


def counted(store: Path, *, is_running: bool = False) -> dict[str, int]:
    """The number of findings about tiered storage by code."""
    with tempfile.TemporaryDirectory() as name:
        work = Location.resolve(name)
        storage, runner = (
            TieredStorage.of(Location.resolve(str(store)), str(store / "tiered")),
            TaskRunner(LocalTasks(1)),
        )
        found = check_tiered(storage, work, runner, work, has_extensions=False, is_running=is_running)
        return Summary.of(found).counts


def codes(store: Path) -> list[str]:
    """The codes of the grave findings about tiered storage."""
    return sorted(code for code in counted(store) if CODES[code].severity != Severity.NOTE)


def file_of(store: Path, queue: str, kind: str, number: int = 0) -> Path:
    return sorted((store / "tiered").glob(f"*/broker/{queue}/{kind}/*"), key=lambda file: file.name[8:])[number]


def change(file: Path, position: int, content: bytes) -> None:
    data = bytearray(file.read_bytes())
    data[position : position + len(content)] = content
    file.write_bytes(data)


def change_metadata(store: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    file = store / METADATA
    content = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', file.read_text()))
    edit(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("packed", STORES, ids=lambda store: store.name)
def test_a_brokers_tiered_storage_is_sound(packed: RealStore, tmp_path: Path) -> None:
    store = packed.unpack(tmp_path)
    report, found = check(store, None, tiered=store / "tiered")
    assert [one for one in grave(found) if "tiered storage" in (one.file or "")] == []
    again = [finding for finding in found if finding.code == "TIERED_NO_UNIT"]
    assert [(one.topic, one.queue_id, one.found) for one in again] == [
        (TOPIC, 1, f"queue offset {offset}") for offset in (77, 78, 79)
    ]
    assert report.tiered_queues == 21


def wrong_magic(store: Path) -> None:
    change(file_of(store, f"{TOPIC}/0", "COMMIT_LOG"), 4, b"x")


def other_topic(store: Path) -> None:
    file = file_of(store, f"{TOPIC}/0", "COMMIT_LOG")
    change(file, file.read_bytes().index(TOPIC.encode()), b"X")


def wrong_body(store: Path) -> None:
    file = file_of(store, f"{TOPIC}/0", "COMMIT_LOG")
    change(file, file.read_bytes().index(b"message "), b"M")


def wrong_queue_offset(store: Path) -> None:
    change(file_of(store, f"{TOPIC}/0", "COMMIT_LOG"), 27, b"\x07")


def wrong_unit(store: Path) -> None:
    change(file_of(store, f"{TOPIC}/0", "CONSUME_QUEUE"), 45, b"\x07")


def wrong_tags_code(store: Path) -> None:
    change(file_of(store, f"{TOPIC}/0", "CONSUME_QUEUE"), 12, MAX_ADDRESS.to_bytes(8, "big", signed=True))


def without_a_file(store: Path) -> None:
    file_of(store, "user_activity/0", "CONSUME_QUEUE").unlink()


def cut_unit(store: Path) -> None:
    file = file_of(store, "user_activity/0", "CONSUME_QUEUE")
    file.write_bytes(file.read_bytes()[:-1])


def unlisted_file(store: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        files = content["commitLogFileSegmentTable"][f"broker/{TOPIC}/0"]
        del files[max(files, key=int)]

    change_metadata(store, edit)


def without_a_middle_file(store: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        files = content["commitLogFileSegmentTable"][f"broker/{TOPIC}/0"]
        del files[file.name[8:].lstrip("0")]

    file = file_of(store, f"{TOPIC}/0", "COMMIT_LOG", 1)
    file.unlink()
    change_metadata(store, edit)


def other_times(store: Path) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["commitLogFileSegmentTable"][f"broker/{TOPIC}/0"]["0"]["endTimestamp"] += 1

    change_metadata(store, edit)


def other_topic_id(store: Path) -> None:
    change_metadata(store, lambda content: content["topicMetadataTable"][TOPIC].update(topicId=77))


def wrong_slot(store: Path) -> None:
    change(file_of(store, "rmq_sys_INDEX/0", "INDEX"), 28 + 8 * 3 + 3, b"\x07")


def wrong_header(store: Path) -> None:
    change(file_of(store, "rmq_sys_INDEX/0", "INDEX"), 23, b"\x07")


def wrong_entry(store: Path) -> None:
    change(file_of(store, "rmq_sys_INDEX/0", "INDEX"), 28 + 8 * 20 + 19, b"\x07")


def cut_index(store: Path) -> None:
    file = file_of(store, "rmq_sys_INDEX/0", "INDEX")
    file.write_bytes(file.read_bytes()[:-28])


CATALOGUE: list[tuple[Callable[[Path], None], list[str]]] = [
    (wrong_magic, ["TIERED_CORRUPT", "TIERED_INDEX", "TIERED_UNIT"]),
    (other_topic, ["TIERED_INDEX", "TIERED_RECORD"]),
    (wrong_body, ["RECORD_BODY_CRC"]),
    (wrong_queue_offset, ["TIERED_UNIT"]),
    (wrong_unit, ["TIERED_UNIT"]),
    (wrong_tags_code, ["TIERED_UNIT"]),
    (without_a_file, ["TIERED_FILE"]),
    (cut_unit, ["TIERED_FILE"]),
    (unlisted_file, ["TIERED_FILE"]),
    (without_a_middle_file, ["TIERED_FILE", "TIERED_INDEX", "TIERED_UNIT"]),
    (other_times, ["TIERED_TIMES"]),
    (other_topic_id, ["TIERED_INDEX"]),
    (wrong_slot, ["TIERED_INDEX"]),
    (wrong_header, ["TIERED_INDEX"]),
    (wrong_entry, ["TIERED_INDEX"]),
    (cut_index, ["TIERED_FILE", "TIERED_INDEX"]),
]


@pytest.mark.parametrize(("damage", "expected"), CATALOGUE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_damage_has_its_codes(copy: Path, damage: Callable[[Path], None], expected: list[str]) -> None:
    damage(copy)
    assert codes(copy) == expected


def test_what_a_killed_broker_leaves_is_sound(copy: Path) -> None:
    """Records without units, and a file that is longer than the metadata say (`FlatAppendFile.recoverFileSize`)."""
    file = file_of(copy, f"{TOPIC}/0", "CONSUME_QUEUE", -1)
    file.write_bytes(file.read_bytes()[:-40])

    def edit(content: dict[str, Any]) -> None:
        for table, cut in (("commitLog", 10), ("consumeQueue", 60)):
            files = content[f"{table}FileSegmentTable"][f"broker/{TOPIC}/0"]
            files[max(files, key=int)]["size"] -= cut

    change_metadata(copy, edit)
    assert codes(copy) == []


def test_a_file_that_a_running_broker_adds_is_no_finding(copy: Path) -> None:
    unlisted_file(copy)
    assert counted(copy) == {"TIERED_NO_UNIT": 3, "TIERED_FILE": 1}
    assert counted(copy, is_running=True) == {"TIERED_NO_UNIT": 3}


def tables(store: Path) -> dict[str, list[dict[str, Any]]]:
    options = {"path": str(store), "tieredStorage": str(store / "tiered")}
    return {table: read_rows(**options, table=table) for table in TABLES}


def changed_columns(before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]]) -> set[str]:
    changed = {table for table in TABLES if len(before[table]) != len(after[table])}
    for table in set(TABLES) - changed:
        for old, new in zip(before[table], after[table], strict=True):
            if table != "tiered_units" or old["is_offered"]:  # others are of messages that were deleted
                changed |= {name for name, value in old.items() if new[name] != value}
    return changed


def test_random_damages_are_found_harmless_or_in_named_fields(copy: Path) -> None:
    before, original, found = tables(copy), tree_of(copy / "tiered"), 0
    metadata = (copy / METADATA).read_bytes()
    for seed in range(TRIES):
        chance = random.Random(seed)
        done = damage_bytes(copy, chance, ("tiered", "tiered", METADATA))
        try:
            grave_codes = codes(copy)
        except SparkMqError:  # metadata that cannot be read are an error
            grave_codes = ["an error"]
        found += bool(grave_codes)
        if not grave_codes:
            assert changed_columns(before, tables(copy)) <= NOT_SEEN, (seed, done)
        (copy / METADATA).write_bytes(metadata)
        for name, content in original.items():
            if (copy / "tiered" / name).read_bytes() != content:
                (copy / "tiered" / name).write_bytes(content)
    assert found > TRIES // 2


def test_the_command_reads_all_of_it(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", str(original), "--tiered-storage", str(original / "tiered")]
    assert main(words) == 0
    assert "  tiered storage  21 queues, and their index\n" in capsys.readouterr().out
    assert main([*words, "--quick"]) == 2
    assert "--tiered-storage is read whole" in capsys.readouterr().err
