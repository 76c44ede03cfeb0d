"""Hosts, and offset message ids: store host (4 or 16 bytes, 32-bit port) and commit log offset as hexadecimal digits.

An id has 32 or 56 characters (`MessageDecoder.createMessageId`, `decodeMessageId`@5.3.3). A unique key, which a client
creates (`MessageClientIDSetter`@5.3.3), has the same lengths: the text alone does not show which of the two it is.
"""

from __future__ import annotations

import re
import struct
from datetime import timedelta
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from spark_mq.errors import OptionError

_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]%]+)\]|(?P<v4>[0-9.]+)):(?P<port>-?[0-9]{1,10})")
_PORT = struct.Struct(">i")
_PORTS = range(1 << 16)
_INT32 = range(-(1 << 31), 1 << 31)

V4_MAPPED = bytes(10) + b"\xff\xff"
"""The first bytes of an IPv6 address that is an IPv4 address."""
_OFFSET = struct.Struct(">q")
_LONGEST_MONTH_MILLIS = 32 * 24 * 3600 * 1000
_ID = re.compile("(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


def parse_host(text: str, any_port: bool = False) -> bytes:
    """The stored bytes of a host: the 4 or 16 bytes of the address, and the 4 bytes of the port.

    Args:
        text: An IPv4 address and a port, or an IPv6 address in brackets and a port.
        any_port: Whether the port may be any 32-bit integer, as the port of a stored message may be.

    Raises:
        ValueError: The text is not a host. The message says what a host is.

    Examples:
        >>> parse_host("127.0.0.1:10911").hex()
        '7f00000100002a9f'
    """
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError(_reason(text))
    port = int(found["port"])
    if port not in (_INT32 if any_port else _PORTS):
        raise ValueError(f"{text!r} has a port that is not from 0 to 65535")
    try:
        address = IPv4Address(found["v4"]) if found["v4"] else IPv6Address(found["v6"])
    except AddressValueError as error:
        raise ValueError(_reason(text)) from error
    return address.packed + _PORT.pack(port)


def host_fault(text: str, any_port: bool = False) -> str | None:
    """Why `parse_host` does not accept a text; None if it does."""
    try:
        parse_host(text, any_port)
    except ValueError as error:
        return str(error)
    return None


def _reason(text: str) -> str:
    return (
        f"{text[:80]!r} is not an address and a port, such as 10.0.0.1:10911 or [2001:db8::1]:10911 "
        "(names are not resolved)"
    )


def encode_offset_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The id of the message at `commit_log_offset`.

    Args:
        store_host: The address (4 or 16 bytes) and the port (4 bytes) as stored.
        commit_log_offset: The offset of the message in the commit log.

    Examples:
        >>> encode_offset_message_id(bytes([127, 0, 0, 1, 0, 0, 42, 159]), 4096)
        '7F00000100002A9F0000000000001000'
    """
    return (store_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def is_offset_message_id(text: str) -> bool:
    """Whether `text` has the form of an id: 32 or 56 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def normalize_offset_message_id(offset_message_id: str) -> str:
    """The id in the form that messages have, which is upper case.

    Raises:
        OptionError: `offset_message_id` does not have the form of an id.

    Examples:
        >>> normalize_offset_message_id("7f00000100002a9f0000000000001000")
        '7F00000100002A9F0000000000001000'
    """
    return encode_offset_message_id(*decode_offset_message_id(offset_message_id))


def decode_offset_message_id(offset_message_id: str) -> tuple[bytes, int]:
    """The stored bytes of the store host, and the commit log offset, of an id.

    Raises:
        OptionError: `offset_message_id` does not have the form of an id.

    Examples:
        >>> decode_offset_message_id("7F00000100002A9F0000000000001000")[1]
        4096
    """
    if not is_offset_message_id(offset_message_id):
        raise OptionError(f"{offset_message_id!r} is not an offset message id, which has 32 or 56 hexadecimal digits")
    data = bytes.fromhex(offset_message_id)
    return data[: -_OFFSET.size], _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0]


def has_plausible_port(offset_message_id: str) -> bool:
    """Whether the port of an id can be a port, and its offset an offset: else it is rather a unique key.

    At the place of the port's four bytes, a unique key has two bytes of the client's process id and a part of a hash.
    They are a possible port only if the process id is 0.

    Raises:
        OptionError: `offset_message_id` does not have the form of an id.

    Examples:
        >>> has_plausible_port("7F00000100002A9F0000000000001000")
        True
        >>> has_plausible_port("7F0000010B5F18B4AAC28F1B3B6D0000")
        False
    """
    host, offset = decode_offset_message_id(offset_message_id)
    return 0 < int.from_bytes(host[-4:], "big") < 1 << 16 and offset >= 0


def unique_key_time(unique_key: str) -> timedelta | None:
    """The time from the beginning of a month, in the client's time zone, at which the client made a unique key.

    A unique key consists of address, process id, hash, this time in milliseconds, and a counter. The key does not
    contain the month (`MessageClientIDSetter.createUniqID`@5.3.3).

    Returns:
        The time; None if the text is not such a key.

    Examples:
        >>> unique_key_time("7F0000010B5F18B4AAC24C1B3B6D0000")
        datetime.timedelta(days=14, seconds=67210, microseconds=221000)
    """
    if not is_offset_message_id(unique_key) or has_plausible_port(unique_key):
        return None
    millis = int.from_bytes(bytes.fromhex(unique_key)[-6:-2], "big")
    return timedelta(milliseconds=millis) if millis < _LONGEST_MONTH_MILLIS else None
