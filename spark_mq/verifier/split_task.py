"""One split of the log: it is staged as for a rebuild, and its records are checked while they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_mq.format.consume_queue import Queue
from spark_mq.indexer.rebuild_plan import DispatchTargets
from spark_mq.indexer.staged_files import SPLIT_SCHEMA
from spark_mq.io.location import Location
from spark_mq.job.task_items import TaskItems
from spark_mq.store.log.commit_log import Segment
from spark_mq.store.log.record_lookup import UNFINISHED
from spark_mq.store.log.splits import Split
from spark_mq.verifier.finding import findings
from spark_mq.verifier.log_bounds import merged
from spark_mq.verifier.sink import FindingSink

_MAX_HOLES = 256
"""The limit of damaged ranges of a split that the driver gets; more of them become one range."""

_EXPECTED = {
    "RECORD_QUEUE_OFFSET": "a possible queue offset",
    "SEGMENT_FILLER": "the filler of the segment",
    "LOG_CORRUPT": "a record",
}

_QUEUES = pa.list_(pa.struct([("topic", pa.string()), ("queue_id", pa.int32())]))
CHECKED_SPLIT_SCHEMA = SPLIT_SCHEMA.append(pa.field("dispatched_queues", _QUEUES)).append(
    pa.field("summary", pa.string())
)
"""The row of a split, the queues that its messages name (`multi_dispatch`), and its findings, counted."""


@dataclass(frozen=True)
class SplitTask:
    """As a task: numbers of splits in, their rows and summaries (`CHECKED_SPLIT_SCHEMA`) out.

    Attributes:
        exact: Whether each split is a whole segment, which is read up to its live end.
        done: The folder in which the task marks each split as done.
    """

    splits: TaskItems[Split]
    targets: DispatchTargets
    exact: bool
    findings: Location
    done: Location | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check the splits with these numbers."""
        for split in self.splits.each(batches, self.done):
            with FindingSink(self.findings) as sink:
                row = check_split(split, self.targets, self.exact, sink)
            row["summary"] = sink.summary.to_json()
            yield pa.RecordBatch.from_pylist([row], schema=CHECKED_SPLIT_SCHEMA)


def check_split(split: Split, targets: DispatchTargets, exact: bool, sink: FindingSink) -> dict[str, Any]:
    """The row of a split (`CHECKED_SPLIT_SCHEMA` except the summary); its corrupt ranges are merged into a few.

    Args:
        exact: Whether the split is a whole segment.
    """
    from spark_mq.format.kernels.big_endian import read_i64
    from spark_mq.indexer.split_dispatch import dispatch_split
    from spark_mq.store.log.record_reader import RecordChunk
    from spark_mq.verifier.records import dispatched_queues, record_findings

    name, segment = split.segment.location.name, split.segment.base
    newest: list[int] = []
    queues: set[Queue] = set()

    def see(chunk: RecordChunk) -> None:
        before = newest[0] if newest else None
        sink.add(record_findings(chunk.buffer, chunk.frames, name, segment, before))
        queues.update(dispatched_queues(chunk.buffer, chunk.frames))
        newest[:] = [int(read_i64(chunk.buffer, int(chunk.frames[-1].store_timestamp_at)))]

    row = asdict(dispatch_split(split, targets, exact, see))
    sink.add(_corrupt_findings(split, row["corrupt"]))
    row["corrupt"] = _few(row["corrupt"])
    row["dispatched_queues"] = [{"topic": topic, "queue_id": queue_id} for topic, queue_id in sorted(queues)]
    return row


def _few(corrupt: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same damage as at most `_MAX_HOLES` ranges."""
    ranges = merged(
        ((one["commit_log_offset"], one["commit_log_offset"] + one["length"]) for one in corrupt), _MAX_HOLES
    )
    return [{**corrupt[0], "commit_log_offset": start, "length": stop - start} for start, stop in ranges]


def _corrupt_findings(split: Split, corrupt: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """A finding for each damaged range, those with one code in one batch."""
    ranges = defaultdict[str, list[Mapping[str, Any]]](list)
    for one in corrupt:
        ranges[_code_of(split.segment, one)].append(one)
    for code, some in ranges.items():
        offsets = np.array([one["commit_log_offset"] for one in some], np.int64)
        yield findings(
            code,
            len(some),
            file=f"commitlog/{split.segment.location.name}",
            position=offsets - split.segment.base,
            commit_log_offset=offsets,
            expected=_EXPECTED[code],
            found=[f"{one['length']} bytes: {one['reason']}" for one in some],
        )


def _code_of(segment: Segment, corrupt: Mapping[str, Any]) -> str:
    if corrupt["code"] == "BAD_QUEUE_OFFSET":
        return "RECORD_QUEUE_OFFSET"
    reaches_end = corrupt["commit_log_offset"] + corrupt["length"] >= segment.end_offset
    is_filler = reaches_end and not segment.is_last and corrupt["code"] != UNFINISHED
    return "SEGMENT_FILLER" if is_filler else "LOG_CORRUPT"
