"""Tables of what messages mean beside a scan of the same columns, in turns, and the life of one message.

The tables are `transactions`, `delayed` and `consumer_progress`. Seconds are those of the processor, because all runs
are in one process; a life is asked from a cold shell, on the clock.

The store is generated. In each run of ten messages, one is a half message, one commits it (in every second run), one is
the op message that names it, and the others are ordinary.

    python -m benchmarks.lifecycle --size 1GiB --folder /tmp/spark-mq-bench
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.points import cold_line
from spark_mq import MessageStore
from spark_mq.format.amounts import parse_size
from spark_mq.format.array_types import Int64s
from spark_mq.format.record import BODY_CRC_AT, COMMIT_LOG_OFFSET_AT, QUEUE_OFFSET_AT, Record, encode_blank
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.job.tasks import LocalTasks
from spark_mq.lifecycle import delayed, transactions
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.delayed import delayed_rows
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.selected_messages import EVERYTHING, LogSource, Selection, TopicRule
from spark_mq.lifecycle.transactions import transaction_rows
from spark_mq.store.config.checkpoint import CHECKPOINT, Checkpoint

SEGMENT_SIZE = 128 << 20
TIME = 1_793_606_400_000
_KEY = b"7F00000100002A9F000000000000"
_DIGITS = 10
_BODY = bytes(range(32, 127)) * 3
_HALF, _OP = b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
_REPETITIONS = 5
GROUPS = 20
"""Consumer groups, each with an offset in the queue of ordinary messages."""
PROGRESS_COLUMNS = ("topic", "queue_id", "queue_offset", "store_timestamp", "commit_log_offset")
"""The columns of messages from which table `consumer_progress` could be made without queues."""


def _record(topic: bytes, body: bytes, properties: dict[bytes, bytes], sys_flag: int = 0) -> bytes:
    text = b"".join(name + b"\1" + value + b"\2" for name, value in properties.items())
    return Record(
        topic, body=body, properties=text, sys_flag=sys_flag, born_timestamp=TIME, store_timestamp=TIME
    ).encode()


def _cycle() -> tuple[bytes, list[int]]:
    """Two runs of ten messages, and where each message starts. Digits are zero."""
    number = b"0" * _DIGITS
    sent = {b"UNIQ_KEY": _KEY + number, b"KEYS": b"order", b"TAGS": b"paid", b"WAIT": b"true"}
    half = {**sent, b"TRAN_MSG": b"true", b"PGROUP": b"producers", b"REAL_TOPIC": b"orders", b"REAL_QID": b"0"}
    ordinary = _record(b"orders", _BODY, sent)
    run = [_record(_HALF, _BODY, half), _record(b"orders", _BODY, half, 8), _record(_OP, number, {b"TAGS": b"d"})]
    records = [*run, *[ordinary] * 7, run[0], ordinary, run[2], *[ordinary] * 7]
    starts = np.cumsum([0, *map(len, records)])[:-1].tolist()
    return b"".join(records), starts


def make_store(folder: Path, size: int) -> Path:
    """A generated store of about `size` bytes in `folder`."""
    store = folder / "transactions"
    shutil.rmtree(store, ignore_errors=True)
    (store / "commitlog").mkdir(parents=True)
    cycle, starts = _cycle()
    topics = [_HALF, b"orders", _OP, *[b"orders"] * 7, _HALF, b"orders", _OP, *[b"orders"] * 7]
    per_segment = (SEGMENT_SIZE - 8) // len(cycle)
    for segment in range(max(size // SEGMENT_SIZE, 1)):
        base = segment * SEGMENT_SIZE
        data = np.tile(np.frombuffer(cycle, np.uint8), per_segment).reshape(per_segment, len(cycle))
        first = np.arange(per_segment) + segment * per_segment
        offsets = base + np.arange(per_segment) * len(cycle)
        for index, start in enumerate(starts):
            _put(data, start + COMMIT_LOG_OFFSET_AT, offsets + start)
            _put(
                data, start + QUEUE_OFFSET_AT, topics.count(topics[index]) * first + topics[:index].count(topics[index])
            )
        for half, op in ((0, 2), (10, 12)):
            queue_offset = 2 * first + (half > 0)
            digits = _digits(queue_offset)
            for place in _places(cycle, starts, half, op):
                data[:, place : place + _DIGITS] = digits
            crcs = [zlib.crc32(row.tobytes()) & 0x7FFFFFFF for row in digits]
            crc_at = starts[op] + BODY_CRC_AT
            data[:, crc_at : crc_at + 4] = np.array(crcs, ">i4").view(np.uint8).reshape(-1, 4)
        prepared = cycle.index(_BODY, starts[1]) - 12  # before the length of the body
        _put(data, prepared, offsets)
        content = data.tobytes()
        content += encode_blank(SEGMENT_SIZE - len(content))
        (store / "commitlog" / f"{base:020d}").write_bytes(content.ljust(SEGMENT_SIZE, b"\0"))
    count = 2 * per_segment * max(size // SEGMENT_SIZE, 1)
    queue_counts = {topic.decode(): {"readQueueNums": 1} for topic in topics}
    consumed = {f"orders@group{number}": {0: count // (number + 1)} for number in range(GROUPS)}
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": queue_counts}))
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": consumed}))
    (store / CHECKPOINT).write_bytes(Checkpoint(physic_msg_timestamp=TIME).encode())
    rebuild_with(LocalTasks(), RebuildRequest.of(str(store), assume_defaults=True))
    return store


def _places(cycle: bytes, starts: list[int], half: int, op: int) -> list[int]:
    """Where the number of a transaction is in a cycle: in the unique key of its messages, and in the op message."""
    keys = [cycle.index(_KEY, starts[half]) + len(_KEY)]
    if half == 0:
        keys.append(cycle.index(_KEY, starts[1]) + len(_KEY))
    return [*keys, cycle.index(b"0" * _DIGITS, starts[op] + 84)]


def _put(data: np.ndarray[tuple[int, int], np.dtype[np.uint8]], place: int, values: Int64s) -> None:
    data[:, place : place + 8] = values.astype(">i8").view(np.uint8).reshape(-1, 8)


def _digits(values: Int64s) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
    return (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _scan_of(selection: Selection, store: MessageStore) -> None:
    """Read the columns of a selection of all messages."""
    LogSource(store).selections_of(Selection(EVERYTHING, selection.columns, selection.properties))


def main() -> None:
    """Measure, and print a line for each table."""
    parser = argparse.ArgumentParser(description="Measure the tables of transactions and delayed messages.")
    parser.add_argument("--size", default="1GiB", help="bytes of the log (1GiB)")
    parser.add_argument("--folder", default="/tmp/spark-mq-bench", help="a folder for the store")
    arguments = parser.parse_args()
    path = make_store(Path(arguments.folder), parse_size("--size", arguments.size))
    with MessageStore(str(path)) as store:
        rows = transaction_rows(store)
        states = {entry["values"]: entry["counts"] for entry in rows["state"].value_counts().to_pylist()}
        print(f"transactions: {rows.num_rows:,} rows, {states}")
        tables: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "transactions": (lambda: transaction_rows(store), lambda: _scan_of(transactions.RECORDS, store)),
            "delayed": (lambda: delayed_rows(store), lambda: _scan_of(delayed.RECORDS, store)),
            "consumer_progress": (
                lambda: consumer_progress_rows(store),
                lambda: _scan_of(Selection(EVERYTHING, PROGRESS_COLUMNS), store),
            ),
        }
        print("| table | seconds | a scan of its columns | ratio |\n| --- | --- | --- | --- |")
        for name, runs in tables.items():
            pairs = [(_cpu_seconds(runs[0]), _cpu_seconds(runs[1])) for _ in range(_REPETITIONS)]
            ratio = statistics.median(of_table / of_scan for of_table, of_scan in pairs)
            print(f"| {name} | {' | '.join(map(_spread, zip(*pairs, strict=True)))} | {ratio:.2f} |")
        nothing = Selection(TopicRule(), ())
        reads = [_cpu_seconds(lambda: LogSource(store).selections_of(nothing)) for _ in range(_REPETITIONS)]
        print(f"the read of the log: {_spread(reads)} s")
    _print_life(path, rows["unique_key"][rows.num_rows // 2].as_py())
    shutil.rmtree(path)


def _cpu_seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3f} ({min(seconds):.3f}-{max(seconds):.3f})"


def _print_life(path: Path, key: str) -> None:
    with MessageStore(str(path)) as store:
        told = life(store, key).lives[0]
        read, size = store.files.bytes_read, store.get_max_phy_offset()
    print(cold_line(f"life of a message ({told.state}), cold", ["life", str(path), key]))
    print(f"{read:,} bytes read, 1/{size // max(read, 1):,} of the log")


if __name__ == "__main__":
    main()
