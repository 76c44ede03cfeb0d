"""A store that is rebuilt in this process, without Spark."""

from __future__ import annotations

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
    return rebuild_with(LocalTasks(), request, None if progress is None else lambda stage: progress(str(stage)))
