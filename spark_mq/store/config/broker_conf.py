"""The broker's settings that shape its files (`MessageStoreConfig`@5.3.3), read from its `broker.conf`.

`broker.conf` is a Java properties file. It is not part of the store, and no file of the store records these sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from spark_mq.errors import OptionError
from spark_mq.format.bloom_filter import DEFAULT_ERROR_RATE, DEFAULT_EXPECTED_GROUPS, BloomFilter
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from spark_mq.format.consume_queue_ext import DEFAULT_FILE_SIZE as EXT_FILE_SIZE
from spark_mq.format.index_file import MAX_MSGS_NUM_BATCH, IndexLayout
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_ROCKSDB

_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
T = TypeVar("T")

NOTHING_TELLS = "the default; nothing in the store tells"
NOT_CONSIDERED = "true, which is not considered here"
ROCKSDB_STORE = "defaultRocksDB"
"""The value of `storeType` with which a broker has its queues in RocksDB (`StoreType`@5.3.3)."""


def parse_java_properties(text: str) -> dict[str, str]:
    r"""The values of a properties file by name; of a name that is set twice, the last value."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        name = re.match(r"(?:\\.?|[^\\=: \t\f])*", line)[0]  # type: ignore[index]
        rest = line[len(name) :].lstrip(" \t\f")
        value = rest[1:].lstrip(" \t\f") if rest[:1] in ("=", ":") else rest
        settings[_unescape(name)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blank lines, with continued lines joined (`Properties.LineReader`)."""
    logical_lines: list[str] = []
    logical_line = ""
    natural_lines = _LINE_END.split(text)
    for number, natural_line in enumerate(natural_lines, 1):
        line = natural_line.lstrip(" \t\f")
        if not logical_line and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        logical_line += line[:-1] if is_continued else line
        if not is_continued or number == len(natural_lines):
            logical_lines.append(logical_line)
            logical_line = ""
    return logical_lines


def _unescape(text: str) -> str:
    def unescaped(found: re.Match[str]) -> str:
        digits, character = found.groups()
        if digits is None:
            return _ESCAPES.get(character, character)
        if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
            raise ValueError(f"malformed \\u{digits}")
        return chr(int(digits, 16))

    return re.sub(r"(?s)\\(?:u(.{0,4})|(.))", unescaped, text)


@dataclass(frozen=True)
class Sourced(Generic[T]):
    """A value and its source, as a text for a person: `broker.conf`, `the store's queue files`."""

    value: T
    source: str


@dataclass(frozen=True)
class FileSetting:
    """A setting as text for a person: what it is of, its value, and its source."""

    name: str
    value: str
    source: str

    def __str__(self) -> str:
        """The setting in one line."""
        return f"{self.name}: {self.value} ({self.source})"


@dataclass(frozen=True)
class BrokerConf:
    """A broker's settings.

    Spaces after a value are a part of it, unless it is a text (`MixAll.properties2Object`@5.3.3). So a broker ignores
    `fileReservedTime=48` with a space at the end, as all that is not a number: here it is an error.

    Attributes:
        is_given: Whether there is a file. Then a broker has the defaults of all settings that the file does not name.
    """

    settings: dict[str, str]
    source: str = "broker.conf"
    is_given: bool = True

    @classmethod
    def load(cls, location: Location) -> Self:
        """The settings in a `broker.conf`."""
        if not location.is_file:
            problem = "it is a folder" if location.is_directory else "there is no such file"
            raise OptionError(f"--broker-conf {location}: cannot be read: {problem}")
        try:
            # Java reads a stream of properties as Latin-1 (java.util.Properties.load).
            return cls(parse_java_properties(location.read_bytes().decode("latin-1")), str(location))
        except (OSError, ValueError) as error:
            raise OptionError(f"--broker-conf {location}: cannot be read: {error}") from error

    @classmethod
    def of(cls, path: str | None) -> Self:
        """The settings in the file at `path`, a path or URI; no settings without a path."""
        return cls.load(Location.resolve(path)) if path else cls({}, is_given=False)

    @property
    def commit_log_file_size(self) -> int | None:
        """Bytes of a segment, `mappedFileSizeCommitLog`; None if not set."""
        return self._positive_integer("mappedFileSizeCommitLog")

    def check_size(self, what: str, given: int | None, found: Sequence[int], names: str) -> None:
        """Raise `OptionError` if files of a kind have one other size than the settings that `names` lists say.

        Such settings are those of another broker, or newer than the files; beside these, files of their sizes would be
        wrong. One file that is too short says nothing: it can have been cut.
        """
        size = found[0] if len(set(found)) == 1 else 0
        if given is not None and size not in (0, given) and (len(found) > 1 or size > given):
            raise OptionError(
                f"{what} have {size} bytes, and {given} by {self.source} ({names}), which is of another broker, or was "
                "changed: give the settings with which the files were written (--broker-conf, option broker_conf); to "
                "change the size, use --output"
            )

    @property
    def consume_queue_file_size(self) -> int | None:
        """Bytes of a queue file, `mappedFileSizeConsumeQueue`, rounded up to whole units as the broker does.

        None if not set.
        """
        size = self._positive_integer("mappedFileSizeConsumeQueue")
        return None if size is None else -(-size // UNIT_SIZE) * UNIT_SIZE

    @property
    def batch_consume_queue_file_size(self) -> int | None:
        """Bytes of a file of batch consume queues, `mapperFileSizeBatchConsumeQueue`; None if not set."""
        size = self._positive_integer("mapperFileSizeBatchConsumeQueue")
        if size is not None and size < BATCH_UNIT_SIZE:
            least = f"a unit has {BATCH_UNIT_SIZE} bytes"
            raise OptionError(f"{self.source}: mapperFileSizeBatchConsumeQueue={size} is too small: {least}")
        return size

    @property
    def consume_queue_ext_file_size(self) -> int:
        """Bytes of a file of a consume queue extension, `mappedFileSizeConsumeQueueExt`, or the default."""
        return self._positive_integer("mappedFileSizeConsumeQueueExt") or EXT_FILE_SIZE

    @property
    def bloom_filter(self) -> BloomFilter:
        """The shape of the bit maps of SQL92 filters: `maxErrorRateOfBloomFilter`, `expectConsumerNumUseFilter`."""
        rate, groups = map(self._positive_integer, ("maxErrorRateOfBloomFilter", "expectConsumerNumUseFilter"))
        return BloomFilter.of(rate or DEFAULT_ERROR_RATE, groups or DEFAULT_EXPECTED_GROUPS)

    @property
    def index_layout(self) -> IndexLayout | None:
        """Slots and entries of an index file, `maxHashSlotNum` and `maxIndexNum`; None if neither is set."""
        slots, entries = self._positive_integer("maxHashSlotNum"), self._positive_integer("maxIndexNum")
        if slots is None and entries is None:
            return None
        default = IndexLayout()
        return IndexLayout(slots or default.hash_slot_num, entries or default.index_num)

    @property
    def max_msgs_num_batch(self) -> int:
        """The largest number of messages in an answer to a look-up by key, `maxMsgsNumBatch`, or the default."""
        return self._positive_integer("maxMsgsNumBatch") or MAX_MSGS_NUM_BATCH

    @property
    def max_rocksdb_index_query_days(self) -> int:
        """The longest time range of a look-up in an index in RocksDB, `maxRocksDBIndexQueryDays`, or the default."""
        return self._positive_integer("maxRocksDBIndexQueryDays") or 7

    @property
    def message_delay_level(self) -> str:
        """The delays of the delay levels, `messageDelayLevel`, as text such as `1s 5s 10s`, or the default."""
        return self.settings.get("messageDelayLevel") or DEFAULT_DELAY_LEVELS

    def text(self, name: str, default: str) -> str:
        """A text, without the spaces around it that 4.9.7 keeps, and 5.3.3 removes; `default` if it is not set."""
        return self.settings.get(name, default).strip()

    def is_enabled(self, name: str, default: bool = False) -> bool:
        """Whether a boolean setting is `true`; `default` if it is not set. `true` and a space is false for Java."""
        return self.settings.get(name, str(default)).lower() == "true"

    @property
    def without_index_files(self) -> str | None:
        """The setting because of which the broker writes no index files, or None (`DefaultMessageStore`@5.5.0)."""
        switches = ("messageIndexEnable", "indexFileWriteEnable")
        return next((f"{name}=false" for name in switches if not self.is_enabled(name, default=True)), None)

    @property
    def has_index_records(self) -> bool:
        """Whether the broker has index records in RocksDB, instead of index files or besides them."""
        return self.is_enabled("messageIndexEnable", default=True) and self.is_enabled("indexRocksDBEnable")

    @property
    def has_rocksdb_store(self) -> bool:
        """Whether the broker has its queues in RocksDB, and reads no queue files (`DefaultMessageStore`@5.5.0)."""
        return self.text("storeType", "") == ROCKSDB_STORE

    @property
    def queue_database(self) -> str:
        """The folder of a store in which the broker has a RocksDB database of queues."""
        return CONSUME_QUEUE_ROCKSDB if self.is_enabled("useSeparateStorePathForRocksdbCQ") else CONSUME_QUEUE

    @property
    def source_of_defaults(self) -> str:
        """What says that the broker has the default of a setting that the settings do not name, as text."""
        return f"the default, as in {self.source}" if self.is_given else NOTHING_TELLS

    def source_of(self, name: str) -> str:
        """What says which value a setting has, as text."""
        return self.source if name in self.settings else self.source_of_defaults

    def switches(self, defaults: Mapping[str, bool], not_considered: Iterable[str]) -> Iterator[FileSetting]:
        """Settings that are true or false, by their defaults; and those that are true, and not considered."""
        for name, default in defaults.items():
            yield FileSetting(name, str(self.is_enabled(name, default)).lower(), self.source_of(name))
        for name in filter(self.is_enabled, not_considered):
            yield FileSetting(name, NOT_CONSIDERED, self.source)

    def _positive_integer(self, name: str) -> int | None:
        text = self.settings.get(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise OptionError(f"{self.source}: {name}={text!r} is not a positive number")
        return int(text)
