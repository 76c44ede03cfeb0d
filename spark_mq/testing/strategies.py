"""Hypothesis strategies for records, and for segments and units that try to deceive a reader. They need hypothesis."""

from __future__ import annotations

from spark_mq.errors import MissingPackageError

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingPackageError("spark_mq.testing.strategies needs hypothesis: run pip install hypothesis") from error

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import HOST_V4_SIZE, HOST_V6_SIZE, MAGIC_V1, MAGIC_V2, Record, encode_blank


def records(
    offset: int = 0, max_text: int = 40, timestamps: st.SearchStrategy[int] | None = None
) -> st.SearchStrategy[Record]:
    """Any record that fits its fields, at `offset`."""
    int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
    hosts = st.sampled_from((HOST_V4_SIZE, HOST_V6_SIZE)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
    return st.builds(
        Record,
        topic=st.binary(max_size=max_text),
        queue_id=int32,
        queue_offset=int64,
        commit_log_offset=st.just(offset),
        body=st.binary(max_size=max_text),
        properties=st.binary(max_size=max_text),
        flag=int32,
        sys_flag=int32,
        born_timestamp=timestamps or int64,
        born_host=hosts,
        store_timestamp=timestamps or int64,
        store_host=hosts,
        reconsume_times=int32,
        prepared_transaction_offset=int64,
        magic=st.sampled_from((MAGIC_V1, MAGIC_V2)),
    )


@st.composite
def hostile_segments(
    draw: st.DrawFn, size: int, most: int, most_blank: int | None = None, base: int = 1 << 20
) -> bytes:
    """A segment of `size` bytes: messages, of which many contain what looks like records and blanks, and damage.

    Nothing in it is a record of more than `most` bytes on purpose, or a blank of more than `most_blank`. Bodies are
    mostly zeros, in which a made-up record of any length can end: so those reach out of bodies over other records, and
    end with them.
    """
    numbers = st.integers(0, 1 << 20)
    data = bytearray()
    framing: list[int] = []
    while True:
        body = bytearray(draw(numbers) % (most - 100))
        topic = draw(st.sampled_from([b"", b"T"]))
        start = len(data)
        record_size = 91 + len(topic) + len(body)
        if start + record_size + 8 > size:
            break
        place = 0
        for number in draw(st.lists(numbers, max_size=4)):
            place += number % 50
            at = start + 88 + place
            if number % 7 == 0 and size - at <= (most_blank or size):
                content = encode_blank(size - at)[:8]
            else:
                length = number // 50 % (most - 91)
                content = Record(b"", body=bytes(length), commit_log_offset=base + at, store_timestamp=number).encode()
                content = content[:88]
            if place + len(content) <= len(body):
                body[place : place + len(content)] = content
            place += len(content)
        framing += [start + at for at in (0, 2, 3, 4, 7, 28, 35, 39, 84, 86, 87)]
        framing += [start + 88 + len(body), start + record_size - 1]
        data += Record(topic, body=bytes(body), commit_log_offset=base + start, store_timestamp=start).encode()
    data += encode_blank(size - len(data))
    for number in draw(st.lists(numbers, max_size=4)):
        match number % 4:
            case 0 | 1:
                data[framing[number // 4 % len(framing)]] ^= draw(st.integers(1, 255))
            case 2:
                place, length = number // 4 % size, draw(numbers) % 500
                data[place : min(place + length, size)] = bytes(min(length, size - place))
            case 3:
                data[number // 4 % size] ^= draw(st.integers(1, 255))
    return bytes(data)


_sizes = st.one_of(st.integers(1, 9), st.sampled_from([0, -1, PRE_BLANK_SIZE, PRE_BLANK_SIZE - 1]))
_places = st.integers(-5, 60) | st.just((1 << 63) - 1)
_units = st.tuples(_places, _sizes, st.integers(-3, 3))
_sound_units = st.tuples(st.integers(10, 40), st.integers(1, 9), st.integers(-3, 3))
unit_blocks = st.lists(_units, max_size=9) | st.lists(_sound_units, max_size=9)
"""Units of a queue of a log of 60 bytes: offset, size and tags code."""

_pieces = st.one_of(
    st.text(min_size=1, max_size=3).map(str.encode),
    st.sampled_from([bytes((byte,)) for byte in (0x41, 0x80, 0x9F, 0xBF, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF8)]),
    st.binary(min_size=1, max_size=3),
)
mixed_bytes = st.lists(_pieces, max_size=10).map(b"".join)
"""Bytes of texts that are not always UTF-8."""
