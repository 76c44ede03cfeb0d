"""The files of `config/` as brokers write them (fastjson), and the two of them that have offsets, with new offsets.

Lines are indented with tabs, and a colon has no space after it. Integer keys have no quotes, and follow each other in
one line. So do the elements of a set (of a list they would not, but no file that is rewritten here has a list).

Pure functions: bytes in, bytes out. Files keep the form of the broker that wrote them: names, order, and fields that
this package does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from spark_mq.errors import ConfigError
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.store.config.config_file import as_integer, json_object, parse_fastjson

_ESCAPED = re.compile('[\\x00-\\x1f"\\\\\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
CONSUMER_OFFSETS = "config/consumerOffset.json"
LMQ_CONSUMER_OFFSETS = "config/lmqConsumerOffset.json"
DELAY_OFFSETS = "config/delayOffset.json"
OFFSET_FILES = (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS, DELAY_OFFSETS)

Translate = Callable[[str, int, int], int | None]
"""The new queue offset for a topic (its old name), a queue id and an old queue offset; None if the result has no such
queue."""


def object_of(data: bytes | None, path: str) -> dict[str, Any]:
    """The JSON object that a file contains; an empty one if there is no file."""
    if data is None:
        return {}
    try:
        return json_object(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it cannot be read: {error}. Put a readable copy in its place") from error


def object_in(content: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    """The JSON object with a name in the content of a file; an empty one if there is none."""
    table = content.get(name) or {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is not a JSON object. Put a readable copy in its place")
    return table


def fastjson_text(value: object, depth: int = 0) -> str:
    r"""The JSON text of a value."""
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
    escaped = _ESCAPED.sub(lambda match: _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}", text)
    return f'"{escaped}"'


def translated_offsets(
    path: str, existing: bytes, translate: Translate, topics: Mapping[str, str] | None = None
) -> tuple[bytes, int]:
    """One of `OFFSET_FILES` with new offsets and names of topics, and the number of offsets that it lacks."""
    if path == DELAY_OFFSETS:
        return delay_offsets_json(existing, translate)
    return consumer_offsets_json(existing, translate, topics, path)


def consumer_offsets_json(
    existing: bytes, translate: Translate, topics: Mapping[str, str] | None = None, path: str = CONSUMER_OFFSETS
) -> tuple[bytes, int]:
    """The file `config/consumerOffset.json` of the new store, and the number of offsets whose queues it lacks.

    `lmqConsumerOffset.json` has the same form, and offsets of light message queues: one stays if `translate` knows no
    new one, because messages name their places in these queues. If two topics become one, a group continues at the
    smaller one of its two offsets, so that it misses no message.
    """
    content, names = object_of(existing, path), topics or {}
    kept: dict[str, dict[int, int]] = {}
    dropped = 0
    for topic_and_group, offsets in object_in(content, "offsetTable", path).items():
        topic, mark, group = topic_and_group.partition("@")
        if not isinstance(offsets, dict):
            raise ConfigError(f"{path}: the offsets of topic {topic!r} are not a JSON object")
        translated = _translated(offsets, partial(translate, topic), path)
        dropped += len(offsets) - len(translated)
        if not translated and offsets:
            continue
        entry = kept.setdefault(f"{names.get(topic, topic)}{mark}{group}", {})
        for queue_id, offset in translated.items():
            entry[queue_id] = min(entry.get(queue_id, offset), offset)
    new: dict[str, object] = {**content, "offsetTable": kept}
    if light := object_in(content, "lmqOffsetTable", path):
        new["lmqOffsetTable"] = {
            key: _translated({"0": offset}, partial(translate, key.partition("@")[0]), path).get(0, offset)
            for key, offset in light.items()
        }
    if isinstance(content.get("groupTopicMap"), dict):
        new["groupTopicMap"] = _group_topics(content["groupTopicMap"], kept)
    return _new_text(new, existing), dropped


def delay_offsets_json(existing: bytes, translate: Translate) -> tuple[bytes, int]:
    """The same for `config/delayOffset.json`, which has an offset for each delay level."""
    content = object_of(existing, DELAY_OFFSETS)
    levels = object_in(content, "offsetTable", DELAY_OFFSETS)
    kept = _translated(levels, lambda level, offset: translate(SCHEDULE_TOPIC, level - 1, offset), DELAY_OFFSETS)
    return _new_text({**content, "offsetTable": kept}, existing), len(levels) - len(kept)


def _new_text(content: Mapping[str, object], existing: bytes) -> bytes:
    """The text of a file; that of the existing file if it says the same."""
    text = fastjson_text(content)
    return existing if parse_fastjson(text) == parse_fastjson(existing.decode("utf-8")) else text.encode()


def _group_topics(existing: Mapping[str, object], kept: Mapping[str, object]) -> dict[str, list[str]]:
    """The topics of each group that has offsets (`ConsumerOffsetManager.getGroupTopicMap`@5.3.3), in their order."""
    found: dict[str, list[str]] = {}
    for key in kept:
        topic, mark, group = key.partition("@")
        if mark:
            found.setdefault(group, []).append(topic)
    known = {group: topics if isinstance(topics, list) else [] for group, topics in existing.items()}
    return {group: _as_before(known.get(group, []), found[group]) for group in _as_before(existing, found)}


def _as_before(before: Iterable[str], names: Collection[str]) -> list[str]:
    """The names in the order in which they were before, then the new ones."""
    return list(dict.fromkeys([*(name for name in before if name in names), *names]))


def _translated(table: Mapping[str, object], translate: Callable[[int, int], int | None], path: str) -> dict[int, int]:
    """The new offset of each key, a queue id or a delay level, that has one."""
    try:
        offsets = {as_integer(key, 32): as_integer(value, 64) for key, value in table.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: an offset cannot be read: {error}. Correct it, or remove the file") from error
    new = {key: translate(key, offset) for key, offset in offsets.items()}
    return {key: offset for key, offset in new.items() if offset is not None}
