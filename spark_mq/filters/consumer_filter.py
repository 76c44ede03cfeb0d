"""The SQL92 filter of a consumer group, as a broker keeps it (`ConsumerFilterData`@5.3.3, the same in 4.9.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from spark_mq.errors import FilterError
from spark_mq.filters.expression import Expression
from spark_mq.filters.one_message import evaluate
from spark_mq.filters.parser import NEWEST, ParsedFilter, parse_sql92
from spark_mq.filters.truth import Truth
from spark_mq.format.bloom_filter import BloomFilter, bit_map

SQL92 = "SQL92"
"""The only type of expressions that a broker keeps (`ExpressionType`, `FilterFactory`@5.3.3)."""


@dataclass(frozen=True)
class ConsumerFilter:
    """The filter of one group for one topic.

    Attributes:
        consumer_group: The group.
        topic: The topic.
        expression: The text of the expression; None if the file has none.
        expression_type: Its type.
        born_time: When the broker got the expression, milliseconds since the epoch. Bits of messages that were stored
            until then do not count.
        dead_time: When the group's last consumer left, milliseconds since the epoch; 0 if none has left.
        client_version: The version of the subscription: the time at which the client made it, in milliseconds.
        bit_count: Bits of a message's bit map; None if the file does not say it.
        bit_positions: The bits that a message must have; None if the file does not say it.
        version: The version of RocketMQ that evaluates the expression, as in `parse_sql92`.
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

    def is_true_for(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is TRUE for a message with these properties; False if it cannot be evaluated."""
        condition = self.condition
        return condition is not None and evaluate(condition, properties) == Truth.TRUE


def usable_filters(filters: Iterable[ConsumerFilter], bloom: BloomFilter) -> tuple[ConsumerFilter, ...]:
    """The filters that a broker has after it started: all of them, or none (`ConsumerFilterManager.decode`@5.3.3).

    If the bits of one filter have another number than the broker's settings say, the broker ignores the whole file.
    """
    found = tuple(filters)
    return found if all(_is_valid(one, bloom) for one in found) else ()


def _is_valid(one: ConsumerFilter, bloom: BloomFilter) -> bool:
    positions = one.bit_positions
    return one.bit_count == bloom.bit_count and positions is not None and len(positions) == bloom.hash_count


def message_bit_map(filters: Sequence[ConsumerFilter], properties: Mapping[str, str], bit_count: int) -> bytes:
    """The bit map that a broker stores for a message (`CommitLogDispatcherCalcBitMap.dispatch`@5.3.3, as in 4.9.7).

    Args:
        filters: The filters for the topic of the message.
        properties: All properties of the message.
        bit_count: Bits of a bit map.

    Returns:
        The bits of all groups whose expression is TRUE; empty if there is no filter for the topic.
    """
    if not filters:
        return b""
    positions = [p for one in filters if one.is_true_for(properties) for p in one.bit_positions or ()]
    if any(not 0 <= position < bit_count for position in positions):
        return b""  # Java throws an exception, and stores no bit map
    return bit_map(positions, bit_count)
