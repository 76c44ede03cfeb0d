"""Bodies of messages where they are not just the stored bytes, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Bytes
from spark_mq.format.compression import decompress_or_reason
from spark_mq.format.kernels.frames import Frame, Frames
from spark_mq.format.sys_flag import COMPRESSED_FLAG


@dataclass(frozen=True)
class Bodies:
    """Bodies of the messages of one batch, where they are not just the stored bytes, and what is wrong with messages.

    `contents[i]` is the body of message `rows[i]`: what decompression gave, or None where there is no sound body.
    `reasons` says by row what is wrong with a message.
    """

    rows: npt.NDArray[np.intp]
    contents: list[bytes | None]
    reasons: dict[int, str]


def decompress_bodies(buffer: Bytes, frames: Frames, limit: int) -> Bodies:
    """Decompress the bodies whose sysFlag says that they are compressed; at most `limit` bytes each.

    One call of a codec for each compressed body (producers compress from 4 KiB on); others are not touched.
    """
    rows = np.flatnonzero(is_compressed(frames))
    contents: list[bytes | None] = []
    reasons: dict[int, str] = {}
    for row in rows.tolist():
        content, reason = decompress_body(buffer, frames[row], limit)
        contents.append(content)
        if reason is not None:
            reasons[row] = reason
    return Bodies(rows, contents, reasons)


def is_compressed(frames: Frames) -> npt.NDArray[np.bool_]:
    """Which messages have a compressed body."""
    compressed: npt.NDArray[np.bool_] = (frames.sys_flag & COMPRESSED_FLAG != 0) & (frames.body_length > 0)
    return compressed


def decompress_body(buffer: Bytes, frame: Frame, limit: int) -> tuple[bytes | None, str | None]:
    """The body of one compressed message, or None and why there is none."""
    stored = buffer[frame.body_start : frame.body_start + frame.body_length]
    return decompress_or_reason(stored.tobytes(), int(frame.sys_flag), limit)
