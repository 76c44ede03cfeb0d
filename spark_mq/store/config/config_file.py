"""The files in `config/`, as the broker writes them (`ConfigManager`@5.3.3, fastjson) or keeps them in RocksDB.

fastjson leaves integer keys unquoted (`{0:5,1:6}`), which is not valid JSON. Each file has a backup next to it, with
the suffix `.bak`: the file's previous content.

`{"offsetTable": {1: 5, 2: 6}}`: for each delay level, the queue offset of the next message to deliver. The keys are
integers without quotes.

`{"offsetTable": {"topic@group": {0: 5, 1: 6}}}`: for each queue id, the queue offset that the group consumes next.
With enableLmq, a broker has these offsets in `lmqConsumerOffset.json`, and those of groups whose names begin with %LMQ%
beside them: `{"lmqOffsetTable": {"topic@group": 5}}`, of queue 0 (`LmqConsumerOffsetManager`@5.3.3, the same in 4.9.7).

A topic in a store may be anything. A broker refuses most of it (`TopicValidator.validateTopic`,
`HookUtils.checkBeforePutMessage`@5.3.3).

A broker can keep the content of such files in RocksDB:

| folder | setting | what it has |
| --- | --- | --- |
| `topics`, `consumerOffsets`, `subscriptionGroups` | `storeType=defaultRocksDB` | one file each (`config.v1`@5.3.3) |
| `metadata` | `useSingleRocksDBForAllConfigs` (5.4.0) | all three (`config.v1`@5.5.0), in column families |
| `rdb` | `configManagerVersion=v2` (5.3.2) | all three (`config.v2`@5.3.3) |

In the first two, a key is a name, and a value is JSON. In `rdb`, a key begins with 0x01, an i16 for the table, and
0x02; a value is JSON after a byte 0x01, or an offset of 64 bits.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from spark_mq.errors import ConfigError, StorageError, UnsafeNameError, UnsupportedStoreError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX, LITE_PREFIX
from spark_mq.format.system_topic import RETRY_PREFIX, SCHEDULE_TOPIC, is_system_topic
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, REMEDY, RocksDatabase, can_read_rocksdb
from spark_mq.store.config.store_paths import CONFIG, is_rocksdb

_MAX_NAME_BYTES = 255
_MAX_NAME_CHARACTERS = 127
_CHARACTERS = re.compile(r"[%|a-zA-Z0-9_-]+")
DELAY_OFFSETS = "delayOffset.json"
CONSUMER_OFFSETS = "consumerOffset.json"
LMQ_CONSUMER_OFFSETS = "lmqConsumerOffset.json"
WITHOUT_FILE = {
    "topics.json": "a broker knows no topic: pulls answer TOPIC_NOT_EXIST until each topic is created again",
    CONSUMER_OFFSETS: "groups begin again where their consumers say: at the first message, or after the last one",
    DELAY_OFFSETS: "delayed messages that were delivered, and have not expired, are delivered again",
}
"""By file that a broker with messages writes, what is lost without it (`ScheduleMessageService.start`@5.3.3, ...)."""
Content = TypeVar("Content")

_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError, struct.error)
"""What values of another form raise."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_UNQUOTED_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")
_SINGLE, _SECOND_VERSION = "metadata", "rdb"
_DATA = struct.Struct(">bhb")
"""The first bytes of a key of `rdb`: `TablePrefix.TABLE`, the table, `RecordPrefix.DATA`."""
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_VERSION = struct.Struct(">qqq")
_NO_VERSION = {"stateVersion": 0, "timestamp": 0, "counter": 0}
"""What a data version has, in the order in which `rdb` has it, and of a table that was never written."""
_JSON = b"\x01"


def check_topic_name(topic: str) -> str:
    """Return `topic` unchanged if it can be the name of a folder in `consumequeue/`, where the broker uses it as is."""
    if topic in ("", ".", "..") or any(character in topic for character in "/\\\0"):
        raise UnsafeNameError(f"topic {topic!r} cannot be a folder: it would lead outside of consumequeue/")
    if len(topic.encode("utf-8")) > _MAX_NAME_BYTES:
        raise UnsafeNameError(f"topic {topic[:40]!r}... cannot be a folder: its name is longer than 255 bytes")
    return topic


def is_topic_name(topic: str) -> bool:
    """Whether `topic` can be the name of a folder: `check_topic_name` without an error."""
    try:
        check_topic_name(topic)
    except UnsafeNameError:
        return False
    return True


def new_topic_fault(topic: str) -> str | None:
    """Why a broker takes no message for `topic`, as the end of a sentence; None if it does."""
    if not topic:
        return "is empty"
    if not _CHARACTERS.fullmatch(topic):
        return "has other characters than letters, digits, and % | - _"
    longest = _MAX_NAME_BYTES if topic.startswith(RETRY_PREFIX) else _MAX_NAME_CHARACTERS
    return f"has more than {longest} characters" if len(topic) > longest else None


def read_config(load: Callable[[], Content]) -> tuple[Content | None, str | None]:
    """What `load` reads of a file of `config/`; None if it cannot be read, and the reason."""
    try:
        return load(), None
    except (ConfigError, UnsupportedStoreError) as error:
        return None, str(error)


def missing_config(store: Location) -> frozenset[str]:
    """The files of `WITHOUT_FILE` that neither have content nor a `.bak` with content."""
    loads = {name: partial(load_config, store, name, dict) for name in WITHOUT_FILE}
    return frozenset(name for name, load in loads.items() if read_config(load) == (None, None))


def lost_config(missing: frozenset[str], topics: Iterable[str], is_clean: bool, is_written: bool) -> list[str]:
    """The missing files that a broker has written that has queues of these topics.

    A broker that was killed soon after its first start has written no offsets yet, and none has if a job of ours wrote
    the log up to its end (`is_written`).
    """
    names = set(topics)
    if all(map(is_system_topic, names)):
        return []
    without = set() if SCHEDULE_TOPIC in names else {DELAY_OFFSETS}
    if is_written or ("topics.json" not in missing and not is_clean):
        without.add(CONSUMER_OFFSETS)
        if CONSUMER_OFFSETS in missing:
            without.add(DELAY_OFFSETS)
    return [name for name in WITHOUT_FILE if name in missing and name not in without]


def configured_topics(store: Location) -> frozenset[str] | None:
    """The topics; None if there is no file, or if it cannot be read: table `topics` reports that."""
    return read_config(lambda: load_config(store, "topics.json", _names))[0]


def is_configured(topic: str, topics: frozenset[str] | None) -> bool:
    """Whether a topic was not deleted, as far as `topics`, the configured ones, tell. A broker makes its own again.

    Light message queues are never configured, and of them only those of lite topics are deleted.
    """
    is_of_broker = is_system_topic(topic) or (topic.startswith(LIGHT_PREFIX) and not topic.startswith(LITE_PREFIX))
    return topics is None or topic in topics or is_of_broker


def _names(content: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(map(str, content.get("topicConfigTable") or ()))


def parse_delay_offsets(content: Mapping[str, Any]) -> dict[int, int]:
    """The offset of each delay level, for `load_config`."""
    table = content.get("offsetTable") or {}
    return {as_integer(level, 32): as_integer(offset, 63) for level, offset in table.items()}


@dataclass(frozen=True, order=True)
class ConsumerOffset:
    """The queue offset that a consumer group consumes next in one queue."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int


def load_consumer_offsets(store: Location) -> list[ConsumerOffset]:
    """Every offset in the file (or in its `.bak`), sorted; an empty list if there is no file."""
    return sorted(load_config(store, CONSUMER_OFFSETS, _decode) or [])


def _decode(content: dict[str, Any]) -> list[ConsumerOffset]:
    consumer_offsets = []
    for topic_and_group, offsets in (content.get("offsetTable") or {}).items():
        topic, _, group = topic_and_group.partition("@")
        for queue_id, offset in offsets.items():
            consumer_offsets.append(ConsumerOffset(group, topic, as_integer(queue_id, 32), as_integer(offset, 63)))
    for topic_and_group, offset in (content.get("lmqOffsetTable") or {}).items():
        topic, _, group = topic_and_group.partition("@")
        consumer_offsets.append(ConsumerOffset(group, topic, 0, as_integer(offset, 63)))
    return consumer_offsets


def consumed_offsets(store: Location) -> dict[Queue, int]:
    """The highest offset of any consumer group by (topic, queue id); empty if no file can be read."""
    highest: dict[Queue, int] = {}
    for one in read_config(lambda: load_consumer_offsets(store))[0] or ():
        queue = one.topic, one.queue_id
        highest[queue] = max(highest.get(queue, 0), one.offset)
    return highest


def parse_fastjson(text: str) -> object:
    """The value of a JSON text whose integer keys may be unquoted; such keys become strings."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        pieces = re.split(r'("(?:[^"\\]|\\.)*"?)', text)
        pieces[::2] = [_UNQUOTED_KEY.sub(r'\1"\2"\3', piece) for piece in pieces[::2]]
        content = json.loads("".join(pieces))
    if _SURROGATE.search(text):  # half of a character, which neither Arrow nor Java takes
        content = json.loads(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
    return content


def load_config(
    store: Location, name: str, decode: Callable[[dict[str, Any]], Content], folder_name: str = CONFIG
) -> Content | None:
    """The decoded content of `config/NAME`, or of its `.bak` if that file is missing, empty or unreadable.

    The order of the two files is that of `ConfigManager.load`@5.3.3. If the broker keeps the content in RocksDB, that
    counts. Of the two files with consumers' offsets, the one counts that was written last.

    Args:
        decode: Converts the JSON object; an error that it raises makes the file unreadable.
        folder_name: Another folder of the store that has the file.

    None if both files are missing or empty.
    """
    folder = store / folder_name
    database = config_database(store, name)
    if database is not None and not can_read_rocksdb():
        raise UnsupportedStoreError(f"{database} is a RocksDB database: {REMEDY}")
    if database is not None:
        try:
            return decode(_read_database(database, name))
        except StorageError as error:
            raise ConfigError(str(error)) from error
        except _UNREADABLE as error:
            raise ConfigError(f"{database}: the entries of {name} cannot be read: {error}") from error
    if name == CONSUMER_OFFSETS:
        name = consumer_offset_file(folder)
    problems = []
    for file in (folder / name, folder / f"{name}.bak"):
        try:
            data = file.read_bytes() if file.is_file else b""
        except FileNotFoundError:  # brokers of 4.9 delete it, and then rename the new one (`MixAll.string2File`)
            data = b""
        if not data.strip():
            continue
        try:
            return decode(json_object(data))
        except _UNREADABLE as error:
            problems.append(f"{file}: {error}")
    if problems:
        raise ConfigError(f"{'; '.join(problems)}. Put a readable copy in its place, or remove it with its .bak")
    return None


def consumer_offset_file(folder: Location) -> str:
    """The name of the file with the consumers' offsets: of the two that a broker can have, the one written last.

    A broker of 4.9 deletes the file before it gives the new one its name (`MixAll.string2File`@4.9.7), and has just
    written the `.bak` then.
    """

    def written(name: str) -> int:
        return max((folder / file).info().mtime_ns or 0 for file in (name, f"{name}.bak"))

    return max(CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS, key=written)


def files_of_databases(store: Location) -> tuple[dict[str, bytes], set[str]]:
    """The files of `config/` that a broker keeps in RocksDB, as it would write them, by path; and their databases.

    There are none if no package reads RocksDB. Raises `ConfigError` if a database cannot be read.
    """
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    for name in CONFIG_TABLES if can_read_rocksdb() else ():
        database = config_database(store, name)
        if database is not None:
            content = load_config(store, name, lambda content: content)
            files[f"{CONFIG}/{name}"] = json.dumps(content, ensure_ascii=False, indent="\t").encode()
            folders.add(f"{CONFIG}/{database.name}")
    return files, folders


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object that a file contains. Raises `ValueError` for other content."""
    content = parse_fastjson(data.decode("utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it does not contain a JSON object")
    return content


def readable_file(folder: Location, name: str) -> Location:
    """The file with a name in the folder, or its `.bak` if only that contains a JSON object."""
    file, backup = folder / name, folder / f"{name}.bak"
    return backup if not _is_object(file) and _is_object(backup) else file


def _is_object(file: Location) -> bool:
    return file.is_file and json_problem(file.read_bytes()) is None


def json_problem(data: bytes) -> str | None:
    """Why the content of a file is not a JSON object; None if it is one."""
    try:
        json_object(data)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None


def as_integer(value: object, bits: int) -> int:
    """A value of the file as a signed integer of `bits` bits."""
    if not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not an integer")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} has more than {bits} bits")
    return number


@dataclass(frozen=True)
class _Table:
    """A file of `config/`: its key in JSON, its own folder, its column family in `metadata`, its table in `rdb`."""

    key: str
    folder: str
    family: str
    number: int


CONFIG_TABLES = {
    "topics.json": _Table("topicConfigTable", "topics", "topic", 3),
    "consumerOffset.json": _Table("offsetTable", "consumerOffsets", "consumerOffset", 1),
    "subscriptionGroup.json": _Table("subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", 4),
}
"""The files that can be in a database, by name."""


def config_database(store: Location, name: str) -> Location | None:
    """The RocksDB database that has the content of `config/NAME`; None if the broker keeps it in that file."""
    table = CONFIG_TABLES.get(name)
    folders = () if table is None else (table.folder, _SECOND_VERSION, _SINGLE)
    return next((store / CONFIG / one for one in folders if is_rocksdb(store / CONFIG / one)), None)


def _read_database(folder: Location, name: str) -> dict[str, Any]:
    """The content of `config/NAME` that is in the database in `folder`, as its JSON file would have it."""
    table = CONFIG_TABLES[name]
    with closing(RocksDatabase(folder)) as database:
        if folder.name == _SECOND_VERSION:
            version, entries = _version(database, table), _second_version(database, table)
        else:
            families = (
                (table.family, f"{table.family}Version") if folder.name == _SINGLE else (DEFAULT, "kvDataVersion")
            )
            versions = [_parsed(value) for _, value in database.items(families[1])]
            version = versions[0] if versions else _NO_VERSION
            entries = ((key.decode(), _parsed(value)) for key, value in database.items(families[0]))
        content = _offsets(entries) if table.key == "offsetTable" else dict(entries)
        return {"dataVersion": version, table.key: content}


def _version(database: RocksDatabase, table: _Table) -> dict[str, int]:
    """The data version of a table of `rdb` (`ConfigHelper.stampDataVersion`@5.3.3)."""
    keys = _DATA.pack(1, table.number, 1), _DATA.pack(1, table.number, 2)
    values = [_VERSION.unpack(value) for _, value in database.items(DEFAULT, *keys)]
    return dict(zip(_NO_VERSION, values[0], strict=True)) if values else _NO_VERSION


def _second_version(database: RocksDatabase, table: _Table) -> Iterator[tuple[str, Any]]:
    start = _DATA.pack(1, table.number, 2)
    for key, value in database.items(DEFAULT, start, _DATA.pack(1, table.number, 3)):
        name, rest = _name(key[len(start) :])
        if table.key != "offsetTable":
            if value[:1] != _JSON:
                raise ValueError(f"{name!r} is not JSON")
            yield name, _parsed(value[1:])
            continue
        topic, queue_id = _name(rest[1:])
        yield f"{topic}@{name}", {"offsetTable": {_INT.unpack(queue_id[1:])[0]: _LONG.unpack(value)[0]}}


def _name(data: bytes) -> tuple[str, bytes]:
    """A name after its length, and the bytes after it."""
    (length,) = _SHORT.unpack_from(data)
    end = _SHORT.size + length
    if not 0 <= length <= len(data) - _SHORT.size:
        raise ValueError(f"a name has {length} bytes")
    return data[_SHORT.size : end].decode(), data[end:]


def _offsets(entries: Iterator[tuple[str, Any]]) -> dict[str, dict[Any, Any]]:
    """The offsets of each topic and group: an entry has those of some queues."""
    found: dict[str, dict[Any, Any]] = {}
    for name, value in entries:
        found.setdefault(name, {}).update(value["offsetTable"])
    return found


def _parsed(value: bytes) -> Any:
    return parse_fastjson(value.decode())
