"""Generates an Apache RocketMQ store directory for benchmarks: the commit log only.

The bytes are those that the store of a 5.3.3 broker with default settings writes for the same messages, so that store
can rebuild consume queues and index from them:

* records are version 1 with IPv4 hosts, laid out by MessageExtEncoder.encode@5.3.3: an 88-byte header
  (``RECORD_HEADER``), the body, the topic after a one-byte length, the properties after a two-byte length;
* properties are in the order in which SendMessageProcessor@5.3.3 writes them, which is that of the
  ``HashMap(128)`` of MessageDecoder.string2messageProperties@5.3.3; MSG_REGION and TRACE_ON, which
  AbstractSendMessageProcessor.buildMsgContext@5.3.3 adds to what a producer sends, are left out;
* a record goes into a segment only if it leaves 8 bytes free, otherwise a blank ends the segment
  (CommitLog.DefaultAppendMessageCallback.doAppend@5.3.3);
* the last segment has its full size, zeros after the live end (DefaultMappedFile.init@5.3.3 maps it whole).

The content of a message depends only on the arguments and the message's number, so the size of the blocks in which the
log is written does not matter. Records are copied from a small pool of templates. Then the fields that differ from
message to message (queue, offsets, times, digits of the keys) are overwritten, for a whole block at once.

    python -m benchmarks.generate_store /data/store --log-size 1GiB --message-size 450 --seed 0
"""

from __future__ import annotations

import argparse
import json
import math
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Draws = NDArray[np.uint64]

RECORD_HEADER = np.dtype(
    [
        ("total_size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_address", "u1", (4,)),
        ("born_port", ">i4"),
        ("store_timestamp", ">i8"),
        ("store_address", "u1", (4,)),
        ("store_port", ">i4"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""A version 1 record with IPv4 hosts up to its body, fields 1 to 15 of MessageExtEncoder.encode@5.3.3."""

MESSAGE_MAGIC = 0xDAA320A7  # MessageDecoder.MESSAGE_MAGIC_CODE@5.3.3
BLANK_MAGIC = 0xCBD43194  # CommitLog.BLANK_MAGIC_CODE@5.3.3
BLANK = struct.Struct(">iI")  # free bytes, BLANK_MAGIC; CommitLog.END_FILE_MIN_BLANK_LENGTH@5.3.3 = 8
MAXIMUM_BODY_SIZE = 4 << 20  # MessageStoreConfig.maxMessageSize@5.3.3
MAXIMUM_SEGMENT_SIZE = (1 << 31) - 1  # MessageStoreConfig.mappedFileSizeCommitLog@5.3.3 is a Java int

BLOCK_BYTES = 8 << 20
"""Approximate bytes of records that are composed in memory at a time; the result does not depend on it."""
POOL_BYTES = 32 << 20
"""Approximate bytes of all record templates."""
TEMPLATES_PER_TOPIC = (4, 128)
"""Minimum and maximum number of record templates of a topic; POOL_BYTES decides in between."""
PAGE = 4 << 10
"""Bytes of a page: of what a filesystem can leave out of a file."""
SIZE_VARIATION = 0.25
"""Record sizes differ from the mean by at most this fraction, uniformly."""

TOPIC_NAMES = ("orders", "payments", "shipments", "invoices", "refunds", "inventory", "customers", "prices")
TAG_NAMES = ("created", "updated", "paid", "shipped", "cancelled")
BORN_ADDRESS, BORN_PORT = (10, 0, 0, 17), 52018
STORE_ADDRESS, STORE_PORT = (10, 0, 0, 5), 10911
MONTH_START = 1_793_491_200_000  # 2026-11-01T00:00Z, epoch milliseconds
FIRST_STORE_TIMESTAMP = 1_793_606_400_000  # 2026-11-02T08:00Z, epoch milliseconds
MICROSECONDS_PER_MESSAGE = 250
MAXIMUM_BORN_DELAY = 8
"""Milliseconds between birth and storing are below this."""

ORDER_KEY_DIGITS = 10
CUSTOMER_KEY_DIGITS = 6
UNIQUE_KEY_VARIABLE_DIGITS = 12
"""Hex digits at the end of a UNIQ_KEY that differ from message to message: an i32 time and an i16 counter."""
HEX_DIGITS: Bytes = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)


@dataclass(frozen=True)
class GeneratedStore:
    """A store that was written."""

    path: Path
    """The store's root; the segments are in its folder ``commitlog``."""
    messages: int
    keys: int
    """Entries that the index will have: one UNIQ_KEY for each message, and each piece of KEYS."""
    live_end: int
    """Commit log offset after the last record; blanks are counted."""
    log_bytes: int
    """Bytes of all records, blanks not counted."""


@dataclass(frozen=True)
class _TemplatePool:
    """Templates of records, with zeros in the variable fields. Every array has the shape (templates,)."""

    headers: NDArray[np.void]
    """Of type RECORD_HEADER."""
    tails: list[Bytes]
    """The bytes after the header: body, topic and properties, of shape (record size - 88,)."""
    record_sizes: Integers
    topics: Integers
    """Number of the template's topic."""
    key_counts: Integers
    """Pieces of KEYS, 1 or 2."""
    unique_key_positions: Integers
    """Positions of the variable digits of UNIQ_KEY, from the record's start, as in the next two arrays."""
    order_key_positions: Integers
    customer_key_positions: Integers
    """Meaningful only if there are two keys."""


@dataclass(frozen=True)
class _Batch:
    """Consecutive messages; every array has the shape (messages,)."""

    numbers: Draws
    """The messages' numbers from the start of the log."""
    templates: Integers
    sizes: Integers
    """Whole record sizes in bytes."""


class _MessageDraws:
    """Random numbers that depend only on the seed, the message's number and the purpose.

    The generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): each of its numbers can be computed by itself.
    """

    PURPOSES = ("template", "queue", "store_time", "born_delay", "order", "customer")

    def __init__(self, seed: int) -> None:
        self._start: Draws = np.random.SeedSequence(seed).generate_state(1, np.uint64).astype(np.uint64)

    def below(self, bound: int, purpose: str, numbers: Draws) -> Integers:
        """One integer of [0, bound) for each message number, of the same shape."""
        position = numbers * np.uint64(len(self.PURPOSES)) + np.uint64(self.PURPOSES.index(purpose) + 1)
        state = self._start + position * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        drawn: Integers = ((state ^ (state >> np.uint64(31))) % np.uint64(bound)).astype(np.int64)
        return drawn


class _CommitLogWriter:
    """Writes runs of records to segment files, in order, with the blanks between them."""

    def __init__(self, folder: Path, segment_size: int, is_sparse: bool = False) -> None:
        self._folder = folder
        self._is_sparse = is_sparse
        self._segment_size = segment_size
        self._segment: BinaryIO | None = None
        self._segment_offset = -1

    def __enter__(self) -> _CommitLogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._segment is not None:
            self._segment.close()

    def write(self, physical_offset: int, records: Bytes) -> None:
        """Append whole records of one segment, shape (bytes,); a new segment ends the segment before."""
        segment_offset = physical_offset - physical_offset % self._segment_size
        if self._segment is None or segment_offset != self._segment_offset:
            self._segment = self._next_segment(segment_offset)
        if self._is_sparse:
            _write_sparsely(self._segment, records)
        else:
            self._segment.write(records.data)

    def _next_segment(self, segment_offset: int) -> BinaryIO:
        """Write the blank of the current segment, and open the segment at `segment_offset`, pre-allocated (sparse)."""
        if self._segment is not None:
            with self._segment as full_segment:
                full_segment.write(BLANK.pack(self._segment_size - full_segment.tell(), BLANK_MAGIC))
        segment = (self._folder / f"{segment_offset:020d}").open("xb")
        segment.truncate(self._segment_size)
        self._segment_offset = segment_offset
        return segment


def _write_sparsely(file: BinaryIO, content: Bytes) -> None:
    """Write bytes at the position of a file, except whole pages of zeros, which stay holes."""
    start = file.tell()
    before = -start % PAGE
    middle = content[before : before + (content.size - before) // PAGE * PAGE].reshape(-1, PAGE)
    is_written = middle.view(np.uint64).any(axis=1)
    edges = np.flatnonzero(np.diff(is_written, prepend=False, append=False)).reshape(-1, 2) * PAGE + before
    for first, stop in [(0, before), *edges.tolist(), (before + middle.size, content.size)]:
        file.seek(start + first)
        file.write(content[first:stop].data)
    file.seek(start + content.size)


def generate_store(
    path: str | PathLike[str],
    *,
    log_size: int = 1 << 30,
    message_size: int = 450,
    segment_size: int = 1 << 30,
    topics: int = 4,
    queues: int = 8,
    seed: int = 0,
    skew: float = 0.0,
    sparse: bool = False,
) -> GeneratedStore:
    """Write a store's commit log. ``path`` may exist; its folder ``commitlog`` must be absent or empty.

    :param path: the store's root directory.
    :param log_size: bytes of records to write; the log stops at the last whole record that fits.
    :param message_size: mean size of a whole record in bytes; sizes vary by a quarter to both sides.
    :param segment_size: size of a commit log file in bytes.
    :param topics: number of topics.
    :param queues: number of queues in each topic.
    :param seed: the same seed and sizes give the same bytes.
    :param skew: topic number k gets messages in proportion to 1 / (k + 1) ** skew; 0 gives all topics as many.
    :param sparse: bodies are zeros, and whole pages of them take no room on the disk.
    :raises ValueError: an argument is out of its range, or the sizes contradict each other.
    :raises FileExistsError: there is a commit log already.
    """
    _check_arguments(log_size, message_size, segment_size, topics, queues, seed)
    pool = _template_pool(message_size, topics, seed, skew, sparse)
    draws = _MessageDraws(seed)
    folder = _empty_commit_log_folder(Path(path))
    messages_per_block = max(1, BLOCK_BYTES // message_size)
    next_queue_offsets = np.zeros(topics * queues, dtype=np.int64)
    messages = keys = log_bytes = live_end = 0
    with _CommitLogWriter(folder, segment_size, sparse) as writer:
        while True:
            batch = _next_batch(pool, draws, messages, messages_per_block, log_size - log_bytes)
            if not batch.sizes.size:
                break
            offsets = _physical_offsets(batch.sizes, live_end, segment_size)
            queue_ids = draws.below(queues, "queue", batch.numbers)
            global_queues = pool.topics[batch.templates] * queues + queue_ids
            queue_offsets = _queue_offsets(global_queues, next_queue_offsets)
            records = _compose_records(pool, draws, batch, offsets, queue_ids, queue_offsets)
            _write_records(writer, records, batch.sizes, offsets, segment_size)
            messages += batch.sizes.size
            keys += batch.sizes.size + int(pool.key_counts[batch.templates].sum())
            log_bytes += records.size
            live_end = int(offsets[-1] + batch.sizes[-1])
    return GeneratedStore(Path(path), messages, keys, live_end, log_bytes)


def _check_arguments(log_size: int, message_size: int, segment_size: int, topics: int, queues: int, seed: int) -> None:
    """Raise `ValueError` for arguments that no broker would write, or that leave no room for a message."""
    if min(topics, queues) < 1:
        raise ValueError(f"there must be a topic and a queue, not {topics} topics of {queues} queues")
    if seed < 0:
        raise ValueError(f"the seed must not be negative: {seed}")
    smallest, largest = _record_size_range(message_size)
    if largest > MAXIMUM_BODY_SIZE:
        raise ValueError(f"message size {message_size} gives records above {MAXIMUM_BODY_SIZE} bytes")
    overhead = _largest_overhead(topics)
    if smallest < overhead:
        least = math.ceil(overhead / (1 - SIZE_VARIATION))
        raise ValueError(f"message size {message_size} leaves no room for a body: at least {least}")
    if not largest + BLANK.size <= segment_size <= MAXIMUM_SEGMENT_SIZE:
        raise ValueError(f"segment size {segment_size} must be {largest + BLANK.size} to {MAXIMUM_SEGMENT_SIZE} bytes")
    if log_size < largest:
        raise ValueError(f"log size {log_size} is below that of one record, up to {largest} bytes")


def _empty_commit_log_folder(path: Path) -> Path:
    """The store's folder ``commitlog``, created if it does not exist."""
    folder = path / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    return folder


def _record_size_range(message_size: int) -> tuple[int, int]:
    """The minimum and the maximum record size in bytes."""
    return math.ceil(message_size * (1 - SIZE_VARIATION)), math.floor(message_size * (1 + SIZE_VARIATION))


def _topic_name(topic: int) -> str:
    """The name of a topic: ``orders`` for topic 0; after the known names, names with a number."""
    series, index = divmod(topic, len(TOPIC_NAMES))
    return f"{TOPIC_NAMES[index]}-{series}" if series else TOPIC_NAMES[index]


def _topic_field(topic: int) -> bytes:
    """Field 16 of a version 1 record (MessageExtEncoder@5.3.3): an i8 length, the name."""
    name = _topic_name(topic).encode()
    return struct.pack(">b", len(name)) + name


def _properties(unique_key_prefix: str, tag: str, key_count: int) -> bytes:
    """Field 17 (MessageExtEncoder@5.3.3): an i16 length and ``name 0x01 value 0x02`` for each property.

    The variable digits are zeros here. The module's docstring explains the order.
    """
    keys = [f"ORD-{'0' * ORDER_KEY_DIGITS}", f"CUS-{'0' * CUSTOMER_KEY_DIGITS}"][:key_count]
    values = {
        "UNIQ_KEY": unique_key_prefix + "0" * UNIQUE_KEY_VARIABLE_DIGITS,
        "CLUSTER": "DefaultCluster",
        "TAGS": tag,
        "KEYS": " ".join(keys),
        "WAIT": "true",
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()
    return struct.pack(">h", len(text)) + text


def _unique_key_prefix(generator: np.random.Generator) -> str:
    """The first 20 hex digits of a producer's unique keys (MessageClientIDSetter@5.3.3).

    They are the client's IPv4 address, the low 16 bits of its process id and its class loader's i32 hash.
    """
    process_id = int(generator.integers(1, 1 << 16))
    class_loader_hash = int(generator.integers(0, 1 << 31))
    return struct.pack(">4BHI", *BORN_ADDRESS, process_id, class_loader_hash).hex().upper()


def _largest_overhead(topics: int) -> int:
    """The most bytes that a record without its body has."""
    properties = _properties("0" * 20, max(TAG_NAMES, key=len), 2)
    return RECORD_HEADER.itemsize + max(len(_topic_field(topic)) for topic in range(topics)) + len(properties)


def _template_pool(message_size: int, topics: int, seed: int, skew: float, sparse: bool = False) -> _TemplatePool:
    """The record templates: their topics by `skew`, sizes evenly over the range, one or two keys by turns."""
    generator = np.random.default_rng(seed)
    least, most = TEMPLATES_PER_TOPIC
    count = topics * min(max(POOL_BYTES // (message_size * topics), least), most)
    even_sizes = np.rint(np.linspace(*_record_size_range(message_size), count)).astype(np.int64)
    sizes = generator.permutation(even_sizes)
    template_topics = np.arange(count) % topics
    if skew:
        shares = (1.0 + np.arange(topics)) ** -skew
        ends = np.maximum(np.rint(np.cumsum(shares) / shares.sum() * count), 1 + np.arange(topics))
        template_topics = np.searchsorted(ends, np.arange(count), side="right").clip(max=topics - 1)
    key_counts = 1 + np.arange(count) // topics % 2
    tags = generator.integers(0, len(TAG_NAMES), count)
    prefix = _unique_key_prefix(generator)
    text = _body_text(generator)
    text_starts = generator.integers(0, len(text), count)

    bodies: list[bytes] = []
    tails: list[Bytes] = []
    positions = np.zeros((3, count), dtype=np.int64)
    for template in range(count):
        topic_field = _topic_field(int(template_topics[template]))
        properties = _properties(prefix, TAG_NAMES[tags[template]], int(key_counts[template]))
        properties_position = int(sizes[template]) - len(properties)
        body_length = properties_position - len(topic_field) - RECORD_HEADER.itemsize
        bodies.append(bytes(body_length) if sparse else _body(text, int(text_starts[template]), body_length))
        tails.append(np.frombuffer(bodies[-1] + topic_field + properties, dtype=np.uint8))
        positions[:, template] = properties_position + np.array(_digit_positions(properties, prefix))
    headers = _headers(sizes, bodies)
    return _TemplatePool(headers, tails, sizes, template_topics, key_counts, positions[0], positions[1], positions[2])


def _headers(record_sizes: Integers, bodies: Sequence[bytes]) -> NDArray[np.void]:
    """Headers, shape (templates,), with the fields set that all messages of a template share.

    The flags, reconsumeTimes and preparedTransactionOffset of an ordinary message are 0. The body's CRC loses
    its sign bit (UtilAll.crc32@5.3.3).
    """
    headers = np.zeros(len(bodies), dtype=RECORD_HEADER)
    headers["total_size"] = record_sizes
    headers["magic"] = MESSAGE_MAGIC
    headers["body_crc"] = [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]
    headers["born_address"], headers["born_port"] = BORN_ADDRESS, BORN_PORT
    headers["store_address"], headers["store_port"] = STORE_ADDRESS, STORE_PORT
    headers["body_length"] = [len(body) for body in bodies]
    return headers


def _digit_positions(properties: bytes, unique_key_prefix: str) -> tuple[int, int, int]:
    """Where the variable digits of the unique key, the order key and the customer key begin in field 17."""
    unique_key = properties.index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + len(unique_key_prefix)
    order = properties.index(b"KEYS\x01ORD-") + len(b"KEYS\x01ORD-")
    return unique_key, order, order + ORDER_KEY_DIGITS + len(" CUS-")


def _body_text(generator: np.random.Generator, items: int = 4096) -> bytes:
    """About half a MiB of JSON items, of which bodies are slices; it compresses about as order lines do."""
    colours = ("amber", "blue", "copper", "green", "ivory", "red", "silver", "violet")
    things = ("basket", "blanket", "candle", "kettle", "ladder", "lamp", "mirror", "teapot", "wallet")
    numbers = generator.integers(0, 1_000_000, size=(items, 5))
    lines = (
        f'{{"sku":"A{sku:06d}","name":"{colours[colour % len(colours)]} {things[thing % len(things)]}",'
        f'"quantity":{1 + quantity % 9},"price":"{cents // 100}.{cents % 100:02d}","currency":"EUR"}},'
        for sku, colour, thing, quantity, cents in numbers.tolist()
    )
    return "".join(lines).encode()


def _body(text: bytes, start: int, length: int) -> bytes:
    """``length`` bytes of the text from ``start`` on, the text being read in a circle."""
    circles = -(-(start + length) // len(text))
    return (text * circles)[start : start + length]


def _next_batch(pool: _TemplatePool, draws: _MessageDraws, first: int, count: int, free_bytes: int) -> _Batch:
    """Messages ``first`` to at most ``first + count``, as many as the log still has bytes for."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    templates = draws.below(pool.record_sizes.size, "template", numbers)
    sizes = pool.record_sizes[templates]
    fitting = int(np.searchsorted(np.cumsum(sizes), free_bytes, side="right"))
    return _Batch(numbers[:fitting], templates[:fitting], sizes[:fitting])


def _physical_offsets(sizes: Integers, position: int, segment_size: int) -> Integers:
    """Where records of these sizes, shape (messages,), go in a log that is written up to ``position``.

    A record needs its own size and 8 bytes free in its segment, otherwise it begins the next one
    (CommitLog.DefaultAppendMessageCallback.doAppend@5.3.3).
    """
    ends = np.cumsum(sizes)
    offsets = ends - sizes
    first, shift = 0, position
    while True:
        position = int(offsets[first]) + shift
        free_bytes = segment_size - position % segment_size
        last = int(np.searchsorted(ends, offsets[first] + free_bytes - BLANK.size, side="right"))
        offsets[first:last] += shift
        if last == sizes.size:
            return offsets
        next_segment = position + free_bytes
        first, shift = last, next_segment - int(offsets[last])


def _queue_offsets(queues: Integers, next_queue_offsets: Integers) -> Integers:
    """Each message's queue offset, continuing from the last batch.

    :param queues: each message's queue, numbered through all topics, shape (messages,).
    :param next_queue_offsets: each queue's next offset, shape (queues of all topics,); advanced here.
    """
    order = np.argsort(queues, kind="stable")
    counts = np.bincount(queues, minlength=next_queue_offsets.size)
    first_indexes = np.cumsum(counts) - counts
    queue_offsets = np.empty_like(queues)
    queue_offsets[order] = np.arange(queues.size) + np.repeat(next_queue_offsets - first_indexes, counts)
    next_queue_offsets += counts
    return queue_offsets


def _compose_records(
    pool: _TemplatePool,
    draws: _MessageDraws,
    batch: _Batch,
    physical_offsets: Integers,
    queue_ids: Integers,
    queue_offsets: Integers,
) -> Bytes:
    """The batch's records one after the other, shape (sum of sizes,)."""
    starts = np.cumsum(batch.sizes) - batch.sizes
    records = np.empty(int(batch.sizes.sum()), dtype=np.uint8)
    _copy_tails(records, starts + RECORD_HEADER.itemsize, pool.tails, batch.templates)

    store_timestamps = _store_timestamps(draws, batch.numbers)
    born_timestamps = store_timestamps - draws.below(MAXIMUM_BORN_DELAY, "born_delay", batch.numbers)
    headers = pool.headers[batch.templates]
    headers["queue_id"] = queue_ids
    headers["queue_offset"] = queue_offsets
    headers["physical_offset"] = physical_offsets
    headers["born_timestamp"] = born_timestamps
    headers["store_timestamp"] = store_timestamps
    _scatter(records, starts, headers.view(np.uint8).reshape(-1, RECORD_HEADER.itemsize))

    unique_keys = _unique_key_digits(born_timestamps, batch.numbers)
    _scatter(records, starts + pool.unique_key_positions[batch.templates], unique_keys)
    orders = _decimal_digits(draws.below(10**ORDER_KEY_DIGITS, "order", batch.numbers), ORDER_KEY_DIGITS)
    _scatter(records, starts + pool.order_key_positions[batch.templates], orders)
    two_keys = pool.key_counts[batch.templates] == 2
    customers = draws.below(10**CUSTOMER_KEY_DIGITS, "customer", batch.numbers[two_keys])
    customer_positions = starts + pool.customer_key_positions[batch.templates]
    _scatter(records, customer_positions[two_keys], _decimal_digits(customers, CUSTOMER_KEY_DIGITS))
    return records


def _copy_tails(records: Bytes, positions: Integers, tails: list[Bytes], templates: Integers) -> None:
    """Put each message's body, topic and properties at its position, all messages of a template at once."""
    order = np.argsort(templates, kind="stable")
    counts = np.bincount(templates, minlength=len(tails))
    for template, group in enumerate(np.split(positions[order], np.cumsum(counts)[:-1])):
        _scatter(records, group, tails[template])


def _scatter(records: Bytes, positions: Integers, rows: Bytes) -> None:
    """Write rows, shape (positions, width), or one row for all, (width,), each at its byte position.

    The positions must not overlap.
    """
    if positions.size:
        windows = np.lib.stride_tricks.sliding_window_view(records, rows.shape[-1], writeable=True)
        windows[positions] = rows


def _store_timestamps(draws: _MessageDraws, numbers: Draws) -> Integers:
    """Epoch milliseconds, never falling (CommitLog.asyncPutMessage@5.3.3 sets them under the append lock)."""
    jitter = draws.below(MICROSECONDS_PER_MESSAGE, "store_time", numbers)
    microseconds = numbers.astype(np.int64) * MICROSECONDS_PER_MESSAGE + jitter
    return FIRST_STORE_TIMESTAMP + microseconds // 1000


def _unique_key_digits(born_timestamps: Integers, numbers: Draws) -> Bytes:
    """The digits in which one producer's unique keys differ, shape (messages, 12), as ASCII.

    They are the milliseconds since the month began as an i32 and a counter as an i16, in upper-case hex
    (MessageClientIDSetter.createUniqID@5.3.3), here with a client whose time zone is UTC.
    """
    variable = ((born_timestamps - MONTH_START) << 16) | (numbers.astype(np.int64) & 0xFFFF)
    shifts = np.arange(UNIQUE_KEY_VARIABLE_DIGITS - 1, -1, -1) * 4
    digits: Bytes = HEX_DIGITS[(variable[:, np.newaxis] >> shifts) & 0xF]
    return digits


def _decimal_digits(numbers: Integers, width: int) -> Bytes:
    """The numbers in decimal with leading zeros, shape (messages, width), as ASCII."""
    digits = np.empty((numbers.size, width), dtype=np.uint8)
    for position in range(width - 1, -1, -1):
        numbers, digit = np.divmod(numbers, 10)
        digits[:, position] = digit + ord("0")
    return digits


def _write_records(
    writer: _CommitLogWriter, records: Bytes, sizes: Integers, physical_offsets: Integers, segment_size: int
) -> None:
    """Write the composed records, one run for each segment."""
    starts = np.cumsum(sizes) - sizes
    run_starts = np.flatnonzero(np.diff(physical_offsets // segment_size, prepend=-1))
    for first, run in zip(run_starts, np.split(records, starts[run_starts[1:]]), strict=True):
        writer.write(int(physical_offsets[first]), run)


def _size(text: str) -> int:
    """The bytes of text such as ``450``, ``64MiB`` or ``1.5GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])iB|B)?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}; write 450, 64MiB or 1.5GiB")
    number, unit = match.groups()
    return int(float(number) * 1024 ** (1 + "KMGT".index(unit))) if unit else int(float(number))


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate a store as the arguments ask, and print its figures as one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.generate_store",
        description="Generate an Apache RocketMQ commit log.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="root of the store")
    parser.add_argument("--log-size", type=_size, default="1GiB", help="bytes of records")
    parser.add_argument("--message-size", type=_size, default="450", help="mean size of a record")
    parser.add_argument("--segment-size", type=_size, default="1GiB", help="size of a commit log file")
    parser.add_argument("--topics", type=int, default=4, help="number of topics")
    parser.add_argument("--queues", type=int, default=8, help="queues in each topic")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same bytes")
    parser.add_argument("--sparse", action="store_true", help="zeros for bodies, which take no room on the disk")
    options = vars(parser.parse_args(arguments))
    try:
        store = generate_store(options.pop("path"), **options)
    except (ValueError, FileExistsError) as error:
        parser.error(str(error))
    print(json.dumps(asdict(store), default=str))


if __name__ == "__main__":
    main()
