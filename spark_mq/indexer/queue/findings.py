"""Findings about written queue files: missing, doubled and contradicted units, for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spark_mq.format.consume_queue import UNIT_SIZE, queue_file_name
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.indexer.queue.plan import PlannedQueue, QueuePlan
from spark_mq.indexer.queue.writer import WrittenFile
from spark_mq.store.log.corrupt_range import CorruptRange

_MAX_RANGES_SHOWN = 10


def unit_findings(plan: QueuePlan, written: Sequence[WrittenFile]) -> Iterator[CorruptRange]:
    """What is wrong with the units of queues."""
    queues = {queue.key: queue for queue in plan.queues}
    yield from _missing_units(plan, written)
    yield from _doubled_units(queues, written)
    yield from _contradicted_units(plan.units_per_file * UNIT_SIZE, written)


def _missing_units(plan: QueuePlan, written: Sequence[WrittenFile]) -> Iterator[CorruptRange]:
    """Queues that have queue offsets without a message."""
    files: dict[Queue, list[WrittenFile]] = {}
    for file in written:
        files.setdefault((file.topic, file.queue_id), []).append(file)
    for queue in plan.queues:
        of_queue = sorted(files[queue.key], key=lambda file: file.file_number)
        count = queue.queue_max - queue.queue_min - sum(file.units for file in of_queue)
        if count:
            text = missing_text(missing_ranges(of_queue, plan.units_per_file), count)
            yield CorruptRange(queue.name, queue.commit_log_offset, 0, "MISSING_UNITS", text)


def _doubled_units(queues: Mapping[Queue, PlannedQueue], written: Sequence[WrittenFile]) -> Iterator[CorruptRange]:
    """Files in which messages claim a queue offset that an earlier message has."""
    for file in written:
        if file.doubled:
            reason = (
                f"{file.doubled} messages have a queue offset that an earlier message has, the first of them "
                f"queue offset {file.first_doubled}: they are in no queue"
            )
            queue = queues[file.topic, file.queue_id]
            yield CorruptRange(queue.name, queue.commit_log_offset, 0, "DOUBLED_UNITS", reason)


def _contradicted_units(file_size: int, written: Sequence[WrittenFile]) -> Iterator[CorruptRange]:
    """Files that were continued, and contain units that the log contradicts."""
    for file in written:
        if file.contradicted:
            reason = (
                f"{file.contradicted} units of {queue_file_name(file.file_number, file_size)} are not what "
                f"the log says, the first names commit log offset {file.first_contradicted}; --replace rebuilds the "
                "queues from the log"
            )
            name = f"{file.topic}/{file.queue_id}"
            yield CorruptRange(name, file.first_contradicted, 0, "CONTRADICTED_UNITS", reason)


def missing_ranges(files: Sequence[WrittenFile], units_per_file: int) -> list[range]:
    """The queue offsets of a queue that have no message, as ranges that do not touch; of many only the first ones.

    Args:
        files: The queue's files with units, by file number.
    """
    ranges: list[range] = []
    end = files[0].file_number * units_per_file
    for file in files:
        start = file.file_number * units_per_file
        of_file = [range(end, start), *map(range, file.missing_starts, file.missing_stops)]
        for missing in filter(None, of_file):
            if ranges and ranges[-1].stop == missing.start:
                ranges[-1] = range(ranges[-1].start, missing.stop)
            else:
                ranges.append(missing)
        end = start + units_per_file
    return ranges


def missing_text(missing: Sequence[range], count: int) -> str:
    """The text of the report about queue offsets without a message."""
    shown = missing[:_MAX_RANGES_SHOWN]
    texts = [str(offsets.start) if len(offsets) == 1 else f"{offsets.start} to {offsets.stop - 1}" for offsets in shown]
    if count == 1:
        return f"queue offset {texts[0]} has no message"
    rest = count - sum(map(len, shown))
    more = f" and {rest} more" if rest else ""
    return f"queue offsets {', '.join(texts)}{more} have no message ({count} in all)"
