"""Tables of what messages mean, of stores without some of their parts: a state is right, or UNKNOWN with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.errors import ConfigError
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.retries import retries_rows
from spark_mq.lifecycle.transactions import transaction_rows
from tests.support.removed_parts import copies_without_parts
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOADS, RealStore, Unpack

CASES = 300 if SOAKS else 30


def rows_of(path: Path, at: int) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The rows of four tables, each with the name of its table and what it is about; the last can be a ConfigError."""
    with MessageStore(str(path)) as store:
        for row in transaction_rows(store).to_pylist():
            yield ("transactions", row["unique_key"]), row
        for row in delayed_rows(store, at).to_pylist():
            yield ("delayed", row["waiting_offsets"][0]), row
        for row in retries_rows(store).to_pylist():
            yield ("retries", row["origin_message_id"], row["attempt"]), row
        for row in consumer_progress_rows(store, at=at).to_pylist():
            yield ("consumer_progress", row["consumer_group"], row["topic"]), row


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_a_store_without_some_parts_never_gives_a_wrong_state(
    packed: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    path = unpacked(packed)
    at = max(int(fact["storeTimestamp"]) for fact in packed.facts("msg")) + 10_000  # before what waits is due
    expected = dict(rows_of(path, at))
    known = {(table, row["state"]) for (table, *_), row in expected.items()}
    seen: set[tuple[str, str]] = set()
    for copy, done in copies_without_parts(path, tmp_path, CASES):
        try:
            for name, row in rows_of(copy, at):
                state, right = row["state"], expected[name]
                # A dead letter tells that an attempt failed, even if the log lacks the attempt after it.
                also = ["DEAD"] if right["state"] == "RETRIED" else []
                assert state in (right["state"], "UNKNOWN", *also), (done, row)
                assert (row["reason"] is not None) == (state == "UNKNOWN"), (done, row)
                assert row.get("final_state") in (None, "DEAD", "UNKNOWN"), (done, row)
                if name[0] == "consumer_progress":
                    check_progress(row, right)
                seen.add((name[0], state))
        except ConfigError:
            assert any(text.startswith("half of") for text in done)
    assert seen == known | {(table, "UNKNOWN") for table, _ in known}
    assert len(known) >= 10


def check_progress(row: dict[str, Any], right: dict[str, Any]) -> None:
    assert (row["lag"] is None) == (row["state"] == "UNKNOWN"), row
    if row["state"] != "UNKNOWN":
        for name in ("lag", "lag_millis", "group_retries", "group_dead_letters"):
            unknown = (None,) if name.startswith("group") or right["lag"] else ()
            assert row[name] in (right[name], *unknown), (name, row)
