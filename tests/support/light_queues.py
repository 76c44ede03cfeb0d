"""Light message queues of real stores: what is dispatched to them, and units that they lose."""

from __future__ import annotations

from pathlib import Path

from spark_mq.format.consume_queue import UNIT_SIZE
from tests.support.stores import RealStore


def dispatched(packed: RealStore) -> dict[str, list[int]]:
    """The commit log offsets of the messages of each light message queue."""
    found: dict[str, list[int]] = {}
    for fact in packed.facts("msg"):
        for name in fact["properties"].get("INNER_MULTI_DISPATCH", "").split(","):
            if name and not fact["topic"].startswith(("SCHEDULE_TOPIC", "rmq_sys_")):
                found.setdefault(name, []).append(fact["offset"])
    return found


def fail_dispatch(store: Path, packed: RealStore, *, is_last: bool = False) -> int:
    """Let a message name a plain topic before a light message queue, as 5.x stores it; returns where it is.

    If the plain topic `is_last`, the dispatch does not fail, and leaves out the light message queue.
    """
    facts = [fact for fact in packed.facts("msg") if "," in fact["properties"].get("INNER_MULTI_DISPATCH", "")]
    at, properties = facts[-1]["offset"], facts[-1]["properties"]
    first, second = properties["INNER_MULTI_QUEUE_OFFSET"].split(",")
    one, _, other = properties["INNER_MULTI_DISPATCH"].partition(",")
    names, offsets = (f"{one},plain0", f"{first}{second},") if is_last else (f"plain0,{other}", f",{second}{first}")
    segment = max(file for file in (store / "commitlog").iterdir() if int(file.name) <= at)
    data, position = segment.read_bytes(), at - int(segment.name)
    head, record = data[:position], data[position:]
    record = record.replace(properties["INNER_MULTI_DISPATCH"].encode(), names.encode(), 1)
    record = record.replace(f"QUEUE_OFFSET\1{first},{second}".encode(), f"QUEUE_OFFSET\1{offsets}".encode(), 1)
    segment.write_bytes(head + record)
    return int(at)


def without_units(store: Path, topic: str, first: int) -> None:
    """Lose the units of a light message queue from a number on."""
    for file in sorted((store / "consumequeue" / topic / "0").iterdir()):
        data = file.read_bytes()
        kept = max(first * UNIT_SIZE - int(file.name), 0)
        file.write_bytes(data[:kept].ljust(len(data), b"\0"))
