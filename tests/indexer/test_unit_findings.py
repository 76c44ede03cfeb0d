"""What a rebuild reports about units that it wrote."""

from __future__ import annotations

from dataclasses import replace

from spark_mq.indexer.queue_files import unit_findings
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_writer import UNTOUCHED, WrittenQueueFile


def test_units_that_the_log_contradicts_are_named_by_file_and_offset() -> None:
    sound = WrittenQueueFile("orders", 1, 0, 200, 10, [], [], 0, -1, 0, -1, UNTOUCHED)
    wrong = replace(sound, file_number=1, contradicted=2, first_contradicted=4096)
    (found,) = unit_findings(QueuePlan((), units_per_file=10), [sound, wrong])
    assert (found.code, found.file, found.commit_log_offset) == ("CONTRADICTED_UNITS", "orders/1", 4096)
    assert found.reason.startswith("2 units of 00000000000000000200 are not what the log says, the first names ")
