"""The decoders that are fuzzed: what each does with any bytes, and the bytes with which its fuzzing begins.

A target raises nothing, or an error of the package. It asserts what holds for any bytes: the decoded value has the same
bytes again, and a kernel says what its plain twin says.
"""

from __future__ import annotations

import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pyarrow as pa

from spark_mq.archive import delta_log
from spark_mq.archive.snapshot_files import snapshot_location
from spark_mq.errors import CorruptLogError, SparkMqError
from spark_mq.filters.arrays import of_maps
from spark_mq.filters.conditions import answers, evaluate
from spark_mq.filters.parser import parse_sql92
from spark_mq.filters.truth import Truth
from spark_mq.format.consume_queue_ext import HEADER_SIZE, parse_unit, parse_units
from spark_mq.format.index_file import IndexFile, IndexLayout, index_key_hash, query_offset, read_entries
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import new_frames, scan_records
from spark_mq.format.kernels.index_put import check_pointers
from spark_mq.format.kernels.inner_batches import inner_messages
from spark_mq.format.message_row import consumer_rows, message_row
from spark_mq.format.message_schema import CORRUPT_RECORD, MESSAGE_SCHEMA
from spark_mq.format.properties import encode_properties, parse_properties
from spark_mq.format.record import COMPRESSED_FLAG, CRC_MASK, MIN_RECORD_SIZE, UNWRAPPED_FLAGS, Record, decode_record
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase
from spark_mq.lifecycle.traces import parse_trace_body
from spark_mq.remoting.command import RemotingCommand, SerializeType, decode, decode_frames, encode
from spark_mq.store.config import config_file
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.config_file import CONFIG_TABLES, load_config, load_consumer_offsets, read_config
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.config.epochs import EpochFile
from spark_mq.store.log.segment_files import MAX_OFFSET
from spark_mq.store.metadata_tables import topic_rows
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import folders_of_topic
from spark_mq.store.queue.queue_database import OFFSETS, QueueDatabase, offset_records
from spark_mq.testing.plain_index import PlainIndexFile
from tests.support.filter_cases import ANSWERS
from tests.support.kernels import array
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, tree_of


@dataclass(frozen=True)
class Target:
    """A decoder, and the bytes with which its fuzzing begins."""

    decode: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    max_len: int = 4096

    def run(self, data: bytes) -> None:
        """Decode any bytes: ends without an error, or with one of the package."""
        with warnings.catch_warnings(), suppress(SparkMqError):
            warnings.simplefilter("ignore")
            self.decode(data)


@cache
def store_files(name: str = WORKLOAD.name) -> Mapping[str, bytes]:
    """The files of one of the project's stores."""
    with tempfile.TemporaryDirectory() as folder:
        return tree_of(RealStore(name, OWN_STORES).unpack(Path(folder)))


def files_below(folder: str, most: int = 12) -> list[bytes]:
    return [data for path, data in store_files().items() if path.startswith(folder)][:most]


# records


def stored_records() -> list[bytes]:
    segments = {int(path.rpartition("/")[2]): data for path, data in store_files().items() if path.startswith("commit")}
    size = len(segments[0])
    facts = WORKLOAD.facts("msg")
    places = [fact["offset"] for fact in facts[:: len(facts) // 40]]
    found = [decode_record(segments[at // size * size], at % size) for at in places]
    return [replace(record, commit_log_offset=0).encode() for record in found]


def a_record(data: bytes) -> None:
    """A record at offset 0: its values, and the same of the kernels."""
    frames = new_frames(len(data) // MIN_RECORD_SIZE + 1)
    count, _, _ = scan_records(array(data), 0, len(data), 0, len(data), frames)
    try:
        record = decode_record(data, 0, 0)
    except CorruptLogError:
        assert count == 0
        raise
    assert count >= 1
    assert decode_record(record.encode(), 0, 0) == record
    messages = MessageColumns(array(data), frames[:1])
    (row,) = messages.record_batch(MESSAGE_SCHEMA.names).to_pylist()
    plain = pa.Table.from_pylist([message_row(record)], MESSAGE_SCHEMA).to_pylist()[0]
    assert {name: row[name] for name in plain} == plain


def a_batch(data: bytes) -> None:
    """The body of an inner batch: the rows of its messages, and the same of the kernels."""
    plain = decode_record(stored_records()[0])
    flags = plain.sys_flag & ~COMPRESSED_FLAG | UNWRAPPED_FLAGS
    record = replace(plain, body=data, body_crc=zlib.crc32(data) & CRC_MASK, sys_flag=flags)
    stored, frames = array(record.encode()), new_frames(1)
    scan_records(stored, 0, stored.size, 0, stored.size, frames)
    parts, is_left = inner_messages(stored, frames, MESSAGE_SCHEMA.names)
    columns = [part.record_batch(MESSAGE_SCHEMA.names) for part in parts]
    rows = [row for batch in columns for row in batch.to_pylist()]
    expected = [{**row, "body_crc": zlib.crc32(row["body"]) & CRC_MASK} for row in consumer_rows(record)]
    if is_left[0]:
        assert expected[0][CORRUPT_RECORD]
        assert not rows
    else:
        assert rows == pa.Table.from_pylist(expected, MESSAGE_SCHEMA).to_pylist()


def batches() -> list[bytes]:
    """Bodies of one message, and of three (`MessageDecoder.encodeMessages`@5.3.3)."""
    records = [decode_record(data) for data in stored_records()[:4]]
    frames = [
        struct.pack(">iiiii", 22 + len(one.body) + len(one.properties), 0, 0, one.flag, len(one.body))
        + one.body
        + struct.pack(">h", len(one.properties))
        + one.properties
        for one in records
    ]
    return [frames[0], b"".join(frames[1:])]


# properties


def some_properties(data: bytes) -> None:
    """The properties of a record, of which bytes that are not UTF-8 become U+FFFD."""
    parsed = parse_properties(data)
    assert parse_properties(encode_properties(parsed)) == parsed
    if len(data) > 0x7FFF:
        return
    record = Record(b"T", properties=data)
    text = {decode_utf8(name): decode_utf8(value) for name, value in parsed.items()}
    stored = array(record.encode())
    frames = new_frames(2)
    scan_records(stored, 0, stored.size, 0, stored.size, frames)
    messages = MessageColumns(stored, frames[:1])
    assert dict(messages.column("properties").to_pylist()[0]) == text
    message_row(record)


# queues


def a_queue(data: bytes) -> None:
    """A queue file: its units, and where they end."""
    if not data:
        return
    store = snapshot_location({"consumequeue/T/0/00000000000000000000": data}, "store")
    (folder,) = folders_of_topic(store / "consumequeue", "T")
    queue = ConsumeQueue(folder, FileReaders())
    units = queue.units(0, len(data) // 20 + 2)
    assert units.tobytes()[: len(data) // 20 * 20] == data[: len(data) // 20 * 20]
    assert 0 <= queue.written_end <= len(data) // 20
    log_end = int.from_bytes(data[:8], "big") & MAX_OFFSET
    assert 0 <= queue.end_before(log_end) <= queue.written_end
    for by_halving in (False, True):
        queue.min_offset(queue.written_end, 0, by_halving=by_halving)
    queue.tags_codes(units)


def an_extension(data: bytes) -> None:
    """A file of extension units, read at each position, one by one and all at once."""
    positions = np.arange(-2, len(data) + 2)
    found = parse_units(array(data), positions)
    for number in range(0, positions.size, max(positions.size // 50, 1)):
        at = int(positions[number])
        unit = parse_unit(data[at:]) if at >= 0 else None
        assert bool(found.is_found[number]) == (unit is not None)
        if unit is not None:
            plain = unit.tags_code, unit.store_timestamp, unit.bit_map
            assert (found.tags_code[number], found.store_timestamp[number], found.bit_map[number]) == plain


def extension_units() -> list[bytes]:
    files = store_files("filtered-533")
    return [data[: 40 * HEADER_SIZE] for path, data in files.items() if path.startswith("consumequeue_ext")]


# the index

_LAYOUT = IndexLayout(5, 20)


def an_index_file(data: bytes) -> None:
    """An index file of 5 slots and 20 entries: its entries, its pointers, and look-ups of keys."""
    data = data.ljust(_LAYOUT.file_size, b"\0") if len(data) > 40 else data
    file = IndexFile("index", _LAYOUT, lambda position, length: data[position : position + length])
    for number in range(5):
        query_offset([file], b"T", b"%d" % number, 64, 0, 1 << 62)
    entries = read_entries(data, _LAYOUT, "index")
    assert entries.size < _LAYOUT.index_num
    check_pointers(file, file.header())


def index_files() -> list[bytes]:
    """Files of one, nine and all entries, as `IndexFile.putKey` fills them."""
    found = []
    for count in (1, 9, 30):
        file = PlainIndexFile(_LAYOUT)
        for number in range(count):
            file.put_key(index_key_hash(b"T", b"%d" % (number % 5)), 1000 * number, 1_700_000_000_000 + 700 * number)
        found.append(file.encode())
    return found


# small files


def a_checkpoint(data: bytes) -> None:
    """A checkpoint, whose fields are there again."""
    checkpoint = Checkpoint.load(snapshot_location({"checkpoint": data}, "store"))
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


_CONFIG_NAMES = ("topics.json", "consumerOffset.json", "consumerFilter.json", "delayOffset.json")


def a_config_file(data: bytes) -> None:
    """The content of each file of `config/`."""
    store = snapshot_location({f"config/{name}": data for name in _CONFIG_NAMES}, "store")
    for load in (
        lambda: load_config(store, "topics.json", topic_rows),
        lambda: load_consumer_offsets(store),
        lambda: load_consumer_filters(store),
        lambda: load_config(store, "delayOffset.json", config_file.parse_delay_offsets),
        lambda: config_file.configured_topics(store),
    ):
        read_config(cast("Callable[[], object]", load))


def config_files() -> list[bytes]:
    own = [b"{0:5,1:6}", b'{"offsetTable":{"a@b":{0:5,-1:6}}}', b'{"a":"\\ud800"}', b'[1,{"x":1e400}]']
    return [*own, *files_below("config/", 40)]


def an_epoch_file(data: bytes) -> None:
    """The file of a replica's epochs."""
    for one in EpochFile.of(snapshot_location({"epochFileCheckpoint": data}, "store")).problems(1000):
        assert one[1]


def a_broker_conf(data: bytes) -> None:
    """A file of a broker's settings, in Java's form."""
    with tempfile.NamedTemporaryFile(suffix=".conf") as file:
        file.write(data)
        file.flush()
        conf = BrokerConf.of(file.name)
    assert all(isinstance(value, str) for value in conf.settings.values())


# RocksDB


class Database(RocksDatabase):
    """Keys and values in the place of a database."""

    def __init__(self, records: Mapping[str, dict[bytes, bytes]]) -> None:
        self.folder = snapshot_location({}, "database")
        self._records = {family: sorted(found.items()) for family, found in records.items()}

    def items(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        found = self._records.get(family, [])
        return iter([one for one in found if one[0] >= start and (stop is None or one[0] < stop)])

    def keys(self, family: str, start: bytes, stop: bytes | None, size: int) -> bytes:
        return self._joined([key for key, _ in self.items(family, start, stop)], size)

    def values(self, family: str, start: bytes, stop: bytes | None, size: int) -> bytes:
        return self._joined([value for _, value in self.items(family, start, stop)], size)

    def last_key(self, family: str, start: bytes, stop: bytes) -> bytes | None:
        return max((key for key, _ in self.items(family, start, stop)), default=None)

    def close(self) -> None:
        pass


def _pairs(data: bytes) -> dict[bytes, bytes]:
    """Keys and values: each after a byte with its length."""
    pieces, at = [], 0
    while at < len(data):
        pieces.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return dict(zip(pieces[::2], pieces[1::2], strict=False))


def _joined(records: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(bytes([len(piece)]) + piece for record in records for piece in record)


def a_queue_database(data: bytes) -> None:
    """The queues of a database, their files, and the table of their ends."""
    pairs = _pairs(data)
    queues = QueueDatabase(snapshot_location({}, "database"))
    vars(queues)["_database"] = Database({"default": pairs, OFFSETS: pairs})
    table = queues.offset_table()
    assert {value for _, value in offset_records(table)} <= set(pairs.values())
    tree = Location(queues, "")
    for (topic, queue_id), units in _stored_units(pairs).items():
        (folder,) = folders_of_topic(tree, topic, queue_id)
        queue = ConsumeQueue(folder, FileReaders())
        for queue_offset, value in list(units.items())[:3]:
            assert queue.units(queue_offset, queue_offset + 1).tobytes() == value[:20]
        assert queue.written_end > max(units)
    queues.last_units(1 << 40)


def _stored_units(pairs: Mapping[bytes, bytes]) -> dict[tuple[str, int], dict[int, bytes]]:
    """The units that keys of their form have, by queue and queue offset; of queues whose name can be a folder."""
    found: dict[tuple[str, int], dict[int, bytes]] = {}
    for key, value in pairs.items():
        length = int.from_bytes(key[:4], "big")
        topic, rest = key[5 : 5 + length], key[5 + length :]
        if len(key) == length + 19 and (key[4], rest[0], rest[5]) == (1, 1, 1) and topic.isalnum() and topic.isascii():
            queue_id, queue_offset = struct.unpack(">iq", rest[1:5] + rest[6:])
            if queue_id >= 0 and 0 <= queue_offset < 1 << 58:  # the names of files have no more digits
                found.setdefault((topic.decode(), queue_id), {})[queue_offset] = value
    return found


def queue_records() -> list[bytes]:
    topic = struct.pack(">i", 1) + b"\1T\1"
    unit = struct.pack(">qiqq", 1000, 200, 7, 1_700_000_000_000)
    key = topic + struct.pack(">i", 3) + b"\1"
    ends = topic + b"max\1" + struct.pack(">i", 3)
    return [
        _joined([(key + struct.pack(">q", number), unit) for number in range(4)]),
        _joined([(ends, struct.pack(">qq", 1000, 3)), (ends.replace(b"max", b"min"), struct.pack(">qq", 0, 0))]),
    ]


def a_config_database(data: bytes) -> None:
    """The entries of files of `config/` in databases of each kind."""
    pairs = _pairs(data)
    families = {"default", *(table.family for table in CONFIG_TABLES.values())}
    versions = {"kvDataVersion", *(f"{table.family}Version" for table in CONFIG_TABLES.values())}
    version = {key: value for key, value in pairs.items() if key == b"v"}
    database = Database({**dict.fromkeys(families, pairs), **dict.fromkeys(versions, version)})
    with mock.patch.object(config_file, "RocksDatabase", return_value=database):
        for folder in ("topics", "metadata", "rdb"):
            names = (f"config/{folder}/{name}" for name in ("CURRENT", "MANIFEST-1"))
            store = snapshot_location(dict.fromkeys(names, b""), "store")
            for name in CONFIG_TABLES:
                read_config(lambda name=name, store=store: load_config(store, name, dict))  # type: ignore[misc]


def config_records() -> list[bytes]:
    name = struct.pack(">h", 3) + b"T_0"
    topic = struct.pack(">bhb", 1, 3, 2) + name, b'\1{"perm":6}'
    offset = struct.pack(">bhb", 1, 1, 2) + name + b"\2" + name + b"\2" + struct.pack(">i", 0), struct.pack(">q", 5)
    return [_joined([topic, offset]), _joined([(b"T@G", b'{"offsetTable":{0:5,1:6}}')])]


# the protocol


def a_command(data: bytes) -> None:
    """Frames of a connection, which are the same commands when they are written again."""
    for command in decode_frames(data):
        with suppress(SparkMqError):
            assert _meaning(decode(encode(command))) == _meaning(command)
    decode(data)


def _meaning(command: RemotingCommand) -> object:
    """What a command says; a language that Java does not know is not written again."""
    return {name: value for name, value in vars(command).items() if name != "language"}


def commands() -> list[bytes]:
    fields = {"topic": "orders", "queueId": "3", "": "x"}
    made = [RemotingCommand(105, fields, b"body", 7, 1, "why", serialize_type=kind) for kind in SerializeType] + [
        RemotingCommand(11)
    ]
    return [encode(one) for one in made] + [b"".join(map(encode, made))]


def some_traces(data: bytes) -> None:
    """The body of a trace message."""
    parse_trace_body(data)


# Delta


def a_history(data: bytes) -> None:
    """What commits of a Delta table say of themselves."""
    try:
        found = config_file.parse_fastjson(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return
    infos = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    history = [{"version": number, **info} for number, info in enumerate(infos)]
    with mock.patch.object(delta_log, "_history", lambda table, limit: history[:limit]):
        table = cast("Any", SimpleNamespace())
        newest = delta_log.newest_commit(table)
        for allows_merges in (False, True):
            if newest is not None:
                before = [0, None, None]
                delta_log.changes_no_row(table, before, newest, reads_rows=True, allows_merges=allows_merges)


# filters

_MESSAGES = [{"a": "1", "b": "x", "TAGS": "t"}, {"a": "-2.5", "b": ""}, {}]
_COLUMNS = of_maps(pa.array([list(message.items()) for message in _MESSAGES], pa.map_("string", "string")))


def a_filter(data: bytes) -> None:
    """A SQL92 expression, and its answers for messages one by one and in columns."""
    for version in ("4.9.7", "5.3.3"):
        with suppress(SparkMqError):
            condition = parse_sql92(data.decode("utf-8", "surrogateescape"), version).condition
            plain = [evaluate(condition, message).name for message in _MESSAGES]
            assert [Truth(code).name for code in answers(condition, _COLUMNS)] == plain


def expressions() -> list[bytes]:
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()[1:]
    return [
        str(cast("dict[str, str]", config_file.parse_fastjson(line))["expression"]).encode() for line in lines[:200]
    ]


TARGETS: Mapping[str, Target] = {
    "record": Target(a_record, stored_records),
    "batch": Target(a_batch, batches),
    "properties": Target(some_properties, lambda: [decode_record(data).properties for data in stored_records()]),
    "queue": Target(a_queue, lambda: [data[:400] for data in files_below("consumequeue/")]),
    "extension": Target(an_extension, extension_units),
    "index": Target(an_index_file, index_files),
    "checkpoint": Target(a_checkpoint, lambda: files_below("checkpoint")),
    "config": Target(a_config_file, config_files),
    "epochs": Target(an_epoch_file, lambda: [b"2\n0\n1-0\n2-900\n", b"1\n1-0\n"]),
    "broker_conf": Target(a_broker_conf, lambda: [WORKLOAD.broker_conf.read_bytes(), b"a\\u0041=b\\\n c\n#x\n"]),
    "queue_database": Target(a_queue_database, queue_records),
    "config_database": Target(a_config_database, config_records),
    "command": Target(a_command, commands),
    "traces": Target(
        some_traces, lambda: [b"Pub\x011\x012\x01g\x01t\x01k\x02", b"SubAfter\x01a\x01b\x012\x01true\x01k\x010\x02"]
    ),
    "history": Target(
        a_history, lambda: [b'[{"operation":"MERGE","operationParameters":{"predicate":"(a#1 = a#2)"}}]']
    ),
    "filter": Target(a_filter, expressions),
}
"""The targets by name."""
