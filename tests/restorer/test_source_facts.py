from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import ConfigError
from spark_mq.format.record import encode_blank
from spark_mq.io.location import Location
from spark_mq.restorer.source_facts import _index_layout, facts_of_store, readable_files
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.derived_facts import index_facts
from spark_mq.testing import LogWriter
from tests.support.stores import RealStore, segment_files, usual_stores


def begins_of(store: Path) -> dict[int, str]:
    """The begin offset in the header of each index file."""
    return {struct.unpack_from(">q", file.read_bytes(), 16)[0]: file.name for file in (store / "index").iterdir()}


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_facts_are_those_of_the_java_store(store: RealStore, described: Callable[[RealStore], MessageStore]) -> None:
    location = described(store).location
    folder, (said,) = Path(location.path), store.facts("store")
    facts = facts_of_store(location)
    assert facts.segment_size == said["mappedFileSizeCommitLog"]
    assert facts.queue_file_size == said["mappedFileSizeConsumeQueue"]
    assert (facts.log_start, facts.log_end) == (said["minPhyOffset"], said["maxPhyOffset"])
    assert facts.broker_versions is not None
    assert str(facts.broker_versions.first).startswith(store.broker_version)
    assert {queue: offset for queue, offset in facts.next_offsets.items() if offset} == {
        (fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue") if fact["max"]
    }
    assert facts.index_names == begins_of(folder)
    assert str(facts.time_zone) == "UTC"
    expected: dict[int, bytes] = {}
    for fact in store.facts("blank"):
        file = max(file for file in segment_files(folder) if int(file.name) <= fact["offset"])
        blank = file.read_bytes()[fact["offset"] - int(file.name) :][: fact["size"]].rstrip(b"\0")
        expected |= {fact["offset"]: blank} if len(blank) > 8 else {}
    assert facts.blanks == expected
    assert facts.files == {
        path: (folder / path).read_bytes()
        for path in ("checkpoint", *(f"config/{file.name}" for file in (folder / "config").iterdir()))
        if not path.endswith(".bak")
    }
    assert facts.databases == ()


@pytest.mark.parametrize("archived", ["now", "by an older version"])
@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_the_slots_and_entries_of_index_files_are_those_of_the_broker(
    store: RealStore, archived: str, described: Callable[[RealStore], MessageStore]
) -> None:
    location = described(store).location
    facts = index_facts(location)
    assert facts is not None
    if archived != "now":
        facts = {"files": facts["files"]}
    found, settings = _index_layout(facts), BrokerConf.of(str(store.broker_conf))
    assert found == settings.index_layout or (found is None and len(facts["files"]) == 1)
    assert found is not None or store.name != "workload-533"
    restored = facts_of_store(location).settings
    assert archived != "now" or restored.get("maxIndexNum") == (None if found is None else str(found.index_num))


def test_a_blank_can_have_bytes_of_an_older_segment(tmp_path: Path) -> None:
    """Such as the start of a blank, which has the right size for its place."""
    size = 4096
    log = LogWriter(size, first_segment=size)
    ends = []
    for _ in range(3):
        log.append(1_700_000_000_000, body=b"x" * 100)
        ends.append(log.next_offset)
        log.roll()
    log.append(1_700_000_000_000)
    first, second = log.segments[size], log.segments[2 * size]
    first[4000:] = encode_blank(96)[:8] + bytes(88)
    second[ends[1] - 2 * size + 8 : ends[1] - 2 * size + 11] = b"old"
    facts = facts_of_store(log.write(tmp_path / "store"))
    assert facts.blanks == {
        ends[0]: bytes(first[ends[0] - size :]).rstrip(b"\0"),
        ends[1]: encode_blank(3 * size - ends[1])[:8] + b"old",
    }


def test_a_store_without_messages_and_files(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    facts = facts_of_store(Location.resolve(str(tmp_path)))
    assert (facts.segment_size, facts.queue_file_size, facts.log_start, facts.log_end) == (None,) * 4
    assert (facts.files, facts.index_names, facts.next_offsets, facts.broker_versions) == ({}, {}, {}, None)


def test_names_in_config_can_be_anything(tmp_path: Path) -> None:
    log = LogWriter(4096)
    log.append(1_700_000_000_000)
    store = log.write(tmp_path / "store")
    config = tmp_path / "store" / "config"
    (config / "rdb").mkdir(parents=True)
    (config / "rdb" / "CURRENT").write_bytes(b"MANIFEST-1")
    for name in ("a b\n", "\u202e.json", ".bak", "topics.json.bak.bak"):
        (config / name).write_bytes(b"{}")
    facts = facts_of_store(store)
    assert set(facts.files) == {"config/a b\n", "config/\u202e.json"}
    assert facts.databases == ("config/rdb",)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"topics.json": b'{"a":1}', "topics.json.bak": b"{}"}, {"topics.json": b'{"a":1}'}),
        ({"topics.json": b'{"a":', "topics.json.bak": b'{"b":{1:2}}'}, {"topics.json": b'{"b":{1:2}}'}),
        ({"topics.json": b" \n", "topics.json.bak": b"{}"}, {"topics.json": b"{}"}),
        ({"topics.json": b"[]", "topics.json.bak": b"{}"}, {"topics.json": b"{}"}),
        ({"topics.json": b"\xff", "topics.json.bak": b"{}"}, {"topics.json": b"{}"}),
        ({"topics.json.bak": b"{}"}, {"topics.json": b"{}"}),
        ({"topics.json": b"", "topics.json.bak": b""}, {}),
        ({"timermetrics": b"", "timermetrics.bak": b"{}"}, {"timermetrics": b"{}"}),
        ({"timercheck": b"\0\1"}, {"timercheck": b"\0\1"}),
        ({"transactionMetrics": b"{}"}, {"transactionMetrics": b"{}"}),
    ],
)
def test_the_backup_counts_if_a_broker_cannot_read_the_file(
    files: dict[str, bytes], expected: dict[str, bytes]
) -> None:
    assert readable_files(files, "store") == expected


def test_two_unreadable_files_are_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"^s: topics\.json: .*; topics\.json\.bak: it does not contain a JSON object"
    ):
        readable_files({"topics.json": b"{", "topics.json.bak": b"1"}, "s")
