"""What tests of compiled kernels need: arrays, parsed records, fewer examples if kernels run as Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.frames import Frames, new_frames, scan_records
from spark_mq.format.record import MIN_RECORD_SIZE
from tests.support.soak import SOAKS
from tests.support.stores import RealStore, segment_files

WITHOUT_JIT = os.environ.get("NUMBA_DISABLE_JIT") == "1"


def examples(number: int) -> int:
    """How many examples to try: in a soak `number`, else a fifth of it, and a tenth if kernels run as Python."""
    return number if SOAKS else max(number // (10 if WITHOUT_JIT else 5), 3)


def array(data: bytes) -> Bytes:
    """The bytes as the array that kernels take."""
    return np.frombuffer(data, np.uint8)


def frames_of(data: bytes, base: int = 0) -> Frames:
    """The frames of `data`, which must hold whole records and nothing else."""
    frames = new_frames(len(data) // 91 + 1)
    count, position, _ = scan_records(array(data), 0, len(data), base, len(data), frames)
    assert position == len(data), f"no whole records: the hop ended at {position} of {len(data)}"
    return frames[:count]


def live_frames(store: RealStore, folder: Path) -> Iterator[tuple[Bytes, Frames]]:
    """The frames of a store's live messages, segment by segment."""
    wanted = [fact["offset"] for fact in store.facts("msg")]
    for file in segment_files(folder):
        base, data = int(file.name), array(file.read_bytes())
        frames = new_frames(data.size // MIN_RECORD_SIZE + 1)
        count, _, _ = scan_records(data, 0, data.size, base, data.size, frames)
        found: Frames = frames[:count]
        yield data, found[np.isin(found.position + base, wanted)]
