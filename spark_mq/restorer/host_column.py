"""The hosts of rows, as the bytes that records have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Flags, Int64s
from spark_mq.format.host_text import V4_MAPPED, host_fault, parse_host
from spark_mq.format.pieces import pieces_of_bytes
from spark_mq.format.record import HOST_V4_SIZE, HOST_V6_SIZE
from spark_mq.restorer.source_columns import SourceColumns, is_fault


@dataclass(frozen=True)
class Hosts:
    """The stored hosts of many messages.

    Attributes:
        buffer: The bytes of all hosts.
        starts: Where the host of a message starts in `buffer`.
        is_v6: Whether the host has 20 bytes instead of 8.

    """

    buffer: Bytes
    starts: Int64s
    is_v6: Flags


def one_host(text: str, count: int) -> Hosts:
    """The same host for `count` messages."""
    host = np.frombuffer(parse_host(text), np.uint8)
    return Hosts(host, np.broadcast_to(np.int64(0), count), np.broadcast_to(host.size == HOST_V6_SIZE, count))


def read_hosts(columns: SourceColumns, name: str, default: str, was_v6: Flags, is_from_source: Flags) -> Hosts:
    """The hosts of a column. Hosts are few, so each one is parsed once.

    Args:
        columns: The rows.
        name: The column: `born_host` or `store_host`.
        default: The host of a row without one.
        was_v6: Which rows say in their sysFlag that the host has an IPv6 address. If the text is an IPv4 address, the
            host was an IPv4-mapped address, which Java prints so.
        is_from_source: Which rows were in a store before; their ports may be any number.

    Raises:
        InvalidMessageError: A text is not a host.
    """
    if not columns.has(name):
        return one_host(default, columns.size)
    distinct = columns.array(name).cast(pa.string()).dictionary_encode()
    texts = [text.decode("utf-8", "replace") for text in distinct.dictionary.cast(pa.binary()).to_pylist()]
    texts.append(default)
    indices = distinct.indices.fill_null(len(texts) - 1).to_numpy()
    faults = [host_fault(text, any_port=True) for text in texts]
    new_faults = [host_fault(text) for text in texts]
    is_wrong = np.where(is_from_source, is_fault(faults)[indices], is_fault(new_faults)[indices])
    columns.check(is_wrong, lambda row: f"{name} {faults[indices[row]] or new_faults[indices[row]]}")
    parsed = [
        parse_host(text, any_port=True) if fault is None else b"" for text, fault in zip(texts, faults, strict=True)
    ]
    mapped = [V4_MAPPED + host if len(host) == HOST_V4_SIZE else host for host in parsed]
    hosts = pieces_of_bytes(parsed + mapped)
    places = indices + np.where(was_v6 & columns.is_given(name), len(parsed), 0)
    return Hosts(hosts.buffer, hosts.starts[places], hosts.lengths[places] == HOST_V6_SIZE)
