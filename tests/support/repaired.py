"""A store that is repaired in this process, without Spark; also as a program, which a test can kill."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks, TaskRunner
from spark_mq.repairer.plan import RepairRequest
from spark_mq.repairer.repair import RepairReport, repair_store
from spark_mq.verifier.check import VerifyRequest


def repair_here(
    store: Path | str, conf: Path | str | None, output: Path | str | None = None, **options: Any
) -> RepairReport:
    """The report of a repair that runs in this process."""
    settings = None if conf is None else str(conf)
    where = None if output is None else str(output)
    request = RepairRequest.of(VerifyRequest.of(str(store), settings), where, **options)
    with tempfile.TemporaryDirectory() as folder:
        return repair_store(request, Location.resolve(folder), lambda written: TaskRunner(LocalTasks(1)))


if __name__ == "__main__":
    repair_here(Path(sys.argv[1]), sys.argv[2], apply=True, offsets=True)
