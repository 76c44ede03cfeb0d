"""Stores out of the messages of stores that real brokers wrote: the brokers' bytes again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_mq.errors import InvalidMessageError, OptionError, OutputExistsError
from spark_mq.format.index_file import HEADER
from spark_mq.io.location import Location
from spark_mq.restorer.new_store import restore_index_names
from tests.support.restored import delivered, message_batches, restore_here
from tests.support.stores import OWN_STORES, RealStore, tree_of, usual_stores
from tests.support.verified import check, grave

KINDS = ("workload", "crc", "deleted", "visible", "edge")
SOUND = [store for store in usual_stores() if store.name.startswith(KINDS)]


@pytest.mark.parametrize("packed", SOUND, ids=str)
def test_all_messages_give_the_broker_s_files(packed: RealStore, tmp_path: Path) -> None:
    store, new = packed.unpack(tmp_path), tmp_path / "new"
    report = restore_here(store, new, packed.broker_conf, broker_version=packed.broker_version)
    assert report.messages == len(packed.facts("msg"))
    assert (report.gaps, report.mode) == (0, "faithful")
    assert tree_of(new / "commitlog") == tree_of(store / "commitlog")
    judge = packed.unpack(tmp_path, "rebuilt") if packed.has("rebuilt") else store
    queues = tree_of(new / "consumequeue")
    # Queues whose messages have all expired are in the source's own folder only.
    expired = {name: queues.pop(name) for name in queues.keys() - tree_of(judge / "consumequeue").keys()}
    assert expired.items() <= tree_of(store / "consumequeue").items()
    assert queues == tree_of(judge / "consumequeue")
    index, judged = tree_of(new / "index"), tree_of(judge / "index")
    assert list(index.values()) == list(judged.values())
    assert judge != store or list(index) == list(judged)
    _, findings = check(new, packed.broker_conf)
    assert grave(findings) == []
    assert not list(tmp_path.glob("*.restoring"))


def unpacked(name: str, folder: Path) -> tuple[RealStore, Path]:
    packed = RealStore(name, OWN_STORES)
    return packed, packed.unpack(folder)


def log_of(store: Path) -> bytes:
    """The segments of a store, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


def test_messages_that_are_left_out_leave_records_that_no_queue_has(tmp_path: Path) -> None:
    packed, store = unpacked("workload-533", tmp_path)
    new = tmp_path / "new"

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Two of three queues, and a part of each; nothing of the first three segments."""
        offsets = batch["commit_log_offset"].to_numpy()
        is_kept = (batch["queue_id"].to_numpy() % 3 != 1) & (offsets % 5 > 0)
        return batch.filter(pa.array(is_kept & ~np.isin(offsets // (128 << 10), (0, 1, 2))))

    report = restore_here(store, new, packed.broker_conf, keep, where="not all")
    kept = [row for batch in message_batches(store) for row in keep(batch).to_pylist()]
    restored = [row for batch in message_batches(new) for row in batch.to_pylist()]
    left_out = [row for row in restored if row["topic"] == "SPARK_MQ_LEFT_OUT"]
    assert [row for row in restored if row not in left_out] == kept
    assert report.messages == len(kept)
    assert 0 < report.gaps <= len(left_out)
    old_log, new_log, base = log_of(store), log_of(new), int(min((new / "commitlog").iterdir()).name)
    for row in kept:
        start, stop = row["commit_log_offset"], row["commit_log_offset"] + row["store_size"]
        assert new_log[start - base : stop - base] == old_log[start:stop]
    for topic in {row["topic"] for row in kept}:
        assert (new / "consumequeue" / topic).is_dir()
    assert not (new / "consumequeue" / "SPARK_MQ_LEFT_OUT").exists()
    _, findings = check(new, packed.broker_conf)
    assert grave(findings) == []
    assert "QUEUE_LEFT_OUT" in {finding.code for finding in findings}
    assert [path.name for path in sorted((new / "commitlog").iterdir())] == [
        f"{n * (128 << 10):020d}" for n in range(1, 5)
    ]


def test_a_log_from_0_on_cannot_say_which_messages_were_left_out(tmp_path: Path) -> None:
    packed, store = unpacked("workload-533", tmp_path)
    new = tmp_path / "new"
    conf = packed.broker_conf
    report = restore_here(store, new, conf, lambda batch: batch.slice(0, batch.num_rows // 2), where="a half")
    assert [note for note in report.notes if "QUEUE_NO_MESSAGE" in note and "--renumber" in note]
    _, findings = check(new, packed.broker_conf)
    assert {finding.code for finding in grave(findings)} <= {"QUEUE_NO_MESSAGE"}


def test_new_offsets_follow_each_other(tmp_path: Path) -> None:
    packed, store = unpacked("workload-533", tmp_path)
    new = tmp_path / "new"

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(batch["commit_log_offset"].to_numpy() > 200_000))

    report = restore_here(store, new, packed.broker_conf, keep, renumber=True)
    old = [row for batch in message_batches(store) for row in keep(batch).to_pylist()]
    rows = [row for batch in message_batches(new) for row in batch.to_pylist()]
    changed = ("commit_log_offset", "queue_offset", "prepared_transaction_offset")
    same = [name for name in rows[0] if name not in changed]
    assert [[row[name] for name in same] for row in rows] == [[row[name] for name in same] for row in old]
    assert report.mode == "compact"
    counts: dict[tuple[str, int], int] = {}
    for row, before in zip(rows, old, strict=True):
        queue = (row["topic"], row["queue_id"])
        if row["sys_flag"] & 0xC in (0x4, 0xC):
            assert row["queue_offset"] == 0
            continue
        expected = counts.get(queue, 0) if row["topic"] != "RMQ_SYS_TRANS_HALF_TOPIC" else before["queue_offset"]
        assert row["queue_offset"] == expected
        counts[queue] = expected + 1
    _, findings = check(new, packed.broker_conf)
    assert grave(findings) == []


def test_two_messages_of_one_place_are_an_error_and_leave_nothing(tmp_path: Path) -> None:
    packed, store = unpacked("crc-533", tmp_path)
    with pytest.raises(InvalidMessageError, match=r"both claim .*--renumber"):
        restore_here(store, tmp_path / "new", packed.broker_conf, lambda batch: pa.concat_batches([batch, batch]))
    assert sorted(path.name for path in tmp_path.iterdir()) == [store.name]


def test_segments_of_another_size_are_an_error_that_says_so(tmp_path: Path) -> None:
    _, store = unpacked("workload-533", tmp_path)
    conf = tmp_path / "other.conf"
    conf.write_text("mappedFileSizeCommitLog=50000\nmaxHashSlotNum=100\nmaxIndexNum=500\n")
    with pytest.raises(InvalidMessageError, match=r"mappedFileSizeCommitLog"):
        restore_here(store, tmp_path / "new", conf)


def test_a_store_that_exists_is_not_replaced(tmp_path: Path) -> None:
    packed, store = unpacked("crc-533", tmp_path)
    before = tree_of(store)
    with pytest.raises(OutputExistsError, match="--append"):
        restore_here(store, store, packed.broker_conf)
    assert tree_of(store) == before


def test_consumers_go_on_where_they_were(tmp_path: Path) -> None:
    """Two messages of PaymentLog/0 are left out, which its group has consumed; all other offsets stay."""
    packed, store = unpacked("workload-533", tmp_path)
    conf, config = packed.broker_conf, store / "config"
    before = (config / "consumerOffset.json").read_text().replace("RetryDemo@GID_failing", "PaymentLog@g")
    (config / "consumerOffset.json").write_text(before)

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        return batch.filter(
            pa.array([row["topic"] != "PaymentLog" or row["queue_offset"] not in (0, 3) for row in rows])
        )

    report = restore_here(store, tmp_path / "new", conf, keep, renumber=True)
    offsets = (tmp_path / "new/config/consumerOffset.json").read_text()
    assert '"PaymentLog@g":{0:3\n' in offsets
    assert '"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:36\n' in offsets
    assert '"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:3\n' in offsets
    assert "{1:14,2:4,18:0\n" in (tmp_path / "new/config/delayOffset.json").read_text()
    (config / "delayOffset.json").unlink()
    (config / "delayOffset.json.bak").unlink()
    assert not any("delayOffset.json" in note for note in report.notes)
    report = restore_here(store, tmp_path / "part", conf, keep, where="a part")
    part = (tmp_path / "part/config/consumerOffset.json").read_text()
    assert part.partition('"offsetTable"')[1:] == before.partition('"offsetTable"')[1:]
    assert any("no config/delayOffset.json: a broker delivers all messages" in note for note in report.notes)


@pytest.mark.parametrize(
    ("name", "target"), [("workload-533", "deleted-533"), ("crc-533", "workload-533"), ("workload-49x", "stale-49x")]
)
def test_delivered_messages_are_appended_to_another_store(tmp_path: Path, name: str, target: str) -> None:
    _, source = unpacked(name, tmp_path / "source")
    packed, store = unpacked(target, tmp_path)
    before = [row for batch in message_batches(store) for row in batch.to_pylist()]
    appended = [row for batch in message_batches(source) for row in delivered(batch).to_pylist()]
    report = restore_here(source, store, packed.broker_conf, delivered, append=True, only_delivered=True)
    rows = [row for batch in message_batches(store) for row in batch.to_pylist()]
    assert rows[: len(before)] == before
    assert report.messages == len(rows) - len(before) == len(appended)
    same = ("topic", "queue_id", "born_timestamp_millis", "stored_body", "sys_flag", "flag", "body_crc")
    new = rows[len(before) :]
    assert [[row[column] for column in same] for row in new] == [[row[column] for column in same] for row in appended]
    assert (np.diff([row["store_timestamp_millis"] for row in rows]) >= 0).all()
    _, findings = check(store, packed.broker_conf)
    assert [finding for finding in grave(findings) if finding.code != "ABORT"] == []


def test_half_messages_cannot_be_appended(tmp_path: Path) -> None:
    _, source = unpacked("workload-533", tmp_path / "source")
    packed, store = unpacked("crc-533", tmp_path)
    before = tree_of(store)
    with pytest.raises(OptionError, match="--only-delivered"):
        restore_here(source, store, packed.broker_conf, append=True)
    assert tree_of(store) == {**before, "lock": b"lock"}


def write_index(folder: Path, files: dict[str, int]) -> None:
    (folder / "index").mkdir()
    for name, begin in files.items():
        (folder / "index" / name).write_bytes(HEADER.pack(1, 1, begin, begin, 0, 1))


def begins(folder: Path) -> dict[str, int]:
    return {path.name: HEADER.unpack(path.read_bytes())[2] for path in sorted((folder / "index").iterdir())}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({10: "20250101000000005", 20: "20250101000000010"}, {"20250101000000005": 10, "20250101000000010": 20}),
        # the new name of the first file is the old name of the second one
        ({10: "20250101000000002", 20: "20250101000000009"}, {"20250101000000002": 10, "20250101000000009": 20}),
        ({20: "20250101000000009"}, {"20250101000000001": 10, "20250101000000009": 20}),
        # another order, or two files of one name
        ({10: "20250101000000007"}, {"20250101000000001": 10, "20250101000000002": 20}),
        ({10: "20250101000000002"}, {"20250101000000001": 10, "20250101000000002": 20}),
        ({}, {"20250101000000001": 10, "20250101000000002": 20}),
    ],
)
def test_files_get_the_names_that_keep_their_order(
    tmp_path: Path, names: dict[int, str], expected: dict[str, int]
) -> None:
    write_index(tmp_path, {"20250101000000001": 10, "20250101000000002": 20})
    old = begins(tmp_path)
    count = restore_index_names(Location.resolve(str(tmp_path)), names)
    assert begins(tmp_path) == expected
    assert count == len(set(expected) - set(old)) + sum(
        old.get(name, begin) != begin for name, begin in expected.items()
    )
