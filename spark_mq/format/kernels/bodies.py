"""Bodies of messages that differ from the stored bytes: decompressed, or not readable and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Bytes
from spark_mq.format.compression import decompress_or_reason
from spark_mq.format.kernels.frames import Frame, Frames
from spark_mq.format.record import COMPRESSED_FLAG


@dataclass(frozen=True)
class Bodies:
    """The bodies of one batch that differ from the stored bytes, and the reasons why messages are corrupt.

    Attributes:
        rows: The rows of the messages whose body differs from the stored bytes.
        contents: The body of message `rows[i]`: its decompressed content, or None if its body cannot be trusted.
        reasons: The reason why a message is corrupt, by row; only for corrupt messages.
    """

    rows: npt.NDArray[np.intp]
    contents: list[bytes | None]
    reasons: dict[int, str]


def decompress_bodies(buffer: Bytes, frames: Frames, limit: int) -> Bodies:
    """The decompressed bodies of the messages whose sysFlag marks their body as compressed.

    Each compressed body costs one call of a codec, other bodies cost nothing. By default, producers compress bodies of
    4 KiB or more.

    Args:
        buffer: The bytes that contain the messages.
        limit: The largest accepted content of one body, in bytes. A body with more content is corrupt.
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
    """The decompressed body of one message, and None; or None and the reason why it cannot be decompressed."""
    stored = buffer[frame.body_start : frame.body_start + frame.body_length]
    return decompress_or_reason(stored.tobytes(), int(frame.sys_flag), limit)
