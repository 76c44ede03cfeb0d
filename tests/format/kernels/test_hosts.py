from __future__ import annotations

import ipaddress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.fields import host_texts, offset_message_ids
from spark_mq.format.kernels.gather import gather_bytes
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.pieces import pieces_of_bytes
from tests.support.kernels import array, examples

ports = st.integers(-(1 << 31), (1 << 31) - 1)


def texts_of(hosts: list[bytes]) -> list[str]:
    texts = host_texts(*pieces_of_bytes(hosts))
    texts.validate(full=True)
    return list(texts.to_pylist())


def host(address: str, port: int) -> bytes:
    return ipaddress.ip_address(address).packed + port.to_bytes(4, signed=True)


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [
        ("127.0.0.1", 10911, "127.0.0.1:10911"),
        ("0.0.0.0", 0, "0.0.0.0:0"),
        ("255.255.255.255", 65535, "255.255.255.255:65535"),
        ("10.20.30.40", -1, "10.20.30.40:-1"),
        ("1.2.3.4", -(1 << 31), "1.2.3.4:-2147483648"),
        ("1.2.3.4", (1 << 31) - 1, "1.2.3.4:2147483647"),
        ("2001:db8:0:1::a", 10911, "[2001:db8:0:1:0:0:0:a]:10911"),
        ("::", 1, "[0:0:0:0:0:0:0:0]:1"),
        ("::1", 1, "[0:0:0:0:0:0:0:1]:1"),
        ("::1.2.3.4", 1, "[0:0:0:0:0:0:102:304]:1"),
        ("::ffff:1.2.3.4", 9876, "1.2.3.4:9876"),
        ("::ff00:1.2.3.4", 1, "[0:0:0:0:0:ff00:102:304]:1"),
        ("::ff:1.2.3.4", 1, "[0:0:0:0:0:ff:102:304]:1"),
        ("fe80::ffff:1.2.3.4", 1, "[fe80:0:0:0:0:ffff:102:304]:1"),
    ],
)
def test_a_host_is_written_as_java_prints_its_address(address: str, port: int, text: str) -> None:
    assert texts_of([host(address, port)]) == [text]


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), ports), max_size=5))
def test_hosts_can_be_read_back(hosts: list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]) -> None:
    texts = texts_of([host(str(address), port) for address, port in hosts])
    read = [(ipaddress.ip_address(text.rpartition(":")[0].strip("[]")), int(text.rpartition(":")[2])) for text in texts]
    plain = [(getattr(address, "ipv4_mapped", None) or address, port) for address, port in hosts]
    assert read == plain


@given(
    st.lists(
        st.tuples(
            st.sampled_from((8, 20)).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
            st.integers(0, (1 << 63) - 1),
        ),
        max_size=5,
    )
)
def test_offset_message_ids_are_those_of_the_plain_encoder(messages: list[tuple[bytes, int]]) -> None:
    ids = offset_message_ids(
        *pieces_of_bytes([stored for stored, _ in messages]), np.array([offset for _, offset in messages], np.int64)
    )
    ids.validate(full=True)
    assert ids.to_pylist() == [encode_offset_message_id(stored, offset) for stored, offset in messages]


pieces = st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 10)), max_size=8)


@given(st.binary(min_size=30, max_size=30), pieces)
def test_pieces_are_copied_one_after_the_other(data: bytes, wanted: list[tuple[int, int]]) -> None:
    starts, lengths = np.array([p[0] for p in wanted], np.int64), np.array([p[1] for p in wanted], np.int32)
    out, offsets = np.empty(100, np.uint8), np.empty(len(wanted) + 1, np.int32)
    gather_bytes(array(data), starts, lengths, out, offsets)
    assert [out[start:end].tobytes() for start, end in pairwise(offsets)] == [
        data[start : start + max(length, 0)] for start, length in wanted
    ]
