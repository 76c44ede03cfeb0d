"""Two replicas of a broker's log: the first record at which they part, damage of one or both, and what only one has."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest

from spark_mq import compare, repair_from
from spark_mq.cli.exit_status import DAMAGED, FOUND, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from spark_mq.format.record import Record
from spark_mq.repairer.comparison import Comparison, PartState, compare_logs
from spark_mq.repairer.log_edit import cut_log
from spark_mq.store import metadata_tables
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from tests.support.damages import body_at, flip
from tests.support.local_objects import local_objects
from tests.support.replicas import blank_after_last_record, live_end, log_of, messages_from, part_at, rewritten
from tests.support.stores import OWN_STORES, RealStore, Unpack, usual_stores
from tests.support.verified import Bench, check, grave

SEGMENT = 131072
STORE, REPLICA, BOTH, DIFFERENT = PartState


@pytest.fixture
def pair(unpacked: Unpack, tmp_path: Path) -> tuple[Bench, Bench]:
    path = unpacked(RealStore("workload-533", OWN_STORES))
    return Bench.of(path, "workload-533", tmp_path / "a"), Bench.of(path, "workload-533", tmp_path / "b")


def compared(pair: tuple[Bench, Bench]) -> Comparison:
    """The comparison, of which that of the exchanged stores must be the mirror image; nothing is changed."""
    before = [log_of(bench.path) for bench in pair]
    found, mirrored = (compare(*map(str, paths)) for paths in ([b.path for b in pair], [b.path for b in pair[::-1]]))
    exchanged = {STORE: REPLICA, REPLICA: STORE}
    assert [(p.start, p.stop, exchanged.get(p.state, p.state), p.of_replica) for p in mirrored.parts] == [
        (p.start, p.stop, p.state, p.of_store) for p in found.parts
    ]
    assert (mirrored.store.only, mirrored.has_parted) == (found.replica.only, found.has_parted)
    assert [log_of(bench.path) for bench in pair] == before
    return found


def parts(found: Comparison) -> list[tuple[int, int, PartState]]:
    return [(part.start, part.stop, part.state) for part in found.parts]


def record_range(bench: Bench, offset: int) -> tuple[int, int]:
    return offset, offset + bench.record(offset).size


def an_offset(bench: Bench, segment: int, number: int = 20) -> int:
    found = [int(fact["offset"]) for fact in bench.messages if fact["bodyLenRaw"] > 20]
    return sorted(offset for offset in found if offset >= segment * SEGMENT)[number]


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_store_is_its_own_replica(store: RealStore, unpacked: Unpack) -> None:
    path = str(unpacked(store))
    found = compare(path, path)
    assert (found.parts, found.store.only, found.replica.only, found.is_same) == ((), (), (), True)
    assert found.compared_bytes == found.store.end - found.store.start > 0


def test_a_slave_that_lags_and_a_master_whose_oldest_segment_expired(pair: tuple[Bench, Bench]) -> None:
    store, replica = pair
    cut = an_offset(store, 3)
    cut_log(str(store.path), cut, apply=True)
    (replica.path / "commitlog" / f"{0:020d}").unlink()
    found = compared(pair)
    assert (found.is_same, found.compared_bytes) == (True, cut - SEGMENT)
    for side, facts, start, stop in (
        (found.store, [fact for fact in store.messages if fact["offset"] < SEGMENT], 0, SEGMENT),
        (found.replica, messages_from(replica, cut), cut, live_end(replica)),
    ):
        (only,) = side.only
        topics = dict(Counter(fact["topic"] for fact in facts))
        assert (only.start, only.stop, only.topics, only.messages) == (start, stop, topics, len(facts))


def test_old_records_after_the_end_are_not_of_the_log(unpacked: Unpack, tmp_path: Path) -> None:
    """A recovery cut one log and did not clear the bytes; the other log goes on with newer messages."""
    path = unpacked(RealStore("stale-533", OWN_STORES))
    store, replica = (Bench.of(path, "stale-533", tmp_path / name) for name in "ab")
    end, size = live_end(store), store.setting("mappedFileSizeCommitLog")
    last = store.record(int(max(fact["offset"] for fact in store.messages)))
    newer = Record(b"T", 0, 0, end, b"newer" * 9, store_timestamp=last.store_timestamp + 9, store_host=last.store_host)
    data = newer.encode()
    replica.write(*replica.segment(end), data + bytes(size - end % size - len(data)))
    found = compared((store, replica))
    assert (found.store.end, found.replica.end, parts(found)) == (end, end + len(data), [])
    assert [(only.start, only.topics) for only in found.replica.only] == [(end, {"T": 1})]


@pytest.mark.parametrize("skipped", [1, 3])
def test_the_first_record_at_which_two_masters_part(pair: tuple[Bench, Bench], skipped: int) -> None:
    """Each was a master for a time. Damage after that point is of one log only, and nobody's to give."""
    store, replica = pair
    cut = an_offset(store, 2)
    part_at(replica, cut, skipped)
    flip(store, cut, body_at(store, an_offset(store, 2, 25)))
    found = compared(pair)
    assert found.has_parted
    (part,) = found.parts
    assert (part.start, part.state) == (cut, DIFFERENT)
    own, other, *_ = (messages_from(store, cut)[number] for number in (0, skipped))
    for row, fact in ((part.of_store, own), (part.of_replica, other)):
        assert row is not None
        names = (row["topic"], row["queue_id"], row["queue_offset"], row["unique_key"], row["commit_log_offset"])
        assert names == (fact["topic"], fact["queueId"], fact["queueOffset"], fact["uniqKey"], cut)
    assert [(one.start, one.stop) for one in found.store.only] == [(cut, live_end(store))]
    assert found.replica.only[0].start == cut
    assert found.verdict == f"the logs part at commit log offset {cut}"
    assert found.compared_bytes == cut


def test_one_record_that_differs_and_is_sound_in_both(pair: tuple[Bench, Bench]) -> None:
    """The logs agree after it; what is damaged elsewhere is still found."""
    store, replica = pair
    offset, other = an_offset(store, 1), an_offset(store, 3)
    born = rewritten(replica, offset, born_timestamp=5).born_timestamp
    assert store.record(offset).born_timestamp != born
    flip(replica, other, body_at(replica, other))
    found = compared(pair)
    assert (found.has_parted, found.verdict) == (False, "1 part damaged in REPLICA; 1 part different")
    assert parts(found) == [(*record_range(store, offset), DIFFERENT), (*record_range(store, other), REPLICA)]


def test_damage_of_each_kind(pair: tuple[Bench, Bench]) -> None:
    store, replica = pair
    crc, magic, both, last = an_offset(store, 0), an_offset(store, 0, 40), an_offset(store, 1), live_end(store)
    final = max(int(fact["offset"]) for fact in store.messages)
    flip(store, crc, body_at(store, crc) + 2)
    flip(replica, magic, 5)
    flip(store, both, 4)
    flip(replica, both, body_at(replica, both))
    flip(store, final, 6)  # the log seems to end before it
    filler, at = blank_after_last_record(store, 0)
    store.write(filler, at + 8, b"old bytes")
    head, start = blank_after_last_record(store, 1)
    store.flip(head, start + 5)
    (store.path / "commitlog" / f"{2 * SEGMENT:020d}").unlink()
    third = replica.path / "commitlog" / f"{3 * SEGMENT:020d}"
    third.write_bytes(third.read_bytes()[:70_000])
    found = compared(pair)
    whole = [part for part in found.parts if part.state == REPLICA and part.start >= SEGMENT]
    assert [(part.stop, part.file) for part in whole] == [(4 * SEGMENT, f"commitlog/{3 * SEGMENT:020d}")]
    assert 3 * SEGMENT + 69_000 < whole[0].start <= 3 * SEGMENT + 70_000
    assert [part for part in parts(found) if part[0] != whole[0].start] == [
        (*record_range(store, crc), STORE),
        (*record_range(store, magic), REPLICA),
        (*record_range(replica, both), BOTH),
        (SEGMENT + start, 2 * SEGMENT, STORE),
        (2 * SEGMENT, 3 * SEGMENT, STORE),
        (final, last, STORE),
    ]
    assert [part.records for part in found.parts if part.start == 2 * SEGMENT] == [
        sum(2 * SEGMENT <= fact["offset"] < 3 * SEGMENT for fact in store.messages)
    ]


def test_a_lost_segment_that_is_damaged_in_the_other_log(pair: tuple[Bench, Bench]) -> None:
    """Its other records are sound, and nothing says that the logs part."""
    store, replica = pair
    (store.path / "commitlog" / f"{SEGMENT:020d}").unlink()
    flip(replica, an_offset(replica, 1), 5)
    found = compared(pair)
    assert parts(found) == [(SEGMENT, 2 * SEGMENT, BOTH)]
    assert found.compared_bytes == live_end(store) - SEGMENT


def test_a_segment_that_neither_has(pair: tuple[Bench, Bench]) -> None:
    for bench in pair:
        (bench.path / "commitlog" / f"{SEGMENT:020d}").unlink()
    assert parts(compared(pair)) == [(SEGMENT, 2 * SEGMENT, BOTH)]


def test_a_replica_on_an_object_store(pair: tuple[Bench, Bench]) -> None:
    store, replica = pair
    offset = an_offset(store, 2)
    flip(store, offset, body_at(store, offset))
    found = compare_logs(local_objects(store.path), local_objects(replica.path))
    assert parts(found) == [(*record_range(replica, offset), STORE)]


def test_the_command(pair: tuple[Bench, Bench], unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    store, replica = pair
    words = ["compare", str(store.path), str(replica.path)]
    (store.path / "epochFileCheckpoint").write_text("2\n0\n1-0\n2-131072\n")
    (replica.path / "epochFileCheckpoint").write_text("2\n0\n1-0\n3-131072\n")
    assert main(words) == FOUND
    text = capsys.readouterr().out
    assert "a slave cuts its log at 131072 before it follows" in text
    assert text.endswith("verdict: the same, wherever both logs have bytes\n")
    offset = an_offset(store, 2)
    flip(store, offset, body_at(store, offset))
    assert main(words) == DAMAGED
    text = capsys.readouterr().out
    (fact,) = (fact for fact in store.messages if fact["offset"] == offset)
    assert f"queue offset {fact['queueOffset']}, message id {fact['msgId']}, unique key {fact['uniqKey']}" in text
    assert f"next: `spark-mq repair {store.path} --from {replica.path}`" in text
    assert main([*words, "--json"]) == DAMAGED
    report = json.loads(capsys.readouterr().out)
    assert [part["state"] for part in report["parts"]] == ["damaged in STORE"]
    assert report["verdict"] == "1 part damaged in STORE"
    others = unpacked(RealStore("stale-533", OWN_STORES))
    assert main(["compare", str(store.path), str(others)]) == NOT_UNDERSTOOD
    assert "they are not replicas of one log" in capsys.readouterr().err


def test_logs_without_a_common_offset(pair: tuple[Bench, Bench]) -> None:
    store, replica = pair
    for number in range(3):
        (store.path / "commitlog" / f"{number * SEGMENT:020d}").unlink()
    shutil.rmtree(store.path / "consumequeue")
    cut_log(str(replica.path), 2 * SEGMENT, apply=True)
    found = compared(pair)
    assert found.verdict == "the logs have no commit log offset in common"
    assert [(one.start, one.stop) for one in found.replica.only] == [(0, 2 * SEGMENT)]


PAIR = RealStore("pair-533", OWN_STORES / "replicas")


def test_a_pair_in_controller_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The new master `b` wrote into its `epochFileCheckpoint` where it began, and there `a` cut its log."""
    pair = PAIR.unpack(tmp_path)
    epochs = (pair / "b/epochFileCheckpoint").read_text().split()
    began = int(epochs[-1].partition("-")[2])
    found = compare(str(pair / "a"), str(pair / "b"))
    (part,) = found.parts
    assert (found.has_parted, part.start, found.consistent_offset) == (True, began, began)
    only = [(side.only[0].start, side.only[0].topics) for side in (found.store, found.replica)]
    assert only == [(began, {"SequenceDemo": 8}), (began, {"SequenceDemo": 20})]
    assert not repair_from(str(pair / "a"), str(pair / "b"), apply=True).is_complete
    assert compare(str(pair / "a"), str(pair / "b")) == replace(found, seconds=ANY)
    with MessageStore(str(pair / "b")) as store:
        rows = metadata_tables.epochs(store).to_pylist()
    assert [(row["epoch"], row["start_offset"], row["problem"]) for row in rows] == [(1, 0, None), (5, began, None)]
    for side in ("a", "b"):
        assert next_recovery(str(pair / side), "5.3.3", str(PAIR.broker_conf)).loses_no_message
        assert grave(check(pair / side, PAIR.broker_conf)[1]) == []
        conf = ["--broker-conf", str(PAIR.broker_conf)]
        for command in (["check", "--expect-version", "5.3.3"], ["state"], ["recover", "--as", "5.3.3"]):
            main([*command, str(pair / side), *conf])
            assert f"`spark-mq compare {pair / side} MASTER` says" in capsys.readouterr().out
