from __future__ import annotations

import gzip
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format import java_text
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.java_string import extend_hash, hash_code, is_utf8, repair_utf8
from spark_mq.testing.strategies import mixed_bytes
from tests.support.kernels import array, examples

TABLE = Path(__file__).with_name("java_strings.jsonl.gz")


@cache
def java_rows() -> list[dict[str, Any]]:
    """What Java says of some byte strings, most of them no UTF-8.

    Java 17.0.15 gave the table: for each `bytes`, `s = new String(bytes, StandardCharsets.UTF_8)`; `utf8` is
    `s.getBytes(StandardCharsets.UTF_8)` and `hash` is `s.hashCode()`, the bytes in hexadecimal. In it are single
    bytes, pairs of bytes at the borders of the classes (lead, continuation, none), and 600 random strings of 3 to 8
    bytes made of leads, continuations, ASCII, encoded surrogates and overlong forms.
    """
    with gzip.open(TABLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def hash_of(data: bytes) -> int:
    return hash_code(array(data), 0, len(data))


def test_the_table_of_java_is_there() -> None:
    assert len(java_rows()) > 900


def test_hash_codes_are_those_of_java() -> None:
    wrong = [row for row in java_rows() if hash_of(bytes.fromhex(row["bytes"])) != row["hash"]]
    assert wrong == []


def test_hash_codes_of_one_text_are_those_of_java() -> None:
    wrong = [row for row in java_rows() if java_text.hash_code(decode_utf8(bytes.fromhex(row["bytes"]))) != row["hash"]]
    assert wrong == []


def test_decoded_text_is_that_of_java() -> None:
    wrong = [row for row in java_rows() if decode_utf8(bytes.fromhex(row["bytes"])).encode().hex() != row["utf8"]]
    assert wrong == []


def test_repaired_text_is_that_of_java() -> None:
    texts = [bytes.fromhex(row["bytes"]) for row in java_rows()]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    out, out_offsets = np.empty(3 * offsets[-1], np.uint8), np.empty_like(offsets)
    repair_utf8(array(b"".join(texts)), offsets, out, out_offsets)
    repaired = [out[start:end].tobytes().hex() for start, end in pairwise(out_offsets)]
    assert repaired == [row["utf8"] for row in java_rows()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("Aa", 2112),
        ("BB", 2112),
        ("😀", 1772899),
    ],
)
def test_a_known_hash_code(text: str, value: int) -> None:
    assert hash_of(text.encode()) == value


@settings(max_examples=examples(300))
@given(st.text(max_size=30))
def test_the_hash_of_valid_text_is_that_of_its_utf16_units(text: str) -> None:
    assert hash_of(text.encode()) == java_text.hash_code(text)


@settings(max_examples=examples(300))
@given(mixed_bytes)
def test_text_is_decoded_and_hashed_in_python_as_by_the_kernels(data: bytes) -> None:
    out, out_offsets = np.empty(3 * len(data), np.uint8), np.empty(2, np.int32)
    repair_utf8(array(data), np.array([0, len(data)], np.int32), out, out_offsets)
    assert decode_utf8(data).encode() == out[: out_offsets[1]].tobytes()
    assert java_text.hash_code(decode_utf8(data)) == hash_of(data)


@settings(max_examples=examples(300))
@given(st.text(max_size=9), st.text(max_size=9), st.sampled_from(["", "#", "\xe9"]))
def test_the_hash_of_a_text_that_goes_on(first: str, second: str, between: str) -> None:
    begun = java_text.hash_code(first + between) & 0xFFFFFFFF
    data = second.encode()
    assert extend_hash(begun, array(data), 0, len(data)) == java_text.hash_code(first + between + second) & 0xFFFFFFFF


@given(mixed_bytes, st.binary(max_size=4), st.binary(max_size=4))
def test_the_hash_of_a_range_knows_nothing_of_its_surroundings(data: bytes, before: bytes, after: bytes) -> None:
    assert hash_code(array(before + data + after), len(before), len(data)) == hash_of(data)


@settings(max_examples=examples(300))
@given(mixed_bytes | st.text(max_size=9).map(str.encode) | st.just("\ufffd".encode()))
def test_bytes_are_utf8_if_nothing_is_replaced(data: bytes) -> None:
    is_valid = decode_utf8(data).encode() == data
    assert is_utf8(array(b"\xff" + data + b"\x80"), 1, 1 + len(data)) == is_valid


@given(st.text())
def test_valid_text_is_decoded_as_it_is(text: str) -> None:
    assert decode_utf8(text.encode()) == text


@given(mixed_bytes)
def test_ascii_bytes_are_never_swallowed(data: bytes) -> None:
    kept = [character for character in decode_utf8(data) if character < "\x80"]
    assert kept == [chr(byte) for byte in data if byte < 0x80]


@given(st.lists(mixed_bytes, max_size=6))
def test_texts_are_repaired_one_by_one(texts: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    out, out_offsets = np.empty(3 * offsets[-1], np.uint8), np.empty_like(offsets)
    repair_utf8(array(b"".join(texts)), offsets, out, out_offsets)
    assert [out[start:end].tobytes().decode() for start, end in pairwise(out_offsets)] == [
        decode_utf8(text) for text in texts
    ]
