"""Progress of consumer groups from a snapshot and archived messages, against the store. No Spark here."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.archive.archived_tables import ArchivedQueues
from spark_mq.archive.small_tables import NewestSnapshot
from spark_mq.archive.snapshot_files import small_files, snapshot_location
from spark_mq.format.consume_queue import Queue
from spark_mq.lifecycle.consumer_progress import QueueMessage, consumer_progress_rows
from spark_mq.store.derived_facts import queue_facts
from spark_mq.store.message_store import MessageStore
from tests.support.stores import WORKLOADS, RealStore, Unpack

AT = 1_795_300_000_000
"""A moment after all messages were stored."""


class FactQueues(ArchivedQueues):
    """The queues of an archive whose messages are the facts of a store, from queue offsets `first` on."""

    def __init__(self, packed: RealStore, store: MessageStore, first: int = 0) -> None:
        files = {row["file"]: row["content"] for row in small_files(store.location)}
        files["consumequeue"] = json.dumps(queue_facts(store)).encode()
        snapshot = NewestSnapshot(AT, store.get_max_phy_offset(), files)
        source: Any = SimpleNamespace(
            location=snapshot_location(files, "/lake/m_snapshots"),
            snapshot=snapshot,
            config_end=snapshot.log_end,
            cover=SimpleNamespace(newest_timestamp=0),
            known_until=AT,
            lost_end=lambda _: None,
            moment=lambda at: at,
        )
        super().__init__(source)
        self._facts = [
            fact for fact in packed.facts("msg") if fact["queueOffset"] >= first and fact["sysFlag"] & 0xC in (0, 8)
        ]

    @property
    def _archived_ends(self) -> dict[Queue, tuple[int, int]]:
        ends: dict[Queue, tuple[int, int]] = {}
        for fact in self._facts:
            queue, offset = (fact["topic"], fact["queueId"]), fact["queueOffset"]
            first, stop = ends.get(queue, (offset, offset + 1))
            ends[queue] = min(first, offset), max(stop, offset + 1)
        return ends

    @property
    def _messages(self) -> dict[tuple[str, int, int], QueueMessage]:
        wanted = set(self._wanted())
        places = {(fact["topic"], fact["queueId"], fact["queueOffset"]): fact for fact in self._facts}
        return {
            place: QueueMessage(fact["queueOffset"], fact["storeTimestamp"], fact["offset"])
            for place, fact in places.items()
            if place in wanted
        }


def rows_of(queues: ArchivedQueues) -> list[dict[str, Any]]:
    return list(consumer_progress_rows(queues, at=AT).to_pylist())


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_progress_is_that_of_the_store(packed: RealStore, unpacked: Unpack) -> None:
    with MessageStore(str(unpacked(packed))) as store:
        expected: pa.Table = consumer_progress_rows(store, at=AT)
        assert rows_of(FactQueues(packed, store)) == expected.to_pylist()
        assert {"CAUGHT_UP", "LAGGING"} & set(expected["state"].to_pylist())


def test_what_the_archive_lacks_is_unknown(unpacked: Unpack) -> None:
    packed = WORKLOADS[0]
    with MessageStore(str(unpacked(packed))) as store:
        rows = rows_of(FactQueues(packed, store, first=1))
        assert {row["state"] for row in rows} == {"UNKNOWN"}
        assert all("lacks some of its messages from queue offset 0" in row["reason"] for row in rows)
        behind = FactQueues(packed, store)
        shorter = json.loads(behind._source.snapshot.files["consumequeue"])
        for queue in shorter["queues"]:
            queue["max_offset"] -= 1
        files = {**behind._source.snapshot.files, "consumequeue": json.dumps(shorter).encode()}
        behind._source.snapshot = dataclasses.replace(behind._source.snapshot, files=files)
        rows = rows_of(behind)
        assert {row["state"] for row in rows} == {"UNKNOWN"}
        assert any("BEHIND: it ends at queue offset" in row["reason"] for row in rows)
        del files["consumequeue"]
        behind = FactQueues(packed, store)
        behind._source.snapshot = dataclasses.replace(behind._source.snapshot, files=files)
        assert all("no snapshot of the store with the ends" in row["reason"] for row in rows_of(behind))
