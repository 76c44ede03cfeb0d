"""`MessageStore` against what real brokers answered, and over stores that are damaged, stale or no stores at all."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.errors import (
    ConfigError,
    CorruptQueueError,
    OptionError,
    StoreChangedError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from spark_mq.format.message_id import decode_offset_message_id, encode_offset_message_id
from spark_mq.format.message_row import host_text
from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.format.record import BORN_HOST_AT, MAGIC_AT
from spark_mq.store import metadata_tables
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.get_message import GetMessageStatus
from spark_mq.testing import LogWriter
from tests.support.stores import STORES, WORKLOAD, RealStore, Unpack, segment_files, usual_stores

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


Described = Callable[[RealStore], MessageStore]
each_store = pytest.mark.parametrize("store", usual_stores(), ids=str)


def offsets(table: pa.Table) -> list[int]:
    return list(table.column("commit_log_offset").to_pylist())


def queue_names(store: RealStore) -> list[tuple[str, int]]:
    return [(fact["topic"], fact["queueId"]) for fact in store.facts("queue")]


@each_store
def test_get_message_answers_as_the_broker(store: RealStore, described: Described) -> None:
    """Where a broker cuts its answer short (`MAX_BYTES`, the end of a queue file) ours goes on."""
    sizes = {fact["offset"]: fact["size"] for fact in store.facts("msg")}
    units = store.facts("store")[0]["mappedFileSizeConsumeQueue"] // 20
    for fact in store.facts("get"):
        result = described(store).get_message_result(fact["topic"], fact["queueId"], fact["offset"], fact["maxNum"])
        assert (result.min_offset, result.max_offset) == (fact["minOffset"], fact["maxOffset"])
        got, wanted = offsets(result.messages), fact["offsets"]
        if fact["status"] == "MESSAGE_WAS_REMOVING":
            # asked for pre-blank units a broker passes over all live messages of the first segment; see below
            assert fact["topic"] == "MovedQueue"
            continue
        assert (result.status, got[: len(wanted)]) == (fact["status"], wanted)
        is_cut = sum(sizes[offset] for offset in got) > 256 << 10 or fact["offset"] % units + len(got) > units
        if fact["status"] == "FOUND" and not is_cut:
            assert (got, result.next_begin_offset) == (wanted, fact["nextBeginOffset"])
        if store.broker_version == "5" and fact["status"] != "FOUND":  # 4.9 was asked as a slave, which corrects none
            assert result.next_begin_offset == fact["nextBeginOffset"]


@each_store
def test_a_queue_read_in_steps_gives_its_messages(store: RealStore, described: Described) -> None:
    found = described(store)
    wanted: dict[tuple[str, int], list[int]] = {queue: [] for queue in queue_names(store)}
    for fact in store.facts("msg"):
        if fact["sysFlag"] & 0xC in (0, 8):
            wanted[fact["topic"], fact["queueId"]].append(fact["offset"])
    for queue, messages in wanted.items():
        got, at, end = [], found.get_min_offset_in_queue(*queue), found.get_max_offset_in_queue(*queue)
        while at < end:
            result = found.get_message_result(*queue, at, 100)
            got += offsets(result.messages)
            assert at < result.next_begin_offset <= end
            at = result.next_begin_offset
        assert got == messages, queue


OTHER_HOSTS = [bytes((10, 0, 0, 1)) + (43690).to_bytes(4), bytes(15) + b"\1" + (10911).to_bytes(4)]


@pytest.mark.parametrize("host", OTHER_HOSTS, ids=["IPv4", "IPv6"])
@each_store
def test_an_id_of_another_broker_is_not_found(store: RealStore, host: bytes, described: Described) -> None:
    found = described(store)
    for fact in store.facts("msg")[::29]:
        own_host, offset = decode_offset_message_id(fact["msgId"])
        other_id = encode_offset_message_id(host, offset)
        assert found.look_message_by_id(other_id).num_rows == 0
        why = found.find_record_by_id(other_id)
        assert f"offset {offset} was stored by broker {host_text(own_host)};" in str(why)
        assert f"an id of broker {host_text(host)}," in str(why)
        assert offsets(found.look_message_by_id(other_id, any_host=True)) == [offset]
        assert offsets(found.look_message_by_id(fact["msgId"].lower())) == [offset]


def test_a_unique_key_door_takes_ids_of_this_store_only(described: Described) -> None:
    found = described(WORKLOAD)
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == "OrderEvents")
    other_id = encode_offset_message_id(OTHER_HOSTS[0], fact["offset"])
    assert offsets(found.query_message_by_unique_key("OrderEvents", fact["msgId"])) == [fact["offset"]]
    assert found.query_message_by_unique_key("OrderEvents", other_id).num_rows == 0
    assert "an id of broker 10.0.0.1:43690" in found.why_no_unique_key("OrderEvents", other_id)
    assert offsets(found.query_message_by_unique_key("OrderEvents", other_id, any_host=True)) == [fact["offset"]]
    assert "id of" not in found.why_no_unique_key("OrderEvents", "7F0000010B5F18B4AAC28F1B3B6D0000")


def test_pre_blank_units_are_passed_over(described: Described) -> None:
    """A broker's own answer here is `MESSAGE_WAS_REMOVING`, and skips messages that are there."""
    result = described(WORKLOAD).get_message_result("MovedQueue", 0, 430, 32)
    wanted = [fact["offset"] for fact in WORKLOAD.facts("msg") if fact["topic"] == "MovedQueue"]
    assert (result.status, offsets(result.messages)) == (GetMessageStatus.FOUND, wanted)


@pytest.mark.parametrize("name", ["stale-533", "stale-49x"])
def test_a_stale_record_is_not_found_also_before_a_file_made_in_advance(
    name: str, described: Described, tmp_path: Path
) -> None:
    known = described(STORES[name])
    last = known.records.segments[-1]
    end, stop = known.get_max_phy_offset(), last.base + last.size
    folder = STORES[name].unpack(tmp_path)
    (folder / "commitlog" / f"{stop:020d}").write_bytes(bytes(last.size))
    store = MessageStore(str(folder))
    data = known.records.read(end, stop - end)
    whole = [
        end + at
        for at in range(len(data) - BORN_HOST_AT)
        if known.records.is_at(end + at, struct.unpack_from(">i", data, at)[0])
        and data[at + MAGIC_AT :].startswith(b"\xda\xa3\x20\xa7")
    ]
    assert whole
    for offset in whole:
        assert "stale" in str(known.why_not(offset))
        assert "stale" in str(store.why_not(offset))
        assert store.look_message_by_offset(offset).num_rows == 0
    assert "no record" in str(store.why_not(stop))


@pytest.mark.parametrize("files_in_advance", [0, 1, 2])
def test_a_unit_that_leads_to_no_record_of_the_last_written_segment_ends_its_queue(
    files_in_advance: int, tmp_path: Path
) -> None:
    writer = LogWriter(4096)
    for number in range(5):
        writer.append(1_700_000_000_000 + number)
    location = writer.write(tmp_path)
    for number in range(1, files_in_advance + 1):
        (tmp_path / "commitlog" / f"{number * 4096:020d}").write_bytes(bytes(4096))
    size = writer.offsets[1] - writer.offsets[0]
    units = b"".join(struct.pack(">qiq", offset, size, 0) for offset in [*writer.offsets, writer.offsets[2] + 1])
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(units.ljust(2000, b"\0"))
    assert MessageStore(str(location)).get_max_offset_in_queue("T", 0) == 5


def test_why_there_is_no_message(described: Described) -> None:
    deleted = described(STORES["deleted-533"])
    first, end = deleted.get_min_phy_offset(), deleted.get_max_phy_offset()
    assert deleted.why_not(first) is None
    assert "expired" in str(deleted.why_not(first - 1))
    assert "no record" in str(deleted.why_not(first + 1))
    assert "no record" in str(deleted.why_not(end))
    assert "no segment" in str(deleted.why_not(1 << 50))
    assert "no segment" in str(deleted.why_not(-1))
    for offset in (first - 1, first + 1, end, 1 << 50, -1):
        assert deleted.look_message_by_offset(offset).num_rows == 0
        assert deleted.look_message_by_offset(offset).schema.equals(MESSAGE_SCHEMA)


def test_times_can_be_datetimes(described: Described) -> None:
    found = described(WORKLOAD)
    time, offset = WORKLOAD.facts("queue")[0]["offsetByTime"][2]
    queue = queue_names(WORKLOAD)[0]
    assert found.get_offset_in_queue_by_time(*queue, EPOCH + timedelta(milliseconds=time)) == offset
    with pytest.raises(OptionError, match="time zone"):
        found.get_offset_in_queue_by_time(*queue, datetime(2026, 1, 1))
    for ask in (
        lambda: found.get_offset_in_queue_by_time(*queue, time // 1000),
        lambda: found.query_message("T", "k", begin=time // 1000),
        lambda: found.query_message("T", "k", end=time // 1000),
    ):
        with pytest.raises(OptionError, match=f"give {time // 1000}000"):
            ask()
    with pytest.raises(OptionError, match="boundary"):
        found.get_offset_in_queue_by_time(*queue, time, "MIDDLE")
    with pytest.raises(OptionError, match="UPPER"):
        MessageStore(str(found.location), broker_version="4.9").get_offset_in_queue_by_time(*queue, time, "UPPER")


def test_what_does_not_exist_is_empty(described: Described) -> None:
    found = described(WORKLOAD)
    assert found.get_max_offset_in_queue("no such topic", 0) == 0
    assert found.get_offset_in_queue_by_time("no such topic", 0, 0) == 0
    result = found.get_message_result("no such topic", 0, 5)
    assert (result.status, result.messages.num_rows) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    with pytest.raises(OptionError, match="32 or 56"):
        found.look_message_by_id("xyz")


def test_no_store_and_a_store_that_went_away(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        MessageStore(str(tmp_path / "nothing"))
    with pytest.raises(OptionError, match="broker version"):
        MessageStore(str(WORKLOAD.unpack(tmp_path)), broker_version="3.2")
    gone = MessageStore(str(tmp_path / "workload-533"))
    shutil.rmtree(tmp_path / "workload-533" / "commitlog")
    with pytest.raises(StoreChangedError, match="removed"):
        gone.look_message_by_offset(0)


def test_an_empty_log_has_no_offsets(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    empty = MessageStore(str(tmp_path))
    assert (empty.get_min_phy_offset(), empty.get_max_phy_offset(), empty.queues) == (-1, -1, {})
    assert empty.look_message_by_offset(0).num_rows == 0


def damaged(folder: Path, place: int, value: bytes) -> MessageStore:
    """The workload store with bytes of the unit 3 of OrderEvents/0 changed."""
    store = WORKLOAD.unpack(folder)
    file = next((store / "consumequeue" / "OrderEvents" / "0").iterdir())
    with file.open("r+b") as stream:
        stream.seek(3 * 20 + place)
        stream.write(value)
    return MessageStore(str(store))


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (0, struct.pack(">q", 77), "NO_RECORD"),
        (0, struct.pack(">q", 1 << 60), "NO_RECORD"),
        (8, struct.pack(">i", 5), "OTHER_RECORD"),
        (8, struct.pack(">i", 0x7FFFFFF0), "OTHER_RECORD"),
    ],
)
def test_a_unit_that_points_elsewhere_is_a_row_that_says_so(
    place: int, value: bytes, reason: str, tmp_path: Path
) -> None:
    rows = damaged(tmp_path, place, value).get_message("OrderEvents", 0, 2, 3).to_pylist()
    assert [str(row["_corrupt_record"]).split(":")[0] for row in rows] == ["None", reason, "None"]
    assert (rows[1]["topic"], rows[1]["body"]) == (None, None)


def test_a_unit_of_another_queue_s_message_is_a_row_that_says_so(tmp_path: Path) -> None:
    other = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == "PaymentLog")
    unit = struct.pack(">qi", other["offset"], other["size"])
    row = damaged(tmp_path, 0, unit).get_message("OrderEvents", 0, 3, 1).to_pylist()[0]
    assert "PaymentLog" in row["_corrupt_record"]


@pytest.mark.parametrize("unit", [struct.pack(">q", 1 << 18), struct.pack(">q", 0), bytes(20), b"\xff" * 20])
def test_a_wrong_unit_is_said_and_its_message_is_read_from_the_log(unit: bytes, tmp_path: Path) -> None:
    """The unit points further ahead in the log, or back, was never written, or is nonsense."""
    store = damaged(tmp_path, 0, unit)
    wanted = [fact for fact in WORKLOAD.facts("msg") if (fact["topic"], fact["queueId"]) == ("OrderEvents", 0)]
    by_units = store.get_message_result("OrderEvents", 0, 2, 3)
    assert any(wanted[3]["offset"] in part for part in by_units.uncovered)
    assert sum(part.size for part in by_units.uncovered) < wanted[5]["offset"] - wanted[1]["offset"]
    by_log = store.get_message_result("OrderEvents", 0, 2, 3, read_log=True)
    assert offsets(by_log.messages) == [fact["offset"] for fact in wanted[2:5]]
    assert (by_log.status, by_log.next_begin_offset, by_log.uncovered) == (GetMessageStatus.FOUND, 5, ())
    assert offsets(store.get_message("OrderEvents", 0, 0, 1000, read_log=True)) == [fact["offset"] for fact in wanted]


def test_an_answer_by_units_alone_covers_what_was_asked(described: Described) -> None:
    """And the log after the last unit, if the answer comes to the end of the queue."""
    found = described(WORKLOAD)
    assert found.get_message_result("OrderEvents", 0, 2, 3).uncovered == ()
    end = found.get_max_offset_in_queue("OrderEvents", 0)
    last, size, _ = found.queues["OrderEvents", 0].unit(end - 1)
    tail = LogRange(last + size, found.get_max_phy_offset())
    for offset in (end - 1, end, end + 5):
        result = found.get_message_result("OrderEvents", 0, offset, 5)
        assert result.uncovered == (tail,)
    with_log = found.get_message_result("OrderEvents", 0, end, 5, read_log=True)
    assert (with_log.status, with_log.uncovered) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, ())


@each_store
def test_with_the_log_read_the_answers_are_those_of_its_messages(store: RealStore, unpacked: Unpack) -> None:
    """Of queues as the broker left them, also where it was killed."""
    with MessageStore(str(unpacked(store)), broker_version=store.broker_version) as found:
        queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for fact in sorted(store.facts("msg"), key=lambda fact: int(fact["offset"])):
            if fact["sysFlag"] & 0xC in (0, 8):
                queues.setdefault((fact["topic"], fact["queueId"]), []).append(fact)
        for queue, facts in list(queues.items())[:8]:
            ends = facts[0]["queueOffset"], facts[-1]["queueOffset"] + 1
            assert found.get_min_offset_in_queue(*queue, read_log=True) == ends[0]
            assert found.get_max_offset_in_queue(*queue, read_log=True) == ends[1]
            assert offsets(found.get_message(*queue, 0, 1 << 20, read_log=True)) == [fact["offset"] for fact in facts]
            time = facts[len(facts) // 2]["storeTimestamp"]
            later = [fact["queueOffset"] for fact in facts if fact["storeTimestamp"] >= time]
            assert found.get_offset_in_queue_by_time(*queue, time, read_log=True) == later[0]
            if store.broker_version != "4.9":
                assert found.get_offset_in_queue_by_time(*queue, 1 << 41, read_log=True) == ends[1]


@pytest.mark.parametrize(("version", "offset"), [("4.9.7", 0), ("5.0.0", 24), ("5.3.3", 24)])
def test_an_offset_by_time_is_in_the_queue_from_5_on(
    version: str, offset: int, unpacked: Unpack, tmp_path: Path
) -> None:
    """A queue whose 24 messages have expired, and whose file is left (`DefaultMessageStore.getOffsetInQueueByTime`)."""
    folder = Path(shutil.copytree(unpacked(STORES["workload-49x"]), tmp_path / "store"))
    segment_files(folder)[0].unlink()
    with MessageStore(str(folder), broker_version=version) as store:
        assert store.get_offset_in_queue_by_time("DirectTopic", 1, 1_700_000_000_000) == offset


def test_an_offset_by_time_that_needs_a_wrong_unit_is_an_error(tmp_path: Path) -> None:
    store = damaged(tmp_path, 0, struct.pack(">q", 77))
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == "OrderEvents" and fact["queueId"] == 0)
    wanted = [one for one in WORKLOAD.facts("msg") if (one["topic"], one["queueId"]) == ("OrderEvents", 0)]
    time = wanted[3]["storeTimestamp"]
    first = next(one["queueOffset"] for one in wanted if one["storeTimestamp"] >= time)
    with pytest.raises(CorruptQueueError, match="unit 3 "):
        store.get_offset_in_queue_by_time("OrderEvents", 0, time)
    assert store.get_offset_in_queue_by_time("OrderEvents", 0, time, read_log=True) == first
    assert store.get_offset_in_queue_by_time("OrderEvents", 0, 0) == fact["queueOffset"]


def test_a_queue_file_of_a_name_far_away_is_no_endless_walk(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    queue = folder / "consumequeue" / "OrderEvents" / "0"
    (queue / ("9" * 20)).write_bytes(b"\x5a" * 4000)
    wanted = [one["offset"] for one in WORKLOAD.facts("msg") if (one["topic"], one["queueId"]) == ("OrderEvents", 0)]
    with MessageStore(str(folder)) as store:
        assert offsets(store.get_message("OrderEvents", 0, 0, 1000, read_log=True)) == wanted
        assert store.get_max_offset_in_queue("OrderEvents", 0, read_log=True) == len(wanted)
        assert offsets(store.get_message("OrderEvents", 0, 0, 10)) == wanted[:10]


def test_light_message_queues_share_a_record(tmp_path: Path) -> None:
    """`INNER_MULTI_DISPATCH`: the record is of its own topic, and named by the unit of another queue."""
    writer = LogWriter(4096)
    offset = writer.append(1000, properties=b"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2INNER_MULTI_QUEUE_OFFSET\0010,0\2")
    writer.write(tmp_path)
    for topic, rows in (("%LMQ%b", 0), ("%LMQ%c", 1)):
        queue = tmp_path / "consumequeue" / topic / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(struct.pack(">qiq", offset, writer.next_offset - offset, 0).ljust(200, b"\0"))
        row: dict[str, Any]
        (row,) = MessageStore(str(tmp_path)).get_message(topic, 0, 0).to_pylist()
        assert (row["_corrupt_record"] is not None) == bool(rows)


def test_a_record_that_is_being_written_is_not_found(tmp_path: Path) -> None:
    """A broker copies a record into its file from the first byte to the last; here the last bytes are still zeros."""
    folder = WORKLOAD.unpack(tmp_path)
    end = WORKLOAD.facts("store")[0]["maxPhyOffset"]
    last = max(WORKLOAD.facts("msg"), key=lambda fact: int(fact["offset"]))
    segment = max((folder / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(end - int(segment.name) - 5)
        file.write(bytes(5))
    store = MessageStore(str(folder))
    assert store.get_max_phy_offset() == last["offset"]
    assert store.look_message_by_offset(last["offset"]).num_rows == 0
    queue = last["topic"], last["queueId"]
    assert store.get_max_offset_in_queue(*queue) == last["queueOffset"]


def rocksdb(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("CURRENT", "MANIFEST-000005", "000010.sst"):
        (folder / name).write_bytes(b"x")


def test_what_lies_in_rocksdb_is_named_and_not_misread(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    rocksdb(folder / "consumequeue")
    store = MessageStore(str(folder))
    assert store.look_message_by_offset(0).num_rows == 1
    assert store.get_max_phy_offset() == WORKLOAD.facts("store")[0]["maxPhyOffset"]
    for ask in (
        lambda: store.get_message("OrderEvents", 0, 0),
        lambda: store.get_max_offset_in_queue("OrderEvents", 0),
        lambda: metadata_tables.queues(store),
        lambda: metadata_tables.topics(store),
    ):
        with pytest.raises(UnsupportedStoreError, match=r"RocksDB does not open .* `spark-mq rebuild` builds"):
            ask()
    for name, table in (("consumerOffsets", metadata_tables.consumer_offsets), ("topics", metadata_tables.topics)):
        folder = WORKLOAD.unpack(tmp_path / name)
        rocksdb(folder / "config" / name)
        with pytest.raises(ConfigError, match=f"{name}: RocksDB does not open this database"):
            table(MessageStore(str(folder)))


def test_point_questions_import_neither_numba_nor_spark(described: Described) -> None:
    store = described(STORES["deleted-533"]).location
    code = (
        "import sys; from spark_mq import MessageStore; store = MessageStore(sys.argv[1]);"
        "assert store.look_message_by_offset(store.get_min_phy_offset()).num_rows == 1;"
        "assert store.get_message('user_activity', 0, 100, 3).num_rows == 3;"
        "assert store.get_max_phy_offset() == 545965;"
        "assert not {'numba', 'pyspark', 'pandas'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(store)], check=True)
