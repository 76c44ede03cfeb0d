"""Table `messages` of damaged stores: rows, reasons and errors. The source's reader is called as Spark calls it."""

from __future__ import annotations

import hashlib
import re
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq import RocketMQDataSource
from spark_mq.errors import CorruptLogError
from spark_mq.format.compression import DEFAULT_BODY_LIMIT
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.format.record import decode_record
from spark_mq.testing import LogWriter
from spark_mq.testing.plain_log import (
    Place,
    expected_places,
    framing_fields,
    has_right_body_crc,
    has_right_property_crc,
    with_value,
    wrong_values,
)
from tests.support.kernels import examples
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack, stores_in

OWN = {store.name: store for store in stores_in(OWN_STORES)}
WORKLOAD, CRC = OWN["workload-533"], OWN["crc-533"]
ALL_NAMES = list(ALL_MESSAGE_FIELDS)
PLACES = ["commit_log_offset", "store_size", "_corrupt_record"]
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
COMPRESSED = 0x1
BORN_TIMESTAMP = range(40, 48)


def read(store: Path, names: list[str] = ALL_NAMES, **options: str) -> pa.Table:
    """The rows that Spark would get, those of missing segments first."""
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])
    reader = RocketMQDataSource({"path": str(store), **options}).reader(from_arrow_schema(schema))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema)


def places(table: pa.Table) -> list[Place]:
    """Rows as the model has them: a row that is no message has a reason and no topic."""
    found = []
    for row in table.sort_by("commit_log_offset").to_pylist():
        is_message = row["queue_id"] is not None
        code = "RECORD" if is_message else row["_corrupt_record"].split(":")[0]
        found.append((code, row["commit_log_offset"], row["store_size"]))
    return found


def _field_at(stored: bytes, name: str) -> int:
    return next(found.at for found in framing_fields(stored) if found.name == name)


@dataclass(repr=False)
class Damaged:
    """A broker's store with damage, and what was done to it."""

    path: Path
    facts: dict[int, Fact]
    segment_size: int
    framing: set[int] = field(default_factory=set)
    """Offsets of messages whose framing was damaged."""
    bodies: set[int] = field(default_factory=set)
    """Offsets of messages whose compressed body was."""

    def stored(self, offset: int) -> bytes:
        base = offset // self.segment_size * self.segment_size
        with (self.path / "commitlog" / f"{base:020d}").open("rb") as file:
            file.seek(offset - base)
            return file.read(self.facts[offset]["size"])

    def write(self, offset: int, data: bytes) -> None:
        base = offset // self.segment_size * self.segment_size
        with (self.path / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.seek(offset - base)
            file.write(data)

    def body_at(self, offset: int) -> int:
        """Where the body of a message lies."""
        return offset + _field_at(self.stored(offset), "body length") + 4

    def properties_at(self, offset: int) -> int:
        """Where the properties of a message lie."""
        return offset + _field_at(self.stored(offset), "properties length") + 2

    @property
    def log(self) -> Path:
        return self.path / "commitlog"


def copied(store: RealStore, unpacked: Unpack, folder: Path) -> Damaged:
    shutil.copytree(unpacked(store) / "commitlog", folder / "commitlog")
    facts = {fact["offset"]: fact for fact in sorted(store.facts("msg"), key=lambda fact: int(fact["offset"]))}
    (fact,) = store.facts("store")
    return Damaged(folder, facts, fact["mappedFileSizeCommitLog"])


@pytest.fixture(scope="module")
def damaged(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """Every framing field with every wrong value, in the messages of one store; and broken bodies of all codecs."""
    store = copied(WORKLOAD, unpacked, tmp_path_factory.mktemp("damaged"))
    damages = _damages(store)
    compressed = [offset for offset, fact in store.facts.items() if fact["sysFlag"] & COMPRESSED and fact["bodyLenRaw"]]
    for number, offset in enumerate(compressed):
        body_length = store.facts[offset]["bodyLenRaw"]
        store.write(store.body_at(offset) + (0 if number % 2 else body_length // 2), b"\xff" * 8)
        store.bodies.add(offset)
    for offset in [offset for offset in store.facts if offset not in store.bodies][::23]:
        found = next(damages, None)
        if found is None:
            break
        number, index = found
        record = store.stored(offset)
        wrong = framing_fields(record)[number]
        values = wrong_values(record, wrong, store.segment_size - offset % store.segment_size)
        store.write(offset + wrong.at, with_value(wrong, values[index % len(values)]))
        store.framing.add(offset)
    assert len(store.framing) > 50
    assert len({store.facts[offset]["sysFlag"] >> 8 & 7 for offset in store.bodies}) == 3
    return store


def _damages(store: Damaged) -> Iterator[tuple[int, int]]:
    record = store.stored(next(iter(store.facts)))
    for number, damaged_field in enumerate(framing_fields(record)):
        for index in range(len(wrong_values(record, damaged_field, store.segment_size))):
            yield number, index


def test_rows_are_those_that_the_model_expects(damaged: Damaged) -> None:
    expected = expected_places(damaged.log)
    assert len(expected) > len(damaged.facts) - 20
    assert {place[0] for place in expected} == {"RECORD", "BAD_SIZE", "BAD_MAGIC", "BAD_OFFSET", "BAD_LENGTHS"}
    assert places(read(damaged.path)) == expected


@pytest.mark.parametrize("split_size", ["1k", "20k"])
def test_rows_are_the_same_for_every_size_of_splits(damaged: Damaged, split_size: str) -> None:
    assert places(read(damaged.path, ["queue_id", *PLACES], splitSize=split_size)) == expected_places(damaged.log)


def test_messages_around_damage_are_what_the_broker_says(damaged: Damaged) -> None:
    rows = {row["commit_log_offset"]: row for row in read(damaged.path).to_pylist() if row["queue_id"] is not None}
    assert set(rows) == set(damaged.facts) - damaged.framing
    for offset, row in rows.items():
        fact = damaged.facts[offset]
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (
            fact["topic"],
            fact["queueId"],
            fact["queueOffset"],
        )
        assert dict(row["properties"]) == fact["properties"]
        assert len(row["stored_body"]) == fact["bodyLenRaw"]
        if offset in damaged.bodies:
            assert row["body"] is None
            assert row["_corrupt_record"].startswith("BODY: ")
        else:
            assert hashlib.md5(row["body"]).hexdigest() == fact["bodyMd5"]
            assert row["_corrupt_record"] is None


def test_a_row_that_is_no_message_has_place_and_reason_only(damaged: Damaged) -> None:
    rows = [row for row in read(damaged.path).to_pylist() if row["queue_id"] is None]
    assert rows
    for row in rows:
        assert {name for name, value in row.items() if value is not None} == set(PLACES)
        assert re.fullmatch(r"BAD_[A-Z]+: \w.*", row["_corrupt_record"])


@pytest.mark.parametrize("check_crc", ["false", "true"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_whatever_columns_are_asked_for_the_rows_and_values_are_the_same(
    damaged: Damaged, mode: str, check_crc: str
) -> None:
    whole = read(damaged.path, mode=mode, checkCrc=check_crc)
    without_bodies = [
        name for name in ALL_NAMES if name not in ("body", "stored_body", "encoded_body", "_corrupt_record")
    ]
    for names in (*([name] for name in ALL_NAMES), without_bodies):
        assert read(damaged.path, names, mode=mode, checkCrc=check_crc) == whole.select(names), names


def test_dropmalformed_leaves_out_what_is_no_message_and_nothing_else(damaged: Damaged) -> None:
    permissive = read(damaged.path, checkCrc="true").to_pylist()
    dropped = read(damaged.path, mode="DROPMALFORMED", checkCrc="true").to_pylist()
    assert dropped == [row for row in permissive if row["queue_id"] is not None]
    assert sum(row["_corrupt_record"] is not None for row in dropped) == len(damaged.bodies)


@pytest.mark.parametrize("names", [ALL_NAMES, ["topic"]], ids=["all columns", "one column"])
def test_failfast_names_the_first_damage_of_each_segment(damaged: Damaged, names: list[str]) -> None:
    damages = [place for place in expected_places(damaged.log) if place[0] != "RECORD"]
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])
    reader = RocketMQDataSource({"path": str(damaged.path), "mode": "FAILFAST"}).reader(from_arrow_schema(schema))
    partitions = reader.partitions()
    for partition in partitions:
        base = partition.split.segment.base  # type: ignore[attr-defined]
        _, offset, length = next(place for place in damages if base <= place[1])
        body = min((body for body in damaged.bodies if "body" in names and base <= body), default=offset)
        what = f"message at commit log offset {body}: BODY: "
        if body >= offset:
            what = f"{length} bytes from commit log offset {offset}: "
        with pytest.raises(CorruptLogError) as caught:
            list(reader.read(partition))
        assert str(caught.value).startswith(f"{damaged.log}/{base:020d}: {what}")


@pytest.mark.parametrize(
    ("option", "value"), [("topic", "OrderEvents"), ("startTimestamp", "0"), ("endTimestamp", str((1 << 63) - 1))]
)
def test_what_is_no_message_has_no_topic_and_no_time(damaged: Damaged, option: str, value: str) -> None:
    rows = read(damaged.path, ALL_NAMES, **{option: value}).to_pylist()
    assert None not in {row["queue_id"] for row in rows}
    wanted = [offset for offset in damaged.facts if offset not in damaged.framing]
    if option == "topic":
        wanted = [offset for offset in wanted if damaged.facts[offset]["topic"] == value]
    assert [row["commit_log_offset"] for row in rows] == wanted


def test_a_missing_segment_is_a_row_in_permissive_mode(unpacked: Unpack, tmp_path: Path) -> None:
    store = copied(WORKLOAD, unpacked, tmp_path)
    (store.log / f"{store.segment_size:020d}").unlink()
    expected = expected_places(store.log)
    assert ("MISSING", store.segment_size, store.segment_size) in expected
    assert places(read(tmp_path)) == expected
    assert read(tmp_path, mode="DROPMALFORMED").num_rows == len(expected) - 1
    with pytest.raises(CorruptLogError, match=f"{store.segment_size:020d}: {store.segment_size} bytes .* no segment"):
        read(tmp_path, mode="FAILFAST")


def expected_reasons(store: Damaged, offset: int) -> list[str]:
    """The codes that a checked message must have."""
    stored = store.stored(offset)
    codes = [] if has_right_body_crc(decode_record(stored)) else ["BODY_CRC"]
    return codes if has_right_property_crc(stored) else [*codes, "PROPERTIES_CRC"]


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30)), max_size=20))
def test_crcs_of_flipped_bits(crc_store: Damaged, flips: list[tuple[int, int]]) -> None:
    """Bits in bodies, times and texts of messages, all but the last: nothing that framing depends on."""
    offsets = list(crc_store.facts)[:-1]
    before = {offset: crc_store.stored(offset) for offset in {offsets[which % len(offsets)] for which, _ in flips}}
    flipped = dict(before)
    for which, bit in flips:
        offset = offsets[which % len(offsets)]
        fact, body = crc_store.facts[offset], crc_store.body_at(offset) - offset
        properties = range(crc_store.properties_at(offset) - offset, fact["size"])
        places = [*BORN_TIMESTAMP, *range(body, body + fact["bodyLenRaw"]), *properties]
        record = bytearray(flipped[offset])
        record[places[bit // 8 % len(places)]] ^= 1 << bit % 8
        flipped[offset] = bytes(record)
    try:
        for offset, data in flipped.items():
            crc_store.write(offset, data)
        expected = {offset: expected_reasons(crc_store, offset) for offset in crc_store.facts}
        rows = read(crc_store.path, checkCrc="true").to_pylist()
        assert [row["commit_log_offset"] for row in rows] == list(crc_store.facts)
        for row in rows:
            codes = expected[row["commit_log_offset"]]
            found = [reason.split(":")[0] for reason in (row["_corrupt_record"] or "").split("; ") if reason]
            assert found == codes
            assert (row["body"] is None) == ("BODY_CRC" in codes)
        first = next((offset for offset in expected if expected[offset]), None)
        for names in (["topic"], ["body"]):
            if first is None:
                assert read(crc_store.path, names, mode="FAILFAST", checkCrc="true").num_rows == len(rows)
                continue
            with pytest.raises(CorruptLogError, match=rf"message at commit log offset {first}: {expected[first][0]}: "):
                read(crc_store.path, names, mode="FAILFAST", checkCrc="true")
    finally:
        for offset, data in before.items():
            crc_store.write(offset, data)


@pytest.fixture(scope="module")
def crc_store(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return copied(CRC, unpacked, tmp_path_factory.mktemp("crc"))


@pytest.mark.parametrize("store", list(OWN.values()), ids=str)
def test_a_broker_s_store_has_right_crcs(store: RealStore, unpacked: Unpack) -> None:
    table = read(unpacked(store), PLACES, mode="FAILFAST", checkCrc="true")
    assert table.num_rows == len(store.facts("msg"))
    assert table["_corrupt_record"].null_count == table.num_rows


def test_without_check_crc_bodies_are_given_as_they_are(unpacked: Unpack, tmp_path: Path) -> None:
    store = copied(CRC, unpacked, tmp_path)
    offset = next(o for o, fact in store.facts.items() if fact["bodyLenRaw"] > 20 and not fact["sysFlag"] & COMPRESSED)
    sound = store.stored(offset)
    store.write(store.body_at(offset), b"\xff")
    body = b"\xff" + decode_record(sound).body[1:]
    for mode in MODES:
        row = read(tmp_path, mode=mode).to_pylist()[list(store.facts).index(offset)]
        assert (row["body"], row["_corrupt_record"]) == (body, None)
    checked = read(tmp_path, checkCrc="true").to_pylist()[list(store.facts).index(offset)]
    assert (checked["body"], checked["stored_body"]) == (None, body)
    assert checked["_corrupt_record"].startswith("BODY_CRC: ")
    assert "; PROPERTIES_CRC: " in checked["_corrupt_record"]


def bomb(codec: str, size: int) -> bytes:
    content = bytes(size)
    return zlib.compress(content, 9) if codec == "zlib" else pa.compress(content, codec, asbytes=True)


CODECS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}


def test_bodies_that_are_broken_cut_or_too_large_are_null_with_a_reason(tmp_path: Path) -> None:
    writer = LogWriter(1 << 20)
    expected: list[Any] = []
    for codec, sys_flag in CODECS.items():
        sound = bomb(codec, 100_000)
        for body in (
            sound,
            sound[: len(sound) // 2],
            sound[:1],
            b"\x55" * 50,
            bomb(codec, DEFAULT_BODY_LIMIT),
            bomb(codec, DEFAULT_BODY_LIMIT + 1),
        ):
            writer.append(1000, body, sys_flag=sys_flag)
        expected += [100_000, None, None, None, DEFAULT_BODY_LIMIT, None]
    writer.append(1000, b"unknown", sys_flag=0x701)
    writer.append(1000, b"plain")
    expected += [None, 5]
    writer.write(tmp_path)
    table = read(tmp_path, ["body", "_corrupt_record"])
    sizes = [None if body is None else len(body) for body in table["body"].to_pylist()]
    reasons = table["_corrupt_record"].to_pylist()
    assert sizes == expected
    assert [reason is None for reason in reasons] == [size is not None for size in sizes]
    assert all(reason is None or reason.startswith("BODY: ") for reason in reasons)
    assert sum("longer than the limit" in (reason or "") for reason in reasons) == len(CODECS)


def test_engines_give_the_rows_of_the_reader(engine: SparkSession, damaged: Damaged) -> None:
    frame = engine.read.format("rocketmq").option("checkCrc", "true").load(str(damaged.path))
    rows = sorted(frame.toArrow().to_pylist(), key=lambda row: row["commit_log_offset"])
    expected = read(damaged.path, MESSAGE_SCHEMA.names, checkCrc="true").sort_by("commit_log_offset").to_pylist()
    assert rows == expected
    # Partitions are read at the same time, and any of them can be the first to end.
    damages = [place for place in expected_places(damaged.log) if place[0] != "RECORD"]
    named = "|".join(f"{size} bytes from commit log offset {offset}: " for _, offset, size in damages)
    failing = engine.read.format("rocketmq").schema("topic STRING").option("mode", "FAILFAST").load(str(damaged.path))
    with pytest.raises(PySparkException, match=named):
        failing.where("topic IS NULL").limit(1).collect()
