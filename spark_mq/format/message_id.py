"""Offset message ids: hex of store host (4 or 16 address bytes, 32-bit port) and commit log offset.

32 or 56 characters (`MessageDecoder.createMessageId`, `decodeMessageId`@5.3.3). A unique key (made by the client,
`MessageClientIDSetter`) has the same lengths: text alone does not tell which of the two it is.
"""

from __future__ import annotations

import re
import struct

from spark_mq.errors import OptionError

_OFFSET = struct.Struct(">q")
_ID = re.compile("(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


def encode_offset_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The id of the message at `commit_log_offset`; `store_host` is the address and port as stored."""
    return (store_host + _OFFSET.pack(commit_log_offset)).hex().upper()


def is_offset_message_id(text: str) -> bool:
    """Whether text has the form of an id."""
    return _ID.fullmatch(text) is not None


def decode_offset_message_id(offset_message_id: str) -> tuple[bytes, int]:
    """The stored host bytes and the commit log offset in an id.

    Raises `OptionError` for text that is no such id.
    """
    if not is_offset_message_id(offset_message_id):
        raise OptionError(f"{offset_message_id!r} is no offset message id: that is 32 or 56 hexadecimal digits")
    data = bytes.fromhex(offset_message_id)
    return data[: -_OFFSET.size], _OFFSET.unpack_from(data, len(data) - _OFFSET.size)[0]
