"""From frames to Arrow: the columns of messages, only those that are requested.

`MessageColumns` has one method for each kind of column and decodes nothing before a column is requested. The rules of
the values are in `spark_mq.format`: `record` (fields), `properties`, `compression`. The values are those that the Java
decoder returns (`MessageDecoder.decode`@5.3.3). `spark_mq.format.message_row` is the twin for a single record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s
from spark_mq.format.arrow_array import array_of, timestamps
from spark_mq.format.compression import DEFAULT_BODY_LIMIT, decompress_or_reason
from spark_mq.format.kernels import properties
from spark_mq.format.kernels.big_endian import SLACK, int64s_at
from spark_mq.format.kernels.fields import FIELDS, host_texts, offset_message_ids, read_fields
from spark_mq.format.kernels.frames import Frame, Frames
from spark_mq.format.kernels.gather import gather
from spark_mq.format.kernels.java_string import repair_utf8
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD
from spark_mq.format.pieces import Pieces
from spark_mq.format.properties import KEYS, TAGS, UNIQUE_KEY

_PROPERTIES = {"tags": TAGS, "keys": KEYS, "unique_key": UNIQUE_KEY}
"""The columns that are the value of a property, with its name."""


@dataclass(frozen=True)
class Bodies:
    """The bodies of one batch that differ from the stored bytes, and the reasons why messages are corrupt.

    Attributes:
        contents: The body of message `rows[i]`: its decompressed content, or None if its body cannot be trusted.
    """

    rows: npt.NDArray[np.intp]
    contents: list[bytes | None]
    reasons: dict[int, str]


def decompress_bodies(buffer: Bytes, frames: Frames, limit: int) -> Bodies:
    """The decompressed bodies of the messages whose sysFlag marks their body as compressed."""
    rows = np.flatnonzero(is_compressed(frames))
    contents: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for row in rows.tolist():
        content, reason = decompress_body(buffer, frames[row], limit)
        contents.append(content)
        if reason is not None:
            reasons[row] = reason
    return Bodies(rows, contents, reasons)


def is_compressed(frames: Frames) -> Flags:
    """Which messages have a compressed body."""
    compressed: Flags = (frames.sys_flag & record.COMPRESSED_FLAG != 0) & (frames.body_length > 0)
    return compressed


def decompress_body(buffer: Bytes, frame: Frame, limit: int) -> tuple[bytes | None, str | None]:
    """The decompressed body of one message, and None; or None and the reason why it cannot be decompressed."""
    stored = buffer[frame.body_start : frame.body_start + frame.body_length]
    return decompress_or_reason(stored.tobytes(), int(frame.sys_flag), limit)


@dataclass(frozen=True)
class MessageColumns:
    """Messages, whose columns are decoded when they are requested."""

    buffer: Bytes
    frames: Frames
    bodies: Bodies | None = None
    fields: dict[str, Int32s | Int64s] = field(default_factory=dict)
    """The values of fields that are known; of messages that are not records, also values that differ from the bytes."""
    _values: dict[bytes, tuple[Int64s, Int32s]] = field(default_factory=dict)
    _maps: list[pa.Array] = field(default_factory=list)
    """Column `properties`, if it was decoded with other columns."""

    def column(self, name: str) -> pa.Array:
        """Column `name` of `ALL_MESSAGE_FIELDS`: one value of the column's type for each message."""
        column = _COLUMNS[name](self)
        return column

    def record_batch(self, columns: list[str]) -> pa.RecordBatch:
        """The columns with the names `columns`, in that order."""
        schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in columns])
        self._decode_together(columns)
        return pa.RecordBatch.from_arrays([self.column(name) for name in columns], schema=schema)

    def part(self, chosen: Flags | slice) -> MessageColumns:
        """Some of the messages; their bodies are not decompressed yet."""
        fields = {name: values[chosen] for name, values in self.fields.items()}
        return MessageColumns(self.buffer, self.frames[chosen], fields=fields)

    def store_timestamp_millis(self) -> Int64s:
        """The store timestamps in milliseconds since the epoch."""
        return int64s_at(self.buffer, self.frames.store_timestamp_at)

    def topic_is(self, topic: bytes) -> Flags:
        """Which messages have `topic` as their stored topic."""
        result = np.empty(self.frames.size, np.bool_)
        text = np.frombuffer(topic, np.uint8)
        properties.equal_pieces(self.buffer, self.frames.topic_start, self.frames.topic_length, text, result)
        return result

    def has_property(self, name: bytes) -> Flags:
        """Which messages have the property `name`."""
        return self._property(name)[1] >= 0

    def has_any_property(self, names: list[bytes]) -> Flags:
        """Which messages have one of the properties `names`, which are found in one pass."""
        self._find(names)
        result: Flags = np.any([self._values[name][1] >= 0 for name in names], axis=0)
        return result

    def can_have_tags(self, tags: list[bytes]) -> Flags:
        """Which messages have one of `tags` as their tags, or properties with a zero byte, which are damaged."""
        damaged = pc.match_substring(self.column("properties_bytes"), "\0")
        result: Flags = np.array(damaged.to_numpy(zero_copy_only=False), np.bool_)
        is_equal = np.empty(self.frames.size, np.bool_)
        for one in tags:
            properties.equal_pieces(self.buffer, *self._property(TAGS), np.frombuffer(one, np.uint8), is_equal)
            result |= is_equal
        return result

    def property_text(self, name: bytes) -> pa.Array:
        """The values of the property `name` as text; NULL without it."""
        return self._text(*self._property(name))

    def property_texts(self, names: list[bytes]) -> list[pa.Array]:
        """`property_text` of each name, found in one pass over the properties."""
        if names:
            self._find(names)
        return [self.property_text(name) for name in names]

    def _decode_together(self, columns: list[str]) -> None:
        """Decode what is found in the same bytes in one pass, for the columns that share it."""
        if fields := [name for name in map(_field, columns) if name in FIELDS and name not in self.fields]:
            self.fields.update(read_fields(self.buffer, self.frames, list(dict.fromkeys(fields))))
        wanted = [_PROPERTIES[name] for name in columns if name in _PROPERTIES]
        if "properties" in columns:
            self._maps.append(self._read_properties(wanted))
        elif wanted:
            self._find(wanted)

    def _millis(self, column: str) -> Int64s:
        """The milliseconds of a timestamp."""
        return self._number(column).astype(np.int64, copy=False)

    def _number(self, column: str) -> Int32s | Int64s:
        """The values of a field, milliseconds for a timestamp."""
        name = _field(column)
        if name not in self.fields:
            self.fields.update(read_fields(self.buffer, self.frames, [name]))
        return self.fields[name]

    def _host_sizes(self, bit: int) -> Int32s:
        """The bytes of a host of each message, by the bit of its sysFlag."""
        return np.where(self.frames.sys_flag & bit, record.HOST_V6_SIZE, record.HOST_V4_SIZE).astype(np.int32)

    def _offset_message_id(self) -> pa.Array:
        starts, sizes = self.frames.store_host_at, self._host_sizes(record.STORE_HOST_V6_FLAG)
        return offset_message_ids(self.buffer, starts, sizes, self._millis("commit_log_offset"))

    def _born_host(self) -> pa.Array:
        starts, sizes = self.frames.position + record.BORN_HOST_AT, self._host_sizes(record.BORN_HOST_V6_FLAG)
        return host_texts(self.buffer, starts, sizes)

    def _store_host(self) -> pa.Array:
        return host_texts(self.buffer, self.frames.store_host_at, self._host_sizes(record.STORE_HOST_V6_FLAG))

    def _binary(self, starts: Int64s, lengths: Int32s) -> pa.Array:
        return _binary_array(*gather(self.buffer, starts, lengths))

    def _text(self, starts: Int64s, lengths: Int32s) -> pa.Array:
        """Pieces of the buffer as text; length -1 is NULL."""
        out, offsets = gather(self.buffer, starts, lengths)
        return text_array(out, offsets, lengths >= 0)

    def _property(self, name: bytes) -> tuple[Int64s, Int32s]:
        if name not in self._values:
            self._find([name])
        return self._values[name]

    def _find(self, names: Sequence[bytes]) -> None:
        """Find the values of all `names`, in one pass over the properties."""
        stored = Pieces(self.buffer, self.frames.properties_start, self.frames.properties_length)
        starts, lengths = (found.reshape(len(names), stored.size) for found in properties.places_of(stored, *names))
        self._values.update((name, (starts[row], lengths[row])) for row, name in enumerate(names))

    def _keys(self) -> pa.Array:
        starts, lengths = self._property(KEYS)
        sizes = np.maximum(lengths, 0).astype(np.int64)
        offsets, key_offsets = (np.empty(n + 1, np.int32) for n in (self.frames.size, int((sizes + 1 >> 1).sum())))
        keys = np.empty(int(sizes.sum()) + SLACK, np.uint8)
        properties.copy_keys(self.buffer, starts, lengths, offsets, key_offsets, keys)
        count = offsets[-1]
        texts = text_array(keys[: key_offsets[count]], key_offsets[: count + 1])
        list_type = ALL_MESSAGE_FIELDS["keys"].type
        return pa.Array.from_buffers(
            list_type, self.frames.size, [_validity(lengths >= 0), pa.py_buffer(offsets)], children=[texts]
        )

    def _properties(self) -> pa.Array:
        return self._maps[0] if self._maps else self._read_properties([])

    def _read_properties(self, wanted: Sequence[bytes]) -> pa.Array:
        """The map of each message. The values of the names `wanted` are found in the same pass.

        As in Java, text that is not UTF-8 is repaired before names are compared.
        """
        starts, lengths = self.frames.properties_start, self.frames.properties_length
        try:
            maps, found = _property_maps(self.buffer, starts, lengths, wanted)
        except pa.ArrowInvalid:
            self._find(wanted)
            _, text_offsets, text_data = self._text(starts, lengths).buffers()
            ends = np.frombuffer(text_offsets, np.int32, self.frames.size + 1)
            text = np.frombuffer(text_data or b"", np.uint8)
            maps, found = _property_maps(text, ends[:-1].astype(np.int64), np.diff(ends), [])
        self._values.update(found)
        return maps

    @property
    def _own_bodies(self) -> Bodies:
        return self.bodies or decompress_bodies(self.buffer, self.frames, DEFAULT_BODY_LIMIT)

    def _stored_body(self) -> pa.Array:
        return self._binary(self.frames.body_start, self.frames.body_length)

    def _encoded_body(self) -> pa.Array:
        bodies = self._own_bodies
        lengths = np.full(self.frames.size, -1, np.int32)
        lengths[bodies.rows] = self.frames.body_length[bodies.rows]
        out, offsets = gather(self.buffer, self.frames.body_start, lengths)
        return _binary_array(out, offsets, lengths >= 0)

    def _body(self) -> pa.Array:
        bodies = self._own_bodies
        if bodies.rows.size == 0:
            return self._stored_body()
        lengths = self.frames.body_length.copy()
        lengths[bodies.rows] = 0
        differs = np.zeros(self.frames.size, np.bool_)
        differs[bodies.rows] = True
        return pc.replace_with_mask(
            self._binary(self.frames.body_start, lengths), pa.array(differs), array_of(bodies.contents, pa.binary())
        )

    def _corrupt_record(self) -> pa.Array:
        bodies = self._own_bodies
        if not bodies.reasons:
            return pa.nulls(self.frames.size, pa.string())
        reasons: list[str | None] = [None] * self.frames.size
        for row, reason in bodies.reasons.items():
            reasons[row] = reason
        return array_of(reasons, pa.string())

    def _transaction_type(self) -> pa.Array:
        types = pa.array(((self.frames.sys_flag & record.TRANSACTION_TYPE_MASK) >> 2).astype(np.int8))
        return pa.DictionaryArray.from_arrays(types, pa.array(record.TRANSACTION_TYPE_NAMES)).cast(pa.string())


def _property_maps(
    buffer: Bytes, starts: Int64s, lengths: Int32s, wanted: Sequence[bytes]
) -> tuple[pa.Array, dict[bytes, tuple[Int64s, Int32s]]]:
    """The map of each message, and the places of the values of the names `wanted`."""
    size, most = int(lengths.sum(dtype=np.int64)), int(lengths.max(initial=0))
    # A property and its separator take at least four bytes.
    limit = int((lengths + 1 >> 2).sum(dtype=np.int64))
    offsets, name_offsets, value_offsets = (np.empty(count + 1, np.int32) for count in (starts.size, limit, limit))
    names, values = np.empty(size + SLACK, np.uint8), np.empty(size + SLACK, np.uint8)
    value_starts = np.empty((len(wanted), starts.size), np.int64)
    value_lengths = np.empty((len(wanted), starts.size), np.int32)
    properties.copy_properties(
        buffer,
        starts,
        lengths,
        np.frombuffer(b"".join(wanted), np.uint8),
        np.cumsum([len(name) for name in wanted], dtype=np.int64),
        np.empty(3 * (most + 1 >> 2), np.int64),
        offsets,
        name_offsets,
        names,
        value_offsets,
        values,
        value_starts.reshape(-1),
        value_lengths.reshape(-1),
    )
    count = offsets[-1]
    kind = ALL_MESSAGE_FIELDS["properties"].type
    texts = [
        _utf8_array(out[: ends[count]], ends[: count + 1])
        for out, ends in ((names, name_offsets), (values, value_offsets))
    ]
    entries = pa.Array.from_buffers(pa.struct([kind.key_field, kind.item_field]), count, [None], children=texts)
    maps = pa.Array.from_buffers(kind, starts.size, [None, pa.py_buffer(offsets)], children=[entries])
    return maps, {name: (value_starts[row], value_lengths[row]) for row, name in enumerate(wanted)}


def _utf8_array(out: Bytes, offsets: Int32s, valid: Flags | None = None) -> pa.Array:
    """Text as a string array. Raises `pa.ArrowInvalid` if it is not UTF-8."""
    if out.size == 0 or out.max() < 0x80:  # to check each of many short texts for UTF-8 takes longer than to copy them
        return _variable_size_array(pa.string(), out, offsets, valid)
    return _binary_array(out, offsets, valid).cast(pa.string())


def text_array(out: Bytes, offsets: Int32s, valid: Flags | None = None) -> pa.Array:
    """UTF-8 text as a string array; bytes that are not UTF-8 become U+FFFD as in Java."""
    try:
        return _utf8_array(out, offsets, valid)
    except pa.ArrowInvalid:
        repaired, repaired_offsets = np.empty(3 * out.size, np.uint8), np.empty_like(offsets)
        repair_utf8(out, offsets, repaired, repaired_offsets)
        size = int(repaired_offsets[-1])
        return _binary_array(repaired[:size], repaired_offsets, valid).cast(pa.string())


def _validity(valid: Flags | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _variable_size_array(kind: pa.DataType, out: Bytes, offsets: Int32s, valid: Flags | None) -> pa.Array:
    buffers = [_validity(valid), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, offsets.size - 1, buffers)


def _binary_array(out: Bytes, offsets: Int32s, valid: Flags | None = None) -> pa.Array:
    return _variable_size_array(pa.binary(), out, offsets, valid)


def _field(column: str) -> str:
    """The field that a column is made of."""
    return column.removesuffix("_millis")


_NUMBERS = (
    *("commit_log_offset", "queue_id", "queue_offset", "flag", "reconsume_times", "prepared_transaction_offset"),
    *("body_crc", "born_timestamp_millis", "store_timestamp_millis"),
)
"""The columns that are a number of the record."""


def _number_column(name: str) -> Callable[[MessageColumns], pa.Array]:
    return lambda m: pa.array(m._number(name))


_COLUMNS: dict[str, Callable[[MessageColumns], pa.Array]] = {
    **{name: _number_column(name) for name in _NUMBERS},
    "store_size": lambda m: pa.array(np.ascontiguousarray(m.frames.store_size)),
    "offset_message_id": MessageColumns._offset_message_id,
    "topic": lambda m: m._text(m.frames.topic_start, m.frames.topic_length),
    "tags": lambda m: m._text(*m._property(TAGS)),
    "keys": MessageColumns._keys,
    "unique_key": lambda m: m._text(*m._property(UNIQUE_KEY)),
    "sys_flag": lambda m: pa.array(np.ascontiguousarray(m.frames.sys_flag)),
    "transaction_type": MessageColumns._transaction_type,
    "born_timestamp": lambda m: timestamps(m._millis("born_timestamp")),
    "born_host": MessageColumns._born_host,
    "store_timestamp": lambda m: timestamps(m._millis("store_timestamp")),
    "store_host": MessageColumns._store_host,
    "body": MessageColumns._body,
    "properties": MessageColumns._properties,
    CORRUPT_RECORD: MessageColumns._corrupt_record,
    "properties_bytes": lambda m: m._binary(m.frames.properties_start, m.frames.properties_length),
    "stored_body": MessageColumns._stored_body,
    "encoded_body": MessageColumns._encoded_body,
}
