"""Offset message ids: store host (4 or 16 address bytes, 32-bit port) and commit log offset in hexadecimal digits.

An id has 32 or 56 characters (`MessageDecoder.createMessageId`, `decodeMessageId`@5.3.3). A unique key, which a client
creates (`MessageClientIDSetter`@5.3.3), has the same lengths: the text alone does not show which of the two it is.
"""

from __future__ import annotations

import re
import struct

from spark_mq.errors import OptionError

_OFFSET = struct.Struct(">q")
_ID = re.compile("(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


def encode_offset_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The id of the message at `commit_log_offset`.

    Args:
        store_host: The address (4 or 16 bytes) and the port (4 bytes) as stored.
        commit_log_offset: The offset of the message in the commit log.

    Example:
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

    Example:
        >>> normalize_offset_message_id("7f00000100002a9f0000000000001000")
        '7F00000100002A9F0000000000001000'
    """
    return encode_offset_message_id(*decode_offset_message_id(offset_message_id))


def decode_offset_message_id(offset_message_id: str) -> tuple[bytes, int]:
    """The stored bytes of the store host, and the commit log offset, of an id.

    Raises:
        OptionError: `offset_message_id` does not have the form of an id.

    Example:
        >>> decode_offset_message_id("7F00000100002A9F0000000000001000")[1]
        4096
    """
    if not is_offset_message_id(offset_message_id):
        raise OptionError(f"{offset_message_id!r} is not an offset message id, which has 32 or 56 hexadecimal digits")
    data = bytes.fromhex(offset_message_id)
    return data[: -_OFFSET.size], _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0]
