"""What becomes of each file of the source in a new store, and the new `topics.json`; `offset_files` has the offsets.

Pure functions: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spark_mq.format.broker_version import OWN_SYSTEM_TOPICS, STATE_VERSION, TOPIC_ATTRIBUTES, BrokerVersions
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from spark_mq.io.rocksdb import REMEDY
from spark_mq.store.config.epochs import EPOCH_FILE
from spark_mq.store.config.offset_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    LMQ_CONSUMER_OFFSETS,
    fastjson_text,
    object_in,
    object_of,
)

TOPICS = "config/topics.json"

_DEFAULT_QUEUES = 8
_READ_AND_WRITE = 6
_ONE_QUEUE = ("%RETRY%", "%DLQ%", "RMQ_SYS_TRACE_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
"""Beginnings of topics that a broker makes with one queue (`AbstractSendMessageProcessor.consumerSendMsgBack`,
`TopicConfigManager.createTopicOfTranCheckMaxTime`@5.3.3; the same in 4.9.7)."""

_MADE_AT_BOOT = frozenset(
    {"SELF_TEST_TOPIC", "TBW102", "BenchmarkTest", "OFFSET_MOVED_EVENT", SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC}
)
_MADE_AT_BOOT_BY_5 = ("rmq_sys_",)
"""Topics that a broker adds to its table at each boot (`TopicConfigManager.init`@5.3.3, `TopicConfigManager`@4.9.7,
`TransactionalMessageBridge.selectTopicConfig`@4.9.7). A broker of 5.x makes its own topics with the prefix `rmq_sys_`:
those of the timers, of pop consumption and of its group."""


class CopyType(StrEnum):
    """What a new store is, compared with its source."""

    WHOLE = "whole"
    """All messages of a store directory, with their offsets."""
    PARTIAL = "partial"
    """Messages of an archive, or a part of the messages of a store directory, with their offsets."""
    RENUMBERED = "renumbered"
    """Messages with new offsets."""


@dataclass(frozen=True)
class FileRule:
    """Which copies have a file of the source, or a folder, whose path ends with a slash; and why others lack it."""

    path: str
    copies: tuple[CopyType, ...]
    reason: str


def _rules(copies: tuple[CopyType, ...], reasons: dict[str, str]) -> Iterator[FileRule]:
    return (FileRule(path, copies, reason) for path, reason in reasons.items())


_ALL = tuple(CopyType)

_TIMERS = (
    "it leads to timer messages by their commit log offsets; a left-out record there would stop all timers "
    "(TimerDequeuePutMessageService). Without it a broker of 5.x reads the timer messages of the log again: one whose "
    "time has passed is delivered at once, also if it was delivered before (--only-delivered leaves them out)"
)
_DATABASE = (
    "it is a RocksDB database, which is not read. The new store has topics.json only; to have consumers' offsets and "
    f"groups, {REMEDY}, or export the database with mqadmin rocksDBConfigToJson"
)
_RIGHTS = (
    "it is a RocksDB database of users or their rights (ACL 2.0). Copy the folder while no broker runs, or make them "
    "again with mqadmin createUser and createAcl"
)

FILE_RULES = (
    *_rules(
        _ALL,
        {
            TOPICS: "topics that lack an entry are added",
            CONSUMER_OFFSETS: (
                "offsets in queues that the result does not have are left out: a group begins there as a new group does"
            ),
            LMQ_CONSUMER_OFFSETS: (
                "as consumerOffset.json; offsets in LMQ queues stay, because messages name their places in them"
            ),
            DELAY_OFFSETS: "without the offset of a level, a broker delivers all delayed messages of the level again",
            "config/subscriptionGroup.json": "it names neither offsets nor topics",
            "config/consumerFilter.json": (
                "it has filters of groups, without offsets; renamed topics have their old names in it"
            ),
            "config/messageRequestMode.json": (
                "it has pull or pop modes of groups, without offsets; renamed topics have their old names in it"
            ),
        },
    ),
    *_rules(
        _ALL[:2],
        {
            "config/topicQueueMapping.json": (
                "it maps queue offsets of static topics to offsets of this broker's queues, which are new. Without "
                "it the topics are ordinary ones"
            ),
            "config/consumerOrderInfo.json": (
                "it has queue offsets of messages that ordered pop consumers have not acknowledged. Without it they "
                "are delivered again"
            ),
        },
    ),
    *_rules(
        _ALL[:1],
        {
            "config/transactionMetrics": (
                "it counts half messages, which can be others now. A broker counts from 0; nothing else uses the "
                "numbers"
            ),
            "config/tieredStoreMetadata.json": (
                "it says which messages are in tiered storage. Without it a broker uploads messages again"
            ),
            "config/timercheck": _TIMERS,
            "timerwheel": _TIMERS,
            "timerlog/": _TIMERS,
            "config/timermetrics": "it counts waiting timer messages. A broker counts them again when it reads them",
            "compaction/": (
                "it has compacted copies of messages with their offsets. Without it a broker with enableCompaction "
                "compacts, and serves, only new messages of topics with cleanup.policy=COMPACTION"
            ),
        },
    ),
    *_rules(
        (),
        {
            "consumequeue_ext/": "units of rebuilt queues have tags codes, and lead to no extension",
            EPOCH_FILE: (
                "it is the history of masters in a replica group (controller mode), of which a restored store is "
                "not a replica"
            ),
            "brokerIdentity": (
                "it is a replica's name in controller mode, which two brokers must not have. A broker registers again"
            ),
            "config/topics/": _DATABASE,
            "config/subscriptionGroups/": _DATABASE,
            "config/consumerOffsets/": _DATABASE,
            "config/rdb/": _DATABASE,
            "config/metadata/": _DATABASE,
            "config/users/": _RIGHTS,
            "config/acls/": _RIGHTS,
        },
    ),
)
"""The rules for all files and folders, except those that the job makes: commit log, queues, index and checkpoint, and
except `abort` and `lock`, which a broker makes for itself. In a copy, `topics.json` and files of offsets have new
topics and offsets instead of the old ones; other files have the bytes of the source."""

_RULES = {rule.path: rule for rule in FILE_RULES}


def rule_of(path: str) -> FileRule | None:
    """The rule for a file of the source; None if this package does not know the file."""
    folder = "/".join(path.split("/")[: 2 if path.startswith("config/") else 1]) + "/"
    return _RULES.get(path) or _RULES.get(folder)


def topics_json(
    existing: bytes | None,
    queues: Mapping[str, int],
    topics: Mapping[str, str],
    versions: BrokerVersions,
    timestamp: int = 0,
    appended: Mapping[str, int] | None = None,
) -> bytes:
    """The file `config/topics.json` of the new store.

    Existing topics stay as they are, with their new names; a topic that gets the messages of another one, or appended
    ones, has enough queues to read. Topics that have messages, but no entry, are added: a broker refuses to serve them
    otherwise. Their number of queues is 8, or more if a message is in a queue after these; 1 for retry topics and dead
    letter topics. Topics that a broker makes at its boot are not added.

    Args:
        versions: The versions of the broker; where they differ, the newer form is written, which all can read.
        timestamp: The time of a new file in milliseconds. A file with other topics than before has another version, so
            that name servers take it over.
        appended: The largest queue id and 1 of the messages that each topic gets.
    """
    content = object_of(existing, TOPICS)
    table = object_in(content, "topicConfigTable", TOPICS)
    renamed: dict[str, object] = {}
    for name, entry in table.items():
        new_name = topics.get(name, name)
        if new_name in renamed and name != new_name:
            continue  # two topics become one; the entry of the topic that had the name counts
        is_same = new_name == name or not isinstance(entry, dict)
        renamed[new_name] = entry if is_same else {**entry, "topicName": new_name}
    at_boot = () if versions.decide(OWN_SYSTEM_TOPICS) is False else _MADE_AT_BOOT_BY_5
    for name, count in queues.items():
        entry = renamed.get(name)
        if name not in renamed and not (name in _MADE_AT_BOOT or name.startswith(at_boot)):
            renamed[name] = _new_topic(name, count, versions)
        elif isinstance(entry, dict) and isinstance(entry.get("readQueueNums"), int):
            # A broker serves no message in a queue after these.
            used = count if name in topics.values() else (appended or {}).get(name, 0)
            renamed[name] = {**entry, "readQueueNums": max(entry["readQueueNums"], used)}
    data_version = _data_version(content.get("dataVersion"), versions, timestamp, is_changed=renamed != table)
    new = {**content, "dataVersion": data_version, "topicConfigTable": renamed}
    return existing if existing is not None and new == content else fastjson_text(new).encode()


def default_queues(topic: str) -> int:
    """The number of queues that a broker gives a new topic."""
    return 1 if topic.startswith(_ONE_QUEUE) else _DEFAULT_QUEUES


def _data_version(existing: object, versions: BrokerVersions, timestamp: int, *, is_changed: bool) -> dict[str, object]:
    """The version of a file (`DataVersion`@5.3.3). Only a file of 5.x has a `stateVersion`."""
    new: dict[str, object] = {"counter": 0, "stateVersion": 0, "timestamp": timestamp}
    if isinstance(existing, dict) and isinstance(existing.get("counter"), int):
        values = {**existing, "counter": existing["counter"] + is_changed}
        new = {**{name: values.get(name, new[name]) for name in new}, **values}
    if versions.decide(STATE_VERSION) is False:
        del new["stateVersion"]
    return new


def _new_topic(name: str, count: int, versions: BrokerVersions) -> dict[str, object]:
    """The entry of a topic as a broker makes it (`TopicConfig`@5.3.3)."""
    queues = max(count, default_queues(name))
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
    if versions.decide(TOPIC_ATTRIBUTES) is False:
        del entry["attributes"]
    return entry
