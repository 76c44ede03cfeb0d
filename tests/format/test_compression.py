from __future__ import annotations

import hashlib
import tracemalloc
import zlib
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import BodyError
from spark_mq.format.compression import decompress
from spark_mq.format.record import COMPRESSED_FLAG, decode_record
from tests.support.kernels import examples
from tests.support.stores import RealStore, Unpack, segment_files, usual_stores

FLAGS = {"zlib (old clients)": 0x001, "lz4": 0x101, "zstd": 0x201, "zlib": 0x301}
all_kinds = pytest.mark.parametrize("kind", FLAGS)
CONTENT = b"".join(b"%d and some words, " % number for number in range(400))


def compress(content: bytes, kind: str) -> bytes:
    """A body as a client compresses it."""
    if kind.startswith("zlib"):
        return zlib.compress(content, 5)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@cache
def bomb(kind: str) -> bytes:
    """256 MiB of zeros, compressed."""
    block = bytes(1 << 20)
    if kind.startswith("zlib"):
        compressor = zlib.compressobj(9)
        return b"".join([*(compressor.compress(block) for _ in range(1 << 8)), compressor.flush()])
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        for _ in range(1 << 8):
            stream.write(block)
    return bytes(sink.getvalue())


@settings(max_examples=examples(100))
@given(st.binary(max_size=2000), st.sampled_from(sorted(FLAGS)))
def test_a_compressed_body_comes_back(content: bytes, kind: str) -> None:
    assert decompress(compress(content, kind), FLAGS[kind]) == content


@all_kinds
def test_a_body_can_be_any_kind_of_buffer(kind: str) -> None:
    body = compress(CONTENT, kind)
    assert decompress(memoryview(body), FLAGS[kind]) == decompress(pa.py_buffer(body), FLAGS[kind]) == CONTENT


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_real_compressed_bodies_are_what_the_java_decoder_says(store: RealStore, unpacked: Unpack) -> None:
    files = {int(file.name): file.read_bytes() for file in segment_files(unpacked(store))}
    for fact in store.facts("msg"):
        if fact["sysFlag"] & COMPRESSED_FLAG:
            base = max(start for start in files if start <= fact["offset"])
            record = decode_record(files[base], fact["offset"] - base)
            body = decompress(record.body, record.sys_flag)
            assert (len(body), hashlib.md5(body).hexdigest()) == (fact["bodyLen"], fact["bodyMd5"])


@all_kinds
@pytest.mark.parametrize("content", [CONTENT, b""], ids=["content", "empty"])
def test_a_stream_cut_anywhere_is_an_error(kind: str, content: bytes) -> None:
    body = compress(content, kind)
    for length in range(len(body)):
        with pytest.raises(BodyError):
            decompress(body[:length], FLAGS[kind])


@settings(max_examples=examples(300))
@given(st.binary(max_size=60), st.sampled_from(sorted(FLAGS)), st.integers(0, 8))
def test_garbage_is_a_body_error_or_a_body_within_the_limit(garbage: bytes, kind: str, kept: int) -> None:
    body = compress(CONTENT, kind)[:kept] + garbage
    try:
        content = decompress(body, FLAGS[kind], 1000)
    except BodyError:
        return
    assert len(content) <= 1000


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(FLAGS)), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_never_escapes_as_another_error(kind: str, place: int, mask: int) -> None:
    body = bytearray(compress(CONTENT, kind))
    body[place % len(body)] ^= mask
    try:
        content = decompress(bytes(body), FLAGS[kind], 2 * len(CONTENT))
    except BodyError:
        return
    assert len(content) <= 2 * len(CONTENT)


@pytest.mark.parametrize(("kind", "sys_flag"), [(4, 0x401), (5, 0x5FF), (6, 0x601), (7, -1)])
def test_an_unknown_type_is_named(kind: int, sys_flag: int) -> None:
    """The type is three bits."""
    with pytest.raises(BodyError, match=f"unknown compression type {kind}"):
        decompress(zlib.compress(b"x"), sys_flag)


@all_kinds
def test_a_body_has_at_most_the_bytes_of_the_limit(kind: str) -> None:
    assert decompress(compress(CONTENT, kind), FLAGS[kind], len(CONTENT)) == CONTENT
    with pytest.raises(BodyError, match=f"longer than the limit of {len(CONTENT) - 1} bytes"):
        decompress(compress(CONTENT, kind), FLAGS[kind], len(CONTENT) - 1)


@all_kinds
def test_a_bomb_takes_no_more_memory_than_the_limit(kind: str) -> None:
    body, limit = bomb(kind), 1 << 20
    arrow_before = pa.default_memory_pool().bytes_allocated()
    tracemalloc.start()
    try:
        with pytest.raises(BodyError, match="longer than the limit"):
            decompress(body, FLAGS[kind], limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit
    assert pa.default_memory_pool().bytes_allocated() <= arrow_before + limit


@pytest.mark.parametrize("kind", ["zlib", "zlib (old clients)"])
def test_bytes_behind_a_zlib_stream_are_passed_over(kind: str) -> None:
    """As Java's `InflaterInputStream` does."""
    assert decompress(compress(CONTENT, kind) + b"more", FLAGS[kind]) == CONTENT
