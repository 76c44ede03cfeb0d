"""The copies of compacted topics: their records, their units, what the log says about both, and what a copy lacks.

`store.compaction` reads a copy and says what is wrong with each message; here that becomes findings. What a check
cannot see: a damaged field of a message that has expired in the log, if it is not the body; a `position-checkpoint`
that is too small; and a queue whose copy is gone with its units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.consume_queue import Queue
from spark_mq.io.location import Location
from spark_mq.store.compaction import UNIT_PROBLEMS, compaction_states
from spark_mq.store.config.config_file import load_config, read_config
from spark_mq.store.config.store_paths import COMPACTION
from spark_mq.store.message_store import MessageStore
from spark_mq.verifier.finding import findings, postponed, text
from spark_mq.verifier.log_bounds import LiveLog

_POSITIONS = "position-checkpoint"


def compaction_findings(store: Location, log: LiveLog) -> Iterator[pa.RecordBatch]:
    """What is wrong with the copies of a store. A broker that runs changes them, so it is looked at again then."""
    for batch in _findings(store):
        yield postponed(batch) if log.has_grown() else batch


def _findings(store: Location) -> Iterator[pa.RecordBatch]:
    with MessageStore(str(store)) as opened:
        rows = compaction_states(opened)
    is_copied = rows["offset_in_copy"].is_valid()
    copied = rows.filter(is_copied).group_by(["topic", "queue_id"])
    ends = copied.aggregate([("queue_offset", "min"), ("queue_offset", "max")])
    problem = rows["problem"].fill_null("")
    is_of_unit = pc.is_in(problem, pa.array(UNIT_PROBLEMS))
    yield from _of(rows.filter(is_of_unit), "COMPACTION_UNIT", "compactionCq", "a unit with the values of the record")
    is_of_record = pc.and_(pc.invert(is_of_unit), pc.not_equal(problem, ""))
    expected = "records of the queue, in the order of queue offsets, as in the log"
    yield from _of(rows.filter(is_of_record), "COMPACTION_RECORD", "compactionLog", expected)
    missing = rows.filter(pc.equal(rows["state"], "MISSING")).join(ends, ["topic", "queue_id"], join_type="inner")
    # Earlier ones can be older than the topic's setting.
    missing = missing.filter(pc.greater_equal(missing["queue_offset"], missing["queue_offset_min"]))
    yield from _missing(missing.sort_by([(name, "ascending") for name in ("topic", "queue_id", "queue_offset")]))
    yield from _of_positions(
        store, {(row["topic"], row["queue_id"]): row["queue_offset_max"] for row in ends.to_pylist()}
    )


def _of(rows: pa.Table, code: str, tree: str, expected: str) -> Iterator[pa.RecordBatch]:
    if rows.num_rows:
        topic, queue_id = rows["topic"], rows["queue_id"]
        file = text(f"{COMPACTION}/{tree}/", topic.combine_chunks(), "/", queue_id.combine_chunks().cast(pa.string()))
        position = None if tree == "compactionCq" else rows["offset_in_copy"]
        offset = rows["queue_offset"].combine_chunks().cast(pa.string()).fill_null("unknown")
        found = text(rows["problem"].combine_chunks(), ", at queue offset ", offset)
        place = {"position": position, "commit_log_offset": rows["commit_log_offset"]}
        yield findings(code, file, expected, found, queue=(topic, queue_id), **place)


def _missing(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    if rows.num_rows:
        topic, queue_id, queue_offset, offset = (
            rows[name].combine_chunks() for name in ("topic", "queue_id", "queue_offset", "commit_log_offset")
        )
        yield findings(
            "COMPACTION_MISSING",
            text(f"{COMPACTION}/compactionLog/", topic, "/", queue_id),
            text("the message at queue offset ", queue_offset, ", the newest of its key"),
            "no record of it",
            queue=(topic, queue_id),
            commit_log_offset=offset,
        )


def _of_positions(store: Location, last: Mapping[Queue, int]) -> Iterator[pa.RecordBatch]:
    """Positions after the ends of copies, and a file that is not what a broker writes (`CompactionPositionMgr`)."""
    file = f"{COMPACTION}/{_POSITIONS}"

    def read() -> dict[str, Any] | None:
        return load_config(store, _POSITIONS, lambda content: dict(content["queueOffsetMap"]), COMPACTION)

    positions, problem = read_config(read)
    if problem is not None:
        yield findings("COMPACTION_POSITION", file, "JSON that a broker wrote", problem)
        return
    for (topic, queue_id), end in last.items():
        position = (positions or {}).get(f"{topic}_{queue_id}", -1)
        if not isinstance(position, int) or position > end:
            expected = f"at most queue offset {end}, the last one of the copy"
            yield findings("COMPACTION_POSITION", file, expected, f"{position}", queue=(topic, queue_id))
