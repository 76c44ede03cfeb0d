"""The Bloom filter of consumer groups: which bits a message must have (`BloomFilter`, `BitsArray`@5.3.3, as in 4.9.7).

A broker with `enableCalcFilterBitMap` and `enableConsumeQueueExt` evaluates the SQL92 expressions of all groups when it
dispatches a message. For each group whose expression is TRUE, it sets the group's bits in the bit map of the message.
A pull of a group skips a message that lacks one of its bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from spark_mq.errors import OptionError

DEFAULT_ERROR_RATE = 20
"""`maxErrorRateOfBloomFilter` in percent (`BrokerConfig`@5.3.3)."""
DEFAULT_EXPECTED_GROUPS = 32
"""`expectConsumerNumUseFilter` (`BrokerConfig`@5.3.3)."""
_BITS = 8
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True)
class BloomFilter:
    """The shape of the bit maps of a broker.

    Attributes:
        bit_count: Bits of a bit map, a multiple of 8 (`BloomFilter.getM`).
        hash_count: Bits of a group (`BloomFilter.getK`).
    """

    bit_count: int
    hash_count: int

    @classmethod
    def of(cls, error_rate: int = DEFAULT_ERROR_RATE, expected_groups: int = DEFAULT_EXPECTED_GROUPS) -> Self:
        """The shape that a broker computes from its settings (`BloomFilter(int, int)`@5.3.3).

        Args:
            error_rate: `maxErrorRateOfBloomFilter`, percent.
            expected_groups: `expectConsumerNumUseFilter`.

        Raises:
            OptionError: A broker does not start with these settings.

        Examples:
            >>> BloomFilter.of()
            BloomFilter(bit_count=112, hash_count=3)
        """
        if not 1 <= error_rate < 100:
            raise OptionError(f"maxErrorRateOfBloomFilter={error_rate} is not a percentage from 1 to 99")
        if expected_groups < 1:
            raise OptionError(f"expectConsumerNumUseFilter={expected_groups} is not a positive number")
        rate = error_rate / 100.0
        hash_count = math.ceil(_log(0.5, rate))
        bits = math.ceil(expected_groups * _log(2, 1 / rate) * _log(2, math.e))
        return cls(_BITS * -(-bits // _BITS), hash_count)

    def positions(self, consumer_group: str, topic: str) -> tuple[int, ...]:
        """The bits of a group's filter of a topic (`ConsumerFilterManager.register`, `calcBitPositions`@5.3.3).

        Examples:
            >>> BloomFilter.of().positions("GID_rich", "FilterDemo")
            (6, 37, 75)
        """
        digest = murmur3_128_low(f"{consumer_group}#{topic}".encode("utf-8", "replace"))
        first, second = digest & _U32, digest >> 32
        found = []
        for number in range(1, self.hash_count + 1):
            combined = (first + number * second) & _U32
            # A Java int: if it is negative, all bits are flipped.
            found.append((combined if combined < 1 << 31 else combined ^ _U32) % self.bit_count)
        return tuple(found)


def bit_map(positions: Iterable[int], bit_count: int) -> bytes:
    """A bit map with these bits: bit p is bit p mod 8 of byte p div 8 (`BitsArray.setBit`@5.3.3).

    Examples:
        >>> bit_map([0, 9], 16).hex()
        '0102'
    """
    bits = bytearray(bit_count // _BITS)
    for position in positions:
        bits[position // _BITS] |= 1 << position % _BITS
    return bytes(bits)


def has_bits(bits: bytes, positions: Iterable[int]) -> bool:
    """Whether a bit map has all these bits (`BloomFilter.isHit`@5.3.3); False for a position outside."""
    return all(
        0 <= position < _BITS * len(bits) and bits[position // _BITS] >> position % _BITS & 1 for position in positions
    )


def murmur3_128_low(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0 (Guava's `Hashing.murmur3_128().asLong()`), unsigned.

    Examples:
        >>> hex(murmur3_128_low(b""))
        '0x0'
    """
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _U64
        h2 ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _U64
    h1 ^= _mixed(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    h2 ^= _mixed(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _U64
    h2 = (h2 + h1) & _U64
    return (_finished(h1) + _finished(h2)) & _U64


def _mixed(value: int, first: int, rotation: int, second: int) -> int:
    return _rotated(value * first & _U64, rotation) * second & _U64


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _U64


def _finished(value: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _U64
    return value ^ value >> 33


def _log(base: float, number: float) -> float:
    return math.log(number) / math.log(base)
