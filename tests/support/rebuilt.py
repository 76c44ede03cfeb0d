"""A store that is rebuilt without Spark: in this process, or in one of its own that a test can kill."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.job.tasks import LocalTasks


def rebuild_here(
    store: Path | str,
    output: Path | str | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> RebuildReport:
    """The report of a rebuild that runs in this process; the arguments are those of `spark_mq.rebuild`."""
    request = RebuildRequest.of(str(store), None if output is None else str(output), **options)
    tasks = LocalTasks(on_progress=None if progress is None else lambda stage: progress(str(stage)))
    return rebuild_with(tasks, request)


def rebuild_process(store: Path | str, output: Path | str | None = None, **options: Any) -> list[str]:
    """The command line of a process that does what `rebuild_here` does."""
    words = {"store": str(store), "output": None if output is None else str(output), **options}
    return [sys.executable, "-m", "tests.support.rebuilt", json.dumps(words)]


if __name__ == "__main__":
    rebuild_here(**json.loads(sys.argv[1]))
