"""A plain reader of a commit log: its records and its corrupt ranges, also of a damaged log; and the damage of fields.

It is slow, and knows the format of one record (`decode_record`) and these rules: hop from each segment's start; if
there is no record, look for the next one byte by byte; a segment ends with its blank; in the last segment, damage with
nothing after it is the end of the log, and so is a last record that is not whole.

`spark_mq.format.message_row.message_row` makes a record a row.

Examples:
    >>> [message_row(record)["queue_offset"] for record in records_of(store / "commitlog")]
    [0, 1, 2]
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_SIZE,
    MIN_RECORD_SIZE,
    Record,
    decode_record,
)

Place = tuple[str, int, int]
"""A record (`RECORD`) or the code of a corrupt range, its commit log offset, its length."""

_MAGICS = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


def expected_places(commit_log: Path, live_end: int | None = None) -> list[Place]:
    """The records and corrupt ranges of a log, in its order.

    Args:
        commit_log: The folder of the segments.
        live_end: The commit log offset at which the log ends, if old records follow it: only the broker can say that.
    """
    named = {file.name: file for file in commit_log.iterdir() if file.is_file() and _is_segment_name(file.name)}
    segments = [(int(name), file.read_bytes()) for name, file in sorted(named.items())]
    segments = [(base, data) for base, data in segments if data and base + len(data) < 1 << 63]
    while segments and not any(segments[-1][1]):
        segments.pop()
    places: list[Place] = []
    for (base, data), (following, _) in pairwise(segments):
        data = data[: following - base]
        places += _hop(data, base)
        if base + len(data) < following:
            places.append(("MISSING", base + len(data), following - base - len(data)))
    if segments:
        places += _live(*segments[-1], live_end)
    return places


def records_of(commit_log: Path, live_end: int | None = None) -> Iterator[Record]:
    """The records of a log, in its order; the arguments are those of `expected_places`."""
    log = Log(commit_log.parent)
    for kind, offset, size in expected_places(commit_log, live_end):
        if kind == "RECORD":
            yield decode_record(log.read(offset, size), 0, offset)


class Log:
    """The bytes of the segments."""

    def __init__(self, folder: Path) -> None:
        files = sorted((folder / "commitlog").iterdir())
        self.segments = {int(file.name): file.read_bytes() for file in files}
        self.size = max(map(len, self.segments.values()), default=0)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at a commit log offset; none if no segment has them."""
        base = offset - offset % self.size
        return self.segments.get(base, b"")[offset - base : offset - base + size]


def plausible_frames(segment: bytes, base: int) -> dict[int, int]:
    """Every position of a segment at which a whole record or a blank is, with its end."""
    frames = {}
    for position in range(len(segment) - 7):
        size, magic = struct.unpack_from(">ii", segment, position)
        if magic == MAGIC_BLANK and size == len(segment) - position:
            frames[position] = len(segment)
        elif magic in (MAGIC_V1, MAGIC_V2):
            with suppress(CorruptLogError):
                decode_record(segment, position, base + position)
                frames[position] = position + size
    return frames


def _is_segment_name(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdecimal()


def _live(base: int, data: bytes, live_end: int | None) -> list[Place]:
    written = len(data.rstrip(b"\0"))
    stop = written if live_end is None else live_end - base
    places = [place for place in _hop(data, base) if place[1] < base + stop]
    if places and places[-1][0] == "RECORD":
        _, offset, size = places[-1]
        if offset + size >= base + written and not _is_whole(data[offset - base :][:size]):
            places.pop()
    while places and places[-1][0] != "RECORD":
        places.pop()
    return places


def _is_whole(stored: bytes) -> bool:
    record = decode_record(stored)
    text = record.properties or record.topic
    return not text.endswith(b"\0") and has_right_body_crc(record) and has_right_property_crc(stored)


def has_right_body_crc(record: Record) -> bool:
    """Whether the body, if there is one, has the CRC that the record says."""
    return not record.body or zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc


def has_right_property_crc(stored: bytes) -> bool:
    """Whether a stored record has the CRC that its last property says, if there is one."""
    properties = decode_record(stored).properties
    head, name, digits = properties[:-20], properties[-20:-11], properties[-11:]
    if name != b"__CRC32#\1" or digits[-1:] != b"\2" or head[-1:] not in (b"", b"\2"):
        return True
    return digits[:-1] == str(zlib.crc32(stored[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()


@lru_cache(maxsize=32)
def _hop(data: bytes, base: int) -> Sequence[Place]:
    """The places of a segment. A test damages one segment of a log at a time, so most are known already."""
    return tuple(_hop_on(data, base))


def _hop_on(data: bytes, base: int) -> Iterator[Place]:
    position = 0
    while position < len(data):
        size = _record_size(data, position, base)
        if size:
            yield "RECORD", base + position, size
            position += size
        elif _is_filler(data, position):
            return
        else:
            following = _find(data, position + 1, base)
            yield _code(data, position, base), base + position, following - position
            position = following


def _find(data: bytes, position: int, base: int) -> int:
    """The next place with a record or a blank, or the end."""
    places = []
    for magic in _MAGICS:
        place = data.find(magic, position + 4)
        while place >= 0 and not (_is_filler(data, place - 4) or _record_size(data, place - 4, base)):
            place = data.find(magic, place + 1)
        places.append(place - 4 if place >= 0 else len(data))
    return min(places)


def _record_size(data: bytes, position: int, base: int) -> int:
    try:
        return decode_record(data, position, base + position).size
    except CorruptLogError:
        return 0


def _is_filler(data: bytes, position: int) -> bool:
    return data[position : position + 8] == struct.pack(">ii", len(data) - position, MAGIC_BLANK)


def _code(data: bytes, position: int, base: int) -> str:
    if len(data) - position < 8:
        return "BAD_SIZE"
    size, magic = struct.unpack_from(">ii", data, position)
    if size == magic == 0:
        return "ZEROS"
    if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK):
        return "BAD_MAGIC"
    if magic == MAGIC_BLANK or not MIN_RECORD_SIZE <= size <= min(MAX_RECORD_SIZE, len(data) - position):
        return "BAD_SIZE"
    (own_offset,) = struct.unpack_from(">q", data, position + 28)
    return "BAD_LENGTHS" if own_offset == base + position else "BAD_OFFSET"


@dataclass(frozen=True)
class Field:
    """A field of a record by which its parts are found: its first byte, and its width in bytes."""

    name: str
    at: int
    width: int


def framing_fields(record: bytes) -> list[Field]:
    """The fields of a stored record by which its parts are found."""
    decoded = decode_record(record)
    hosts = len(decoded.born_host) + len(decoded.store_host)
    body_length_at = 48 + hosts + 8 + 12
    topic_at = body_length_at + 4 + len(decoded.body)
    topic_width = 2 if decoded.magic == MAGIC_V2 else 1
    return [
        Field("size", 0, 4),
        Field("magic", 4, 4),
        Field("own offset", 28, 8),
        Field("sysFlag", 36, 4),
        Field("body length", body_length_at, 4),
        Field("topic length", topic_at, topic_width),
        Field("properties length", topic_at + topic_width + len(decoded.topic), 2),
    ]


def wrong_values(record: bytes, field: Field, room: int) -> list[int]:
    """Values that the field of a stored record must not have; `room`: bytes up to the segment's end."""
    bits = 8 * field.width
    right = int.from_bytes(record[field.at : field.at + field.width], "big", signed=True)
    top = (1 << (bits - 1)) - 1
    values = {0, 1, -1, right - 1, right + 1, right ^ 1 << (bits - 2), top, -top - 1}
    match field.name:
        case "size":
            values |= {90, 91, room, room + 1, room - 8, 2 * right, MAX_RECORD_SIZE + 1}
        case "magic":
            values = {0, -1, MAGIC_BLANK, right ^ 1, right ^ 0xC, -875286123}
        case "own offset":
            values |= {right - len(record), right + len(record), right + (1 << 32), right ^ 1 << 62}
        case "sysFlag":
            values = {right ^ 0x10, right ^ 0x20, right ^ 0x30}
        case "body length":
            values |= {right + 256, room, -(1 << 31) + right}
        case "topic length" | "properties length":
            values |= {right + 2, right // 2}
    return sorted(value for value in values if value != right and -(1 << (bits - 1)) <= value < 1 << (bits - 1))


def with_value(field: Field, value: int) -> bytes:
    """The bytes of the field with this value."""
    return value.to_bytes(field.width, "big", signed=True)
