"""Stores out of an archive: the bytes of the brokers that wrote them, and stores that brokers accept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq import restore
from spark_mq.archive.writer import archive
from spark_mq.errors import OptionError
from tests.support.stores import OWN_STORES, RealStore, tree_of
from tests.support.verified import check, grave

pytestmark = pytest.mark.archive

WHOLE, EXPIRED = RealStore("workload-49x", OWN_STORES), RealStore("deleted-533", OWN_STORES)


def test_two_stores_of_an_archive_come_back(
    delta: SparkSession, unpacked: Callable[[RealStore], Path], tmp_path: Path
) -> None:
    """One is whole. Of the other one, the first segments had expired, and with them all messages of two queues."""
    table = str(tmp_path / "messages")
    for packed in (WHOLE, EXPIRED):
        archive(delta, str(unpacked(packed)), table, broker=packed.name)
    with pytest.raises(OptionError, match="workload-49x"):
        restore(delta, table, str(tmp_path / "any"))
    for packed in (WHOLE, EXPIRED):
        new = tmp_path / packed.name
        report = restore(delta, table, str(new), broker=packed.name, broker_conf=str(packed.broker_conf))
        assert (report.messages, report.gaps) == (len(packed.facts("msg")), 0)
        store = unpacked(packed)
        judge = packed.unpack(tmp_path / "judge", "rebuilt") if packed.has("rebuilt") else store
        assert tree_of(new / "commitlog") == tree_of(store / "commitlog")
        queues, judged = tree_of(new / "consumequeue"), tree_of(judge / "consumequeue")
        assert {name: queues[name] for name in judged} == judged
        assert list(tree_of(new / "index").values()) == list(tree_of(judge / "index").values())
        assert judge != store or tree_of(new / "index").keys() == tree_of(store / "index").keys()
        expired = {fact["topic"] for fact in packed.facts("queue") if fact["max"] and fact["min"] == fact["max"]}
        assert {name.split("/")[0] for name in queues.keys() - judged.keys()} == (expired if judge != store else set())
        for name in ("subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"):
            assert (new / "config" / name).read_bytes() == (store / "config" / name).read_bytes()
        assert grave(check(new, packed.broker_conf)[1]) == []
