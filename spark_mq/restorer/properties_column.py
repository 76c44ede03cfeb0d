"""The stored properties of rows: as they were in a store, or written from a map and from the columns of properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.gather import gather_bytes
from spark_mq.format.kernels.properties import find_values
from spark_mq.format.kernels.property_writer import (
    ListedPieces,
    PropertyFault,
    PropertySources,
    replace_values,
    with_property_crcs,
    write_properties,
)
from spark_mq.format.pieces import Pieces, no_pieces, pieces_of_array, pieces_of_bytes
from spark_mq.format.properties import INNER_MULTI_DISPATCH
from spark_mq.restorer.encoding_rules import EncodingRules
from spark_mq.restorer.source_columns import SourceColumns, is_list

MAX_PROPERTIES_SIZE = 32_767

_TOPIC_PROPERTIES = (b"REAL_TOPIC", b"RETRY_TOPIC")
_FAULTS = {
    PropertyFault.NAME_SEPARATOR: "the name of a property contains the character 1 or 2, which separates properties",
    PropertyFault.VALUE_SEPARATOR: (
        "a property, a tag or a key contains the character 1 or 2, which separates properties "
        "(column properties_bytes can have such a value)"
    ),
    PropertyFault.EMPTY_NAME: "the name of a property is empty",
    PropertyFault.KEY_WITH_SPACE: "a key in column keys contains a space, which separates keys",
}


def read_properties(columns: SourceColumns, rules: EncodingRules, made_keys: Pieces) -> Pieces:
    """The properties of each row: `properties_bytes`, or else those of the other columns.

    Args:
        rules: The rules with the topic map, and with the property CRC.
        made_keys: The unique keys of rows that have none in a column; NULL for none. A row with `properties_bytes` does
            not get one.
    """
    properties = columns.pieces("properties_bytes")
    if not properties.is_given().all():
        properties = _written_properties(columns, properties, made_keys)
    if rules.topics:
        properties = _with_new_topics(properties, rules.topics)
    if rules.properties_crc and not rules.is_faithful:
        properties = with_property_crcs(properties)
    columns.check(
        properties.lengths > MAX_PROPERTIES_SIZE,
        lambda row: (
            f"the properties have {properties.lengths[row]} bytes: a message can have {MAX_PROPERTIES_SIZE} at most"
        ),
    )
    return properties


def count_dispatched(properties: Pieces, queue_ids: Int32s) -> Counter[Queue]:
    """How often messages name other queues in INNER_MULTI_DISPATCH, by queue.

    A light message queue has id 0, any other one that of the message (`ConsumeQueue.multiDispatchLmqQueue`@5.3.3).
    """
    starts, lengths = _values_of(properties, INNER_MULTI_DISPATCH)
    rows = np.flatnonzero(lengths > 0)
    names = pc.split_pattern(_binary_array(Pieces(properties.buffer, starts, lengths).take(rows)), b",")
    queues = pa.table([names.flatten(), pa.array(queue_ids[rows]).take(pc.list_parent_indices(names))], ["name", "id"])
    counts: Counter[Queue] = Counter()
    for row in queues.group_by(["name", "id"]).aggregate([([], "count_all")]).to_pylist():
        topic = decode_utf8(row["name"])
        counts[topic, 0 if topic.startswith(LIGHT_PREFIX) else row["id"]] += row["count_all"]
    return counts


def _written_properties(columns: SourceColumns, stored: Pieces, made_keys: Pieces) -> Pieces:
    names, values = _map_entries(columns)
    unique_keys = columns.pieces("unique_key")
    sources = PropertySources(
        stored=stored,
        names=names,
        values=values,
        tags=columns.pieces("tags"),
        keys=_keys(columns),
        keys_are_lists=columns.has("keys") and is_list(columns.array("keys").type),
        unique_keys=_first_given(unique_keys, made_keys),
    )
    properties, faults = write_properties(sources)
    columns.check(faults != PropertyFault.NONE, lambda row: _FAULTS[PropertyFault(int(faults[row]))])
    return properties


def _map_entries(columns: SourceColumns) -> tuple[ListedPieces, Pieces]:
    """The names of each row's map, and their values."""
    if not columns.has("properties"):
        return _no_lists(columns.size), no_pieces(0)
    maps, given = columns.array("properties"), columns.is_given("properties")
    return _listed(given, maps.offsets, maps.keys), _listed(given, maps.offsets, maps.items).pieces


def _keys(columns: SourceColumns) -> ListedPieces:
    if not columns.has("keys"):
        return _no_lists(columns.size)
    keys = columns.array("keys")
    if is_list(keys.type):
        return _listed(columns.is_given("keys"), keys.offsets, keys.values)
    rows = np.arange(columns.size, dtype=np.int64)
    return ListedPieces(rows, rows + 1, pieces_of_array(keys))


def _listed(given: Flags, offsets: pa.Array, values: pa.Array) -> ListedPieces:
    """The lists of the rows. `values` can have the elements of many more rows."""
    ends = offsets.to_numpy().astype(np.int64)
    start, stop = int(ends[0]), int(ends[-1])
    ends = ends - start
    pieces = pieces_of_array(values.slice(start, stop - start))
    return ListedPieces(ends[:-1], np.where(given, ends[1:], ends[:-1]), pieces)


def _no_lists(count: int) -> ListedPieces:
    zeros = np.zeros(count, np.int64)
    return ListedPieces(zeros, zeros, no_pieces(0))


def _first_given(first: Pieces, second: Pieces) -> Pieces:
    """The pieces of `first`, and those of `second` where `first` has none or an empty one."""
    if not second.is_given().any():
        return first
    is_first = first.lengths > 0
    starts = np.where(is_first, first.starts, second.starts + first.buffer.size)
    lengths = np.where(is_first, first.lengths, second.lengths).astype(np.int32)
    return Pieces(np.concatenate([first.buffer, second.buffer]), starts, lengths)


def _with_new_topics(properties: Pieces, topics: Mapping[str, str]) -> Pieces:
    """The properties with the new names of topics."""
    new_names = {old.encode("utf-8"): new.encode("utf-8") for old, new in topics.items()}
    for name in _TOPIC_PROPERTIES:
        starts, lengths = _values_of(properties, name)
        distinct = _binary_array(Pieces(properties.buffer, starts, lengths)).dictionary_encode()
        found = [new_names.get(value) for value in distinct.dictionary.to_pylist()]
        if any(new is not None for new in found):
            renamed = pieces_of_bytes([new or b"" for new in found])
            is_renamed = np.array([new is not None for new in found], np.bool_)
            renamed = Pieces(renamed.buffer, renamed.starts, np.where(is_renamed, renamed.lengths, -1).astype(np.int32))
            properties = replace_values(properties, starts, lengths, renamed.take(distinct.indices.to_numpy()))
    return properties


def _binary_array(pieces: Pieces) -> pa.Array:
    """The pieces as an array; NULL is an empty value."""
    out, offsets = np.empty(pieces.total(), np.uint8), np.empty(pieces.size + 1, np.int32)
    gather_bytes(pieces.buffer, pieces.starts, pieces.lengths, out, offsets)
    return pa.Array.from_buffers(pa.binary(), pieces.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _values_of(properties: Pieces, name: bytes) -> tuple[Int64s, Int32s]:
    starts, lengths = np.empty(properties.size, np.int64), np.empty(properties.size, np.int32)
    find_values(
        properties.buffer,
        properties.starts,
        properties.lengths,
        np.frombuffer(name, np.uint8),
        np.array([len(name)], np.int64),
        starts,
        lengths,
    )
    return starts, lengths
