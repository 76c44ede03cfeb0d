"""Names and values of a Java properties file, read as Java does (`java.util.Properties.load`, Java 17)."""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_java_properties(text: str) -> dict[str, str]:
    r"""The values of a properties file by name; of a name that is set twice, the last value."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split_line(line)
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


def _split_line(line: str) -> tuple[str, str]:
    """The name and the value of a logical line, with their escapes."""
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
