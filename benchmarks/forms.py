"""Scans and rebuilds of stores of other forms, each beside the same messages in a plain store.

The generated log is written again as DLedger logs and as tiered storage, and its queues as files, into RocksDB and
into both. A scan runs in this process, as the tasks of Spark do it. Each form takes turns with the plain store; the
figures are seconds of the processor, and the median of the ratios of the pairs.

    python -m benchmarks.forms --size 64MiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.run import WITH_BODIES, WITHOUT_BODIES, generated
from spark_mq.datasource import RocketMQDataSource
from spark_mq.format.consume_queue import UNIT_DTYPE
from spark_mq.format.dledger import BLANK, BLANK_MAGIC, HEAD
from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, Record, decode_record
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from spark_mq.store.message_store import MessageStore
from spark_mq.store.tiered_storage import METADATA, file_name

_COLUMNS = {
    "3 columns": ["topic", "queue_id", "queue_offset"],
    "7 columns": [part.split()[0] for part in WITHOUT_BODIES.split(", ")],
    "8 columns, with bodies": [part.split()[0] for part in WITH_BODIES.split(", ")],
}
_SEGMENT = 1 << 30
_TIERED = {"tieredStorage": "tiered"}


def records_of(store: Path) -> list[tuple[Record, bytes]]:
    """The records of a generated store, which has one segment, and their bytes."""
    (segment,) = (store / "commitlog").iterdir()
    data, position, found = segment.read_bytes(), 0, list[tuple[Record, bytes]]()
    with MessageStore(str(store)) as opened:
        end = opened.get_max_phy_offset()
    while position < end:
        record = decode_record(data, position)
        found.append((record, data[position : position + record.size]))
        position += record.size
    return found


def at_offset(record: bytes, offset: int) -> bytes:
    """A record that states another commit log offset."""
    return record[:COMMIT_LOG_OFFSET_AT] + offset.to_bytes(8, "big") + record[COMMIT_LOG_OFFSET_AT + 8 :]


def write_dledger(records: list[tuple[Record, bytes]], target: Path, segment: int) -> Path:
    """The log of a DLedger node with these records, in segments of this size."""
    folder = target / "dledger-n0" / "data"
    folder.mkdir(parents=True)
    base, parts, position = 0, list[bytes](), 0

    def write() -> None:
        with (folder / f"{base:020d}").open("wb") as file:
            file.write(b"".join(parts))
            file.truncate(segment)

    for index, (_, data) in enumerate(records):
        size = HEAD.size + len(data)
        if position - base + size + BLANK.size > segment:
            parts.append(BLANK.pack(BLANK_MAGIC, segment - (position - base)))
            write()
            base, position, parts = base + segment, base + segment, []
        parts += HEAD.pack(1, size, index, 1, position, 0, 0, 0, len(data)), at_offset(data, position + HEAD.size)
        position += size
    write()
    return target


def write_tiered(records: list[tuple[Record, bytes]], target: Path) -> Path:
    """A store without a message, and tiered storage with these records."""
    (target / "commitlog").mkdir(parents=True)
    with (target / "commitlog" / f"{_SEGMENT:020d}").open("wb") as file:
        file.truncate(_SEGMENT)
    queues: dict[tuple[str, int], list[bytes]] = {}
    for record, data in records:
        queues.setdefault((record.topic.decode(), record.queue_id), []).append(data)
    table = {}
    for (topic, queue_id), parts in queues.items():
        sizes = np.array([len(part) for part in parts])
        offsets = np.cumsum(sizes) - sizes
        units = np.zeros(sizes.size, UNIT_DTYPE)
        units["commit_log_offset"], units["store_size"] = offsets, sizes
        log = b"".join(map(at_offset, parts, offsets.tolist()))
        for kind, content in (("COMMIT_LOG", log), ("CONSUME_QUEUE", units.tobytes())):
            folder = target / "tiered" / "cluster" / "broker" / topic / str(queue_id) / kind
            folder.mkdir(parents=True)
            (folder / file_name(0)).write_bytes(content)
        table[f"broker/{topic}/{queue_id}"] = {"0": {"baseOffset": 0, "size": len(log), "status": 0}}
    (target / "config").mkdir()
    (target / "config" / METADATA).write_text(json.dumps({"commitLogFileSegmentTable": table}))
    return target


def rows_of(store: Path, columns: list[str], options: dict[str, str]) -> int:
    """The number of rows of a scan, all of which are read."""
    options = {name: str(store / value) if name in _TIERED else value for name, value in options.items()}
    schema = from_arrow_schema(pa.schema([MESSAGE_SCHEMA.field(name) for name in columns]))
    reader: Any = RocketMQDataSource({"path": str(store), **options}).reader(schema)
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def print_pairs(name: str, repetitions: int, plain: Callable[[], object], form: Callable[[], object]) -> None:
    """Print a row: the seconds of the processor of both, in turns, and the ratio."""

    def seconds(run: Callable[[], object]) -> float:
        started = time.process_time()
        run()
        return time.process_time() - started

    pairs = [(seconds(plain), seconds(form)) for _ in range(repetitions + 1)][1:]
    ratios = sorted(other / one for one, other in pairs)
    one, other = (statistics.median(part) for part in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    print(f"| {name} | {one:.3f} | {other:.3f} | {spread} |", flush=True)


def rebuild(store: Path, output: Path, **options: Any) -> None:
    """The queues of a store, built again."""
    shutil.rmtree(output, ignore_errors=True)
    request = RebuildRequest.of(str(store), str(output), only="consumequeue", assume_defaults=True, **options)
    rebuild_with(LocalTasks(1), request)


def main() -> None:
    """Make the stores, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="64MiB")
    parser.add_argument("--message-size", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/spark-mq-bench"))
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    plain = generated(arguments.folder, arguments.size, arguments.message_size)
    forms = arguments.folder / "forms"
    shutil.rmtree(forms, ignore_errors=True)
    records = records_of(plain)
    scanned: list[tuple[str, Path, dict[str, str]]] = [
        ("DLedger, one segment", write_dledger(records, forms / "dledger", _SEGMENT), {}),
        ("DLedger, segments of 16 MiB", write_dledger(records, forms / "segments", 16 << 20), {}),
        ("tiered storage", write_tiered(records, forms / "tiered"), _TIERED),
    ]
    conf = forms / "broker.conf"
    conf.write_text("rocksdbCQDoubleWriteEnable=true\n")
    print("| what | plain, CPU seconds | this form | ratio, by pairs |\n| --- | --- | --- | --- |")
    for names, columns in _COLUMNS.items():
        for name, store, options in scanned:
            assert rows_of(store, columns, options) == len(records)
            print_pairs(
                f"scan, {names}: {name}",
                arguments.repetitions,
                lambda: rows_of(plain, columns, {}),  # noqa: B023
                lambda: rows_of(store, columns, options),  # noqa: B023
            )
    files = forms / "files"
    pairs = {"a database": {"queue_store": "rocksdb"}, "files and a database": {"broker_conf": str(conf)}}
    for name, more in pairs.items():
        print_pairs(
            f"rebuild of the queues: {name}",
            arguments.repetitions,
            lambda: rebuild(plain, files),
            lambda: rebuild(plain, forms / "others", **more),  # noqa: B023
        )
    topic = {"topic": records[0][0].topic.decode()}
    in_database, in_files = (forms / name for name in ("in_database", "in_files"))
    for store, more in ((in_files, {}), (in_database, {"queue_store": "rocksdb"})):
        store.mkdir()
        (store / "commitlog").symlink_to(plain / "commitlog")
        rebuild(plain, forms / "others", **more)
        shutil.move(forms / "others/consumequeue", store / "consumequeue")
    for names, columns in _COLUMNS.items():
        print_pairs(
            f"scan of a topic, {names}: queues in a database",
            arguments.repetitions,
            lambda: rows_of(in_files, columns, topic),  # noqa: B023
            lambda: rows_of(in_database, columns, topic),  # noqa: B023
        )
    shutil.rmtree(forms)


if __name__ == "__main__":
    main()
