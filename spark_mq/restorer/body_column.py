"""The bodies of rows: the bytes that a store had, or the content that a reader gave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Flags, Int32s
from spark_mq.format.pieces import Pieces
from spark_mq.format.sys_flag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from spark_mq.restorer.encoding_rules import EncodingRules
from spark_mq.restorer.source_columns import SourceColumns


@dataclass(frozen=True)
class BodyColumns:
    """The bodies of many messages.

    Attributes:
        contents: The values of column `body`.
        stored: The stored bodies.
        has_stored: Which messages have a stored body.
        sys_flags: The sysFlag of each message. The bits of compression are cleared where the content of a compressed
            body is what is written.
        body_crcs: Column `body_crc`.
        has_body_crc: Which messages keep this CRC.

    """

    contents: Pieces
    stored: Pieces
    has_stored: Flags
    sys_flags: Int32s
    body_crcs: Int32s
    has_body_crc: Flags


def read_bodies(
    columns: SourceColumns, rules: EncodingRules, sys_flags: Int32s, body_crcs: Int32s, is_from_source: Flags
) -> BodyColumns:
    """The bodies of the rows: `stored_body`, or else `body`, or else none.

    Column `encoded_body` is used if there is no `stored_body`.

    Args:
        columns: The rows.
        rules: The rules with the largest body.
        sys_flags: The sysFlag of each row. A body of which bit 0x1 is set, and of which there is only the content, was
            compressed.
        body_crcs: The body CRC of each row, 0 if it has none.
        is_from_source: Which rows were in a store before.

    Raises:
        InvalidMessageError: A body that had another length in a store, or was in none, is too large; or a compressed
            body was not read with its stored bytes, which a faithful message needs.
    """
    contents = columns.pieces("body")
    stored = columns.pieces("stored_body" if columns.has("stored_body") else "encoded_body")
    has_stored = stored.is_given()
    was_compressed = ~has_stored & (contents.lengths > 0) & (sys_flags & COMPRESSED_FLAG != 0)
    if rules.is_faithful:
        columns.check(
            was_compressed,
            "the body is compressed in its store, and the row has only its content: read column stored_body, too, or "
            "give messages new offsets (renumber)",
        )
    columns.check(
        ~has_stored & (was_compressed | ~is_from_source) & (contents.lengths > rules.max_body_size),
        lambda row: (
            f"the body has {contents.lengths[row]} bytes: a broker takes {rules.max_body_size} at most (maxMessageSize)"
        ),
    )
    kept = has_stored | (rules.is_faithful & is_from_source)
    return BodyColumns(
        contents,
        stored,
        has_stored,
        np.where(was_compressed, sys_flags & ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK), sys_flags).astype(np.int32),
        body_crcs,
        columns.is_given("body_crc") & kept,
    )
