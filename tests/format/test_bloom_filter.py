"""The Bloom filter of consumer groups, against RocketMQ's class (`tests/broker/make_filter_cases.py`)."""

from __future__ import annotations

import json

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.bloom_filter import BloomFilter, bit_map, has_bits
from tests.support.filter_cases import BITS


def test_bits_are_those_of_rocketmq() -> None:
    cases = [json.loads(line) for line in BITS.read_text(encoding="utf-8").splitlines()]
    assert len(cases) >= 50
    for case in cases:
        group, _, topic = case["bloom"].partition("#")
        bloom = BloomFilter.of(case["errorRate"], case["groups"])
        assert [bloom.bit_count, *bloom.positions(group, topic)] == case["bits"], case


def test_a_bit_map_has_the_bits_that_were_set() -> None:
    bits = bit_map([0, 9, 111], 112)
    assert bits.hex() == "01020000000000000000000000" + "80"
    assert has_bits(bits, [111, 9])
    assert not has_bits(bits, [9, 10])
    assert not has_bits(bits, [112])
    assert not has_bits(bits, [-1])
    assert not has_bits(b"", [0])


@pytest.mark.parametrize("settings", [(0, 32), (100, 32), (20, 0)])
def test_settings_that_no_broker_starts_with(settings: tuple[int, int]) -> None:
    with pytest.raises(OptionError, match=r"BloomFilter=|UseFilter="):
        BloomFilter.of(*settings)


@pytest.mark.parametrize("settings", [(1, 1), (99, 1)])
def test_the_least_settings_with_which_a_broker_starts(settings: tuple[int, int]) -> None:
    assert BloomFilter.of(*settings).bit_count % 8 == 0


def test_a_name_that_is_not_unicode_has_bits() -> None:
    assert BloomFilter.of().positions("a\ud800", "t") == BloomFilter.of().positions("a?", "t")
