"""The generated commit log, read record by record: the generator shares no code with the package.

The layout is that of MessageExtEncoder@5.3.3, the end of a segment that of
CommitLog.DefaultAppendMessageCallback.doAppend@5.3.3.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from benchmarks import generate_store as module
from benchmarks.generate_store import GeneratedStore, generate_store
from spark_mq.format.record import FRAME, MAGIC_BLANK, Record, decode_record

MEBIBYTE = 1 << 20
SEGMENT_SIZE = MEBIBYTE
MESSAGE_SIZE = 450
SIZES: dict[str, Any] = {"log_size": 3 * MEBIBYTE, "message_size": MESSAGE_SIZE, "segment_size": SEGMENT_SIZE}
MONTH_START = 1793491200000
HOSTS = ((10, 0, 0, 17), 52018), ((10, 0, 0, 5), 10911)
"""Of producer and broker."""


def segment_paths(store: GeneratedStore) -> list[Path]:
    return sorted((store.path / "commitlog").iterdir())


def records_of_segment(path: Path) -> tuple[list[Record], int]:
    """The records, and the size of the filler; 0 if there is none. After the end, and in a filler, are zeros only."""
    found: list[Record] = []
    data, position = path.read_bytes(), 0
    while True:
        size, magic = FRAME.unpack_from(data, position)
        if size == 0 or magic == MAGIC_BLANK:
            assert not any(data[position + (FRAME.size if size else 0) :])
            assert size in (0, len(data) - position)
            return found, size
        found.append(decode_record(data, position, int(path.name) + position))
        position += size


def records_of(store: GeneratedStore) -> list[Record]:
    return [record for path in segment_paths(store) for record in records_of_segment(path)[0]]


def log_bytes_of(store: GeneratedStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in segment_paths(store)}


def generate(path: Path, seed: int = 7) -> GeneratedStore:
    return generate_store(path, **SIZES, topics=3, queues=4, seed=seed)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GeneratedStore:
    return generate(tmp_path_factory.mktemp("generated"))


@pytest.fixture(scope="module")
def records(store: GeneratedStore) -> list[Record]:
    return records_of(store)


def test_whole_segments_end_with_a_filler_and_the_last_one_with_zeros(store: GeneratedStore) -> None:
    assert [path.name for path in store.path.iterdir()] == ["commitlog"]
    paths = segment_paths(store)
    assert [path.name for path in paths] == [f"{number * SEGMENT_SIZE:020d}" for number in range(4)]
    assert {path.stat().st_size for path in paths} == {SEGMENT_SIZE}
    walked = [records_of_segment(path) for path in paths]
    for (_, filler), (following, _) in pairwise(walked):
        assert 8 <= filler < following[0].size + 8
    assert walked[-1][1] == 0


def test_bodies_are_semi_compressible_and_have_their_checksum(records: list[Record]) -> None:
    assert all(record.body and record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF for record in records)
    assert len({record.body for record in records}) > 100
    text = b"".join(record.body for record in records[:20])
    assert 0.1 < len(zlib.compress(text)) / len(text) < 0.6


def test_ordinary_messages_of_one_producer_and_one_broker(records: list[Record]) -> None:
    (same,) = {
        (
            *(record.flag, record.sys_flag, record.reconsume_times, record.prepared_transaction_offset),
            *(record.born_host, record.store_host),
        )
        for record in records
    }
    born, stored = (bytes(address) + port.to_bytes(4, "big") for address, port in HOSTS)
    assert same == (0, 0, 0, 0, born, stored)


def test_queue_offsets_count_up_from_zero_in_each_queue(records: list[Record]) -> None:
    queue_offsets: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for record in records:
        queue_offsets[record.topic, record.queue_id].append(record.queue_offset)
    assert set(queue_offsets) == {
        (topic, queue) for topic in (b"orders", b"payments", b"shipments") for queue in range(4)
    }
    for offsets in queue_offsets.values():
        assert offsets == list(range(len(offsets)))
        assert len(offsets) > len(records) / len(queue_offsets) / 2


def test_store_time_never_falls_and_several_messages_share_a_millisecond(records: list[Record]) -> None:
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert 2 < len(times) / len(set(times)) < 8
    assert all(0 <= record.store_timestamp - record.born_timestamp < 1000 for record in records)


@pytest.mark.parametrize("spare", [0, 7, 8, 9])
def test_a_record_needs_eight_free_bytes_after_it(tmp_path: Path, spare: int) -> None:
    """The segment's end is put ``spare`` bytes after the 20th record of the same log in one segment."""
    whole = generate_store(tmp_path / "whole", log_size=40 * MESSAGE_SIZE, segment_size=SEGMENT_SIZE)
    end = records_of(whole)[20].commit_log_offset
    store = generate_store(tmp_path / "cut", log_size=40 * MESSAGE_SIZE, segment_size=end + spare)
    first_records, filler = records_of_segment(segment_paths(store)[0])
    assert filler
    assert len(first_records) == (20 if spare >= 8 else 19)
    assert [record.body for record in records_of(store)] == [record.body for record in records_of(whole)]


def test_result_tells_what_was_written(store: GeneratedStore, records: list[Record]) -> None:
    assert store == GeneratedStore(
        path=store.path,
        messages=len(records),
        keys=sum(1 + len(record.text_properties["KEYS"].split(" ")) for record in records),
        live_end=records[-1].commit_log_offset + records[-1].size,
        log_bytes=sum(record.size for record in records),
    )
    assert SIZES["log_size"] - 1.25 * MESSAGE_SIZE < store.log_bytes <= SIZES["log_size"]


def test_sizes_vary_by_a_quarter_around_the_mean(records: list[Record]) -> None:
    sizes = [record.size for record in records]
    assert sum(sizes) / len(sizes) == pytest.approx(MESSAGE_SIZE, rel=0.05)
    assert 0.75 * MESSAGE_SIZE <= min(sizes) < 0.77 * MESSAGE_SIZE
    assert 1.23 * MESSAGE_SIZE < max(sizes) <= 1.25 * MESSAGE_SIZE


def test_keys_and_properties_are_those_of_a_producer(records: list[Record]) -> None:
    """See MessageClientIDSetter.createUniqID@5.3.3: address, process, loader hash, time, counter."""
    found = [record.text_properties for record in records]
    assert {tuple(one) for one in found} == {("UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT")}
    assert {(one["CLUSTER"], one["WAIT"]) for one in found} == {("DefaultCluster", "true")}
    assert 2 <= len({one["TAGS"] for one in found}) <= 8
    keys = [one["KEYS"].split(" ") for one in found]
    assert sum(map(len, keys)) / len(records) == pytest.approx(1.5, abs=0.05)
    assert all(re.fullmatch(r"ORD-\d{10}( CUS-\d{6})?", one["KEYS"]) for one in found)
    assert len({first for first, *_ in keys}) > 0.99 * len(records)
    assert len({one["UNIQ_KEY"][:20] for one in found}) == 1
    for number, (one, record) in enumerate(zip(found, records, strict=True)):
        assert re.fullmatch(r"0A000011[0-9A-F]{24}", one["UNIQ_KEY"])
        assert int(one["UNIQ_KEY"][20:28], 16) == record.born_timestamp - MONTH_START
        assert int(one["UNIQ_KEY"][28:], 16) == number % 65536


@pytest.mark.parametrize("block_bytes", [2_000, 300_001])
def test_the_size_of_blocks_does_not_matter(
    store: GeneratedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    assert log_bytes_of(generate(tmp_path)) == log_bytes_of(store)


def test_another_seed_gives_other_messages(store: GeneratedStore, tmp_path: Path) -> None:
    unique_keys, others = (
        {record.text_properties["UNIQ_KEY"] for record in records_of(one)}
        for one in (store, generate(tmp_path, seed=8))
    )
    assert unique_keys.isdisjoint(others)


def test_one_block_may_fill_many_segments(tmp_path: Path) -> None:
    store = generate_store(tmp_path, log_size=MEBIBYTE, segment_size=2_000)
    assert len(segment_paths(store)) > 250
    assert len(records_of(store)) == store.messages


def test_many_topics_are_numbered_and_a_skew_gives_them_very_different_sizes(tmp_path: Path) -> None:
    store = generate_store(
        tmp_path, log_size=MEBIBYTE, segment_size=SEGMENT_SIZE * 2, message_size=300, topics=20, queues=1, skew=1.0
    )
    counts = Counter(record.topic for record in records_of(store))
    assert len(counts) == 20
    assert {b"orders", b"orders-1", b"orders-2"} <= counts.keys()
    largest, *_, smallest = sorted(counts.values(), reverse=True)
    assert 12 < largest / smallest < 30


def test_an_existing_commit_log_is_not_touched(store: GeneratedStore) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in segment_paths(store)}
    with pytest.raises(FileExistsError, match="not empty"):
        generate(store.path)
    assert before == {path.name: path.stat().st_mtime_ns for path in segment_paths(store)}


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
    made = generate_store(tmp_path / "sparse", **sizes, sparse=True)
    monkeypatch.setattr(module, "_write_sparsely", write_all)
    whole = generate_store(tmp_path / "whole", **sizes, sparse=True)
    assert made.messages > 100
    assert log_bytes_of(made) == log_bytes_of(whole)
    blocks = [sum(file.stat().st_blocks for file in segment_paths(one)) for one in (made, whole)]
    assert 3 * blocks[0] < blocks[1]


def test_command_line_prints_one_line_of_json_or_what_is_wrong(
    store: GeneratedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--log-size", "3MiB", "--segment-size", "1 MiB", "--message-size", "450B"]
    module.main([str(tmp_path), *sizes, "--topics", "3", "--queues", "4", "--seed", "7"])
    printed = json.loads(capsys.readouterr().out)
    copy = GeneratedStore(tmp_path, store.messages, store.keys, store.live_end, store.log_bytes)
    assert printed == {**vars(copy), "path": str(tmp_path)}
    assert log_bytes_of(copy) == log_bytes_of(store)
    for size, said in (("1", "log size 1 is below"), ("1GB", "not a size"), ("-1", "not a size")):
        with pytest.raises(SystemExit):
            module.main([str(tmp_path), f"--log-size={size}"])
        assert said in capsys.readouterr().err
