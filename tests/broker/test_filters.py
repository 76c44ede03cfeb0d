"""Filters agree with RocketMQ's own classes: refusals, and the answers for messages."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import spark_mq.filters
from spark_mq import MessageStore
from spark_mq.errors import FilterError
from spark_mq.filters.conditions import evaluate
from spark_mq.filters.parser import parse_sql92, parse_tags
from spark_mq.format.java_text import hash_code
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.store.config.consumer_filters import load_consumer_filters
from tests.broker import harness
from tests.broker.make_stores import FILTER_SETTINGS, NO_TIMERS, QUEUE_TREES, settings_of
from tests.support.filter_cases import message_bit_map, questions
from tests.support.filtered_store import TAG_GROUP, TOPIC, received, records_of, subscriptions
from tests.support.rebuilt import rebuild_here
from tests.support.soak import SOAKS, cases
from tests.support.stores import tree_of

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("version", cases(harness.VERSIONS[:1], harness.VERSIONS))
def test_random_expressions(version: str) -> None:
    asked = questions(7, 50_000 if SOAKS else 5000)
    differing = []
    for (text, messages), java in zip(asked, harness.filter_messages(asked, version), strict=True):
        try:
            condition = parse_sql92(text, version).condition
        except FilterError:
            ours = None
        else:
            ours = [evaluate(condition, message).name for message in messages]
        if ours != java:
            differing.append((text, messages, ours, java))
    assert not differing[:3]


@pytest.mark.parametrize("version", cases(harness.VERSIONS[:1], harness.VERSIONS))
def test_random_tags(version: str) -> None:
    rng = random.Random(8)
    pieces = ("a", "b", "||", "||", "|", " ", "*", "\t", "\x01", "\u00a0", "\u2003", "\u65e5")
    texts = ["*", "", "||", *("".join(rng.choices(pieces, k=rng.randrange(1, 8))) for _ in range(3000))]
    for text, java in zip(
        texts, harness.answers("filter", (json.dumps({"tags": text}) for text in texts), version), strict=True
    ):
        try:
            tags = parse_tags(text)
        except FilterError:
            assert java is None, text
            continue
        if java == ["*"] and text in ("*", ""):
            assert tags is None
        else:
            assert tags == frozenset(java or ()), text
            assert java is not None, text


@pytest.mark.parametrize("version", cases(harness.VERSIONS[:1], harness.VERSIONS))
def test_a_broker_delivers_what_the_filter_selects(version: str, tmp_path: Path) -> None:
    """One broker: what each group received, and the bits in its extension units."""
    path, settings = tmp_path / "store", settings_of(version, FILTER_SETTINGS, NO_TIMERS)
    with harness.Broker(version, path, settings) as broker:
        events = harness.at_broker(broker, "filtered", "--count", "60")
    with MessageStore(str(path)) as store:
        records = records_of(store)
        offsets = {
            (one.consumer_group, one.queue_id): one.offset
            for one in load_consumer_offsets(store.location)
            if one.topic == TOPIC
        }
        subscribed = subscriptions(events)
        assert len(subscribed) == 5
        for group, expression in subscribed.items():
            passed = {
                (queue_id, queue_offset): record.text_properties
                for (topic, queue_id, queue_offset), record in records.items()
                if topic == TOPIC and queue_offset < offsets[group, queue_id]
            }
            if group == TAG_GROUP:
                tags = parse_tags(expression)
                assert tags is not None
                selected = {place for place, properties in passed.items() if properties.get("TAGS") in tags}
            else:
                selected = {place for place, had in passed.items() if spark_mq.filters.matches(expression, had)}
            assert received(events, group) == selected, group
            assert 2 <= len(selected) < len(passed)
        filters = load_consumer_filters(store.location)
        assert [one.consumer_group for one in filters] == sorted(set(subscribed) - {TAG_GROUP})
        bits_seen = set()
        for (topic, queue_id, queue_offset), record in records.items():
            queue = store.queues[topic, queue_id]
            unit = queue.ext.unit(queue.unit(queue_offset)[2])
            assert unit is not None
            known = [one for one in filters if one.topic == topic and one.born_time < record.store_timestamp]
            assert unit.bit_map == message_bit_map(known, record.text_properties, 112)
            assert unit.store_timestamp == record.store_timestamp
            assert topic != TOPIC or unit.tags_code == hash_code(record.text_properties.get("TAGS", ""))
            bits_seen.add(unit.bit_map)
        assert len(bits_seen) > 4
    if version != "5.3.3":  # tests/stores has what 5.3.3 makes again
        _compare_rebuilt(version, path, settings, tmp_path)


def _compare_rebuilt(version: str, path: Path, settings: dict[str, str], folder: Path) -> None:
    """The broker makes its queues again, and so do we: byte for byte the same."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    rebuild_here(path, folder / "rebuilt", broker_conf=str(conf))
    for tree in QUEUE_TREES:
        shutil.rmtree(path / tree)
    with harness.Broker(version, path, settings):
        pass
    for tree in QUEUE_TREES:
        assert tree_of(folder / "rebuilt" / tree) == tree_of(path / tree)
