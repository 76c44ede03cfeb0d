"""`config/consumerFilter.json`: the SQL92 filters of consumer groups (`ConsumerFilterManager`@5.3.3 and @4.9.7).

`{"filterDataByTopic": {"orders": {"groupFilterData": {"billing": {"expression": "price > 5", ...}}}}}`. A broker writes
the file every ten seconds and when it stops. It removes a group a day after its last consumer left
(`filterDataCleanTimeSpan`). Subscriptions to tags are in no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.filters.parser import NEWEST
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.config.file_versions import versions_of_files

CONSUMER_FILTERS = "consumerFilter.json"
_MAX_BIT_COUNT = 8 * ((1 << 15) - 1)
"""Bits of the longest bit map that an extension unit can have."""


def load_consumer_filters(store: Location) -> list[ConsumerFilter]:
    """The filters in the file (or in its `.bak`), by group and topic; an empty list if there is no file."""
    version = str(versions_of_files(store).last)  # an expression that an older broker refuses is not in the file
    found = load_config(store, CONSUMER_FILTERS, lambda content: parse_consumer_filters(content, version))
    return found or []


def parse_consumer_filters(content: Mapping[str, Any], version: str = NEWEST) -> list[ConsumerFilter]:
    """The filters in the file's JSON object, by group and topic."""
    filters = [
        _filter(str(group), str(topic), data, version)
        for topic, groups in (content.get("filterDataByTopic") or {}).items()
        if groups is not None
        for group, data in (groups.get("groupFilterData") or {}).items()
        if data is not None
    ]
    return sorted(filters, key=lambda one: (one.consumer_group, one.topic))


def _filter(consumer_group: str, topic: str, data: Mapping[str, Any], version: str) -> ConsumerFilter:
    bloom = data.get("bloomFilterData") or {}
    bit_count, positions = bloom.get("bitNum"), bloom.get("bitPos")
    if positions is not None and not isinstance(positions, list):
        raise TypeError(f"bitPos of group {consumer_group} is {positions!r}, not a list")
    if bit_count is not None and not 0 <= as_integer(bit_count, 32) <= _MAX_BIT_COUNT:
        raise ValueError(f"bitNum of group {consumer_group} is {bit_count}, more than a unit can have")
    return ConsumerFilter(
        consumer_group,
        topic,
        _text(data, "expression"),
        _text(data, "expressionType"),
        as_integer(data.get("bornTime") or 0, 64),
        as_integer(data.get("deadTime") or 0, 64),
        as_integer(data.get("clientVersion") or 0, 64),
        None if bit_count is None else as_integer(bit_count, 32),
        None if positions is None else tuple(as_integer(position, 32) for position in positions),
        version,
    )


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, not a text")
    return value
