"""Hosts as text, `ADDRESS:PORT`, back to the bytes that a record has; the inverse of `message_row.host_text`."""

from __future__ import annotations

import re
import struct
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]%]+)\]|(?P<v4>[0-9.]+)):(?P<port>-?[0-9]{1,10})")
_PORT = struct.Struct(">i")
_PORTS = range(1 << 16)
_INT32 = range(-(1 << 31), 1 << 31)

V4_MAPPED = bytes(10) + b"\xff\xff"
"""The first bytes of an IPv6 address that is an IPv4 address."""


def parse_host(text: str, any_port: bool = False) -> bytes:
    """The stored bytes of a host: the 4 or 16 bytes of the address, and the 4 bytes of the port.

    Args:
        text: An IPv4 address and a port, or an IPv6 address in brackets and a port.
        any_port: Whether the port may be any 32-bit integer, as the port of a stored message may be.

    Raises:
        ValueError: The text is not a host. The message says what a host is.

    Example:
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
