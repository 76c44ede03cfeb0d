"""Cutting messages into batches whose bodies fit into memory: decompressed where needed, checksums looked at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_mq.format.array_types import Bytes
from spark_mq.format.compression import DEFAULT_BODY_LIMIT
from spark_mq.format.kernels.bodies import Bodies, decompress_body, is_compressed
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.crc import wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.message_schema import CORRUPT_RECORD

BODY_COLUMNS = frozenset(("body", "encoded_body", CORRUPT_RECORD))
"""Columns whose values need the decompressed body, or whether there is one."""

WRONG_BODY_CRC = "BODY_CRC: the stored body has another CRC than the record says"
WRONG_PROPERTY_CRC = "PROPERTIES_CRC: the record has another CRC than its property __CRC32# says"

_BATCH_BODY_BYTES = 32 << 20


def message_batches(
    buffer: Bytes,
    base: int,
    frames: Frames,
    names: list[str],
    max_rows: int,
    body_limit: int = DEFAULT_BODY_LIMIT,
    check_crc: bool = False,
) -> Iterator[MessageColumns]:
    """Cut messages into batches of at most `max_rows` rows and about 32 MiB of bodies.

    A compressed body counts with its decompressed size. Bodies are decompressed only if `names` needs them.
    With `check_crc`, messages' checksums are looked at whatever `names` are: a body with a wrong one is none.
    """
    needs_bodies = not BODY_COLUMNS.isdisjoint(names)
    for first in range(0, frames.size, max_rows):
        batch = MessageColumns(buffer, base, frames[first : first + max_rows])
        if needs_bodies or check_crc:
            yield from _cut_by_body_bytes(batch, body_limit, needs_bodies, check_crc)
        else:
            yield batch


def _cut_by_body_bytes(
    batch: MessageColumns, body_limit: int, decompresses: bool, check_crc: bool
) -> Iterator[MessageColumns]:
    """Check and decompress bodies, few messages at a time, so that a batch of bombs stays small."""
    frames = batch.frames
    nothing = np.zeros(frames.size, np.bool_)
    compressed = is_compressed(frames) if decompresses else nothing
    wrong_body = wrong_body_crcs(batch.buffer, frames) if check_crc else nothing
    wrong_properties = wrong_property_crcs(batch.buffer, frames) if check_crc else nothing
    first, held = 0, 0
    rows: list[int] = []
    contents: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(compressed | wrong_body | wrong_properties).tolist():
        content, why = None, []
        if wrong_body[row]:
            why.append(WRONG_BODY_CRC)
        elif compressed[row]:
            content, reason = decompress_body(batch.buffer, frames[row], body_limit)
            why += [reason] if reason is not None else []
        if wrong_properties[row]:
            why.append(WRONG_PROPERTY_CRC)
        if wrong_body[row] or compressed[row]:
            rows.append(row - first)
            contents.append(content)
        if why:
            reasons[row - first] = "; ".join(why)
        held += len(content or b"")
        if held >= _BATCH_BODY_BYTES:
            bodies = Bodies(np.array(rows, np.intp), contents, reasons)
            yield MessageColumns(batch.buffer, batch.base, frames[first : row + 1], bodies)
            first, rows, contents, reasons, held = row + 1, [], [], {}, 0
    if first < frames.size:
        bodies = Bodies(np.array(rows, np.intp), contents, reasons)
        yield MessageColumns(batch.buffer, batch.base, frames[first:], bodies)
