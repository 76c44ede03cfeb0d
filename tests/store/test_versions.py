"""Stores of many versions of the broker: the answers are those of that version's own classes."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import OptionError
from tests.support.in_process import read_rows
from tests.support.stores import SAME, RealStore, Unpack, usual_stores, version_stores
from tests.support.verified import check, grave

each_version = pytest.mark.parametrize("store", version_stores("p"))
each_store = pytest.mark.parametrize(
    "store", [*(pytest.param(store, id=str(store)) for store in usual_stores()), *version_stores("p")]
)


@pytest.fixture
def opened(store: RealStore, described: Callable[[RealStore], MessageStore]) -> Iterator[MessageStore]:
    path, conf = described(store).location.path, str(store.broker_conf)
    with MessageStore(path, broker_version=store.broker_version, broker_conf=conf) as found:
        yield found


@pytest.mark.parametrize(
    ("version", "said"), [("5.6.0", "newer than 5.5.1"), ("5.3.4", "only those of 5.3.3 and 5.4.0")]
)
def test_a_version_whose_rules_are_not_known_is_said(version: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.warns(UserWarning, match=said), MessageStore(str(tmp_path), broker_version=version):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in ("4.9", "5", "5.1.0", "5.5.1"):
            MessageStore(str(tmp_path), broker_version=known).close()


@each_version
def test_rows_are_the_messages_of_the_broker(store: RealStore, unpacked: Unpack) -> None:
    rows = sorted(read_rows(path=str(unpacked(store))), key=lambda row: int(row["commit_log_offset"]))
    for row, fact in zip(rows, sorted(store.facts("msg"), key=lambda fact: int(fact["offset"])), strict=True):
        assert [row[ours] for ours in SAME] == [fact[theirs] for theirs in SAME.values()]
        assert round(row["store_timestamp"].timestamp() * 1000) == fact["storeTimestamp"]
        assert hashlib.md5(row["body"]).hexdigest() == fact["bodyMd5"]
        assert dict(row["properties"]) == fact["properties"]
        assert row["keys"] == (None if fact["keys"] is None else fact["keys"].split())


@each_version
def test_verify_finds_nothing(store: RealStore, unpacked: Unpack) -> None:
    assert grave(check(unpacked(store), store.broker_conf)[1]) == []


@each_store
def test_log_and_queues_begin_and_end_where_the_broker_says(store: RealStore, opened: MessageStore) -> None:
    (fact,) = store.facts("store")
    assert (opened.get_min_phy_offset(), opened.get_max_phy_offset()) == (fact["minPhyOffset"], fact["maxPhyOffset"])
    queues = {(fact["topic"], fact["queueId"]): (fact["min"], fact["max"]) for fact in store.facts("queue")}
    assert set(opened.queues) == set(queues)
    for queue, ends in queues.items():
        assert (opened.get_min_offset_in_queue(*queue), opened.get_max_offset_in_queue(*queue)) == ends, queue


@each_store
@pytest.mark.parametrize(("kind", "boundary_type"), [("offsetByTime", "LOWER"), ("offsetByTimeUpper", "UPPER")])
def test_offsets_by_time_are_those_of_the_version(
    store: RealStore, kind: str, boundary_type: str, opened: MessageStore
) -> None:
    for fact in store.facts("queue"):
        for time, offset in fact[kind] or []:
            found = opened.get_offset_in_queue_by_time(fact["topic"], fact["queueId"], time, boundary_type)
            assert found == offset, (fact["topic"], fact["queueId"], time)


@each_version
def test_without_a_version_an_offset_by_time_is_right_or_an_error(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    """A store without `config/` and the other files that show a version is not taken for one of 5 in silence."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("commitlog", "consumequeue"):
        (bare / name).symlink_to(unpacked(store) / name)
    for path in (unpacked(store), bare):
        answered = refused = 0
        with MessageStore(str(path)) as found:
            for fact in store.facts("queue"):
                for time, offset in fact["offsetByTime"]:
                    try:
                        got = found.get_offset_in_queue_by_time(fact["topic"], fact["queueId"], time)
                    except OptionError as error:
                        said, refused = str(error), refused + 1
                        assert f"{offset:,}" in said.partition(": ")[0]
                        continue
                    assert got == offset
                    answered += 1
        assert answered
        assert path != bare or refused


@each_version
def test_get_message_answers_as_the_version(store: RealStore, opened: MessageStore) -> None:
    sizes = {fact["offset"]: fact["size"] for fact in store.facts("msg")}
    for fact in store.facts("get"):
        if fact["status"] == "MESSAGE_WAS_REMOVING":
            assert fact["topic"] == "MovedQueue"  # asked for a pre-blank unit, as in `test_differences`
            continue
        for read_log in (False, True):
            got = opened.get_message_result(
                fact["topic"], fact["queueId"], fact["offset"], fact["maxNum"], read_log=read_log
            )
            found = got.messages["commit_log_offset"].to_pylist()
            assert (got.status, found[: len(fact["offsets"])]) == (fact["status"], fact["offsets"]), (fact, read_log)
            if not (read_log and fact["topic"] == "MovedQueue"):  # the log has no message at its pre-blank units
                assert (got.min_offset, got.max_offset) == (fact["minOffset"], fact["maxOffset"])
            assert set(found) <= sizes.keys()


@each_store
def test_messages_are_found_by_offset_and_by_id(store: RealStore, opened: MessageStore) -> None:
    for fact in store.facts("msg"):
        (row,) = opened.look_message_by_offset(fact["offset"]).to_pylist()
        assert (row["offset_message_id"], row["topic"]) == (fact["msgId"], fact["topic"])
        assert (row["queue_id"], row["queue_offset"]) == (fact["queueId"], fact["queueOffset"])
        assert hashlib.md5(row["body"]).hexdigest() == fact["bodyMd5"]
        assert opened.look_message_by_id(fact["msgId"]).to_pylist() == [row]
        assert opened.pickup_store_timestamp(fact["offset"], fact["size"]) == fact["storeTimestamp"]


@each_version
def test_look_ups_by_key_answer_as_the_version(store: RealStore, opened: MessageStore) -> None:
    for fact in store.facts("query"):
        answer = opened.find_as_broker(fact["topic"], fact["key"], fact["maxNum"], fact["begin"], fact["end"])
        assert [record.commit_log_offset for record in answer.records] == fact["offsets"], fact


@each_version
def test_an_id_of_another_topic_is_no_unique_key(store: RealStore, opened: MessageStore) -> None:
    first = store.facts("msg")[0]
    other = next(fact for fact in store.facts("msg") if fact["topic"] != first["topic"])
    for any_host in (False, True):
        own = opened.query_message_by_unique_key(other["topic"], other["msgId"], any_host)
        assert own["commit_log_offset"].to_pylist() == [other["offset"]]
        assert opened.query_message_by_unique_key(first["topic"], other["msgId"], any_host).num_rows == 0
    assert f"a message of topic {other['topic']}" in opened.why_no_unique_key(first["topic"], other["msgId"])
