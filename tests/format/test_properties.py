from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.array_types import Int32s, Int64s
from spark_mq.format.kernels import properties
from spark_mq.format.pieces import pieces_of_bytes
from spark_mq.format.properties import encode_properties, parse_properties
from tests.support.kernels import array, examples

pieces = st.sampled_from([b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"bb", b" ", b"\xff"])
stored = st.one_of(st.lists(pieces, max_size=25).map(b"".join), st.binary(max_size=30))
stored_lists = st.lists(stored, max_size=5)


def places(texts: list[bytes]) -> tuple[Int64s, Int32s]:
    return pieces_of_bytes(texts)[1:]


def found(data: bytes, name: bytes) -> bytes | None:
    start, length = properties.find_value(array(data), 0, len(data), array(name))
    return None if length < 0 else data[start : start + length]


def listed(texts: list[bytes], wanted: bytes = b"") -> tuple[list[list[tuple[bytes, bytes]]], list[bytes | None]]:
    """The properties of each text, and the value of the name `wanted` in it."""
    buffer = b"".join(texts)
    starts, lengths = places(texts)
    most = buffer.count(b"\2") + len(texts)
    offsets, name_offsets, value_offsets = (np.empty(count + 1, np.int32) for count in (len(texts), most, most))
    names, values = np.empty(len(buffer) + 32, np.uint8), np.empty(len(buffer), np.uint8)
    value_starts, value_lengths = np.empty(len(texts), np.int64), np.empty(len(texts), np.int32)
    properties.copy_properties(
        array(buffer),
        starts,
        lengths,
        array(wanted),
        np.array([len(wanted)]),
        np.empty(3 * most, np.int64),
        offsets,
        name_offsets,
        names,
        value_offsets,
        values,
        value_starts,
        value_lengths,
    )
    pairs = [
        (names[name:name_end].tobytes(), values[value:value_end].tobytes())
        for (name, name_end), (value, value_end) in zip(
            pairwise(name_offsets[: offsets[-1] + 1]), pairwise(value_offsets[: offsets[-1] + 1]), strict=True
        )
    ]
    found = [
        None if length < 0 else buffer[start : start + length]
        for start, length in zip(value_starts, value_lengths, strict=True)
    ]
    return [pairs[start:end] for start, end in pairwise(offsets)], found


@pytest.mark.parametrize(
    ("data", "parsed"),
    [
        (b"", {}),
        (b"a\1b\2", {b"a": b"b"}),
        (b"a\1b", {b"a": b"b"}),
        (b"a\1b\2c\1d", {b"a": b"b", b"c": b"d"}),
        (b"a\1b\2a\1c\2", {b"a": b"c"}),
        (b"a\1b\1c\2", {b"a": b"b\1c"}),
        (b"a\1\1\2", {b"a": b"\1"}),
        (b"a\1\2", {}),
        (b"a\1b\2a\1\2", {b"a": b"b"}),
        (b"\1b\2", {}),
        (b"a\2\2b\1c\2", {b"b": b"c"}),
        (b"\2", {}),
        (b"\1", {}),
    ],
)
def test_the_rules_of_the_java_decoder(data: bytes, parsed: dict[bytes, bytes]) -> None:
    assert parse_properties(data) == parsed
    assert listed([data])[0] == [list(parsed.items())]


names = st.binary(min_size=1, max_size=5).filter(lambda name: not {1, 2} & set(name))
values = st.binary(min_size=1, max_size=5).filter(lambda value: 2 not in value)


@given(st.dictionaries(names, values, max_size=6))
def test_encoded_properties_are_parsed_back(properties: dict[bytes, bytes]) -> None:
    assert parse_properties(encode_properties(properties)) == properties


@settings(max_examples=examples(300))
@given(stored, st.sampled_from([b"a", b"KEYS", b"TAGS", b"bb", b"aa", b"\xff", b"x"]))
def test_a_value_is_found_as_the_parser_has_it(data: bytes, name: bytes) -> None:
    assert found(data, name) == parse_properties(data).get(name)


@given(stored_lists)
def test_values_of_many_messages_are_those_of_each(texts: list[bytes]) -> None:
    buffer = b"".join(texts)
    value_starts, value_lengths = properties.places_of(pieces_of_bytes(texts), b"a")
    values_found = [
        None if length < 0 else buffer[start : start + length]
        for start, length in zip(value_starts, value_lengths, strict=True)
    ]
    assert values_found == [parse_properties(text).get(b"a") for text in texts]


@settings(max_examples=examples(300))
@given(stored_lists)
def test_listed_properties_are_the_parsed_ones(texts: list[bytes]) -> None:
    pairs, found = listed(texts, b"a")
    assert pairs == [list(parse_properties(text).items()) for text in texts]
    assert found == [parse_properties(text).get(b"a") for text in texts]


@settings(max_examples=examples(200))
@given(st.lists(st.lists(st.sampled_from([b" ", b"a", b"bc", b"\xff", b"\t"]), max_size=12).map(b"".join), max_size=5))
def test_keys_are_split_at_spaces(texts: list[bytes]) -> None:
    starts, lengths = places(texts)
    keys = copied_keys(b"".join(texts), starts, lengths)
    assert keys == [[key for key in text.split(b" ") if key] for text in texts]


def copied_keys(buffer: bytes, starts: Int64s, lengths: Int32s) -> list[list[bytes]]:
    offsets, key_offsets = np.empty(starts.size + 1, np.int32), np.empty(len(buffer) + 1, np.int32)
    out = np.empty(len(buffer) + 32, np.uint8)
    properties.copy_keys(array(buffer), starts, lengths, offsets, key_offsets, out)
    keys = [out[start:end].tobytes() for start, end in pairwise(key_offsets[: offsets[-1] + 1])]
    return [keys[start:end] for start, end in pairwise(offsets)]


def test_a_message_without_keys_has_none() -> None:
    assert copied_keys(b"abc", np.zeros(1, np.int64), np.array([-1], np.int32)) == [[]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("+1", 1),
        ("-0", 0),
        ("00000000001", 1),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
    ],
)
def test_an_integer_of_java(text: str, value: int) -> None:
    """As Java 17's `Integer.parseInt` read them."""
    assert properties.parse_decimal(array(text.encode()), 0, len(text)) == (True, value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "+", "2147483648", "+2147483648", "-2147483649", "4294967296", "9876543210987654321", "9" * 20),
        *("1 ", " 1", "+-1", "--1", "1.0", "0x1", "1a", "\0", "/", ":", "1,0"),
    ],
)
def test_no_integer_of_java(text: str) -> None:
    """Java 17's `Integer.parseInt` refused them."""
    assert not properties.parse_decimal(array(text.encode()), 0, len(text))[0]


@settings(max_examples=examples(300))
@given(st.one_of(st.integers(-(1 << 33), 1 << 33).map(str), st.text("+-019 ", max_size=12)))
def test_any_ascii_text_is_an_integer_or_not(text: str) -> None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    value = int(text) if digits.isdecimal() else 1 << 40
    is_integer = -(1 << 31) <= value < 1 << 31
    parsed, read = properties.parse_decimal(array(text.encode()), 0, len(text))
    assert (parsed, read if parsed else None) == (is_integer, value if is_integer else None)


@given(st.lists(st.sampled_from([b"", b"a", b"ab", b"abc", b"b"]), max_size=8), st.sampled_from([b"", b"a", b"ab"]))
def test_equal_pieces_are_equal(texts: list[bytes], wanted: bytes) -> None:
    starts, lengths = places(texts)
    result = np.empty(len(texts), np.bool_)
    properties.equal_pieces(array(b"".join(texts)), starts, lengths, array(wanted), result)
    assert result.tolist() == [text == wanted for text in texts]
