"""Point questions on logs of 1, 4 and 16 segments: from a cold shell, warm in Python, and the bytes that they read.

A cold figure is the time of a whole process, compared with a process that only imports pyarrow. A warm figure is the
time of one call, compared with a read of the same unit and record by `os.pread`.
"""

from __future__ import annotations

import os
import random
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.generate_store import generate_store
from spark_mq import MessageStore, rebuild

SEGMENT_SIZE = 64 << 20
SEGMENT_COUNTS = (1, 4, 16)
_COLD_REPETITIONS = 9
_WARM_CALLS = 2000


@dataclass(frozen=True)
class Question:
    """A message: its position in its queue, and its id."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    unique_key: str


def make_store(spark: SparkSession, folder: Path, segments: int) -> Path:
    """A generated store of `segments` segments, with consume queues and a checkpoint as after a clean stop."""
    store = folder / f"points-{segments}"
    if (store / "checkpoint").exists():
        return store
    generate_store(store, log_size=segments * SEGMENT_SIZE - (1 << 20), segment_size=SEGMENT_SIZE)
    rebuild(spark, str(store), assume_defaults=True)
    with MessageStore(str(store)) as opened:
        newest = opened.look_message_by_offset(_last_message(opened)).column("store_timestamp")[0]
    millis = newest.value // 1000
    (store / "checkpoint").write_bytes(struct.pack(">qqqqq", millis, millis, 0, 0, 0).ljust(4096, b"\0"))
    return store


def _last_message(store: MessageStore) -> int:
    """The commit log offset of the newest message."""
    ends = ((queue, store.get_max_offset_in_queue(*name)) for name, queue in store.queues.items())
    return max(queue.unit(end - 1)[0] for queue, end in ends)


def questions(store: Path, count: int) -> list[Question]:
    """`count` messages, spread over the log."""
    generator, found = random.Random(5), []
    with MessageStore(str(store)) as opened:
        for _ in range(count):
            topic, queue_id = generator.choice(sorted(opened.queues))
            offset = generator.randrange(opened.get_max_offset_in_queue(topic, queue_id))
            (row,) = opened.get_message(topic, queue_id, offset, 1).to_pylist()
            found.append(Question(topic, queue_id, offset, row["offset_message_id"], row["unique_key"]))
    return found


def cold(arguments: list[str]) -> float:
    """The seconds that one process of the interpreter takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def peak_memory(arguments: list[str]) -> int:
    """The largest resident size, in bytes, of a command's process."""
    code = (
        "import re, sys; from spark_mq.cli.main import main; main(sys.argv[1:]);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return int(done.stderr) << 10


def cold_line(name: str, arguments: list[str]) -> str:
    """A line with the medians of a command and of the process it is compared with, measured in pairs."""
    command = ["-m", "spark_mq.cli.main", *arguments]
    pairs = [(cold(command), cold(["-c", "import pyarrow.fs"])) for _ in range(_COLD_REPETITIONS + 1)][1:]
    seconds = [one for one, _ in pairs]
    ratio = statistics.median(command_seconds / import_seconds for command_seconds, import_seconds in pairs)
    spread = f"{min(seconds):.3f}-{max(seconds):.3f}"
    memory = peak_memory(arguments) >> 20
    return f"{name:28} {statistics.median(seconds):7.3f} s ({spread}), {ratio:.1f} x import pyarrow; {memory} MiB"


def warm_line(name: str, asked: list[Question], ask: Callable[[Question], object], plain: Callable[[], object]) -> str:
    """A line with the microseconds of one call, and of plain reads at as many positions."""
    for question in asked:
        ask(question)
    started = time.perf_counter()
    for question in asked:
        ask(question)
    middle = time.perf_counter()
    for _ in asked:
        plain()
    ended = time.perf_counter()
    call, read = (middle - started) / len(asked), (ended - middle) / len(asked)
    return f"{name:38} {call * 1e6:7.0f} µs, {call / read:6.1f} x plain reads of the same"


def print_points(spark: SparkSession, folder: Path) -> None:
    """Measure, and print a line for each figure."""
    print("\npoint questions")
    for segments in SEGMENT_COUNTS:
        store = make_store(spark, folder, segments)
        asked = questions(store, _WARM_CALLS)
        print(f"{segments} segments of {SEGMENT_SIZE >> 20} MiB")
        for name, arguments, ask in _kinds(asked[0]):
            with MessageStore(str(store)) as opened:
                ask(opened, asked[0])
                bytes_read = opened.files.bytes_read
            print(f"{cold_line(f'  {name}, cold', [name, str(store), *arguments])}; {bytes_read:,} bytes read")
            with MessageStore(str(store)) as opened:
                print(warm_line(f"  {name}, warm", asked, partial(ask, opened), _plain_read(store, asked[0])))


def _kinds(first: Question) -> list[tuple[str, list[str], Callable[[MessageStore, Question], object]]]:
    """For each question: the command, its arguments after the store, and the same question in Python."""
    position = [first.topic, str(first.queue_id), str(first.queue_offset)]
    return [
        ("query-by-offset", position, lambda store, q: store.get_message(q.topic, q.queue_id, q.queue_offset, 1)),
        ("query-by-id", [first.message_id], lambda store, q: store.look_message_by_id(q.message_id)),
    ]


def _plain_read(store: Path, question: Question) -> Callable[[], None]:
    """A function that reads a unit and a record of usual size from open files."""
    unit_file = os.open(next((store / "consumequeue" / question.topic / "0").iterdir()), os.O_RDONLY)
    record_file = os.open(next((store / "commitlog").iterdir()), os.O_RDONLY)

    def read() -> None:
        os.pread(unit_file, 20, 400)
        os.pread(record_file, 450, 4096)

    return read
