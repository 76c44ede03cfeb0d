"""The broker's settings that matter for its files (`MessageStoreConfig`@5.3.3), from its `broker.conf`.

`broker.conf` is a Java properties file. A store does not hold it, and file sizes are in no file of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.store.filesystem import Location

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
            text = location.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"--broker-conf {location}: cannot be read: {error}") from error
        return cls(parse_java_properties(text), str(location))

    @property
    def consume_queue_file_size(self) -> int | None:
        """Bytes of a queue file: `mappedFileSizeConsumeQueue`, rounded up to whole units as the broker does."""
        size = self._positive_integer("mappedFileSizeConsumeQueue")
        return None if size is None else -(-size // UNIT_SIZE) * UNIT_SIZE

    @property
    def message_delay_level(self) -> str | None:
        """Delays of the delay levels, text such as `1s 5s 10s`."""
        return self.settings.get("messageDelayLevel")

    def is_enabled(self, name: str) -> bool:
        """Whether a boolean setting is `true`."""
        return self.settings.get(name, "").strip().lower() == "true"

    def _positive_integer(self, name: str) -> int | None:
        text = self.settings.get(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise OptionError(f"{self.source}: {name}={text!r} is no positive number")
        return int(text)


def parse_java_properties(text: str) -> dict[str, str]:
    """Names and values of a Java properties file (`java.util.Properties.load`)."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split_line(line)
        settings[_unescape(name)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued = ""
    for natural in text.splitlines():
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued += line[:-1]
            continue
        lines.append(continued + line)
        continued = ""
    return [*lines, continued] if continued else lines


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
            if character == "u" and len(text) >= index + 5:
                character, index = chr(int(text[index + 1 : index + 5], 16)), index + 4
            else:
                character = _ESCAPES.get(character, character)
        pieces.append(character)
        index += 1
    return "".join(pieces)
