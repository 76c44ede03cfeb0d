"""Bodies of messages in the form that a person chooses with `--body`."""

from __future__ import annotations

import base64
import codecs
import json
import re

from spark_mq.cli.output.display_width import ELLIPSIS
from spark_mq.cli.output.value_text import bytes_text

TEXT, JSON, HEX, BASE64, NONE = "text", "json", "hex", "base64", "none"
FORMS = (TEXT, JSON, HEX, BASE64, NONE)

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = "  "


def body_text(body: bytes, form: str, one_line: bool) -> str:
    """The body as text.

    Args:
        body: The body.
        form: One of `FORMS`. `text` and `json` show a body that is not UTF-8 as hexadecimal digits.
        one_line: Whether JSON stays in one line.

    """
    if form == HEX:
        return body.hex()
    if form == BASE64:
        return base64.b64encode(body).decode("ascii")
    if form == JSON and is_json(body):
        text = body.decode("utf-8")
        return "".join(_TOKEN.findall(text)) if one_line else pretty_json(text)
    return bytes_text(body)


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
    """A valid JSON text with one value a line. Only the space between its tokens changes.

    Example:
        >>> print(pretty_json('{"id":1.50,"items":[]}'))
        {
          "id": 1.50,
          "items": []
        }
    """
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
