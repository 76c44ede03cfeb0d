"""The generated commit log, judged by a walk that shares no code with the generator.

The layout is that of MessageExtEncoder@5.3.3, the end of a segment that of
CommitLog.DefaultAppendMessageCallback.doAppend@5.3.3.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from benchmarks import generate_store as module
from benchmarks.generate_store import GeneratedStore, generate_store

MEBIBYTE = 1 << 20
LOG_SIZE = 3 * MEBIBYTE
SEGMENT_SIZE = MEBIBYTE
MESSAGE_SIZE = 450
TOPICS = 3
QUEUES = 4

HEADER = struct.Struct(">iIiiiqqiq4siq4siiqi")
MESSAGE_MAGIC = 0xDAA320A7
BLANK_MAGIC = 0xCBD43194
MONTH_START = 1793491200000


@dataclass(frozen=True)
class Record:
    """One record as the walk found it."""

    position: int
    total_size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: dict[str, str]

    @property
    def keys(self) -> list[str]:
        return self.properties["KEYS"].split(" ")


@dataclass(frozen=True)
class Blank:
    """The end of a finished segment."""

    position: int
    size: int
    rest: bytes


def parse_record(data: bytes, position: int) -> Record:
    """Take apart the bytes of one whole record; every length must add up to the total size."""
    header = HEADER.unpack_from(data)
    total_size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag = header[:8]
    born_timestamp, _, _, store_timestamp, _, _, reconsume_times, prepared_offset, body_length = header[8:]
    assert magic == MESSAGE_MAGIC
    assert total_size == len(data)
    topic_start = HEADER.size + body_length
    topic_end = topic_start + 1 + struct.unpack_from(">b", data, topic_start)[0]
    (properties_length,) = struct.unpack_from(">h", data, topic_end)
    properties_text = data[topic_end + 2 :].decode()
    assert len(properties_text) == properties_length
    assert properties_text.endswith("\x02")
    pieces = re.split("[\x01\x02]", properties_text[:-1])
    assert pieces[::2] == ["UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT"]
    return Record(
        position=position,
        total_size=total_size,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        store_timestamp=store_timestamp,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body=data[HEADER.size : topic_start],
        topic=data[topic_start + 1 : topic_end].decode(),
        properties=dict(zip(pieces[::2], pieces[1::2], strict=True)),
    )


def walk_segment(path: Path) -> Iterator[Record | Blank]:
    """The records of a segment and its blank; a zero size must be the live end, zeros only behind it."""
    data = path.read_bytes()
    position = 0
    while True:
        size, magic = struct.unpack_from(">iI", data, position)
        if size == 0:
            assert not any(data[position:])
            return
        if magic == BLANK_MAGIC:
            yield Blank(int(path.name) + position, size, data[position + 8 :])
            return
        yield parse_record(data[position : position + size], int(path.name) + position)
        position += size


def segment_paths(store: GeneratedStore) -> list[Path]:
    return sorted((store.path / "commitlog").iterdir())


def records_of(store: GeneratedStore) -> list[Record]:
    walked = [item for path in segment_paths(store) for item in walk_segment(path)]
    return [item for item in walked if isinstance(item, Record)]


def log_bytes_of(store: GeneratedStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in segment_paths(store)}


def generate(path: Path, seed: int = 7) -> GeneratedStore:
    return generate_store(
        path,
        log_size=LOG_SIZE,
        message_size=MESSAGE_SIZE,
        segment_size=SEGMENT_SIZE,
        topics=TOPICS,
        queues=QUEUES,
        seed=seed,
    )


def test_a_skew_gives_topics_very_different_sizes(tmp_path: Path) -> None:
    store = generate_store(
        tmp_path, log_size=MEBIBYTE, segment_size=2 * MEBIBYTE, message_size=300, topics=10, queues=1, skew=1.0
    )
    counts = Counter(record.topic for record in records_of(store))
    assert len(counts) == 10
    largest, *_, smallest = sorted(counts.values(), reverse=True)
    assert 7 < largest / smallest < 14


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GeneratedStore:
    return generate(tmp_path_factory.mktemp("generated"))


@pytest.fixture(scope="module")
def records(store: GeneratedStore) -> list[Record]:
    return records_of(store)


def test_only_a_commit_log_of_whole_segments_is_written(store: GeneratedStore) -> None:
    assert [path.name for path in store.path.iterdir()] == ["commitlog"]
    paths = segment_paths(store)
    assert [path.name for path in paths] == [f"{number * SEGMENT_SIZE:020d}" for number in range(4)]
    assert {path.stat().st_size for path in paths} == {SEGMENT_SIZE}


def test_segment_is_sparse_behind_the_live_end(tmp_path: Path) -> None:
    store = generate_store(tmp_path, log_size=MEBIBYTE, segment_size=256 * MEBIBYTE)
    (path,) = segment_paths(store)
    assert path.stat().st_size == 256 * MEBIBYTE
    assert path.stat().st_blocks * 512 < 16 * MEBIBYTE


def test_every_record_says_where_it_is(records: list[Record]) -> None:
    assert all(record.physical_offset == record.position for record in records)


def test_every_body_has_its_checksum(records: list[Record]) -> None:
    assert all(record.body and record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF for record in records)
    assert len({record.body for record in records}) > 100


def test_bodies_are_semi_compressible(records: list[Record]) -> None:
    text = b"".join(record.body for record in records[:20])
    assert 0.1 < len(zlib.compress(text)) / len(text) < 0.6


def test_ordinary_messages_have_no_flags(records: list[Record]) -> None:
    assert {
        (record.flag, record.sys_flag, record.reconsume_times, record.prepared_transaction_offset) for record in records
    } == {(0, 0, 0, 0)}


def test_hosts_are_addresses_and_ports(store: GeneratedStore) -> None:
    header = HEADER.unpack_from(segment_paths(store)[0].read_bytes())
    assert header[9:11] == (bytes([10, 0, 0, 17]), 52018)
    assert header[12:14] == (bytes([10, 0, 0, 5]), 10911)


def test_queue_offsets_count_up_from_zero_in_each_queue(records: list[Record]) -> None:
    queue_offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for record in records:
        queue_offsets[record.topic, record.queue_id].append(record.queue_offset)
    expected_queues = {(topic, queue) for topic in ("orders", "payments", "shipments") for queue in range(4)}
    assert set(queue_offsets) == expected_queues
    for offsets in queue_offsets.values():
        assert offsets == list(range(len(offsets)))
        assert len(offsets) > len(records) / len(queue_offsets) / 2


def test_store_time_never_falls_and_several_messages_share_a_millisecond(records: list[Record]) -> None:
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert 2 < len(times) / len(set(times)) < 8
    assert all(0 <= record.store_timestamp - record.born_timestamp < 1000 for record in records)


def test_finished_segments_end_with_a_filler(store: GeneratedStore) -> None:
    *finished, last = [list(walk_segment(path)) for path in segment_paths(store)]
    assert all(isinstance(item, Record) for item in last)
    following = [segment[0] for segment in finished[1:]] + [last[0]]
    for segment, next_record in zip(finished, following, strict=True):
        blank = segment[-1]
        assert isinstance(blank, Blank)
        assert isinstance(next_record, Record)
        assert blank.size == SEGMENT_SIZE - blank.position % SEGMENT_SIZE
        assert 8 <= blank.size < next_record.total_size + 8
        assert not any(blank.rest)
        assert all(isinstance(item, Record) for item in segment[:-1])


@pytest.mark.parametrize("spare", [0, 7, 8, 9])
def test_a_record_needs_eight_free_bytes_behind_it(tmp_path: Path, spare: int) -> None:
    """The segment's end is put ``spare`` bytes behind the 20th record of the same log in one segment."""
    whole = generate_store(tmp_path / "whole", log_size=40 * MESSAGE_SIZE, segment_size=SEGMENT_SIZE)
    end = records_of(whole)[20].position
    store = generate_store(tmp_path / "cut", log_size=40 * MESSAGE_SIZE, segment_size=end + spare)
    *first_records, blank = walk_segment(segment_paths(store)[0])
    assert isinstance(blank, Blank)
    assert len(first_records) == (20 if spare >= 8 else 19)
    assert [record.body for record in records_of(store)] == [record.body for record in records_of(whole)]


def test_result_tells_what_was_written(store: GeneratedStore, records: list[Record]) -> None:
    last = records[-1]
    assert store == GeneratedStore(
        path=store.path,
        messages=len(records),
        keys=sum(1 + len(record.keys) for record in records),
        live_end=last.position + last.total_size,
        log_bytes=sum(record.total_size for record in records),
    )
    assert LOG_SIZE - 1.25 * MESSAGE_SIZE < store.log_bytes <= LOG_SIZE


def test_sizes_vary_by_a_quarter_around_the_mean(records: list[Record]) -> None:
    sizes = [record.total_size for record in records]
    assert sum(sizes) / len(sizes) == pytest.approx(MESSAGE_SIZE, rel=0.05)
    assert 0.75 * MESSAGE_SIZE <= min(sizes) < 0.77 * MESSAGE_SIZE
    assert 1.23 * MESSAGE_SIZE < max(sizes) <= 1.25 * MESSAGE_SIZE


@pytest.mark.parametrize("message_size", [320, 2_000, 100_000])
def test_mean_size_follows_the_argument(tmp_path: Path, message_size: int) -> None:
    store = generate_store(
        tmp_path, log_size=2_000 * message_size, message_size=message_size, segment_size=64 * MEBIBYTE
    )
    assert store.log_bytes / store.messages == pytest.approx(message_size, rel=0.05)


def test_properties_are_those_of_a_producer(records: list[Record]) -> None:
    assert {record.properties["CLUSTER"] for record in records} == {"DefaultCluster"}
    assert {record.properties["WAIT"] for record in records} == {"true"}
    assert 2 <= len({record.properties["TAGS"] for record in records}) <= 8


def test_one_or_two_keys_mostly_distinct(records: list[Record]) -> None:
    assert {len(record.keys) for record in records} == {1, 2}
    assert sum(len(record.keys) for record in records) / len(records) == pytest.approx(1.5, abs=0.05)
    assert all(re.fullmatch(r"ORD-\d{10}( CUS-\d{6})?", record.properties["KEYS"]) for record in records)
    assert len({record.keys[0] for record in records}) > 0.99 * len(records)


def test_unique_keys_are_unique_and_carry_the_time_of_birth(records: list[Record]) -> None:
    """See MessageClientIDSetter.createUniqID@5.3.3: address, process, loader hash, time, counter."""
    unique_keys = [record.properties["UNIQ_KEY"] for record in records]
    assert len(set(unique_keys)) == len(records)
    assert len({unique_key[:20] for unique_key in unique_keys}) == 1
    for number, (unique_key, record) in enumerate(zip(unique_keys, records, strict=True)):
        assert re.fullmatch(r"0A000011[0-9A-F]{24}", unique_key)
        assert int(unique_key[20:28], 16) == record.born_timestamp - MONTH_START
        assert int(unique_key[28:], 16) == number % 65536


def test_same_seed_same_bytes_other_seed_other_bytes(store: GeneratedStore, tmp_path: Path) -> None:
    assert log_bytes_of(generate(tmp_path / "same")) == log_bytes_of(store)
    other = generate(tmp_path / "other", seed=8)
    assert log_bytes_of(other) != log_bytes_of(store)
    assert {record.properties["UNIQ_KEY"] for record in records_of(other)}.isdisjoint(
        record.properties["UNIQ_KEY"] for record in records_of(store)
    )


@pytest.mark.parametrize("block_bytes", [2_000, 30_000, 300_001])
def test_block_size_does_not_matter(
    store: GeneratedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    assert log_bytes_of(generate(tmp_path)) == log_bytes_of(store)


def test_one_block_may_fill_many_segments(tmp_path: Path) -> None:
    store = generate_store(tmp_path, log_size=MEBIBYTE, segment_size=2_000)
    records = records_of(store)
    assert len(segment_paths(store)) > 250
    assert len(records) == store.messages
    assert all(record.physical_offset == record.position for record in records)


def test_topics_beyond_the_named_ones_are_numbered(tmp_path: Path) -> None:
    store = generate_store(tmp_path, log_size=MEBIBYTE, segment_size=SEGMENT_SIZE * 2, topics=20, queues=1)
    topics = {record.topic for record in records_of(store)}
    assert len(topics) == 20
    assert {"orders", "orders-1", "orders-2"} <= topics


def test_an_existing_commit_log_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    generate(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "commitlog").iterdir()}
    with pytest.raises(FileExistsError, match="not empty"):
        generate(tmp_path)
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "commitlog").iterdir()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": 0}, "a topic and a queue"),
        ({"queues": 0}, "a topic and a queue"),
        ({"seed": -1}, "seed"),
        ({"message_size": 250}, "no room for a body"),
        ({"message_size": 5 * MEBIBYTE}, "above"),
        ({"segment_size": 500}, "segment size"),
        ({"segment_size": 1 << 31}, "segment size"),
        ({"log_size": 100}, "log size"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_store(tmp_path, **arguments)
    assert not any(tmp_path.iterdir())


def test_a_sparse_store_has_the_same_bytes_as_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_all(file: BinaryIO, content: module.Bytes) -> None:
        file.write(content.data)

    sizes: dict[str, Any] = {"log_size": 8 * MEBIBYTE, "message_size": 64 << 10, "segment_size": 3 * MEBIBYTE}
    generate_store(tmp_path / "sparse", **sizes, sparse=True)
    monkeypatch.setattr(module, "_write_sparsely", write_all)
    made = generate_store(tmp_path / "whole", **sizes, sparse=True)
    files = [sorted((tmp_path / name / "commitlog").iterdir()) for name in ("sparse", "whole")]
    assert made.messages > 100
    assert [file.read_bytes() for file in files[0]] == [file.read_bytes() for file in files[1]]
    assert 3 * sum(file.stat().st_blocks for file in files[0]) < sum(file.stat().st_blocks for file in files[1])


def test_command_line_prints_one_line_of_json(
    store: GeneratedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--log-size", "3MiB", "--segment-size", "1 MiB", "--message-size", "450"]
    module.main([str(tmp_path), *sizes, "--topics", "3", "--queues", "4", "--seed", "7"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "path": str(tmp_path),
        "messages": store.messages,
        "keys": store.keys,
        "live_end": store.live_end,
        "log_bytes": store.log_bytes,
    }
    copy = GeneratedStore(tmp_path, store.messages, store.keys, store.live_end, store.log_bytes)
    assert log_bytes_of(copy) == log_bytes_of(store)


def test_command_line_tells_of_a_wrong_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        module.main([str(tmp_path), "--log-size", "1"])
    assert "log size 1 is below" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("450", 450), ("450B", 450), ("2KiB", 2048), ("64 MiB", 64 * MEBIBYTE), ("1.5GiB", 1536 * MEBIBYTE)],
)
def test_sizes_are_read_with_units(text: str, size: int) -> None:
    assert module._size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1GB", "-1", "1e3"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        module._size(text)
