"""The real store `filtered-533`: groups with filters, what they received, and units with the bits of filters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_mq import MessageStore
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.testing import plain_log
from tests.support.stores import OWN_STORES, RealStore

FILTERED = RealStore("filtered-533", OWN_STORES)
TOPIC = "FilterDemo"
TAG_GROUP = "GID_tags"

Place = tuple[int, int]
"""A queue id and a queue offset of the topic."""


def stored_events() -> list[dict[str, Any]]:
    """The events of the packed store, which the Java class `Filtered` printed."""
    lines = (OWN_STORES / f"{FILTERED.name}.events.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def subscriptions(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The expression or the tags of each group."""
    return {event["group"]: event["expression"] for event in events if event["event"] == "subscription"}


def received(events: Iterable[Mapping[str, Any]], group: str) -> set[Place]:
    """The messages that a group received."""
    return {
        (event["queueId"], event["queueOffset"])
        for event in events
        if event["event"] == "received" and event["group"] == group
    }


def records_of(store: MessageStore) -> dict[tuple[str, int, int], Record]:
    """Each message of a store, by topic, queue id and queue offset; by a plain walk over its log."""
    records = plain_log.records_of(Path(store.location.path) / "commitlog")
    return {(decode_utf8(record.topic), record.queue_id, record.queue_offset): record for record in records}


def filters_file(store: Path) -> Path:
    """The file of the consumer filters."""
    return store / "config" / "consumerFilter.json"
