"""Contiguous text and bytes from pieces that are scattered in a buffer, as kernels.

Each kernel fills `out` and `offsets` in Arrow's layout of variable-size values: value i is
`out[offsets[i]:offsets[i + 1]]`. A piece of length -1 (there is no piece) takes no bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.kernels.big_endian import byte_at, read_i32
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import HOST_V4_SIZE, HOST_V6_SIZE

Flags = npt.NDArray[np.bool_]

MAX_HOST_TEXT = 2 + 39 + 1 + 11
"""Characters of the longest host: brackets, eight groups of four digits, a colon, a (signed) port."""

MAX_OFFSET_MESSAGE_ID_TEXT = 2 * (HOST_V6_SIZE + 8)
"""Characters of the longest offset message id."""

_HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_HEX_LOWER = np.frombuffer(b"0123456789abcdef", np.uint8)


@kernel
def gather_bytes(buffer: Bytes, starts: Int64s, lengths: Int32s, out: Bytes, offsets: Int32s) -> None:
    """Copy the pieces `starts`, `lengths` of `buffer`, one after the other."""
    out_end = 0
    offsets[0] = 0
    for index in range(starts.size):
        start, length = starts[index], max(lengths[index], 0)
        out[out_end : out_end + length] = buffer[start : start + length]
        out_end += length
        offsets[index + 1] = out_end


@kernel
def gather_bytes_of_two(
    buffer: Bytes,
    other: Bytes,
    from_other: Flags,
    starts: Int64s,
    lengths: Int32s,
    out: Bytes,
    offsets: Int32s,
) -> None:
    """`gather_bytes` from two buffers: piece i is in `other` if `from_other[i]` is true, else in `buffer`."""
    out_end = 0
    offsets[0] = 0
    for index in range(starts.size):
        start, length = starts[index], max(lengths[index], 0)
        if from_other[index]:
            out[out_end : out_end + length] = other[start : start + length]
        else:
            out[out_end : out_end + length] = buffer[start : start + length]
        out_end += length
        offsets[index + 1] = out_end


@kernel
def _write_decimal(value: int, out: Bytes, out_end: int) -> int:
    if value < 0:
        out[out_end] = ord("-")
        return _write_decimal_digits(-value, out, out_end + 1)
    return _write_decimal_digits(value, out, out_end)


@kernel
def _write_decimal_digits(value: int, out: Bytes, out_end: int) -> int:
    divisor = 1
    while value // divisor >= 10:
        divisor *= 10
    while divisor > 0:
        out[out_end] = ord("0") + (value // divisor) % 10
        divisor //= 10
        out_end += 1
    return out_end


@kernel
def _write_ipv4(buffer: Bytes, start: int, out: Bytes, out_end: int) -> int:
    for index in range(4):
        if index > 0:
            out[out_end] = ord(".")
            out_end += 1
        out_end = _write_decimal_digits(byte_at(buffer, start + index), out, out_end)
    return out_end


@kernel
def _write_ipv6(buffer: Bytes, start: int, out: Bytes, out_end: int) -> int:
    out[out_end] = ord("[")
    out_end += 1
    for group in range(8):
        if group > 0:
            out[out_end] = ord(":")
            out_end += 1
        value = (byte_at(buffer, start + 2 * group) << 8) | byte_at(buffer, start + 2 * group + 1)
        started = False
        for shift in (12, 8, 4, 0):
            digit = (value >> shift) & 0xF
            if started or digit > 0 or shift == 0:
                out[out_end] = _HEX_LOWER[digit]
                out_end += 1
                started = True
    out[out_end] = ord("]")
    return out_end + 1


@kernel
def _is_ipv4_mapped(buffer: Bytes, start: int) -> bool:
    for index in range(10):
        if buffer[start + index] != 0:
            return False
    return byte_at(buffer, start + 10) == 0xFF and byte_at(buffer, start + 11) == 0xFF


@kernel
def gather_hosts(buffer: Bytes, starts: Int64s, sizes: Int32s, out: Bytes, offsets: Int32s) -> None:
    """Write hosts as `ip:port`; an IPv6 address is in brackets, as Java prints it (`2001:db8:0:1:0:0:0:a`).

    `sizes` are 8 or 20 bytes. As in `InetAddress.getByAddress`, an IPv4-mapped address is an IPv4 address.
    """
    out_end = 0
    offsets[0] = 0
    for index in range(starts.size):
        start, port_at = starts[index], starts[index] + sizes[index] - 4
        if sizes[index] == HOST_V4_SIZE:
            out_end = _write_ipv4(buffer, start, out, out_end)
        elif _is_ipv4_mapped(buffer, start):
            out_end = _write_ipv4(buffer, start + 12, out, out_end)
        else:
            out_end = _write_ipv6(buffer, start, out, out_end)
        out[out_end] = ord(":")
        out_end = _write_decimal(read_i32(buffer, port_at), out, out_end + 1)
        offsets[index + 1] = out_end


@kernel
def _write_hex(byte: int, out: Bytes, out_end: int) -> int:
    out[out_end] = _HEX_UPPER[byte >> 4]
    out[out_end + 1] = _HEX_UPPER[byte & 0xF]
    return out_end + 2


@kernel
def gather_offset_message_ids(
    buffer: Bytes, starts: Int64s, sizes: Int32s, commit_log_offsets: Int64s, out: Bytes, offsets: Int32s
) -> None:
    """Write offset message ids: store host and commit log offset in hex (`MessageDecoder.createMessageId`@5.3.3).

    `starts` and `sizes` are the pieces of `buffer` that contain the store hosts.
    """
    out_end = 0
    offsets[0] = 0
    for index in range(starts.size):
        for position in range(starts[index], starts[index] + sizes[index]):
            out_end = _write_hex(buffer[position], out, out_end)
        for shift in range(56, -8, -8):
            out_end = _write_hex((commit_log_offsets[index] >> shift) & 0xFF, out, out_end)
        offsets[index + 1] = out_end
