"""Look-ups over consume queues, index files and a checkpoint that are not what the broker wrote: no row is lost.

The judge is what the Java classes said of each message of the log, filtered here. Every way to a message is asked:
options and conditions of the data source (SQL becomes conditions), `MessageStore`, and the commands. The log itself is
sound.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.errors import CorruptQueueError
from spark_mq.source.predicate import Condition, Operator, encode_conditions
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS
from tests.support.broken_trees import BrokenTrees
from tests.support.in_process import read_rows, row_offsets
from tests.support.index_stores import layout_of
from tests.support.plans import facts_of
from tests.support.soak import SOAKS
from tests.support.stores import Fact, RealStore, Unpack, index_keys, usual_stores

CASES = 2000 if SOAKS else 36
SINGLE_BITS = 648 if SOAKS else 27
QUESTIONS = 12
IN_QUEUES = (0, 8)
"""Transaction types NONE and COMMIT."""


def is_queued(fact: Fact) -> bool:
    return fact["sysFlag"] & 12 in IN_QUEUES


@dataclass
class Questions:
    """Random questions to one store, each with the answer that facts give."""

    store: RealStore
    trees: BrokenTrees
    random: Random

    def __post_init__(self) -> None:
        self.path = str(self.trees.folder)
        self.conf = str(self.store.broker_conf)
        self.facts = facts_of(self.store)
        self.checks_index = self.trees.has_cut_pointers()
        self.opened = MessageStore(
            self.path, broker_version=self.store.broker_version, broker_conf=self.conf, check_index=self.checks_index
        )

    def ask(self) -> None:
        end = self.opened.get_max_phy_offset()
        assert end == self.store.facts("store")[0]["maxPhyOffset"], "live end"
        with self.opened:
            for _ in range(QUESTIONS):
                question = self.random.choice(
                    [
                        self.options_of_queue,
                        self.conditions_of_queue,
                        self.options_of_key,
                        self.options_of_place,
                        self.messages_of_queue,
                        self.messages_by_units,
                        self.messages_of_key,
                        self.ends_of_queue,
                        self.offset_by_time,
                        self.offset_by_units,
                        self.printed_topic,
                        self.printed_offset,
                    ]
                )
                question()

    def one(self) -> Fact:
        """A message, often one of a queue that was changed, or one near the end of its queue."""
        touched = [fact for fact in self.facts if (fact["topic"], fact["queueId"]) in self.trees.queues]
        if touched and self.random.random() < 0.8:
            return self.random.choice([*touched[-3:], *(self.random.choice(touched) for _ in range(5))])
        return self.random.choice(self.facts)

    def queue(self) -> tuple[str, int]:
        """A queue, often one that was changed: it may be one that no message is in."""
        if self.trees.queues and self.random.random() < 0.8:
            return self.random.choice(sorted(self.trees.queues))
        fact = self.one()
        return fact["topic"], fact["queueId"]

    def of_queue(self, topic: str, queue_id: int) -> list[Fact]:
        return [
            fact for fact in self.facts if (fact["topic"], fact["queueId"]) == (topic, queue_id) and is_queued(fact)
        ]

    def window(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Queue offsets from one to another, both included."""
        places = [fact["queueOffset"] for fact in self.of_queue(topic, queue_id)] or [0]
        first = max(self.random.choice(places) + self.random.choice([0, 0, -1, -30]), 0)
        return first, self.random.choice([first, first + 3, first + 40, max(places), max(places) + 10, 1 << 40])

    def read(self, **options: str) -> list[int]:
        return row_offsets(read_rows(path=self.path, brokerConf=self.conf, splitSize="64k", **options))

    def options_of_queue(self) -> None:
        topic, queue_id = self.queue()
        first, last = self.window(topic, queue_id)
        expected = [fact for fact in self.of_queue(topic, queue_id) if first <= fact["queueOffset"] <= last]
        options = {"topic": topic, "queueId": str(queue_id), "startQueueOffset": str(first)}
        if last < 1 << 40:
            options["endQueueOffset"] = str(last)
        if expected and self.random.random() < 0.3:
            begin = self.random.choice(expected)["storeTimestamp"]
            options["startTimestamp"] = str(begin)
            expected = [fact for fact in expected if fact["storeTimestamp"] >= begin]
        assert self.read(**options) == [fact["offset"] for fact in expected], options

    def conditions_of_queue(self) -> None:
        """What a WHERE clause becomes: it asks nothing of a message's transaction type."""
        topic, queue_id = self.queue()
        first, last = self.window(topic, queue_id)
        wanted = [
            Condition("topic", Operator.IN, (topic,)),
            Condition("queue_id", Operator.IN, (queue_id,)),
            Condition("queue_offset", Operator.GREATER_OR_EQUAL, (first,)),
            Condition("queue_offset", Operator.LESS, (last,)),
        ]
        expected = [
            fact["offset"]
            for fact in self.facts
            if (fact["topic"], fact["queueId"]) == (topic, queue_id) and first <= fact["queueOffset"] < last
        ]
        assert self.read(conditions=encode_conditions(wanted)) == expected, wanted

    def options_of_key(self) -> None:
        fact = self.one()
        if self.checks_index or not index_keys(fact):  # the data source does not read all index files first
            return
        key = self.random.choice(sorted(index_keys(fact)))
        expected = [one for one in self.facts if one["topic"] == fact["topic"] and key in index_keys(one)]
        options = {"topic": fact["topic"], "key": key}
        if self.random.random() < 0.4:
            begin = fact["storeTimestamp"] + self.random.choice([0, 0, 1, -5, 100_000])
            options["startTimestamp"] = str(begin)
            expected = [one for one in expected if one["storeTimestamp"] >= begin]
        assert self.read(**options) == [one["offset"] for one in expected], options

    def options_of_place(self) -> None:
        fact = self.one()
        options = self.random.choice(
            [
                {"offsetMessageId": fact["msgId"]},
                {"startOffset": str(fact["offset"]), "endOffset": str(fact["offset"])},
                {"startTimestamp": str(fact["storeTimestamp"]), "endTimestamp": str(fact["storeTimestamp"])},
            ]
        )
        same = [
            one["offset"]
            for one in self.facts
            if one is fact or ("startTimestamp" in options and one["storeTimestamp"] == fact["storeTimestamp"])
        ]
        assert self.read(**options) == same, options

    def messages_of_queue(self) -> None:
        topic, queue_id = self.queue()
        first, _ = self.window(topic, queue_id)
        most = self.random.choice([1, 1, 5, 100])
        expected = [fact for fact in self.of_queue(topic, queue_id) if fact["queueOffset"] >= first][:most]
        result = self.opened.get_message_result(topic, queue_id, first, most, read_log=True)
        said = topic, queue_id, first, most
        assert result.messages.column("commit_log_offset").to_pylist() == [fact["offset"] for fact in expected], said
        assert result.uncovered == ()
        if expected:
            lowest = min(fact["queueOffset"] for fact in self.of_queue(topic, queue_id))
            assert result.status == ("FOUND" if first >= result.min_offset else "OFFSET_TOO_SMALL"), said
            assert result.min_offset <= first or first < lowest, said
            assert result.max_offset > expected[-1]["queueOffset"]

    def messages_by_units(self) -> None:
        """Without the log: no wrong message, and none is missing that `uncovered` does not account for."""
        topic, queue_id = self.queue()
        first, _ = self.window(topic, queue_id)
        most = self.random.choice([1, 1, 5, 100])
        expected = {
            fact["offset"]: fact["queueOffset"]
            for fact in self.of_queue(topic, queue_id)
            if fact["queueOffset"] >= first
        }
        result = self.opened.get_message_result(topic, queue_id, first, most)
        rows = result.messages.to_pylist()
        given = [row["commit_log_offset"] for row in rows if row["_corrupt_record"] is None]
        assert set(given) <= set(expected)
        missing = sorted(expected.keys() - set(given))
        if len(rows) == most or result.status == "OFFSET_TOO_SMALL":  # else it comes to the end of the queue
            missing = [offset for offset in missing if expected[offset] < result.next_begin_offset]
        said = topic, queue_id, first, most, result.status
        assert all(any(offset in part for part in result.uncovered) for offset in missing), said

    def messages_of_key(self) -> None:
        fact = self.one()
        if not index_keys(fact):
            return
        topic, key = fact["topic"], self.random.choice(sorted(index_keys(fact)))
        window: dict[str, int] = {}
        if self.random.random() < 0.5:
            window["begin"] = fact["storeTimestamp"] + self.random.choice([0, -3, 100_000, -100_000])
        if self.random.random() < 0.5:
            window["end"] = fact["storeTimestamp"] + self.random.choice([0, 3, 100_000, -100_000])
        expected = [
            one["offset"]
            for one in reversed(self.facts)
            if one["topic"] == topic
            and key in index_keys(one)
            and window.get("begin", 0) <= one["storeTimestamp"] <= window.get("end", 1 << 62)
        ]
        found = self.opened.query_message(topic, key, **window)
        assert found.column("commit_log_offset").to_pylist() == expected, (topic, key, window)
        if not window:
            asked = pa.table({"topic": [topic, topic], "key": [key, "no such key"]})
            batches = self.opened.query_messages(asked, ["commit_log_offset"])
            assert row_offsets([row for batch in batches for row in batch.to_pylist()]) == expected[::-1], (topic, key)

    def ends_of_queue(self) -> None:
        topic, queue_id = self.queue()
        messages = self.of_queue(topic, queue_id)
        if messages:
            ends = messages[0]["queueOffset"], messages[-1]["queueOffset"] + 1
            found = (
                self.opened.get_min_offset_in_queue(topic, queue_id, read_log=True),
                self.opened.get_max_offset_in_queue(topic, queue_id, read_log=True),
            )
            assert found == ends, (topic, queue_id)

    def moment(self, messages: list[Fact]) -> int:
        return int(self.random.choice(messages)["storeTimestamp"]) + self.random.choice([0, 0, 1, -1, 5000, -5000])

    def offset_by_time(self) -> None:
        topic, queue_id = self.queue()
        messages = self.of_queue(topic, queue_id)
        if not messages:
            return
        time = self.moment(messages)
        early = [fact for fact in messages if fact["storeTimestamp"] < time]
        later = [fact for fact in messages if fact["storeTimestamp"] >= time]
        lower = later[0]["queueOffset"] if later else messages[-1]["queueOffset"] + 1
        said = topic, queue_id, time
        if self.store.broker_version == "4.9":
            near = sorted([*early[-1:], *later[:1]], key=lambda fact: abs(fact["storeTimestamp"] - time))[0]
            found = self.opened.get_offset_in_queue_by_time(topic, queue_id, time, read_log=True)
            assert found == near["queueOffset"], said
            return
        upper = [fact for fact in messages if fact["storeTimestamp"] <= time]
        for boundary_type, expected in (
            ("LOWER", lower),
            ("UPPER", upper[-1]["queueOffset"] if upper else messages[0]["queueOffset"]),
        ):
            found = self.opened.get_offset_in_queue_by_time(topic, queue_id, time, boundary_type, read_log=True)
            assert found == expected, (*said, boundary_type)

    def offset_by_units(self) -> None:
        """By the rule of 5.x: what two proven units beside each other say is right, or the units say that they fail."""
        topic, queue_id = self.queue()
        messages = self.of_queue(topic, queue_id)
        if not messages or self.store.broker_version == "4.9":
            return
        time = self.moment(messages)
        try:
            found = self.opened.get_offset_in_queue_by_time(topic, queue_id, time)
        except CorruptQueueError:
            return
        cover = self.opened.queue_cover(topic, queue_id)
        if cover.proven(found) is not None and cover.proven(found - 1) is not None:
            later = [fact["queueOffset"] for fact in messages if fact["storeTimestamp"] >= time]
            assert later[:1] == [found], (topic, queue_id, time)

    def printed_topic(self) -> None:
        topic, queue_id = self.queue()
        command, expected = ["print-message", self.path, topic, "--json"], self.facts
        if self.random.random() < 0.6:
            command += ["--queue-id", str(queue_id)]
            expected = self.of_queue(topic, queue_id)
        expected = [fact for fact in expected if fact["topic"] == topic and is_queued(fact)]
        if expected and self.random.random() < 0.4:
            begin = self.moment(expected)
            command += ["--begin", str(begin)]
            expected = [fact for fact in expected if fact["storeTimestamp"] >= begin]
        if expected and self.random.random() < 0.4:
            end = self.moment(expected) + self.random.choice([0, CLOCK_TOLERANCE_MILLIS])
            command += ["--end", str(end)]
            expected = [fact for fact in expected if fact["storeTimestamp"] <= end]
        limit = self.random.choice([0, 0, 1, 10])
        expected = expected[: limit or None]
        self.prints([*command, "--limit", str(limit)], expected)

    def printed_offset(self) -> None:
        topic, queue_id = self.queue()
        first, _ = self.window(topic, queue_id)
        expected = [fact for fact in self.of_queue(topic, queue_id) if fact["queueOffset"] == first]
        self.prints(["query-by-offset", self.path, topic, str(queue_id), str(first), "--json"], expected)

    def prints(self, command: list[str], expected: list[Fact]) -> None:
        status: int | str | None
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(command)
            except SystemExit as refused:  # a folder of queues can have a name that is not a queue id, such as -1
                status = refused.code
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        if expected:
            assert status == 0, (command, err.getvalue())
        else:
            assert status, command
            rows = [row for row in rows if row["_corrupt_record"] is None]
        assert [row["commit_log_offset"] for row in rows] == [fact["offset"] for fact in expected], command


STORES = usual_stores()


@pytest.mark.parametrize("case", range(CASES))
def test_no_change_of_queues_index_or_checkpoint_loses_a_row(case: int, unpacked: Unpack, tmp_path: Path) -> None:
    random = Random(case)
    store = STORES[case % len(STORES)]
    trees = BrokenTrees(unpacked(store), tmp_path / "store", layout_of(store), random)
    for _ in range(random.randint(1, 10)):
        trees.break_something(random.choice(["consumequeue"] * 5 + ["index"] * 3 + ["checkpoint"]))
    try:
        Questions(store, trees, random).ask()
    except BaseException as error:
        error.add_note(f"case {case}, {store}:\n" + "\n".join(trees.changes))
        raise
    finally:
        shutil.rmtree(trees.folder)


@pytest.mark.parametrize(
    "store", [store for store in STORES if store.name in ("workload-533", "killed-533", "abort-533")]
)
def test_one_bit_of_one_unit_s_offset_loses_no_row(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """A unit that points further ahead in the log, or back, or out of it: the units beside it are as good as before."""
    random = Random(14)
    trees = BrokenTrees(unpacked(store), tmp_path / "store", layout_of(store), random)
    files = [
        file
        for file in sorted((trees.folder / "consumequeue").glob("*/*/*"))
        if any(is_queued(fact) for fact in facts_of(store) if fact["topic"] == file.parent.parent.name)
    ]
    for _ in range(SINGLE_BITS):
        file = random.choice(files)
        topic, queue_id, sound = file.parent.parent.name, int(file.parent.name), file.read_bytes()
        written = sum(any(sound[at : at + 20]) for at in range(0, len(sound), 20))
        unit, bit = random.randrange(written), random.randrange(24)
        data = bytearray(sound)
        data[20 * unit + 7 - bit // 8] ^= 1 << bit % 8
        file.unlink()
        file.write_bytes(data)
        expected = [
            fact["offset"]
            for fact in facts_of(store)
            if (fact["topic"], fact["queueId"]) == (topic, queue_id) and is_queued(fact)
        ]
        said = f"bit {bit} of the offset of unit {unit} of {file}"
        rows = read_rows(path=str(trees.folder), topic=topic, queueId=str(queue_id), startQueueOffset="0")
        assert row_offsets(rows) == expected, said
        with MessageStore(str(trees.folder)) as opened:
            found = opened.get_message(topic, queue_id, 0, 1 << 20, read_log=True)
        assert found.column("commit_log_offset").to_pylist() == expected, said
        file.write_bytes(sound)
