"""The table in which a RocksDB database has the ends of its queues, against the units that it has.

A broker numbers new messages from `max`, and delivers messages from `min` on (`RocksDBConsumeQueueOffsetTable`@5.3.3).
It corrects `min` only when it is asked, and if its message has expired; a queue can lack it. The checkpoint is where a
boot begins to dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_mq.store.queue.queue_database import QueueDatabase
from spark_mq.verifier.finding import findings


def offset_table_findings(database: QueueDatabase, name: str, log: range) -> Iterator[pa.RecordBatch]:
    """What is wrong with the table of a database that findings call `name`; `log` are the offsets of the log."""
    table, ends = database.offset_table(), database.ends(log.stop)
    for queue in sorted({*ends, *table.maximum, *table.minimum}):
        first, last = ends.get(queue, (None, None))
        maximum, minimum = table.maximum.get(queue), table.minimum.get(queue)
        if maximum != last and (last is not None or (maximum is not None and maximum[0] >= log.start)):
            yield findings("QUEUE_OFFSET_TABLE", name, _text("max", last), _text("max", maximum), queue=queue)
        is_old = minimum is not None and minimum[0] < log.start
        if first is not None and minimum is not None and not is_old and minimum[1] > max(first[1], 0):
            yield findings("QUEUE_OFFSET_TABLE", name, _text("min", first), _text("min", minimum), queue=queue)
    if table.checkpoint is not None and table.checkpoint > log.stop:
        found = f"checkpoint {table.checkpoint}"
        yield findings("QUEUE_OFFSET_TABLE", name, f"a checkpoint up to {log.stop}", found)


def _text(name: str, end: tuple[int, int] | None) -> str:
    return f"no {name}" if end is None else f"{name}: queue offset {end[1]}, at commit log offset {end[0]}"
