"""A scan, a rebuild and a look-up of a key on S3 beside the local disk, with the numbers of requests and bytes.

The S3 server of the tests runs on the loopback interface, behind their proxy, which counts the requests and can delay
each of them. Everything runs in one process without Spark, as the tasks of Spark do it, in turns.

    python -m benchmarks.object_storage --size 256MiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.generate_store import generate_store
from spark_mq import MessageStore
from spark_mq.format.amounts import parse_size
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from tests.s3.proxy import Proxy
from tests.s3.server import ACCESS_KEY, SECRET_KEY, missing, running_server
from tests.support.in_process import message_batches

_COLUMNS = ("commit_log_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "body")
_BUCKET = "bench"
_DELAYS = (0.0, 0.02)


def make_store(folder: Path, size: int, broker_conf: str | None = None) -> Path:
    """A generated store with consume queues and index, and a checkpoint as after a clean stop.

    Args:
        folder: A folder for the store, which is kept for the next call.
        size: Bytes of the log, in four segments.
        broker_conf: A file with the sizes of index files; by default one file has room for 20 million keys.

    """
    store = folder / f"object-storage-{size}"
    if (store / "checkpoint").exists():
        return store
    shutil.rmtree(store, ignore_errors=True)
    # Full segments: the zeros at the end of an unfinished one would be read, too.
    generate_store(store, log_size=size - (64 << 10), message_size=450, segment_size=size // 4, topics=8, queues=4)
    rebuild_with(LocalTasks(), RebuildRequest.of(str(store), broker_conf=broker_conf, assume_defaults=True))
    with MessageStore(str(store)) as opened:
        newest = opened.records.store_timestamp(
            max(queue.unit(queue.written_end - 1)[0] for queue in opened.queues.values())
        )
    (store / "checkpoint").write_bytes(struct.pack(">qqqqq", newest, newest, newest, 0, 0).ljust(4096, b"\0"))
    return store


def scan(store: str) -> int:
    """The number of rows of a scan with bodies."""
    return sum(batch.num_rows for batch in message_batches(_COLUMNS, path=store))


def look_up(store: str, topic: str, key: str) -> int:
    """The number of messages with a key."""
    with MessageStore(store) as opened:
        return len(list(opened.find_messages(topic, key)))


def rebuilt(store: str, output: str) -> int:
    """The number of units of a rebuild."""
    return rebuild_with(LocalTasks(), RebuildRequest.of(store, output, assume_defaults=True)).units


@dataclass
class Figure:
    """What one operation takes at one place: seconds of each repetition, and requests and bytes of the last one."""

    seconds: list[float] = field(default_factory=list)
    requests: int = 0
    received: int = 0


def measure(figure: Figure, proxy: Proxy, delay: float, operation: Callable[[int], int], at: int) -> int:
    """Run an operation at a place once; returns its result."""
    proxy.reset()
    proxy.delay = delay
    started = time.perf_counter()
    result = operation(at)
    figure.seconds.append(time.perf_counter() - started)
    figure.requests, figure.received = len(proxy.requests), proxy.bytes_sent
    return result


def key_of(store: Path) -> tuple[str, str]:
    """Topic and a key of a message in the middle of the log."""
    from spark_mq.format.dispatch import record_keys

    with MessageStore(str(store)) as opened:
        queue = next(iter(opened.queues.values()))
        record = opened.records.record(queue.unit(queue.written_end // 2)[0])
        while not record_keys(record):
            record = opened.records.record(opened.records.next_offset(record.commit_log_offset))
        return record.topic.decode(), next(iter(record_keys(record)))


def main() -> None:
    """Measure, and print a line for each operation and place."""
    parser = argparse.ArgumentParser(description="Measure reads and a rebuild on S3 beside the local disk.")
    parser.add_argument("--size", default="256MiB", help="bytes of the log (256MiB)")
    parser.add_argument("--folder", default="/tmp/spark-mq-bench", help="a folder for the store and the server's files")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each operation at each place (3)")
    parser.add_argument("--make", action="store_true", help="only make the store")
    arguments = parser.parse_args()
    reason = missing()
    if reason is not None:
        raise SystemExit(f"no S3 server: {reason}")
    folder = Path(arguments.folder)
    store = make_store(folder, parse_size("--size", arguments.size))
    if arguments.make:
        return
    with tempfile.TemporaryDirectory(dir=folder) as home, running_server(Path(home)) as server:
        shutil.copytree(store, server.folder / _BUCKET / "store", copy_function=os.link)
        with Proxy(server).running() as proxy:
            os.environ |= {
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                "AWS_ENDPOINT_URL": f"http://{proxy.endpoint}",
                "AWS_REGION": "eu-central-1",
            }
            _print_table(store, Path(home) / "output", proxy, server.folder / _BUCKET / "output", arguments.repetitions)


def _print_table(store: Path, local_output: Path, proxy: Proxy, s3_output: Path, repetitions: int) -> None:
    topic, key = key_of(store)
    stores, outputs = (str(store), f"s3://{_BUCKET}/store"), (str(local_output), f"s3://{_BUCKET}/output")
    places = [("local", 0, 0.0), *((f"S3, {delay * 1000:.0f} ms", 1, delay) for delay in _DELAYS)]
    operations: dict[str, Callable[[int], int]] = {
        "scan": lambda at: scan(stores[at]),
        "look-up of a key": lambda at: look_up(stores[at], topic, key),
        "rebuild": lambda at: rebuilt(stores[at], outputs[at]),
    }
    heads = ["local: seconds", *(f"{place}: seconds, / local" for place, *_ in places[1:])]
    print(f"| what | {' | '.join(heads)} | requests | MiB received |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, operation in operations.items():
        figures = {place: Figure() for place, _, _ in places}
        results = set()
        operation(0)
        shutil.rmtree(local_output, ignore_errors=True)
        for _ in range(repetitions):
            for place, at, delay in places:
                results.add(measure(figures[place], proxy, delay, operation, at))
                for output in (local_output, s3_output):
                    shutil.rmtree(output, ignore_errors=True)
        assert len(results) == 1, f"{name}: other results on S3: {results}"
        local, *remote = (statistics.median(figure.seconds) for figure in figures.values())
        cells = " | ".join(f"{seconds:.3f}, {seconds / local:.1f}" for seconds in remote)
        last = figures[places[-1][0]]
        print(f"| {name} | {local:.3f} | {cells} | {last.requests} | {last.received / 2**20:.1f} |", flush=True)


if __name__ == "__main__":
    main()
