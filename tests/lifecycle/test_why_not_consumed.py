"""Why a group did not consume a message: what groups of real brokers received, and the steps of filters one by one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.errors import FilterError, OptionError
from spark_mq.format.bloom_filter import bit_map
from spark_mq.format.consume_queue_ext import ExtUnit
from spark_mq.lifecycle.why_not_consumed import FilterStep, NotConsumed, sql_verdict, tag_verdict, why_not_consumed
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.store.config.consumer_filters import ConsumerFilter
from spark_mq.store.log.log_range import LiveEnd
from tests.support.filtered_store import FILTERED, TAG_GROUP, TOPIC, received, records_of, stored_events, subscriptions
from tests.support.stores import STORES, Unpack, segment_files

BY_TAG = {NotConsumed.FILTERED_BY_TAG_HASH, NotConsumed.FILTERED_BY_TAG}


def test_a_group_received_exactly_what_is_called_consumed(unpacked: Unpack) -> None:
    events = stored_events()
    counted: Counter[NotConsumed] = Counter()
    with MessageStore(str(unpacked(FILTERED))) as store:
        records = {place[1:]: record for place, record in records_of(store).items() if place[0] == TOPIC}
        offsets = {(one.consumer_group, one.queue_id): one.offset for one in load_consumer_offsets(store.location)}
        for group, expression in subscriptions(events).items():
            got = received(events, group)
            for number, ((queue_id, queue_offset), record) in enumerate(records.items()):
                if number % 6:
                    continue
                tags = expression if group == TAG_GROUP else None
                found = why_not_consumed(store, group, TOPIC, queue_id, queue_offset, tags)
                assert (found.commit_log_offset, found.subscription) == (record.commit_log_offset, expression)
                counted[found.reason] += 1
                if queue_offset >= offsets[group, queue_id]:
                    assert found.reason == NotConsumed.NOT_YET
                    assert f"{queue_offset - offsets[group, queue_id]} message" in found.text or "next" in found.text
                elif (queue_id, queue_offset) in got:
                    assert found.reason == NotConsumed.CONSUMED
                elif group != TAG_GROUP:
                    assert found.reason == NotConsumed.FILTERED_BY_SQL
                else:
                    # The tags Aa and BB have the same hash.
                    is_same_hash = record.text_properties.get("TAGS") == "BB"
                    expected = NotConsumed.FILTERED_BY_TAG if is_same_hash else NotConsumed.FILTERED_BY_TAG_HASH
                    assert found.reason == expected
    assert set(counted) == {NotConsumed.CONSUMED, NotConsumed.NOT_YET, NotConsumed.FILTERED_BY_SQL, *BY_TAG}
    assert min(counted.values()) >= 3


def test_steps_of_tags() -> None:
    def step(subscription: str, tag: str | None, code: int | None) -> FilterStep | None:
        return tag_verdict(subscription, tag, code).step

    assert step("*", "x", 5) is None
    assert step("Aa || x", "Aa", 2112) is None
    assert step("Aa || x", "BB", 2112) == FilterStep.TAG
    assert step("Aa", "other", 1) == FilterStep.TAG_HASH
    # A tags code has 64 bits, and a broker looks at 32 of them.
    assert step("Aa", "Aa", 2112 + (1 << 40)) is None
    # A broker that does not find the extension unit sends the message.
    assert step("Aa", "other", None) == FilterStep.TAG
    assert step("Aa", None, 0) == FilterStep.TAG_HASH
    with pytest.raises(FilterError):
        step("||", "a", 1)


def test_steps_of_expressions() -> None:
    one = ConsumerFilter("g", "t", "a > 1", born_time=100, bit_count=16, bit_positions=(1, 9))

    def step(value: str, bits: tuple[int, ...] | None, stored: int = 200) -> FilterStep | None:
        ext = None if bits is None else ExtUnit(0, stored, bit_map(bits, 16))
        return sql_verdict(one, {"a": value}, ext).step

    assert step("2", (1, 9, 3)) is None
    assert step("2", (1,)) == FilterStep.BIT_MAP
    assert step("2", (1,), stored=100) is None  # the broker looks at bits of later messages only
    assert step("2", None) is None
    assert step("1", (1, 9)) == step("x", (1, 9)) == FilterStep.SQL
    assert sql_verdict(one, {"a": "2"}, ExtUnit(0, 200, bytes(4))).step is None
    assert sql_verdict(ConsumerFilter("g", "t", "a >"), {}, None).step is None
    assert "price is missing" in sql_verdict(ConsumerFilter("g", "t", "price > 5"), {}, None).text


def test_a_message_without_its_bits_is_not_sent(tmp_path: Path) -> None:
    path = FILTERED.unpack(tmp_path)
    got = min(place for place in received(stored_events(), "GID_rich") if place[1] > 20)
    for name in ("consumequeue_ext",):
        for file in (path / name / TOPIC / str(got[0])).iterdir():
            content = bytearray(file.read_bytes())
            at = 0
            while at + 20 < len(content) and content[at] == 0 and content[at + 1] in (20, 34):
                content[at + 20 : at + content[at + 1]] = bytes(content[at + 1] - 20)
                at += content[at + 1]
            file.write_bytes(content)
    with MessageStore(str(path)) as store:
        found = why_not_consumed(store, "GID_rich", TOPIC, *got)
    assert found.reason == NotConsumed.FILTERED_BY_BIT_MAP
    assert "[6, 37, 75]" in found.text


@pytest.mark.parametrize("name", ["workload-533", "workload-49x"])
def test_a_message_that_the_group_gave_up(name: str, unpacked: Unpack) -> None:
    store = STORES[name]
    dead = {fact["properties"]["ORIGIN_MESSAGE_ID"] for fact in store.facts("msg") if fact["topic"].startswith("%DLQ%")}
    sent = [fact for fact in store.facts("msg") if fact["topic"] == "RetryDemo"]
    with MessageStore(str(unpacked(store))) as opened:
        reasons = {
            fact["msgId"]: why_not_consumed(opened, "GID_failing", "RetryDemo", fact["queueId"], fact["queueOffset"])
            for fact in sent
        }
        other = why_not_consumed(opened, "GID_other", "RetryDemo", 0, 0)
    assert {id_ for id_, found in reasons.items() if found.reason == NotConsumed.DEAD} == dead
    assert dead
    assert other.reason == NotConsumed.NO_OFFSET
    assert "no file in config/ names a group GID_other" in "".join(other.unknown)


def test_a_message_in_retry(tmp_path: Path) -> None:
    """The group's retries, as if the log ended before its dead letters, or as if it had not consumed the last one."""
    path = STORES["workload-533"].unpack(tmp_path)
    file = path / "config" / "consumerOffset.json"
    text = file.read_text()
    assert '"%RETRY%GID_failing@GID_failing":{0:10}' in "".join(text.split())
    letters = [fact for fact in STORES["workload-533"].facts("msg") if fact["topic"].startswith("%DLQ%")]
    delayed = [fact for fact in STORES["workload-533"].facts("msg") if fact["offset"] < letters[0]["offset"]]
    retry = [fact["queueOffset"] for fact in delayed if fact["topic"] == "%RETRY%GID_failing"]
    with MessageStore(str(path), live_end=LiveEnd(letters[0]["offset"])) as store:
        consumed = why_not_consumed(store, "GID_failing", "RetryDemo", 0, 0)
        assert consumed.reason == NotConsumed.CONSUMED
        assert "past the last retry" in consumed.text
        file.write_text(text.replace("0:10", f"0:{max(retry)}"))
        waiting = [why_not_consumed(store, "GID_failing", "RetryDemo", 0, offset) for offset in range(5)]
        assert {found.reason for found in waiting} == {NotConsumed.CONSUMED, NotConsumed.IN_RETRY}
        file.unlink()
        file.with_name("consumerOffset.json.bak").unlink(missing_ok=True)
        found = why_not_consumed(store, "GID_failing", "RetryDemo", 0, 0)
        assert found.reason == NotConsumed.IN_RETRY
        assert any("its offset" in text for text in found.unknown)


def test_a_message_that_is_not_there(unpacked: Unpack, tmp_path: Path) -> None:
    with MessageStore(str(unpacked(FILTERED))) as store:
        found = why_not_consumed(store, "GID_rich", TOPIC, 0, 10_000)
        assert (found.reason, found.commit_log_offset) == (NotConsumed.OUT_OF_RANGE, None)
        found = why_not_consumed(store, "GID_rich", "FilterDem", 0, 0)
        assert f"similar topics: {TOPIC}" in found.text
        with pytest.raises(OptionError, match="-1 is negative"):
            why_not_consumed(store, "GID_rich", TOPIC, 0, -1)
        with pytest.raises(OptionError, match="two kinds"):
            why_not_consumed(store, "GID_rich", TOPIC, 0, 0, tags="a", expression="a = 1")
        with pytest.raises(OptionError, match="write the whole condition"):
            why_not_consumed(store, "GID_rich", TOPIC, 0, 0, expression="a = 1 b = 2")
    deleted = STORES["deleted-533"]
    queue = next(fact for fact in deleted.facts("queue") if fact["min"] > 0)
    with MessageStore(str(unpacked(deleted))) as store:
        found = why_not_consumed(store, "g", queue["topic"], queue["queueId"], queue["min"] - 1)
    assert found.reason == NotConsumed.EXPIRED
    assert f"begins at offset {queue['min']}" in found.text
    # A broker of 4.9 offers the offsets of units that are left of expired messages.
    folder = Path(shutil.copytree(unpacked(STORES["workload-49x"]), tmp_path / "store"))
    segment_files(folder)[0].unlink()
    (folder / f"consumequeue/SequenceDemo/0/{0:020d}").unlink()
    with MessageStore(str(folder)) as store:
        assert store.get_min_offset_in_queue("SequenceDemo", 0) == 0
        for topic, queue_id in (("DirectTopic", 1), ("SequenceDemo", 0)):
            found = why_not_consumed(store, "g", topic, queue_id, 3)
            assert found.reason == NotConsumed.EXPIRED
            assert "the log begins at 131072" in found.text


def test_files_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    path = FILTERED.unpack(tmp_path)
    for file in path.glob("config/consumerFilter.json*"):
        file.write_text("{")
    shutil.rmtree(path / "consumequeue_ext")
    with MessageStore(str(path)) as store:
        found = why_not_consumed(store, "GID_rich", TOPIC, 0, 3)
    assert found.subscription is None
    assert any("consumerFilter.json" in text for text in found.unknown)


def test_the_command(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(unpacked(FILTERED))
    queue_id, queue_offset = min(received(stored_events(), TAG_GROUP))
    place = [TOPIC, str(queue_id), str(queue_offset)]
    assert main(["why-not-consumed", path, TAG_GROUP, *place, "--tag", "Aa || paid", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["reason"], row["queue_offset"]) == ("CONSUMED", queue_offset)
    assert row["store_timestamp"].endswith("Z")
    assert main(["why-not-consumed", path, TAG_GROUP, *place, "--tag", "other"]) == 0
    assert capsys.readouterr().out.startswith("FILTERED_BY_TAG_HASH: it is with")
    assert main(["why-not-consumed", path, TAG_GROUP, TOPIC, "0", "5000"]) == 3
    assert main(["why-not-consumed", path, TAG_GROUP, *place, "--tag", "a", "--filter", "b = 1"]) == 2
    assert "--tag and --filter" in capsys.readouterr().err
