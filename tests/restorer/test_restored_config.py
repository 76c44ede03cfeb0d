from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.io.location import Location
from spark_mq.restorer.config_files import Situation
from spark_mq.restorer.restored_config import (
    RestoredConfig,
    new_offsets,
    restored_config,
    same_offsets,
    wanted_offsets,
)
from spark_mq.restorer.source_facts import SourceFacts, facts_of_store
from spark_mq.store.config.broker_version import BrokerVersion
from tests.support.stores import OWN_STORES, RealStore, usual_stores

STORE = RealStore("workload-533", OWN_STORES)


@pytest.fixture
def facts(unpacked: Callable[[RealStore], Path]) -> SourceFacts:
    return facts_of_store(Location.resolve(str(unpacked(STORE))))


def in_situation(facts: SourceFacts, situation: Situation, found: dict[tuple[str, int, int], int]) -> RestoredConfig:
    return restored_config(
        facts.files,
        ["config/rdb"],
        situation,
        queues={"RetryDemo": 1, "SCHEDULE_TOPIC_XXXX": 18},
        translate=new_offsets(found),
        topics={},
        version=BrokerVersion.V5,
    )


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_whole_store_keeps_its_files(store: RealStore, unpacked: Callable[[RealStore], Path]) -> None:
    facts = facts_of_store(Location.resolve(str(unpacked(store))))
    config = restored_config(
        facts.files,
        facts.databases,
        Situation.WHOLE,
        queues={},
        translate=same_offsets(facts.next_offsets.keys()),
        topics={},
        version=BrokerVersion(store.broker_version),
    )
    assert config.files == {path: data for path, data in facts.files.items() if path != "checkpoint"}
    assert (config.dropped, config.notes) == ({}, ())


def test_a_group_that_has_consumed_nothing_begins_at_the_first_message() -> None:
    for translate in (same_offsets({("a", 0)}), new_offsets({("a", 0, 7): 7})):
        assert [translate("a", 0, 7), translate("b", 0, 7), translate("b", 0, 0)] == [7, None, 0]


def test_offsets_of_renumbered_messages_are_translated(facts: SourceFacts) -> None:
    wanted = wanted_offsets(facts.files)
    assert wanted == {
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 36),
        ("%RETRY%GID_failing", 0, 10),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 3),
        ("RetryDemo", 0, 5),
        ("SCHEDULE_TOPIC_XXXX", 0, 14),
        ("SCHEDULE_TOPIC_XXXX", 1, 4),
        ("SCHEDULE_TOPIC_XXXX", 17, 0),
    }
    config = in_situation(facts, Situation.RENUMBERED, {("RetryDemo", 0, 5): 2, ("SCHEDULE_TOPIC_XXXX", 0, 14): 1})
    assert (
        b'"offsetTable":{\n\t\t"RetryDemo@GID_failing":{0:2\n\t\t}\n\t}' in config.files["config/consumerOffset.json"]
    )
    assert b'"offsetTable":{1:1,18:0\n\t}' in config.files["config/delayOffset.json"]
    assert config.offsets == 3
    assert config.dropped == {
        "RMQ_SYS_TRANS_HALF_TOPIC": 1,
        "%RETRY%GID_failing": 1,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
        "SCHEDULE_TOPIC_XXXX": 1,
    }
    assert config.notes[-1].startswith("offsets of consumers in queues that the result does not have were left out: %R")


@pytest.mark.parametrize(
    ("situation", "left_out"),
    [
        (Situation.WHOLE, {"rdb"}),
        (Situation.PARTIAL, {"rdb", "timercheck", "timermetrics", "transactionMetrics"}),
        (Situation.RENUMBERED, {"rdb", "timercheck", "timermetrics", "transactionMetrics", "consumerOrderInfo.json"}),
    ],
)
def test_what_is_left_out_is_said(facts: SourceFacts, situation: Situation, left_out: set[str]) -> None:
    config = in_situation(facts, situation, {})
    said = {note.split(" was left out: ")[0] for note in config.notes if " was left out: " in note}
    assert said == {f"config/{name}" for name in left_out}
    kept = {path for path in facts.files if path != "checkpoint"} - said
    assert set(config.files) == kept


def test_a_source_without_offsets_of_delay_levels_delivers_again() -> None:
    config = in_situation(SourceFacts(), Situation.PARTIAL, {})
    assert set(config.files) == {"config/topics.json"}
    assert config.notes[-1].startswith("the source has no config/delayOffset.json: a broker delivers all messages")
