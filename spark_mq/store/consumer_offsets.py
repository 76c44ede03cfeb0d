"""`config/consumerOffset.json`: how far consumer groups have got (`ConsumerOffsetManager`@5.3.3).

`{"offsetTable": {"topic@group": {0: 5, 1: 6}}}`: fastjson leaves integer keys unquoted, which is no JSON.
"""

from __future__ import annotations

import json
import re

from spark_mq.store.filesystem import Location

_UNQUOTED_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")


def parse_fastjson(text: str) -> object:
    """JSON whose integer keys may be unquoted. Raises `ValueError` where it is neither."""
    pieces = re.split(r'("(?:[^"\\]|\\.)*"?)', text)
    outside_strings = [
        _UNQUOTED_KEY.sub(r'\1"\2"\3', piece) if index % 2 == 0 else piece for index, piece in enumerate(pieces)
    ]
    return json.loads("".join(outside_strings))


def consumed_offsets(store: Location) -> dict[tuple[str, int], int]:
    """The highest offset that any group holds, by (topic, queue id); empty where there is no readable file.

    A file that cannot be read falls back to its `.bak`, as in the broker (`ConfigManager.load`@5.3.3).
    """
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        file = store / "config" / name
        if not file.is_file:
            continue
        try:
            return _highest_offsets(parse_fastjson(file.read_bytes().decode("utf-8")))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
    return {}


def _highest_offsets(content: object) -> dict[tuple[str, int], int]:
    highest: dict[tuple[str, int], int] = {}
    table = content.get("offsetTable", {}) if isinstance(content, dict) else {}
    for topic_and_group, offsets in table.items():
        topic = topic_and_group.split("@", 1)[0]
        for queue_id, offset in offsets.items():
            queue = (topic, int(queue_id))
            highest[queue] = max(highest.get(queue, 0), int(offset))
    return highest
