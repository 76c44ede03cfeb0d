"""Checks that need nothing but a store's files and staged entries, as parts of one stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.job.task_items import TaskItems
from spark_mq.verifier.sink import FindingSink, summary_batch

Check = Callable[[FindingSink], None]
"""Puts what is wrong into a sink. It can be pickled."""


@dataclass(frozen=True)
class CheckTask:
    """For `mapInArrow`: numbers of checks in, a summary for each out."""

    checks: TaskItems[Check]
    findings: Location
    done: Location | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the checks with these numbers."""
        for check in self.checks.each(batches, self.done):
            with FindingSink(self.findings) as sink:
                check(sink)
            yield summary_batch(sink.summary.to_json())
