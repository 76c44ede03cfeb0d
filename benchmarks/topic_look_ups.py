"""`print-message` of topics of different size, and a key without its topic, each beside a scan of the log.

One process, no Spark. The store is that of `benchmarks.topics`, with index files.

    python -m benchmarks.topic_look_ups --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from benchmarks.topics import make_store, topics_of
from spark_mq import MessageStore, explain
from spark_mq.format.dispatch import record_keys
from spark_mq.format.record import Record
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from spark_mq.source import planner as key_plan
from spark_mq.source.topic_messages import Part, topic_messages
from spark_mq.store.message_selection import select_messages
from tests.support.in_process import message_batches

_REPETITIONS = 3
_LARGEST = 0.05
"""Topics with a larger part of the messages are not printed: each message is decoded in Python, both ways."""

Messages = Callable[[MessageStore, str], Iterator[Part]]


def printed(store: Path, topic: str, messages: Messages) -> list[int]:
    """The commit log offsets of a topic's messages."""
    with MessageStore(str(store)) as opened:
        return [part.commit_log_offset for part in messages(opened, topic) if isinstance(part, Record)]


def with_key(store: Path, key: str) -> list[int]:
    """The commit log offsets of the messages of any topic that have a key, as the tasks of Spark read them."""
    batches = message_batches(["commit_log_offset"], path=str(store), key=key)
    return sorted(offset for batch in batches for offset in batch["commit_log_offset"].to_pylist())


def seconds_of(run: Callable[[], list[int]]) -> tuple[float, list[int]]:
    """The least seconds of some runs, and the result."""
    taken = []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        result = run()
        taken.append(time.perf_counter() - started)
    return min(taken), result


def main() -> None:
    """Measure, and print a line for each topic and for the key."""
    parser = argparse.ArgumentParser(description="Measure print-message, and a key without its topic.")
    parser.add_argument("--folder", default="/tmp/spark-mq-bench", help="a folder for the store")
    store = make_store(Path(parser.parse_args().folder), 1 << 30, 450)
    if not (store / "index").exists():
        rebuild_with(LocalTasks(), RebuildRequest.of(str(store), only="index"))
    topics = {topic: share for topic, share in topics_of(store).items() if share < _LARGEST}
    print("| messages | print-message s | by a scan s |\n| --- | --- | --- |")
    for topic, share in topics.items():
        by_scan, scanned = seconds_of(lambda topic=topic: printed(store, topic, select_messages))  # type: ignore[misc]
        seconds, found = seconds_of(lambda topic=topic: printed(store, topic, topic_messages))  # type: ignore[misc]
        assert found == scanned
        print(f"| {share:.2%} | {seconds:.2f} | {by_scan:.2f} |", flush=True)
    with MessageStore(str(store)) as opened:
        parts = topic_messages(opened, next(iter(topics)))
        key = next(iter(record_keys(next(part for part in parts if isinstance(part, Record)))))
    seconds, found = seconds_of(lambda: with_key(store, key))
    with mock.patch.object(key_plan, "CLEARLY_LESS", 0.0):
        by_scan, scanned = seconds_of(lambda: with_key(store, key))
    assert found == scanned
    print(f"\na key without its topic: {seconds:.2f} s, by a scan {by_scan:.2f} s\n{explain(str(store), key=key)}")


if __name__ == "__main__":
    main()
