"""Lines of progress: one for each change."""

from __future__ import annotations

import threading
from pathlib import Path

from spark_mq.io.location import Location
from spark_mq.job.progress import Progress, mark_done


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
    Progress(folder, lines.append)._watch(Waits(), folder, "write", 10, "files")
    assert lines == ["write: 1 of 10 files", "write: 4 of 10 files"]
