"""How much room a rebuild needs on the disk of its output, and what is said when the disk is full."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from spark_mq.errors import NoRoomError, SparkMqError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, SLOT_SIZE, IndexLayout
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.log.commit_log import CommitLog, Segment
from spark_mq.store.log.splits import plan_splits

_BYTES_PER_SPLIT = 32 << 10
"""What a split stages whatever it holds: a Parquet file of some twenty columns, its checksum, and marks of progress."""
_SAMPLES = 8
_SAMPLE_SIZE = 4 << 20


def room_needed(log: CommitLog, split_size: int, trees: Collection[str], layout: IndexLayout) -> int | None:
    """About how many bytes a rebuild takes up, from a sample of the log; None if the log cannot be read.

    Each unit and each index entry is there twice, staged and in its file; files are sparse after their last entry.

    Args:
        log: The log that is rebuilt from, with at least one segment.
        split_size: Bytes of the log for a task.
        trees: The trees that are made.
        layout: Slots and entries of an index file.

    """
    step = max(1, len(log.segments) // _SAMPLES)
    try:
        sampled = [_sample(segment) for segment in log.segments[::step]]
    except (OSError, SparkMqError):
        return None
    read = sum(size for size, _, _ in sampled)
    size = sum(segment.data_end for segment in log.segments)
    messages, entries = (sum(sample[part] for sample in sampled) * size // read for part in (1, 2))
    needed = len(plan_splits(log, split_size)) * _BYTES_PER_SPLIT
    if CONSUME_QUEUE in trees:
        needed += 2 * UNIT_SIZE * messages
    if INDEX in trees:
        files = -(-entries // (layout.index_num - 1))
        needed += 2 * ENTRY_SIZE * entries + files * layout.hash_slot_num * SLOT_SIZE
    return needed


def _sample(segment: Segment) -> tuple[int, int, int]:
    """Bytes that were read at the start of a segment, and their messages and index entries."""
    from spark_mq.format.kernels.index_keys import index_keys
    from spark_mq.store.log.corrupt_range import CorruptRange
    from spark_mq.store.log.record_reader import RecordReader
    from spark_mq.store.log.segment_source import SegmentSource

    size = min(segment.data_end, _SAMPLE_SIZE)
    messages = entries = 0
    with SegmentSource(segment) as source:
        for part in RecordReader(source, 0).read(size):
            if not isinstance(part, CorruptRange):
                messages += part.frames.size
                entries += int(index_keys(part.buffer, part.frames).entry_count.sum())
    return size, messages, entries


def no_room_error(output: Location, needed: int | None, scratch: Sequence[str]) -> NoRoomError:
    """The error of a job that found a disk full: which disk, how much room is needed, and how to continue.

    Args:
        output: The output folder.
        needed: What the job takes up there, in bytes; None if that is not known.
        scratch: The folders in which Spark sorts (`spark.local.dir`).

    """
    free = free_bytes(output.path) if output.is_local else None
    about = "" if needed is None else f"; the job needs about {size_text(needed)} there in all"
    if free is not None and (needed is None or free < needed):
        full = f"the disk of {output} is full, {size_text(free)} are free{about}"
    else:
        full = (
            f"a disk is full: that of {output}{about}; or that of Spark's scratch space ({', '.join(scratch)}: "
            "spark.local.dir, SPARK_LOCAL_DIRS)"
        )
    return NoRoomError(
        f"{full}. Make room, and run the command again with --resume (and without --replace): it continues with what "
        "this job has staged, and the files that are in place stay as they are until then"
    )


def free_bytes(path: str) -> int | None:
    """The bytes that can be written on the disk of `path`, or of the nearest folder above it that exists."""
    for folder in (Path(path), *Path(path).parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


def size_text(size: int) -> str:
    """Bytes for a person: `512 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1 << 10:
            return f"{size} {unit}"
        size = -(-size // (1 << 10))
    return f"{size} TiB"
