"""Bodies of messages in the form that a person chooses with `--body`."""

from __future__ import annotations

import base64
import codecs
import json
import re

from spark_mq.cli.output.value_text import ELLIPSIS, bytes_text

TEXT, JSON, HEX, BASE64, RAW, NONE = "text", "json", "hex", "base64", "raw", "none"
FORMS = (TEXT, JSON, HEX, BASE64, RAW, NONE)

MAX_DUMP_BYTES = 512
"""Bytes of a binary body that are shown if nobody asked for a form."""
_DUMP_LINE = 16

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = "  "


def body_text(body: bytes, form: str, one_line: bool) -> str:
    """The body as text."""
    if form == HEX:
        return body.hex()
    if form == BASE64:
        return base64.b64encode(body).decode("ascii")
    if form == JSON and is_json(body):
        text = body.decode("utf-8")
        return "".join(_TOKEN.findall(text)) if one_line else pretty_json(text)
    return bytes_text(body)


def fitting_text(body: bytes) -> str:
    """The body in the form that fits it: indented JSON, text, or of a binary body a dump of its first bytes."""
    if is_binary(body) and len(body) <= _DUMP_LINE:
        return f"{len(body)} bytes: {body.hex(' ')}"
    if is_binary(body):
        rest = len(body) - MAX_DUMP_BYTES
        more = f"\n{ELLIPSIS} ({rest} more bytes; --body hex prints all {len(body)})" if rest > 0 else ""
        return f"{len(body)} bytes\n{hex_dump(body[:MAX_DUMP_BYTES])}{more}"
    text = body.decode("utf-8")
    return pretty_json(text) if text[:1] in "{[" and is_json(body) else text


def is_binary(body: bytes) -> bool:
    """Whether the body is not text: not UTF-8, or with a zero byte."""
    if b"\0" in body:
        return True
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def hex_dump(data: bytes) -> str:
    r"""The bytes in hexadecimal digits, 16 in a line, after their position and before their characters."""
    lines = []
    for at in range(0, len(data), _DUMP_LINE):
        line = data[at : at + _DUMP_LINE]
        half = _DUMP_LINE // 2
        digits = f"{line[:half].hex(' '):<{3 * half - 1}}  {line[half:].hex(' '):<{3 * half - 1}}"
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{at:08x}  {digits}  |{shown}|")
    return "\n".join(lines)


def body_value(body: bytes, form: str) -> object:
    """The body as a value of a JSON line.

    A body that is JSON is that value (`json`). Other text is a string. A body that is not UTF-8 is an object with the
    body in Base64: `{"base64": "/w=="}`.
    """
    if form == HEX:
        return body.hex()
    if form == BASE64:
        return body
    if form == JSON and is_json(body):
        return json.loads(body)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode("ascii")}


def beginning(body: bytes, limit: int) -> str:
    """The body as `bytes_text`; of a body of more than `limit` bytes, only the beginning, and an ellipsis."""
    if len(body) <= limit:
        return bytes_text(body)
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body[:limit]) + ELLIPSIS
    except UnicodeDecodeError:
        return f"{len(body)} bytes: {body[:limit].hex(' ')}{ELLIPSIS}"


def is_json(body: bytes) -> bool:
    """Whether the body is a JSON text in UTF-8, whose numbers a program can read."""
    try:
        json.loads(body.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return False
    return True


def pretty_json(text: str) -> str:
    """A valid JSON text with one value a line. Only the space between its tokens changes."""
    depth, pieces = 0, []
    tokens = _TOKEN.findall(text)
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token in ("{", "["):
            depth += 1
            is_empty = following in ("}", "]")
            pieces.append(token if is_empty else f"{token}\n{_INDENT * depth}")
        elif token in ("}", "]"):
            depth -= 1
            was_empty = index > 0 and tokens[index - 1] in ("{", "[")
            pieces.append(token if was_empty else f"\n{_INDENT * depth}{token}")
        elif token == ",":
            pieces.append(f",\n{_INDENT * depth}")
        else:
            pieces.append(": " if token == ":" else token)
    return "".join(pieces)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} has no JSON form again")
    return value
