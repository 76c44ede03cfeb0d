"""Lines of progress: one for each change."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from spark_mq.io.location import Location
from spark_mq.job.progress import Progress, StageProgress, mark_done


def test_no_line_comes_twice(tmp_path: Path) -> None:
    folder = Location.resolve(str(tmp_path))
    new_parts = iter([0, 0, 1, 0, 3, 0, 0])
    names = iter(range(10))

    class Waits(threading.Event):
        """Lets the watcher look after each step, and ends with the steps."""

        def wait(self, timeout: float | None = None) -> bool:
            count = next(new_parts, None)
            for _ in range(count or 0):
                mark_done(folder, str(next(names)))
            return count is None

    lines: list[str] = []
    begin = StageProgress("write", 0, 10, "files", None, 0.0)
    Progress(folder, lambda stage: lines.append(str(stage)))._watch(Waits(), folder, begin, 0.0)
    assert lines == ["write: 1 of 10 files", "write: 4 of 10 files"]


def test_a_stage_that_reads_bytes_shows_rate_and_time() -> None:
    quarter = StageProgress("dispatch", 8, 32, "splits", 4 << 30, 10.0)
    assert str(quarter) == "dispatch: 8 of 32 splits, 1.0 GiB of 4.0 GiB, 102.4 MiB/s, 30 s left"
    assert str(replace(quarter, seconds=100.0)).endswith("10.2 MiB/s, 5 min left")
    assert str(replace(quarter, done=0)) == "dispatch: 0 of 32 splits"
    assert str(replace(quarter, done=32, is_done=True)) == "dispatch: 32 splits in 10.0 s"
