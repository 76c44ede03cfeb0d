"""The files of `config/` of a restored store: which are kept, which are translated, and which a broker has to make.

Pure functions: bytes in, bytes out. Files keep the form of the broker that wrote them: names, order, and fields that
this package does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spark_mq.errors import ConfigError
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from spark_mq.restorer.fastjson_text import fastjson_text
from spark_mq.store.config.broker_version import BrokerVersion
from spark_mq.store.config.config_file import as_integer, parse_fastjson

TOPICS = "config/topics.json"
CONSUMER_OFFSETS = "config/consumerOffset.json"
LMQ_CONSUMER_OFFSETS = "config/lmqConsumerOffset.json"
DELAY_OFFSETS = "config/delayOffset.json"

Translate = Callable[[str, int, int], int | None]
"""The new queue offset for a topic (its old name), a queue id and an old queue offset; None if the result has no such
queue."""

_GROUP_MARK = "@"
_DEFAULT_QUEUES = 8
_READ_AND_WRITE = 6
_ONE_QUEUE = ("%RETRY%", "%DLQ%", "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
"""Beginnings of topics that a broker makes with one queue (`AbstractSendMessageProcessor.consumerSendMsgBack`,
`TopicConfigManager.createTopicOfTranCheckMaxTime`@5.3.3; the same in 4.9.7)."""

_MADE_AT_BOOT = frozenset(
    {
        "SELF_TEST_TOPIC",
        "TBW102",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
    }
)
_MADE_AT_BOOT_BY_5 = ("rmq_sys_",)
"""Topics that a broker adds to its table at each boot (`TopicConfigManager.init`@5.3.3, `TopicConfigManager`@4.9.7,
`TransactionalMessageBridge.selectTopicConfig`@4.9.7). A broker of 5.x makes its own topics with the prefix `rmq_sys_`:
those of the timers, of pop consumption and of its group."""


class Situation(StrEnum):
    """How the messages of a source come into the new store."""

    WHOLE = "whole"
    """All messages of a store directory, with their offsets."""
    PARTIAL = "partial"
    """Messages of an archive, or a part of the messages of a store directory, with their offsets."""
    RENUMBERED = "renumbered"
    """Messages with new offsets."""


class Treatment(StrEnum):
    """What becomes of a file."""

    KEPT = "kept"
    """The bytes of the source."""
    TRANSLATED = "translated"
    """The content of the source, as far as it fits the result; new offsets and topics instead of the old ones."""
    LEFT_OUT = "left out"
    """The new store does not have the file."""


@dataclass(frozen=True)
class FileRule:
    """What becomes of a file, or of a folder, of the source.

    Attributes:
        path: The path in the store; a folder ends with a slash.
        whole: The treatment in situation WHOLE.
        partial: The treatment in situation PARTIAL.
        renumbered: The treatment in situation RENUMBERED.
        reason: Why, and what a broker does without the file.

    """

    path: str
    whole: Treatment
    partial: Treatment
    renumbered: Treatment
    reason: str

    def treatment(self, situation: Situation) -> Treatment:
        """The treatment in a situation."""
        return {
            Situation.WHOLE: self.whole,
            Situation.PARTIAL: self.partial,
            Situation.RENUMBERED: self.renumbered,
        }[situation]


_KEPT, _TRANSLATED, _LEFT_OUT = Treatment.KEPT, Treatment.TRANSLATED, Treatment.LEFT_OUT

_TIMERS = (
    "it leads to timer messages by their commit log offsets; a left-out record there would stop all timers "
    "(TimerDequeuePutMessageService). Without it a broker of 5.x reads the timer messages of the log again: one whose "
    "time has passed is delivered at once, also if it was delivered before (--only-delivered leaves them out)"
)
_DATABASE = (
    "it is a RocksDB database, which is not read here. The new store has topics.json only; export the database with "
    "mqadmin rocksDBConfigToJson to have consumers' offsets and groups"
)

FILE_RULES = (
    FileRule(TOPICS, _TRANSLATED, _TRANSLATED, _TRANSLATED, "topics that lack an entry are added"),
    FileRule("config/subscriptionGroup.json", _KEPT, _KEPT, _KEPT, "it names neither offsets nor topics"),
    FileRule(
        "config/consumerFilter.json",
        _KEPT,
        _KEPT,
        _KEPT,
        "it has filters of groups, without offsets; renamed topics have their old names in it",
    ),
    FileRule(
        "config/messageRequestMode.json",
        _KEPT,
        _KEPT,
        _KEPT,
        "it has pull or pop modes of groups, without offsets; renamed topics have their old names in it",
    ),
    FileRule(
        CONSUMER_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "offsets in queues that the result does not have are left out: a group begins there as a new group does",
    ),
    FileRule(
        LMQ_CONSUMER_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "as consumerOffset.json; offsets in LMQ queues stay, because messages name their places in them",
    ),
    FileRule(
        DELAY_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "without the offset of a level, a broker delivers all delayed messages of the level again",
    ),
    FileRule(
        "config/topicQueueMapping.json",
        _KEPT,
        _KEPT,
        _LEFT_OUT,
        "it maps queue offsets of static topics to offsets of this broker's queues, which are new. Without it the "
        "topics are ordinary ones",
    ),
    FileRule(
        "config/consumerOrderInfo.json",
        _KEPT,
        _KEPT,
        _LEFT_OUT,
        "it has queue offsets of messages that ordered pop consumers have not acknowledged. Without it they are "
        "delivered again",
    ),
    FileRule(
        "config/transactionMetrics",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it counts half messages, which can be others now. A broker counts from 0; nothing else uses the numbers",
    ),
    FileRule(
        "config/tieredStoreMetadata.json",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it says which messages are in tiered storage. Without it a broker uploads messages again",
    ),
    FileRule("config/timercheck", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule("timerwheel", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule("timerlog/", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule(
        "config/timermetrics",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it counts waiting timer messages. A broker counts them again when it reads them",
    ),
    FileRule(
        "compaction/",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it has compacted copies of messages with their offsets. Without it a broker with enableCompaction compacts, "
        "and serves, only new messages of topics with cleanup.policy=COMPACTION",
    ),
    FileRule(
        "batchconsumequeue/",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it has the queues of topics with queue.type=BatchCQ, which are not built here. A broker builds them if the "
        "store has a file abort and neither checkpoint nor queues",
    ),
    FileRule(
        "consumequeue_ext/",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "units of rebuilt queues have tags codes, and lead to no extension",
    ),
    FileRule(
        "epochFileCheckpoint",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it is the history of masters in a replica group (controller mode), of which a restored store is not a replica",
    ),
    FileRule(
        "brokerIdentity",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it is a replica's name in controller mode, which two brokers must not have. A broker registers again",
    ),
    FileRule("config/topics/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/subscriptionGroups/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/consumerOffsets/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/rdb/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
)
"""What becomes of each file and folder, except those that the job makes: commit log, queues, index and checkpoint, and
except `abort` and `lock`, which a broker makes for itself."""

_RULES = {rule.path: rule for rule in FILE_RULES}


def rule_of(path: str) -> FileRule | None:
    """The rule for a file of the source; None if this package does not know the file.

    Example:
        >>> rule_of("config/timercheck").treatment(Situation.RENUMBERED)
        <Treatment.LEFT_OUT: 'left out'>

    """
    folder = "/".join(path.split("/")[: 2 if path.startswith("config/") else 1]) + "/"
    return _RULES.get(path) or _RULES.get(folder)


def kept_paths(situation: Situation) -> list[str]:
    """The files and folders that the new store has as they are in the source."""
    return [rule.path for rule in FILE_RULES if rule.treatment(situation) == Treatment.KEPT]


@dataclass(frozen=True)
class TranslatedOffsets:
    """Offsets of consumers, or of delay levels, in the new store.

    Attributes:
        content: The file.
        kept: The number of offsets in it.
        dropped: The number of offsets that were left out, because the result has no such queue, by topic.

    """

    content: bytes
    kept: int
    dropped: Mapping[str, int]


def topics_json(
    existing: bytes | None,
    queues: Mapping[str, int],
    topics: Mapping[str, str],
    version: BrokerVersion,
    timestamp: int = 0,
) -> bytes:
    """The file `config/topics.json` of the new store.

    Existing topics stay as they are, with their new names; a topic that gets the messages of another one has enough
    queues to read. Topics that have messages, but no entry, are added: a broker refuses to serve them otherwise. Their
    number of queues is 8, or more if a message is in a queue after these; 1 for retry topics and dead letter topics.
    Topics that a broker makes at its boot are not added.

    Args:
        existing: The file of the source; None if there is none.
        queues: The number of queues (the largest queue id and 1) of each topic that has messages, by its new name.
        topics: New names of topics, by their old names.
        version: The release line of the broker.
        timestamp: The time of a new file in milliseconds. A file with other topics than before has another version, so
            that name servers take it over.

    Raises:
        ConfigError: The existing file cannot be read.

    Example:
        >>> print(topics_json(None, {"orders": 4}, {}, BrokerVersion.V4_9).decode()[:60])
        {
                "dataVersion":{
                        "counter":0,
                        "timestamp":0
                },
                "topic

    """
    content = _object_of(existing, TOPICS)
    table = _object_in(content, "topicConfigTable", TOPICS)
    renamed: dict[str, object] = {}
    for name, entry in table.items():
        new_name = topics.get(name, name)
        if new_name in renamed and name != new_name:
            continue  # two topics become one; the entry of the topic that had the name counts
        renamed[new_name] = entry if new_name == name else _named(entry, new_name)
    for name, count in queues.items():
        if name not in renamed and not _is_made_at_boot(name, version):
            renamed[name] = _new_topic(name, count, version)
        elif name in topics.values():
            renamed[name] = _with_queues(renamed[name], count)
    data_version = _data_version(content.get("dataVersion"), version, timestamp, is_changed=renamed != table)
    new = {**content, "dataVersion": data_version, "topicConfigTable": renamed}
    return existing if existing is not None and new == content else fastjson_text(new).encode()


def consumer_offsets_json(
    existing: bytes, translate: Translate, topics: Mapping[str, str] | None = None, path: str = CONSUMER_OFFSETS
) -> TranslatedOffsets:
    """The file `config/consumerOffset.json` of the new store; also `lmqConsumerOffset.json`, which has the same form.

    If two topics become one, a group continues at the smaller one of its two offsets, so that it misses no message.

    Args:
        existing: The file of the source.
        translate: The new offset for topic, queue id and offset of the source.
        topics: New names of topics, by their old names.
        path: The path of the file, for error messages.

    Raises:
        ConfigError: The existing file cannot be read.

    """
    content, names = _object_of(existing, path), topics or {}
    kept: dict[str, dict[int, int]] = {}
    dropped: Counter[str] = Counter()
    for topic_and_group, offsets in _object_in(content, "offsetTable", path).items():
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
        existing: The file of the source.
        translate: The new offset for topic (that of delayed messages), queue id and offset of the source.
        path: The path of the file, for error messages.

    Raises:
        ConfigError: The existing file cannot be read.

    """
    content = _object_of(existing, path)
    kept: dict[int, int] = {}
    dropped = 0
    for level, offset in _numbers(_object_in(content, "offsetTable", path), path).items():
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


def _object_of(data: bytes | None, path: str) -> dict[str, Any]:
    """The JSON object that a file contains; an empty one if there is no file."""
    if data is None:
        return {}
    try:
        content = parse_fastjson(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it cannot be read: {error}. Put a readable copy in its place") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it does not contain a JSON object. Put a readable copy in its place")
    return content


def _object_in(content: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    table = content.get(name) or {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is not a JSON object. Put a readable copy in its place")
    return table


def _data_version(existing: object, version: BrokerVersion, timestamp: int, *, is_changed: bool) -> dict[str, object]:
    """The version of a file (`DataVersion`@5.3.3). Only a file of 5.x has a `stateVersion`."""
    new: dict[str, object] = {"counter": 0, "stateVersion": 0, "timestamp": timestamp}
    if isinstance(existing, dict) and isinstance(existing.get("counter"), int):
        values = {**existing, "counter": existing["counter"] + is_changed}
        new = {**{name: values.get(name, new[name]) for name in new}, **values}
    if version == BrokerVersion.V4_9:
        del new["stateVersion"]
    return new


def _named(entry: object, name: str) -> object:
    return {**entry, "topicName": name} if isinstance(entry, dict) else entry


def _with_queues(entry: object, count: int) -> object:
    """The entry with at least `count` queues to read: a broker serves no message in a queue after them."""
    if isinstance(entry, dict) and isinstance(entry.get("readQueueNums"), int) and entry["readQueueNums"] < count:
        return {**entry, "readQueueNums": count}
    return entry


def _new_topic(name: str, count: int, version: BrokerVersion) -> dict[str, object]:
    """The entry of a topic as a broker makes it (`TopicConfig`@5.3.3)."""
    queues = max(count, 1 if name.startswith(_ONE_QUEUE) else _DEFAULT_QUEUES)
    entry: dict[str, object] = {
        "attributes": {},
        "order": False,
        "perm": _READ_AND_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
    if version == BrokerVersion.V4_9:
        del entry["attributes"]
    return entry


def _is_made_at_boot(name: str, version: BrokerVersion) -> bool:
    return name in _MADE_AT_BOOT or (version != BrokerVersion.V4_9 and name.startswith(_MADE_AT_BOOT_BY_5))
