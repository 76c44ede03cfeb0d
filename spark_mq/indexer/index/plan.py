"""Which files an index gets, and which entries go to each; pure but for a few entries that are read for times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import numpy as np

from spark_mq.format.index_file import IndexHeader, IndexLayout
from spark_mq.format.index_placement import IndexPlacement, place_entries
from spark_mq.indexer.index.runs import IndexRun
from spark_mq.indexer.index.writer import IndexFilePlan, IndexPiece
from spark_mq.store.index.end import IndexEnd
from spark_mq.store.index.names import index_file_names


def plan_index_files(
    runs: Sequence[IndexRun], layout: IndexLayout, end: IndexEnd | None, zone: tzinfo, first_timestamp: int
) -> list[IndexFilePlan]:
    """The files that runs of entries, in log order, give, in order; behind `end`, the end of the index that is there.

    A new file is named after the store time of its first entry; where it has none, of the entry before it, or else of
    the log's first message, `first_timestamp`. A last file to which nothing comes is not planned.
    """
    last = None if end is None else end.header
    placed = place_entries(
        np.array([run.count for run in runs], np.int64),
        np.array([run.trailing_messages for run in runs], np.int64),
        layout,
        last,
    )
    pieces: list[list[IndexPiece]] = [[] for _ in range(placed.files)]
    for run, file, start, count in zip(
        placed.run.tolist(), placed.file.tolist(), placed.start.tolist(), placed.count.tolist(), strict=True
    ):
        pieces[file].append(IndexPiece(runs[run].blob, runs[run].start + start, count))
    plans = []
    if end is not None and placed.continues_last:
        continued = pieces.pop(0)
        if continued:
            before = (end.header.end_timestamp, end.header.end_commit_log_offset)
            plans.append(
                IndexFilePlan(end.file.name, tuple(continued), before, end.file.location, end.header.next_entry - 1)
            )
    first_new = placed.files - len(pieces)
    befores = [_end_before(placed, file, runs, last or IndexHeader()) for file in range(first_new, placed.files)]
    timestamps = [
        of_file[0].blob.entry(of_file[0].start)[2] if of_file else before[0] or first_timestamp
        for of_file, before in zip(pieces, befores, strict=True)
    ]
    names = index_file_names(timestamps, zone, "" if end is None else end.file.name)
    plans += [IndexFilePlan(*planned) for planned in zip(names, map(tuple, pieces), befores, strict=True)]
    return plans


def _end_before(placed: IndexPlacement, file: int, runs: Sequence[IndexRun], last: IndexHeader) -> tuple[int, int]:
    """Time and offset with which the file before a new one ends: an entry of a run, or the file that is there."""
    place = placed.entry_before(file)
    if place is None:
        return last.end_timestamp, last.end_commit_log_offset
    run = runs[place[0]]
    _, offset, timestamp = run.blob.entry(run.start + place[1])
    return timestamp, offset
