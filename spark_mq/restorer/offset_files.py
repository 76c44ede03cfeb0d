"""The offsets of consumers and of delay levels in the `config/` of a restored store.

Pure functions: bytes in, bytes out. Files keep the form of the broker that wrote them: names, order, and fields that
this package does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_mq.errors import ConfigError
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.restorer.config_content import object_in, object_of
from spark_mq.restorer.fastjson_text import fastjson_text
from spark_mq.store.config.config_file import as_integer, parse_fastjson

CONSUMER_OFFSETS = "config/consumerOffset.json"
LMQ_CONSUMER_OFFSETS = "config/lmqConsumerOffset.json"
DELAY_OFFSETS = "config/delayOffset.json"

Translate = Callable[[str, int, int], int | None]
"""The new queue offset for a topic (its old name), a queue id and an old queue offset; None if the result has no such
queue."""

_GROUP_MARK = "@"


@dataclass(frozen=True)
class TranslatedOffsets:
    """Offsets of consumers, or of delay levels, in the new store.

    Attributes:
        dropped: The number of offsets that were left out, because the result has no such queue, by topic.
    """

    content: bytes
    kept: int
    dropped: Mapping[str, int]


def consumer_offsets_json(
    existing: bytes, translate: Translate, topics: Mapping[str, str] | None = None, path: str = CONSUMER_OFFSETS
) -> TranslatedOffsets:
    """The file `config/consumerOffset.json` of the new store; also `lmqConsumerOffset.json`, which has the same form.

    If two topics become one, a group continues at the smaller one of its two offsets, so that it misses no message.

    Args:
        translate: The new offset for topic, queue id and offset of the source.
        topics: New names of topics, by their old names.
        path: The path of the file, for error messages.
    """
    content, names = object_of(existing, path), topics or {}
    kept: dict[str, dict[int, int]] = {}
    dropped: Counter[str] = Counter()
    for topic_and_group, offsets in object_in(content, "offsetTable", path).items():
        topic, mark, group = topic_and_group.partition(_GROUP_MARK)
        translated = _translated(offsets, topic, translate, path)
        dropped[topic] += len(offsets) - len(translated)
        if not translated and offsets:
            continue
        entry = kept.setdefault(f"{names.get(topic, topic)}{mark}{group}", {})
        for queue_id, offset in translated.items():
            entry[queue_id] = min(entry.get(queue_id, offset), offset)
    new = {**content, "offsetTable": kept}
    if isinstance(content.get("groupTopicMap"), dict):
        new["groupTopicMap"] = _group_topics(content["groupTopicMap"], kept)
    lost = {name: count for name, count in dropped.items() if count}
    return TranslatedOffsets(_new_text(new, existing), sum(map(len, kept.values())), lost)


def delay_offsets_json(existing: bytes, translate: Translate, path: str = DELAY_OFFSETS) -> TranslatedOffsets:
    """The file `config/delayOffset.json` of the new store.

    Args:
        translate: The new offset for topic (that of delayed messages), queue id and offset of the source.
        path: The path of the file, for error messages.
    """
    content = object_of(existing, path)
    kept: dict[int, int] = {}
    dropped = 0
    for level, offset in _numbers(object_in(content, "offsetTable", path), path).items():
        new = translate(SCHEDULE_TOPIC, level - 1, offset)
        if new is None:
            dropped += 1
        else:
            kept[level] = new
    text = _new_text({**content, "offsetTable": kept}, existing)
    return TranslatedOffsets(text, len(kept), {SCHEDULE_TOPIC: dropped} if dropped else {})


def _new_text(content: Mapping[str, object], existing: bytes) -> bytes:
    """The text of a file; that of the existing file if it says the same."""
    text = fastjson_text(content)
    return existing if parse_fastjson(text) == parse_fastjson(existing.decode("utf-8")) else text.encode()


def _translated(offsets: object, topic: str, translate: Translate, path: str) -> dict[int, int]:
    """The new offsets of the queues that the result has."""
    if not isinstance(offsets, dict):
        raise ConfigError(f"{path}: the offsets of topic {topic!r} are not a JSON object")
    new = {queue_id: translate(topic, queue_id, offset) for queue_id, offset in _numbers(offsets, path).items()}
    return {queue_id: offset for queue_id, offset in new.items() if offset is not None}


def _group_topics(existing: Mapping[str, object], kept: Mapping[str, object]) -> dict[str, list[str]]:
    """The topics of each group that has offsets (`ConsumerOffsetManager.getGroupTopicMap`@5.3.3), in their order."""
    found: dict[str, list[str]] = {}
    for key in kept:
        topic, mark, group = key.partition(_GROUP_MARK)
        if mark:
            found.setdefault(group, []).append(topic)
    order = [*(group for group in existing if group in found), *(group for group in found if group not in existing)]
    return {group: _ordered(found[group], existing.get(group)) for group in order}


def _ordered(topics: list[str], before: object) -> list[str]:
    """The topics in the order in which they were before, then the new ones."""
    known = [topic for topic in before if topic in topics] if isinstance(before, list) else []
    return [*known, *(topic for topic in topics if topic not in known)]


def _numbers(table: Mapping[str, object], path: str) -> dict[int, int]:
    try:
        return {as_integer(key, 32): as_integer(value, 64) for key, value in table.items()}
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: an offset cannot be read: {error}. Correct it, or remove the file") from error
