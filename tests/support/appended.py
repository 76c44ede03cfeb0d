"""An append of the rest of a real log, which runs in this process without Spark; also as a program, for kill tests."""

from __future__ import annotations

from pathlib import Path

from spark_mq.indexer.trees import WrittenTrees
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import LocalTasks, Tasks
from spark_mq.restorer.append import Append, appending
from spark_mq.store.config.broker_conf import BrokerConf

TOPICS = "config/topics.json"
SPLIT_SIZE = 16 << 10


def write_segments(append: Append, segments: dict[int, bytes], log_end: int) -> None:
    """Put the bytes of a log up to an offset into the folder of an append; `segments` are those of the whole log."""
    for base, data in segments.items():
        if base + len(data) > append.target.log_end and base < log_end:
            publish(append.folder / "commitlog" / f"{base:020d}", data[: log_end - base], len(data))


def segments_of(store: Path) -> dict[int, bytes]:
    return {int(file.name): file.read_bytes() for file in sorted((store / "commitlog").iterdir())}


def append_here(
    store: Path,
    segments: dict[int, bytes],
    log_end: int,
    conf: Path,
    topics: bytes | None = None,
    tasks: Tasks | None = None,
) -> WrittenTrees | None:
    """What was written; None if this append was interrupted, and now is in place."""
    config = {} if topics is None else {TOPICS: topics}
    with appending(Location.resolve(str(store)), BrokerConf.of(str(conf))) as append:
        if append.interrupted is not None:
            assert append.interrupted == {"log_end": log_end}
            return None
        write_segments(append, segments, log_end)
        extension = append.write_trees(tasks or LocalTasks(), log_end, SPLIT_SIZE)
        append.commit(extension, config, {"log_end": log_end})
        return extension
