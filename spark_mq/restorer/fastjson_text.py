"""JSON as fastjson writes it for a broker's files of `config/` (`RemotingSerializable.toJson(object, true)`@5.3.3).

Lines are indented with tabs, and a colon has no space after it. Integer keys have no quotes, and follow each other in
one line. So do the elements of a set (of a list they would not, but no file that is rewritten here has a list).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

_ESCAPED = re.compile('[\\x00-\\x1f"\\\\\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def fastjson_text(value: object, depth: int = 0) -> str:
    r"""The JSON text of a value.

    Args:
        value: Objects as mappings, whose keys are text or integers; lists, text, numbers, booleans and None.
        depth: The tabs before the line that the value begins in.
    """
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return _object(value, depth)
    if isinstance(value, Sequence):
        return f"[{','.join(fastjson_text(item, depth + 1) for item in value)}]"
    return json.dumps(value)


def _object(value: Mapping[object, object], depth: int) -> str:
    if not value:
        return "{}"
    line = "\n" + "\t" * depth
    entries = []
    for key, item in value.items():
        before = "" if isinstance(key, int) else f"{line}\t"
        name = str(key) if isinstance(key, int) else _quoted(str(key))
        entries.append(f"{before}{name}:{fastjson_text(item, depth + 1)}")
    return f"{{{','.join(entries)}{line}}}"


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}"
