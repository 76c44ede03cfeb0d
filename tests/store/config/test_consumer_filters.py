"""`config/consumerFilter.json`: a real broker's file, table `consumer_filters`, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.errors import ConfigError
from spark_mq.format.bloom_filter import BloomFilter
from spark_mq.store.config.consumer_filters import (
    ConsumerFilter,
    load_consumer_filters,
    parse_consumer_filters,
    usable_filters,
)
from spark_mq.store.metadata_tables import consumer_filters
from tests.support.filter_cases import message_bit_map
from tests.support.filtered_store import FILTERED, TAG_GROUP, TOPIC, filters_file, stored_events, subscriptions
from tests.support.stores import Unpack


def test_the_filters_are_those_of_the_consumers(unpacked: Unpack) -> None:
    path = unpacked(FILTERED)
    subscribed = subscriptions(stored_events())
    del subscribed[TAG_GROUP]  # no file has subscriptions to tags
    stored = json.loads(filters_file(path).read_text())["filterDataByTopic"][TOPIC]["groupFilterData"]
    with MessageStore(str(path)) as store:
        rows = consumer_filters(store).to_pylist()
        assert [row["consumer_group"] for row in rows] == sorted(subscribed)
        for row in rows:
            data = stored[row["consumer_group"]]
            assert row["expression"] == subscribed[row["consumer_group"]] == data["expression"]
            assert (row["topic"], row["expression_type"], row["problem"]) == (TOPIC, "SQL92", None)
            assert row["is_dead"] is data["dead"] is True
            assert round(row["born_timestamp"].timestamp() * 1000) == data["bornTime"]
            assert round(row["dead_timestamp"].timestamp() * 1000) == data["deadTime"]
            assert row["client_version"] == data["clientVersion"]
            assert [row["bit_count"], row["bit_positions"]] == list(data["bloomFilterData"].values())
        assert consumer_filters(store, consumer_group="GID_rich").to_pylist() == [rows[2]]
        assert consumer_filters(store, topic="other").num_rows == 0
        filters = load_consumer_filters(store.location)
    assert usable_filters(filters, BloomFilter.of()) == tuple(filters)
    assert usable_filters(filters, BloomFilter.of(error_rate=10)) == ()


def test_a_filter_that_does_not_work_says_why() -> None:
    bits = BloomFilter.of().positions("g", "t")

    def problem(**values: Any) -> str:
        made: dict[str, Any] = {"expression": "a = 1", "bit_count": 112, "bit_positions": bits} | values
        found = ConsumerFilter("g", "t", **made).problem
        assert found is not None
        return found

    assert ConsumerFilter("g", "t", "a = 1", bit_count=112, bit_positions=bits).problem is None
    assert "column 5" in problem(expression="a = = 1")
    assert "no expression" in problem(expression=None)
    assert "TAG is not SQL92" in problem(expression_type="TAG")
    assert "forgets all filters" in problem(bit_positions=None)
    assert "any broker" in problem(bit_count=0)
    assert f"not those of the group, {list(bits)}" in problem(bit_positions=(1, 2, 3))
    assert "RocketMQ reads only 'a'" in problem(expression="a CONTAINS 'b'", version="4.9.7")


def test_only_a_true_filter_sets_its_bits() -> None:
    filters = [
        ConsumerFilter("g", "t", "a = 1", bit_count=16, bit_positions=(0, 3)),
        ConsumerFilter("h", "t", "a > 0", bit_count=16, bit_positions=(9,)),
        ConsumerFilter("i", "t", "not an expression #", bit_count=16, bit_positions=(15,)),
    ]
    assert message_bit_map(filters, {"a": "1"}, 16).hex() == "0902"
    assert message_bit_map(filters, {"a": "5"}, 16).hex() == "0002"
    assert message_bit_map(filters, {"a": "x"}, 16).hex() == "0000"
    assert message_bit_map([], {"a": "1"}, 16) == b""
    outside = ConsumerFilter("j", "t", "TRUE", bit_count=16, bit_positions=(16,))
    assert message_bit_map([*filters, outside], {"a": "1"}, 16) == b""


FIELDS = st.sampled_from(("expression", "expressionType", "bornTime", "deadTime", "clientVersion", "bloomFilterData"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("bitNum", "bitPos", "x")), inner),
    max_leaves=4,
)


@given(st.dictionaries(FIELDS, VALUES) | VALUES)
def test_any_content_is_rows_or_an_error_of_the_file(data: Any) -> None:
    content = {"filterDataByTopic": {"t": {"groupFilterData": {"g": data}}}}
    try:
        found = parse_consumer_filters(content)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return
    for one in found:
        assert one.problem is None or one.problem


@pytest.mark.parametrize("content", ["{", '{"filterDataByTopic":[]}', '{"filterDataByTopic":{"t":5}}', "[]"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(content: str, tmp_path: Path) -> None:
    path = FILTERED.unpack(tmp_path)
    whole = filters_file(path).read_text()
    for file in path.glob("config/consumerFilter.json*"):
        file.write_text(content)
    with MessageStore(str(path)) as store:
        if content == '{"filterDataByTopic":[]}':
            assert consumer_filters(store).num_rows == 0
            return
        with pytest.raises(ConfigError, match=r"consumerFilter\.json"):
            consumer_filters(store)
        filters_file(path).with_name("consumerFilter.json.bak").write_text(whole)
        assert consumer_filters(store).num_rows == 4
