from __future__ import annotations

import gzip
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
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
        rows = [json.loads(line) for line in lines]
    assert len(rows) > 900
    return rows


def hash_of(data: bytes) -> int:
    return hash_code(array(data), 0, len(data))


def test_hash_codes_are_those_of_java() -> None:
    """Of the kernel and of the plain twin; and the text that the twin decodes."""
    for row in java_rows():
        data = bytes.fromhex(row["bytes"])
        text = decode_utf8(data)
        assert (text.encode().hex(), java_text.hash_code(text), hash_of(data)) == (row["utf8"], *[row["hash"]] * 2), row


def test_repaired_text_is_that_of_java() -> None:
    texts = [bytes.fromhex(row["bytes"]) for row in java_rows()]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    out, out_offsets = np.empty(3 * offsets[-1], np.uint8), np.empty_like(offsets)
    repair_utf8(array(b"".join(texts)), offsets, out, out_offsets)
    repaired = [out[start:end].tobytes().hex() for start, end in pairwise(out_offsets)]
    assert repaired == [row["utf8"] for row in java_rows()]


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
