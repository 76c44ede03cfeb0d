"""The covers of logs that a process keeps."""

from __future__ import annotations

from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.cover_memory import keep, recall
from spark_mq.store.queue.unit_cover import LogCover


def test_the_covers_that_were_used_last_are_kept() -> None:
    covers = [LogCover((LogRange(0, stop),), (), 0) for stop in range(20)]
    for number, cover in enumerate(covers):
        keep(b"%d" % number, cover)
        assert recall(b"0") == covers[0]
    assert [number for number in range(20) if recall(b"%d" % number) is None] == [1, 2, 3, 4]
    keep(None, covers[0])
    assert recall(None) is None
