"""A command of the remoting protocol, and its bytes: a request, or the response to one.

A frame is (`RemotingCommand.encode`, `RocketMQSerializable`@5.5.0; numbers are big-endian)::

    4 bytes   length of what follows
    1 byte    how the header is written: 0 JSON, 1 ROCKETMQ
    3 bytes   length of the header
              header
              body, the rest of the frame

What a header cannot say: for Java (4.9.7 and 5.5.0 alike), a ROCKETMQ header has null for an empty text, and a JSON
header leaves out a null. Here, an empty value of a field stays empty, an empty remark of a ROCKETMQ header is None, and
a null field is left out.
Both versions read headers that nobody writes: JSON with names in another case or without quotes, ROCKETMQ headers with
negative lengths or with bytes after the fields. Here, such names count as unknown, and the other headers are errors.
Bytes that are not UTF-8 become U+FFFD, but not as many in all versions; 5.5.0 refuses some of them in JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from spark_mq.errors import OptionError, ProtocolError
from spark_mq.remoting.codes import LanguageCode

MAX_FRAME_SIZE = 16 << 20
"""The longest frame that a broker or client accepts (`com.rocketmq.remoting.frameMaxLength`), with its length."""

VERSION = 479
"""The version that a command claims: the ordinal of `MQVersion.V5_3_3`."""

RESPONSE_FLAG = 1

_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_FIXED = struct.Struct(">hbhii")
"""The fixed fields of a ROCKETMQ header: code, language, version, opaque, flag."""
_SHORT = struct.Struct(">h")
_MAX_HEADER_SIZE = (1 << 24) - 1
_INT = range(-1 << 31, 1 << 31)
_DECODER, _ENCODER = json.JSONDecoder(strict=False), json.JSONEncoder(separators=(",", ":"))
_LANGUAGES = {int(language): language for language in LanguageCode}


class SerializeType(IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(frozen=True)
class RemotingCommand:
    """A request, or the response to one.

    Attributes:
        code: What is asked for (`RequestCode`), or the answer (`ResponseCode`).
        ext_fields: The fields of the request or response. Java's null is left out.
        body: The body; Java's null is empty.
        opaque: The number by which a response finds its request.
        flag: `RESPONSE_FLAG`; 2 for a request without a response.
        remark: A text for people, in most cases why a request failed.
        language: The sender's language; None for a code that Java 5.5 does not know.
        version: The sender's version, an ordinal of `MQVersion`.
        serialize_type: How the header is written.
    """

    code: int
    ext_fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: LanguageCode | None = LanguageCode.PYTHON
    version: int = VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return bool(self.flag & RESPONSE_FLAG)


def encode(command: RemotingCommand, opaque: int | None = None) -> bytes:
    """The frame of a command.

    Args:
        command: The command.
        opaque: The number of the command, in place of its own.

    Returns:
        The bytes, with their length.

    Raises:
        OptionError: The command cannot be a frame: it is too long, or a number is too large for its header.
    """
    is_json = command.serialize_type == SerializeType.JSON
    opaque = command.opaque if opaque is None else opaque
    header = _json_header(command, opaque) if is_json else _rocketmq_header(command, opaque)
    length = 4 + len(header) + len(command.body)
    if len(header) > _MAX_HEADER_SIZE or length + 4 > MAX_FRAME_SIZE:
        raise OptionError(f"a command of {length + 4:,} bytes, longer than {MAX_FRAME_SIZE:,}: send less at once")
    return _LENGTHS.pack(length, command.serialize_type << 24 | len(header)) + header + command.body


def decode(frame: bytes | memoryview) -> RemotingCommand:
    """The command of one frame.

    Args:
        frame: The bytes, with their length, such as one of captured traffic.

    Returns:
        The command.

    Raises:
        ProtocolError: The bytes are not one whole frame.

    Examples:
        >>> decode(encode(RemotingCommand(code=105, ext_fields={"topic": "orders"}))).ext_fields
        {'topic': 'orders'}
    """
    if len(frame) < _LENGTHS.size:
        raise ProtocolError(f"a frame of {len(frame)} bytes: it has at least {_LENGTHS.size}")
    length, kind_and_length = _LENGTHS.unpack_from(frame)
    if length != len(frame) - 4:
        raise ProtocolError(f"a frame states {length} bytes after its length, and has {len(frame) - 4}")
    kind, header_length = kind_and_length >> 24, kind_and_length & 0xFFFFFF
    if header_length > length - 4:
        raise ProtocolError(f"a header of {header_length} bytes in a frame of {length}")
    header, body = bytes(frame[8 : 8 + header_length]), bytes(frame[8 + header_length :])
    if kind == SerializeType.JSON:
        return _from_json(header, body)
    if kind == SerializeType.ROCKETMQ:
        return _from_rocketmq(header, body)
    raise ProtocolError(f"a header of kind {kind}: it is JSON (0) or ROCKETMQ (1)")


def decode_frames(data: bytes) -> Iterator[RemotingCommand]:
    """The commands of one direction of a connection, such as captured traffic.

    Args:
        data: The bytes, from the start of a frame on. A part of a frame at their end is left out.

    Raises:
        ProtocolError: The bytes are not frames; the message has the position.

    Examples:
        >>> for command in decode_frames(Path("to-broker.bin").read_bytes()):
        ...     print(command.opaque, command.code, command.ext_fields)
    """
    position = 0
    while position + 4 <= len(data):
        length = checked_length(data[position : position + 4])
        end = position + 4 + length
        if end > len(data):
            return
        try:
            yield decode(data[position:end])
        except ProtocolError as error:
            raise ProtocolError(f"byte {position}: {error}") from error
        position = end


def checked_length(data: bytes | memoryview) -> int:
    """The length that the first 4 bytes of a frame state. Raises `ProtocolError` if no frame has it."""
    length: int = _LENGTH.unpack(data)[0]
    if not 4 <= length <= MAX_FRAME_SIZE - 4:
        raise ProtocolError(f"a frame of {length} bytes: it has 4 to {MAX_FRAME_SIZE - 4}")
    return length


def _json_header(command: RemotingCommand, opaque: int) -> bytes:
    """The header as fastjson writes it: names sorted, nothing for null.

    Only ASCII, because 5.5.0 (fastjson2 2.0.59) cannot read some names with characters of several bytes.
    """
    language = LanguageCode.OTHER if command.language is None else command.language
    fields = {
        "code": command.code,
        "extFields": dict(command.ext_fields),
        "flag": command.flag,
        "language": language.name,
        "opaque": opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": command.serialize_type.name,
        "version": command.version,
    }
    shown = {name: value for name, value in fields.items() if value is not None}
    return _ENCODER.encode(shown).encode("ascii")


def _from_json(header: bytes, body: bytes) -> RemotingCommand:
    try:
        fields = _DECODER.decode(header.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ProtocolError("a header is not a JSON object")
    ext_fields = fields.get("extFields") or {}
    if not isinstance(ext_fields, dict):
        raise ProtocolError("the fields of a header are not a JSON object")
    if b"\\" in header or not all(type(value) is str for value in ext_fields.values()):
        ext_fields = {
            _json_text(name, name): _json_text(name, value) for name, value in ext_fields.items() if value is not None
        }
    remark, language = fields.get("remark"), fields.get("language", LanguageCode.JAVA.name)
    return RemotingCommand(
        _json_integer(fields, "code"),
        ext_fields,
        body,
        _json_integer(fields, "opaque"),
        _json_integer(fields, "flag"),
        None if remark is None else _json_text("remark", remark),
        LanguageCode.__members__.get(language) if isinstance(language, str) else None,
        _json_integer(fields, "version"),
        SerializeType.JSON,
    )


def _json_integer(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT:
        raise ProtocolError(f"field {name} of a header is not an integer of 32 bits")
    return value


def _json_text(name: str, value: object) -> str:
    """The text of a value, as fastjson makes it for a field of type String."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # an escape can be half of a character
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ProtocolError(f"field {name} of a header is not a text")


def _rocketmq_header(command: RemotingCommand, opaque: int) -> bytes:
    language = LanguageCode.OTHER if command.language is None else command.language
    try:
        fixed = _FIXED.pack(command.code, language, command.version, opaque, command.flag)
    except struct.error as error:
        raise OptionError(
            f"request {command.code} does not fit into a ROCKETMQ header, whose codes have 16 bits: use JSON ({error})"
        ) from error
    remark = (command.remark or "").encode("utf-8", "replace")
    ext_fields = b"".join(_sized(name, _SHORT) + _sized(value, _LENGTH) for name, value in command.ext_fields.items())
    return fixed + _LENGTH.pack(len(remark)) + remark + _LENGTH.pack(len(ext_fields)) + ext_fields


def _sized(text: str, size: struct.Struct) -> bytes:
    data = text.encode("utf-8", "replace")
    if size is _SHORT and len(data) > 0x7FFF:
        raise OptionError(f"a name of {len(data):,} bytes does not fit into a header")
    return size.pack(len(data)) + data


def _from_rocketmq(header: bytes, body: bytes) -> RemotingCommand:
    """The command of a ROCKETMQ header."""
    if len(header) < _FIXED.size:
        raise ProtocolError(f"a ROCKETMQ header of {len(header)} bytes: it has at least {_FIXED.size}")
    code, language, version, opaque, flag = _FIXED.unpack_from(header)
    remark, position = _piece(header, _FIXED.size, _LENGTH)
    fields, end = _piece(header, position, _LENGTH)
    if end != len(header):
        raise ProtocolError(f"a ROCKETMQ header has {len(header) - end} bytes after its fields")
    ext_fields, position = {}, 0
    while position < len(fields):
        name, position = _piece(fields, position, _SHORT)
        value, position = _piece(fields, position, _LENGTH)
        ext_fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return RemotingCommand(
        code,
        ext_fields,
        body,
        opaque,
        flag,
        remark.decode("utf-8", "replace") or None,
        _LANGUAGES.get(language),
        version,
        SerializeType.ROCKETMQ,
    )


def _piece(data: bytes, position: int, size: struct.Struct) -> tuple[bytes, int]:
    """The piece after a length, and the position after it."""
    start = position + size.size
    if start > len(data):
        raise ProtocolError("a ROCKETMQ header ends within a length")
    (length,) = size.unpack_from(data, position)
    if not 0 <= length <= len(data) - start:
        raise ProtocolError(f"a text of {length} bytes, where a ROCKETMQ header has {len(data) - start} more")
    return data[start : start + length], start + length
