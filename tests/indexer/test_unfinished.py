"""A rebuild of a log whose last record is not whole ends before it. No Spark here."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.indexer.rebuild_plan import DispatchSettings, DispatchTargets
from spark_mq.indexer.split_dispatch import dispatch_split
from spark_mq.indexer.stage import misaligned_segments
from spark_mq.indexer.staged_files import SplitRow
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog, Split, plan_splits
from spark_mq.testing import LogWriter

SEGMENT_SIZE = 64 << 10


def split_rows(splits: list[Split], exact: bool, folder: Path) -> list[SplitRow]:
    targets = DispatchTargets(Location.resolve(str(folder)), DispatchSettings(6_000_000, "1s"), True, False)
    return [dispatch_split(split, targets, exact) for split in splits]


@pytest.mark.parametrize("split_size", [1 << 10, 16 << 10, SEGMENT_SIZE])
@pytest.mark.parametrize("is_whole", [True, False])
def test_the_last_record_is_dispatched_when_it_is_whole(is_whole: bool, split_size: int, tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(40):
        writer.append(1000 + number, bytes(100))
    if not is_whole:
        writer.segments[0][-1] = 0
    log = CommitLog.open(writer.write(tmp_path))
    (segment,) = log.segments
    again = misaligned_segments(split_rows(plan_splits(log, split_size), exact=False, folder=tmp_path), segment.base)
    assert again == ([] if is_whole else [0])
    (row,) = split_rows([Split(segment, 0, segment.data_end)], exact=True, folder=tmp_path)
    assert (row.messages, row.end_position) == ((40, writer.next_offset) if is_whole else (39, writer.offsets[-1]))
    assert row.corrupt == ()
