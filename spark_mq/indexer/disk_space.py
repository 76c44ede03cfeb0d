"""The room that a rebuild needs on the disk of its output, and the error for a full disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from spark_mq.errors import CorruptLogError, NoRoomError, SparkMqError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.consume_queue_ext import HEADER_SIZE as EXT_HEADER_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, SLOT_SIZE
from spark_mq.format.message_keys import record_keys
from spark_mq.format.record import decode_record
from spark_mq.indexer.queue.ext_settings import STAGED_EXT_SIZE, ExtSettings
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.size_text import size_text
from spark_mq.store.index.folder import index_layout
from spark_mq.store.log.commit_log import CommitLog, Segment
from spark_mq.store.log.splits import plan_splits

_BYTES_PER_SPLIT = 32 << 10
"""Bytes that each split stages besides units and entries: the directory of its runs, marks of progress."""
_SAMPLES = 8
_SAMPLE_SIZE = 256 << 10


def room_needed(request: RebuildRequest, log: CommitLog) -> int | None:
    """The approximate number of bytes that a rebuild needs, from a sample of the log; None if the log cannot be read.

    Each unit and each index entry is stored twice, staged and in its file. Files are sparse after their last entry.

    Args:
        log: The store's log, with at least one segment.
    """
    step = max(1, len(log.segments) // _SAMPLES)
    try:
        sampled = [_sample(segment) for segment in log.segments[::step]]
    except (OSError, SparkMqError):
        return None
    read = sum(size for size, _, _ in sampled)
    if not read:
        return None
    size = sum(segment.data_end for segment in log.segments)
    messages, entries = (sum(sample[part] for sample in sampled) * size // read for part in (1, 2))
    needed = len(plan_splits(log, request.split_size)) * _BYTES_PER_SPLIT
    if request.selection.has_queues:
        needed += 2 * UNIT_SIZE * messages
    if request.selection.has_ext:
        ext = ExtSettings.of(request.store, request.broker_conf)
        bits = ext.bit_count // 8 if ext.filters else 0
        needed += (STAGED_EXT_SIZE + EXT_HEADER_SIZE + 2 * bits) * messages
    if request.selection.has_index:
        layout = index_layout(request.store, request.broker_conf)
        files = -(-entries // (layout.index_num - 1))
        needed += 2 * ENTRY_SIZE * entries + files * layout.hash_slot_num * SLOT_SIZE
    return needed


def _sample(segment: Segment) -> tuple[int, int, int]:
    """The number of bytes read at the start of a segment, and of the messages and index entries in them.

    One record at a time: a command waits for this before Spark starts, and must not wait for kernels.
    """
    with FileReader(segment.location) as file:
        data = file.read(0, min(segment.data_end, _SAMPLE_SIZE))
    position = messages = entries = 0
    while position < len(data):
        try:
            record = decode_record(data, position)
        except CorruptLogError:  # a blank, damage, or the record that the sample cuts
            break
        position += record.size
        messages += 1
        entries += len(record_keys(record))
    return position, messages, entries


def no_room_error(output: Location, needed: int | None, scratch: Sequence[str]) -> NoRoomError:
    """The error for a full disk: it names the disk, the room that is needed, and how to continue.

    Args:
        needed: Bytes that the job needs there in all; None if unknown.
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
    """The free bytes on the disk of `path`, or of its nearest parent folder that exists; None if unknown."""
    for folder in (Path(path), *Path(path).parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None
