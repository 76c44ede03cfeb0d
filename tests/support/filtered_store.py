"""The real store `filtered-533`: groups with filters, what they received, and units with the bits of filters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_mq import MessageStore
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import Record
from tests.support.stores import OWN_STORES, RealStore

FILTERED = RealStore("filtered-533", OWN_STORES)
TOPIC = "FilterDemo"
TAG_GROUP = "GID_tags"

Place = tuple[int, int]
"""A queue id and a queue offset of the topic."""


def events_of(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The events that the Java class `Filtered` printed."""
    return [json.loads(line) for line in lines]


def stored_events() -> list[dict[str, Any]]:
    """The events of the packed store."""
    return events_of((OWN_STORES / f"{FILTERED.name}.events.jsonl").read_text(encoding="utf-8").splitlines())


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
    found = {}
    offset = store.get_min_phy_offset()
    while offset < store.get_max_phy_offset():
        record = store.find_record(offset)
        if isinstance(record, Record):
            found[decode_utf8(record.topic), record.queue_id, record.queue_offset] = record
            offset += record.size
        else:
            segment = store.records.segment_of(offset)
            assert segment is not None
            offset = segment.end_offset
    return found


def properties_of(record: Record) -> dict[str, str]:
    """The properties of a message as text."""
    return {decode_utf8(name): decode_utf8(value) for name, value in parse_properties(record.properties).items()}


def tags_code_of(record: Record) -> int:
    """The hash of a message's tags."""
    tags = properties_of(record).get("TAGS")
    return 0 if tags is None else hash_code(tags)


def filters_file(store: Path) -> Path:
    """The file of the consumer filters."""
    return store / "config" / "consumerFilter.json"
