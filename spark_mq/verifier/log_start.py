"""What queues and index still have of messages that are before the first segment: they expired, or were lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, is_live
from spark_mq.format.timestamp import iso_text
from spark_mq.io.file_reader import FileReader
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.verifier.config_files import Queue, QueueBounds
from spark_mq.verifier.finding import findings
from spark_mq.verifier.index_folder import IndexFolder


def log_start_findings(
    start: int, folders: Iterable[QueueFolder], bounds: Mapping[Queue, QueueBounds], index: IndexFolder
) -> Iterator[pa.RecordBatch]:
    """What the first unit of each queue and the headers of index files show.

    Args:
        start: The commit log offset at which the log starts.

    Yields:
        At most one finding.
    """
    if start <= 0:
        return
    queues, units, files, oldest = 0, 0, 0, -1
    for folder in folders:
        count = _units_before(folder, start, bounds.get((folder.topic, folder.queue_id)))
        queues, units = queues + (count > 0), units + count
    for info in index.files:
        header = info.stored_header()
        if header.next_entry > 1 and 0 <= header.begin_commit_log_offset < start:
            files += 1
            oldest = header.begin_timestamp if oldest < 0 else min(oldest, header.begin_timestamp)
    if queues or files:
        since = f"; the oldest entry is of {iso_text(oldest)}" if files else ""
        yield findings(
            "LOG_BEFORE_START",
            file=f"commitlog/{start:020d}",
            commit_log_offset=start,
            expected="the first message of queues and index",
            found=f"{units} units of {queues} queues, and entries of {files} index files, before it{since}",
        )


def _units_before(folder: QueueFolder, start: int, bounds: QueueBounds | None) -> int:
    """The number of units before the first message of the log; of pre-blank units only those in the first file."""
    first = folder.files[0]
    count = 0 if bounds is None else bounds.min_offset - int(first.base_name) // UNIT_SIZE
    if count <= 0:
        return 0
    with FileReader(folder.location / first.base_name) as file:
        units = _units(file, 1)
        if not is_live(units)[0]:  # a queue that does not begin with its file
            units = _units(file, min(count, first.size // UNIT_SIZE))
    live = is_live(units)
    if not live.any() or units["commit_log_offset"][live][0] >= start:
        return 0
    return count - int(np.argmax(live))


def _units(file: FileReader, count: int) -> Units:
    """The first units of a file; zeros after its end."""
    return np.frombuffer(file.read(0, UNIT_SIZE * count).ljust(UNIT_SIZE * count, b"\0"), UNIT_DTYPE)
