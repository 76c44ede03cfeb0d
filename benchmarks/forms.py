"""Scans and rebuilds of stores of other forms, each beside the same messages in a plain store.

The generated log is written again as DLedger logs, as tiered storage, in inner batches, with a light message queue for
each message, and as the copies of compacted topics; its queues as files, into RocksDB and into both. A scan runs here
as the tasks of Spark do it. Each form takes turns with the plain store; the figures are seconds of the
processor, and the median of the ratios of the pairs.

    python -m benchmarks.forms --size 64MiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.run import WITH_BODIES, WITHOUT_BODIES, generated
from spark_mq.datasource import RocketMQDataSource
from spark_mq.format.array_types import keep_freed_memory
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, UNIT_DTYPE
from spark_mq.format.dledger import BLANK, BLANK_MAGIC, HEAD
from spark_mq.format.java_text import hash_code
from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, Record, decode_record
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from spark_mq.store.compaction import compaction_states
from spark_mq.store.message_store import MessageStore
from spark_mq.store.tiered_storage import METADATA, file_name

_COLUMNS = {
    "3 columns": ["topic", "queue_id", "queue_offset"],
    "7 columns": [part.split()[0] for part in WITHOUT_BODIES.split(", ")],
    "8 columns, with bodies": [part.split()[0] for part in WITH_BODIES.split(", ")],
}
_SEGMENT = 1 << 30
_IN_BATCH = 4
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
    """The log of a DLedger node with these records, in segments of this size, its index, and its checkpoint."""
    folder = target / "dledger-n0" / "data"
    folder.mkdir(parents=True)
    base, parts, position, units = 0, list[bytes](), 0, bytearray()

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
        units += struct.pack(">iqiqq", 1, position, size, index, 1)
        position += size
    write()
    (folder.parent / "index").mkdir()
    (folder.parent / "index" / f"{0:020d}").write_bytes(units)
    # As a node writes it every few seconds (`DLedgerMmapFileStore.persistCheckPoint`@dledger-0.3.1).
    (folder.parent / "checkpoint").write_text(f"committedIndex={len(records) - 1}\nendIndex={len(records) - 1}\n")
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


def write_log(records: Iterable[Record], target: Path) -> Path:
    """A store with these records as its only segment, in one write, as the plain store is made.

    Pages that many small writes brought into memory take 1.3 times as long to read.
    """
    (target / "commitlog").mkdir(parents=True)
    data = bytearray()
    for record in records:
        data += replace(record, commit_log_offset=len(data)).encode()
    with (target / "commitlog" / f"{0:020d}").open("wb") as file:
        file.write(data)
        file.truncate(_SEGMENT)
    return target


def write_topics(records: list[tuple[Record, bytes]], target: Path, **attributes: str) -> None:
    """The settings of the topics, with attributes."""
    (target / "config").mkdir(exist_ok=True)
    topics = {record.topic.decode() for record, _ in records}
    table = {topic: {"topicName": topic, "attributes": attributes} for topic in topics}
    (target / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def write_light(records: list[tuple[Record, bytes]], target: Path) -> Path:
    """A store whose messages are each in one of 32 light message queues, too."""

    def dispatched() -> Iterator[Record]:
        for number, (record, _) in enumerate(records):
            names = f"INNER_MULTI_DISPATCH\1%LMQ%{number % 32}\2INNER_MULTI_QUEUE_OFFSET\1{number // 32}\2"
            yield replace(record, properties=record.properties + names.encode())

    return write_log(dispatched(), target)


def write_batches(records: list[tuple[Record, bytes]], target: Path) -> Path:
    """A store of inner batches: each has up to `_IN_BATCH` messages of a queue, one after the other."""
    queues: dict[tuple[bytes, int], list[Record]] = {}
    for record, _ in records:
        queues.setdefault((record.topic, record.queue_id), []).append(record)

    def batches() -> Iterator[Record]:
        for of_queue in queues.values():
            for start in range(0, len(of_queue), _IN_BATCH):
                yield inner_batch(of_queue[start : start + _IN_BATCH])

    write_log(batches(), target)
    write_topics(records, target, **{"queue.type": "BatchCQ"})
    return target


def inner_batch(messages: list[Record]) -> Record:
    """The record of a batch of messages, each with its own properties."""
    frames = []
    for one in messages:
        rest = struct.pack(">h", len(one.properties)) + one.properties
        size = 20 + len(one.body) + len(rest)
        frames.append(struct.pack(">iiiii", size, 0, 0, one.flag, len(one.body)) + one.body + rest)
    properties = f"INNER_BASE\1{messages[0].queue_offset}\2INNER_NUM\1{len(messages)}\2".encode()
    flags = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    return replace(messages[0], sys_flag=flags, body=b"".join(frames), body_crc=None, properties=properties)


def write_compacted(records: list[tuple[Record, bytes]], plain: Path, target: Path) -> Path:
    """The store `plain`, whose topics are compacted ones; each key is that of one message, so all are in the copies."""
    target.mkdir()
    (target / "commitlog").symlink_to(plain / "commitlog")
    write_topics(records, target, **{"cleanup.policy": "COMPACTION"})
    queues: dict[tuple[str, int], tuple[list[bytes], list[bytes]]] = {}
    ends: dict[tuple[str, int], int] = {}
    for record, data in records:
        queue = record.topic.decode(), record.queue_id
        copies, units = queues.setdefault(queue, ([], []))
        offset = ends.get(queue, 0)
        ends[queue] = offset + len(data)
        copies.append(at_offset(data, offset))
        tags_code, time_ = hash_code(record.text_properties.get("TAGS", "")), record.store_timestamp
        unit = (offset, len(data), tags_code, time_, record.queue_offset, 1, -1, 0)
        units.append(np.array([unit], BATCH_UNIT_DTYPE).tobytes())
    for (topic, queue_id), of_queue in queues.items():
        for tree, parts in zip(("compactionLog", "compactionCq"), of_queue, strict=True):
            folder = target / "compaction" / tree / topic / str(queue_id)
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(b"".join(parts))
    return target


def compared_with_log(store: Path) -> int:
    """The messages in the copies of compacted topics, all of which are sound."""
    with MessageStore(str(store), recalls_end=True) as opened:
        rows = compaction_states(opened)
    assert rows["problem"].null_count == rows.num_rows
    return int(rows.num_rows)


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


def print_scans(plain: Path, count: int, scanned: Sequence[tuple[str, Path, dict[str, str]]], repetitions: int) -> None:
    """Print a row for each list of columns of each form: a name, its store, and the options of a read."""
    for names, columns in _COLUMNS.items():
        for name, store, options in scanned:
            assert rows_of(store, columns, options) == count
            print_pairs(
                f"scan, {names}: {name}",
                repetitions,
                lambda: rows_of(plain, columns, {}),  # noqa: B023
                lambda: rows_of(store, columns, options),  # noqa: B023
            )


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
    parser.add_argument("--few", action="store_true", help="only scans of DLedger logs and of tiered storage")
    arguments = parser.parse_args()
    plain = generated(arguments.folder, arguments.size, arguments.message_size)
    forms = arguments.folder / "forms"
    shutil.rmtree(forms, ignore_errors=True)
    records = records_of(plain)
    keep_freed_memory()  # as a task of Spark does
    print("| what | plain, CPU seconds | this form | ratio, by pairs |\n| --- | --- | --- | --- |")
    scanned: list[tuple[str, Path, dict[str, str]]] = [
        ("DLedger, one segment", write_dledger(records, forms / "dledger", _SEGMENT), {}),
        ("DLedger, segments of 16 MiB", write_dledger(records, forms / "segments", 16 << 20), {}),
        ("tiered storage, with the store", write_tiered(records, forms / "tiered"), _TIERED),
        ("tiered storage alone", forms / "tiered", _TIERED | {"table": "tiered_messages"}),
    ]
    print_scans(plain, len(records), scanned, arguments.repetitions)
    if arguments.few:
        shutil.rmtree(forms)
        return
    compacted = write_compacted(records, plain, forms / "compacted")
    scanned = [
        ("light message queues", write_light(records, forms / "light"), {}),
        (f"inner batches of {_IN_BATCH}", write_batches(records, forms / "batches"), {"unwrapBatches": "true"}),
        ("copies of compacted topics", compacted, {"table": "compacted_messages"}),
    ]
    print_scans(plain, len(records), scanned, arguments.repetitions)
    conf, light_conf = forms / "broker.conf", forms / "light.conf"
    conf.write_text("rocksdbCQDoubleWriteEnable=true\n")
    light_conf.write_text("enableLmq=true\nenableMultiDispatch=true\n")
    assert compared_with_log(compacted) == len(records)
    print_pairs(
        "compaction_states, and a scan of all columns",
        arguments.repetitions,
        lambda: rows_of(plain, list(MESSAGE_SCHEMA.names), {}),
        lambda: compared_with_log(compacted),
    )
    files = forms / "files"
    pairs: dict[str, tuple[Path, dict[str, str]]] = {
        "a database": (plain, {"queue_store": "rocksdb"}),
        "files and a database": (plain, {"broker_conf": str(conf)}),
        "light message queues, too": (forms / "light", {"broker_conf": str(light_conf)}),
        "batch consume queues": (forms / "batches", {}),
    }
    for name, (store, more) in pairs.items():
        print_pairs(
            f"rebuild of the queues: {name}",
            arguments.repetitions,
            lambda: rebuild(plain, files),
            lambda: rebuild(store, forms / "others", **more),  # noqa: B023
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
