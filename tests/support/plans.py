"""Plans of reads of the brokers' stores, at prices with which the planner of a small store looks up what it can."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from spark_mq.source import time_window, topic_plan
from spark_mq.source.options import parse_options
from spark_mq.source.planner import plan_messages
from spark_mq.source.read_plan import ReadPlan
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import ReadCost
from tests.support.stores import Fact, RealStore


def make_look_ups_cheap(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Prices with which the planner uses queues and index if it can; `module` has a price, too."""
    for priced in (topic_plan, time_window, module):
        patch.setattr(priced, "cost_of", lambda location: ReadCost(jump=0, queue=0))
    patch.setattr(time_window, "MERGE_DISTANCE", 1)


@cache
def facts_of(store: RealStore) -> list[Fact]:
    """All messages of the log, in its order."""
    return sorted(store.facts("msg"), key=lambda fact: int(fact["offset"]))


def options_of(store: RealStore, folder: Path, **options: str) -> dict[str, str]:
    """The options of a read of small splits."""
    return {"path": str(folder), "brokerConf": str(store.broker_conf), "splitSize": "16k"} | options


def plan(store: RealStore, folder: Path, **options: str) -> ReadPlan:
    """The plan of a read with these options."""
    with MessageStore(str(folder), broker_conf=str(store.broker_conf)) as opened:
        return plan_messages(parse_options(options_of(store, folder, **options)), opened)
