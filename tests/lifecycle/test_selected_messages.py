"""The messages of some topics, found by one read of the log, against the facts of the Java classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.lifecycle import selected_messages
from spark_mq.lifecycle.selected_messages import EVERYTHING, LogReadOnce, LogSource, Selection, TopicRule
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack, stores_in

STORES = [store for store in stores_in(OWN_STORES) if store.name.startswith(("workload", "stale"))]
COLUMNS = ["commit_log_offset", "topic", "queue_id", "queue_offset", "body", "transaction_type"]
PROPERTIES = ["REAL_TOPIC", "UNIQ_KEY", "no such property"]
RULES: dict[str, tuple[TopicRule, Callable[[Fact], bool]]] = {
    "nothing": (TopicRule(), lambda fact: False),
    "everything": (EVERYTHING, lambda fact: True),
    "names": (
        TopicRule(names=frozenset({"SCHEDULE_TOPIC_XXXX", "absent"})),
        lambda fact: _topic(fact).startswith("SCH"),
    ),
    "prefixes": (TopicRule(prefixes=("%RETRY%", "%DLQ%")), lambda fact: _topic(fact).startswith(("%RETRY%", "%DLQ%"))),
    "a type": (TopicRule(transaction_types=frozenset({"COMMIT"})), lambda fact: fact["sysFlag"] & 0xC == 8),
    "a property, or a topic": (
        TopicRule(names=frozenset({"RMQ_SYS_TRANS_HALF_TOPIC"}), properties=("DELAY", "KEYS")),
        lambda fact: _topic(fact) == "RMQ_SYS_TRANS_HALF_TOPIC" or not {"DELAY", "KEYS"}.isdisjoint(fact["properties"]),
    ),
}


def _topic(fact: Fact) -> str:
    return str(fact["topic"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("packed", STORES, ids=str)
def test_rows_are_those_of_the_facts(packed: RealStore, rule: str, unpacked: Unpack) -> None:
    selects, is_expected = RULES[rule]
    with MessageStore(str(unpacked(packed))) as store:
        (found,) = LogSource(store).selections_of(Selection(selects, COLUMNS, PROPERTIES))
        assert (found.log.start, found.log.stop) == (store.get_min_phy_offset(), store.get_max_phy_offset())
    expected = sorted((fact for fact in packed.facts("msg") if is_expected(fact)), key=lambda fact: int(fact["offset"]))
    rows = found.messages.to_pylist()
    assert found.messages.column_names == [*COLUMNS, *PROPERTIES]
    assert [
        [
            *(row[name] for name in ("commit_log_offset", "topic", "queue_id", "queue_offset", *PROPERTIES)),
            len(row["body"]),
        ]
        for row in rows
    ] == [
        [
            *(fact[name] for name in ("offset", "topic", "queueId", "queueOffset")),
            *(fact["properties"].get(name) for name in PROPERTIES),
            fact["bodyLen"],
        ]
        for fact in expected
    ]


def test_damage_is_returned(unpacked: Unpack, tmp_path: Path) -> None:
    packed = next(store for store in STORES if store.name == "workload-533")
    path = packed.unpack(tmp_path)
    names = sorted(file.name for file in (path / "commitlog").iterdir())
    (path / "commitlog" / names[1]).unlink()
    fact = next(fact for fact in packed.facts("msg") if fact["offset"] > int(names[2]))
    with open(path / "commitlog" / names[2], "r+b") as file:
        file.seek(fact["offset"] - int(names[2]) + 4)
        file.write(b"\0\0\0\0")
    with MessageStore(str(path)) as store:
        (found,) = LogSource(store).selections_of(Selection(EVERYTHING, ["commit_log_offset"]))
    assert [(one.commit_log_offset, one.commit_log_offset + one.length) for one in found.damage] == [
        (int(names[1]), int(names[2])),
        (fact["offset"], fact["offset"] + fact["size"]),
    ]
    offsets = {one["offset"] for one in packed.facts("msg") if one["offset"] != fact["offset"]}
    expected = {offset for offset in offsets if not int(names[1]) <= offset < int(names[2])}
    assert set(found.messages["commit_log_offset"].to_pylist()) == expected


def test_one_read_gives_what_several_give(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [], selected_messages._Reader.read

    def noted(reader: selected_messages._Reader) -> Iterator[Any]:
        reads.append(reader)
        return read(reader)

    monkeypatch.setattr(selected_messages._Reader, "read", noted)
    selections = [Selection(rule, tuple(COLUMNS), tuple(PROPERTIES)) for rule, _ in RULES.values()]
    passed: list[pa.RecordBatch] = []
    with MessageStore(str(unpacked(STORES[0]))) as store:
        alone = [LogSource(store).selections_of(selection)[0] for selection in selections]
        expected = list(LogSource(store).batches_of(selections[1]))
        reads.clear()
        once = LogReadOnce(store, store.location, selections[2:], selections[1], passed.append)
        found = once.selections_of(*selections[3:], selections[2])
        assert len(reads) == 1
        assert once.selections_of(selections[0]) == (alone[0],)
        assert len(reads) == 2
    assert found == (*alone[3:], alone[2])
    assert pa.Table.from_batches(passed) == pa.Table.from_batches(expected)
