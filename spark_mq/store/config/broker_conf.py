"""The broker's settings that matter for its files (`MessageStoreConfig`@5.3.3), from its `broker.conf`.

`broker.conf` is a Java properties file. A store does not hold it, and file sizes are in no file of the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location

_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class BrokerConf:
    """Settings by name, as text; the rest of this class reads the ones that this package knows."""

    settings: dict[str, str]
    source: str = "broker.conf"

    @classmethod
    def load(cls, location: Location) -> Self:
        """Read a `broker.conf`. Raises `OptionError` where there is none."""
        try:
            # Java reads a stream of properties as Latin-1 (java.util.Properties.load).
            return cls(parse_java_properties(location.read_bytes().decode("latin-1")), str(location))
        except (OSError, ValueError) as error:
            raise OptionError(f"--broker-conf {location}: cannot be read: {error}") from error

    @classmethod
    def of(cls, path: str | None) -> Self:
        """The settings in the file `path`; none without a path. Raises `OptionError` where it cannot be read."""
        return cls.load(Location.resolve(path)) if path else cls({})

    @property
    def consume_queue_file_size(self) -> int | None:
        """Bytes of a queue file: `mappedFileSizeConsumeQueue`, rounded up to whole units as the broker does."""
        size = self._positive_integer("mappedFileSizeConsumeQueue")
        return None if size is None else -(-size // UNIT_SIZE) * UNIT_SIZE

    @property
    def index_layout(self) -> IndexLayout | None:
        """Slots and entries of an index file: `maxHashSlotNum`, `maxIndexNum`; None where neither is set."""
        slots, entries = self._positive_integer("maxHashSlotNum"), self._positive_integer("maxIndexNum")
        if slots is None and entries is None:
            return None
        default = IndexLayout()
        return IndexLayout(slots or default.hash_slot_num, entries or default.index_num)

    @property
    def message_delay_level(self) -> str | None:
        """Delays of the delay levels, text such as `1s 5s 10s`."""
        return self.settings.get("messageDelayLevel")

    def is_enabled(self, name: str, default: bool = False) -> bool:
        """Whether a boolean setting is `true`; `default` where it is not set."""
        return self.settings.get(name, str(default)).strip().lower() == "true"

    def _positive_integer(self, name: str) -> int | None:
        text = self.settings.get(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise OptionError(f"{self.source}: {name}={text!r} is no positive number")
        return int(text)


def parse_java_properties(text: str) -> dict[str, str]:
    """Names and values of a Java properties file (`java.util.Properties.load`).

    Raises `ValueError` for a malformed escape of a code unit, as Java does.
    """
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split_line(line)
        settings[_unescape(name)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks, continued ones joined (`Properties.LineReader` of Java 17)."""
    lines: list[str] = []
    started = ""
    naturals = _LINE_END.split(text)
    for number, natural in enumerate(naturals, 1):
        line = natural.lstrip(" \t\f")
        if not started and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        started += line[:-1] if is_continued else line
        if not is_continued or number == len(naturals):
            lines.append(started)
            started = ""
    return lines


def _split_line(line: str) -> tuple[str, str]:
    index = 0
    while index < len(line) and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    name, rest = line[:index], line[index:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return name, rest


def _unescape(text: str) -> str:
    pieces: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character == "\\" and index + 1 < len(text):
            index += 1
            character = text[index]
            if character == "u":
                character, index = _code_unit(text[index + 1 : index + 5]), index + 4
            else:
                character = _ESCAPES.get(character, character)
        pieces.append(character)
        index += 1
    return "".join(pieces)


def _code_unit(digits: str) -> str:
    if not re.fullmatch("[0-9A-Fa-f]{4}", digits):
        raise ValueError(f"malformed \\u{digits}")
    return chr(int(digits, 16))
