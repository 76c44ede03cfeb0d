"""`config/consumerFilter.json`: the SQL92 filters of consumer groups (`ConsumerFilterManager`@5.3.3 and @4.9.7).

`{"filterDataByTopic": {"orders": {"groupFilterData": {"billing": {"expression": "price > 5", ...}}}}}`. A broker writes
the file every ten seconds and when it stops. It removes a group a day after its last consumer left
(`filterDataCleanTimeSpan`). Subscriptions to tags are in no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_mq.errors import FilterError
from spark_mq.filters.expression import Expression
from spark_mq.filters.parser import NEWEST, ParsedFilter, parse_sql92
from spark_mq.format.bloom_filter import BloomFilter
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.config.file_versions import versions_of_files

CONSUMER_FILTERS = "consumerFilter.json"
_MAX_BIT_COUNT = 8 * ((1 << 15) - 1)
"""Bits of the longest bit map that an extension unit can have."""
SQL92 = "SQL92"
"""The only type of expressions that a broker keeps (`ExpressionType`, `FilterFactory`@5.3.3)."""


@dataclass(frozen=True)
class ConsumerFilter:
    """The filter of one group for one topic; times are milliseconds since the epoch.

    Bits of messages that were stored until `born_time`, when the broker got the expression, do not count. The last
    consumer of the group left at `dead_time`. A value of bits is None if the file does not say it. `version` is that of
    the RocketMQ that evaluates the expression.
    """

    consumer_group: str
    topic: str
    expression: str | None
    expression_type: str | None = SQL92
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bit_count: int | None = None
    bit_positions: tuple[int, ...] | None = None
    version: str = NEWEST

    @property
    def is_dead(self) -> bool:
        """Whether the group has no consumer (`ConsumerFilterData.isDead`@5.3.3)."""
        return self.dead_time >= self.born_time

    @cached_property
    def _parsed(self) -> ParsedFilter | str:
        """The parsed expression, or why a broker cannot evaluate it."""
        if self.expression_type != SQL92:
            return f"the type {self.expression_type} is not {SQL92}"
        if not self.expression:
            return "there is no expression"
        try:
            return parse_sql92(self.expression, self.version)
        except FilterError as error:
            return str(error)

    @property
    def condition(self) -> Expression | None:
        """The parsed expression; None if a broker cannot evaluate it."""
        return None if isinstance(self._parsed, str) else self._parsed.condition

    @property
    def problem(self) -> str | None:
        """Why the filter does not work as its group expects, as text for a person; None if nothing was found."""
        if isinstance(self._parsed, str):
            return f"a broker does not evaluate it: {self._parsed}"
        if self._parsed.ignored:
            return self._parsed.warning
        if self.bit_count is None or self.bit_positions is None:
            return "it has no bits, so a broker forgets all filters at its next start"
        if self.bit_count < 8 or self.bit_count % 8 or not self.bit_positions:
            return f"its bits {list(self.bit_positions)} of {self.bit_count} are not those of any broker"
        expected = BloomFilter(self.bit_count, len(self.bit_positions)).positions(self.consumer_group, self.topic)
        if expected != self.bit_positions:
            return f"its bits {list(self.bit_positions)} are not those of the group, {list(expected)}"
        return None


def usable_filters(filters: Iterable[ConsumerFilter], bloom: BloomFilter) -> tuple[ConsumerFilter, ...]:
    """The filters that a broker has after it started: all of them, or none (`ConsumerFilterManager.decode`@5.3.3).

    If the bits of one filter have another number than the broker's settings say, the broker ignores the whole file.
    """
    found = tuple(filters)
    is_usable = all(
        one.bit_count == bloom.bit_count and len(one.bit_positions or ()) == bloom.hash_count for one in found
    )
    return found if is_usable else ()


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
