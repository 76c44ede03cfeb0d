"""Body decompression (`common.compression`@5.3.3: `CompressorFactory`; `UtilAll.uncompress`@4.9.0).

| type in sysFlag | container |
| --- | --- |
| 0, 3 | one RFC 1950 zlib stream |
| 1 | LZ4 frame |
| 2 | zstd frame |

Other types are errors, in Java too. A body is hostile input: decompression stops after `limit` bytes.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from spark_mq.errors import BodyError
from spark_mq.format.record import COMPRESSION_TYPE_MASK, COMPRESSION_TYPE_SHIFT

DEFAULT_BODY_LIMIT = 64 << 20
"""Decompressed bytes of one body. By default, a broker accepts stored bodies of up to 4 MiB (`maxMessageSize`)."""

_READ_SIZE = 256 << 10
_ARROW_CODECS = {1: "lz4", 2: "zstd"}
_ZLIB_TYPES = (0, 3)


def decompress(body: bytes | memoryview | pa.Buffer, sys_flag: int, limit: int = DEFAULT_BODY_LIMIT) -> bytes:
    """The decompressed content of `body`.

    Args:
        body: The stored, compressed body.
        sys_flag: The record's sysFlag, which contains the compression type.
        limit: The largest accepted content, in bytes.

    Raises:
        BodyError: The type is unknown, the stream is broken or cut, or the content is longer than `limit`.

    Examples:
        >>> decompress(zlib.compress(b"hello"), sys_flag=0x1)
        b'hello'
    """
    kind = (sys_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT  # `MessageSysFlag.getCompressionType`@5.3.3
    if kind in _ZLIB_TYPES:
        return _decompress_zlib(body, limit)
    codec = _ARROW_CODECS.get(kind)
    if codec is None:
        raise BodyError(f"unknown compression type {kind} in sysFlag {sys_flag:#x}")
    return _decompress_frame(body, codec, limit)


def decompress_or_reason(
    body: bytes, sys_flag: int, limit: int = DEFAULT_BODY_LIMIT
) -> tuple[bytes | None, str | None]:
    """The content that `decompress` returns, and None; or None and the reason for column `_corrupt_record`."""
    try:
        return decompress(body, sys_flag, limit), None
    except BodyError as error:
        return None, f"BODY: {error}"


def _decompress_zlib(body: bytes | memoryview | pa.Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise BodyError(f"broken zlib stream: {error}") from error
    _check_limit(len(content), limit)
    if not stream.eof:
        raise BodyError("the zlib stream is cut")
    return content


def _decompress_frame(body: bytes | memoryview | pa.Buffer, codec: str, limit: int) -> bytes:
    source = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
    if source.size == 0:
        raise BodyError(f"the {codec} frame is cut")
    pieces: list[pa.Buffer] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(source), codec) as stream:
            # Buffers, not bytes: if the frame is broken, `read` does not free the memory that it has allocated.
            while piece := stream.read_buffer(_READ_SIZE):
                pieces.append(piece)
                size += piece.size
                _check_limit(size, limit)
    except (OSError, pa.ArrowException) as error:
        raise BodyError(f"broken {codec} frame: {error}") from error
    return b"".join(pieces)


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise BodyError(f"the body is longer than the limit of {limit} bytes")
