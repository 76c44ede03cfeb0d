"""Which stored properties a Java decoder drops without a word, as a kernel.

A piece of the properties, up to a separator 0x02, is `name 0x01 value`. The decoder ignores any other piece
(`MessageDecoder.string2messageProperties`@5.3.3). An empty value and a missing last separator are usual, because
producers send them. A piece without 0x01, or without a name, comes from no client.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, OutInt32s
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import skip_value
from spark_mq.format.properties import NAME_VALUE_SEPARATOR


@kernel
def count_dropped_pieces(buffer: Bytes, frames: Frames, counts: OutInt32s) -> None:
    """Write the number of pieces that are not a named value, for each record, to `counts`."""
    for index in range(frames.size):
        frame = frames[index]
        position, dropped = frame.properties_start, 0
        end = position + int(frame.properties_length)
        while position < end:
            piece = position
            position = skip_value(buffer, position, end)
            name_end = piece
            while name_end < position and buffer[name_end] != NAME_VALUE_SEPARATOR:
                name_end += 1
            if name_end == position or name_end == piece:  # noqa: SIM109 (a kernel)
                dropped += 1
            position += 1
        counts[index] = dropped


def dropped_pieces(buffer: Bytes, frames: Frames) -> Int32s:
    """The number of pieces of each record's properties that a decoder drops although they are not empty values."""
    counts = np.empty(frames.size, np.int32)
    count_dropped_pieces(buffer, frames, counts)
    return counts
