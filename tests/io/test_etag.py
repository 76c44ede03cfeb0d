"""ETags of zeros."""

from __future__ import annotations

import hashlib

import pytest

from spark_mq.io.object_store import tells_only_zeros

MIB = 1 << 20


def of_parts(data: bytearray, part: int) -> str:
    """As `CompleteMultipartUpload` makes it: the MD5 of the MD5s of the parts, and their number."""
    digests = [hashlib.md5(data[at : at + part]).digest() for at in range(0, len(data), part)]
    return f'"{hashlib.md5(b"".join(digests)).hexdigest()}-{len(digests)}"'


def test_etags_that_a_server_gave() -> None:
    """S3Proxy 2.6.0, files that pyarrow wrote: by one request, and in parts of 10 MiB."""
    assert tells_only_zeros('"b6d81b360a5672d80c27430f39153e2c"', MIB)
    assert tells_only_zeros('"0c133f2e4a3e80c731c6a1dac9ba3db1-3"', 24 * MIB)
    assert not tells_only_zeros('"b6d81b360a5672d80c27430f39153e2c"', MIB + 1)
    assert not tells_only_zeros('"0c133f2e4a3e80c731c6a1dac9ba3db1-3"', 25 * MIB)
    assert not tells_only_zeros('"0c133f2e4a3e80c731c6a1dac9ba3db1-2"', 24 * MIB)


@pytest.mark.parametrize("part", [5, 7, 8, 16, 25])
@pytest.mark.parametrize("size", [24 * MIB, 24 * MIB + 1])
def test_zeros_in_parts(part: int, size: int) -> None:
    data = bytearray(size)
    assert tells_only_zeros(of_parts(data, part * MIB), size) == (part != 7)  # no client uses 7 MiB unless it is told
    data[size // 2] = 1
    assert not tells_only_zeros(of_parts(data, part * MIB), size)


@pytest.mark.parametrize("etag", ["", "b6d8", '"b6d81b360a5672d80c27430f39153e2c-0"', "not an ETag"])
def test_other_texts_tell_nothing(etag: str) -> None:
    assert not tells_only_zeros(etag, MIB)
