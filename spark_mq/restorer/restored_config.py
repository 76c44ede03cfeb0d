"""All files of `config/` of a restored store, by the rules of `config_files`. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.restorer.config_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    LMQ_CONSUMER_OFFSETS,
    TOPICS,
    Situation,
    Translate,
    TranslatedOffsets,
    Treatment,
    consumer_offsets_json,
    delay_offsets_json,
    rule_of,
    topics_json,
)
from spark_mq.store.config.broker_version import BrokerVersion
from spark_mq.store.config.store_paths import CONFIG

Queue = tuple[str, int]
QueueOffset = tuple[str, int, int]

_MAX_TOPICS = 5


@dataclass(frozen=True)
class RestoredConfig:
    """The files of `config/` of a restored store.

    Attributes:
        files: The files by their path in the store.
        offsets: The number of offsets of consumers and delay levels in them.
        dropped: The number of such offsets that were left out, because the result has no such queue, by the topic's
            old name.
        notes: What a user has to know, a sentence each. They contain names as the source has them.

    """

    files: Mapping[str, bytes]
    offsets: int
    dropped: Mapping[str, int]
    notes: tuple[str, ...]


def same_offsets(queues: Collection[Queue]) -> Translate:
    """A translation for messages that keep their offsets.

    An offset 0 is always right: a queue that does not exist begins there.

    Args:
        queues: The queues that the result has, also those without a message.

    """
    return lambda topic, queue_id, offset: offset if (topic, queue_id) in queues or offset == 0 else None


def new_offsets(found: Mapping[QueueOffset, int]) -> Translate:
    """A translation for messages with new offsets.

    Args:
        found: The new offsets for `wanted_offsets` (`OffsetMap.new_offsets`).

    """
    return lambda topic, queue_id, offset: found.get((topic, queue_id, offset), 0 if offset == 0 else None)


def wanted_offsets(files: Mapping[str, bytes]) -> set[QueueOffset]:
    """Topic, queue id and offset of each offset of a consumer or a delay level, for `offset_map.find_new_offsets`.

    Args:
        files: The files of the source.

    Raises:
        ConfigError: A file cannot be read.

    """
    wanted: set[QueueOffset] = set()

    def remember(topic: str, queue_id: int, offset: int) -> None:
        wanted.add((topic, queue_id, offset))

    for path in (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS, DELAY_OFFSETS):
        if path in files:
            _translated(path, files[path], remember, {})
    return wanted


def restored_config(
    files: Mapping[str, bytes],
    databases: Iterable[str],
    situation: Situation,
    *,
    queues: Mapping[str, int],
    translate: Translate,
    topics: Mapping[str, str],
    version: BrokerVersion,
    timestamp: int = 0,
) -> RestoredConfig:
    """The files of `config/` of a restored store.

    Args:
        files: The files of the source (`SourceFacts.files`); only those of `config/` count.
        databases: The folders in `config/` of the source (`SourceFacts.databases`).
        situation: How the messages come into the new store.
        queues: The number of queues (the largest queue id and 1) of each topic that has messages, by its new name.
        translate: The new offsets of consumers.
        topics: New names of topics, by their old names.
        version: The release line of the broker of the new store.
        timestamp: The time of a new `topics.json` in milliseconds.

    Raises:
        ConfigError: A file cannot be read.

    """
    new = {TOPICS: topics_json(files.get(TOPICS), queues, topics, version, timestamp)}
    notes = [f"{folder} was left out: {rule_of(f'{folder}/').reason}" for folder in databases]
    offsets, dropped = 0, Counter[str]()
    for path, data in files.items():
        rule = rule_of(path)
        treatment = rule.treatment(situation)
        if not path.startswith(f"{CONFIG}/") or path == TOPICS:
            continue
        if treatment == Treatment.LEFT_OUT:
            notes.append(f"{path} was left out: {rule.reason}")
        elif treatment == Treatment.KEPT:
            new[path] = data
        else:
            translated = _translated(path, data, translate, topics)
            new[path] = translated.content
            offsets += translated.kept
            dropped.update(translated.dropped)
    if SCHEDULE_TOPIC in queues and DELAY_OFFSETS not in new:
        notes.append(
            f"the source has no {DELAY_OFFSETS}: a broker delivers all messages in {SCHEDULE_TOPIC} again, also those "
            "that were delivered before (--only-delivered leaves them out)"
        )
    if dropped:
        notes.append(_dropped_text(dropped))
    return RestoredConfig(new, offsets, dict(dropped), tuple(notes))


def _translated(path: str, data: bytes, translate: Translate, topics: Mapping[str, str]) -> TranslatedOffsets:
    if path == DELAY_OFFSETS:
        return delay_offsets_json(data, translate)
    return consumer_offsets_json(data, translate, topics, path)


def _dropped_text(dropped: Mapping[str, int]) -> str:
    names = [f"{topic} ({count:,})" for topic, count in sorted(dropped.items())]
    more = f" and {len(names) - _MAX_TOPICS:,} more topics" if len(names) > _MAX_TOPICS else ""
    return (
        f"offsets of consumers in queues that the result does not have were left out: {', '.join(names[:_MAX_TOPICS])}"
        f"{more}"
    )
