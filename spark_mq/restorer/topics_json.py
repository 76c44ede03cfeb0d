"""The file `config/topics.json` of a restored store.

Pure functions: bytes in, bytes out. The file keeps the form of the broker that wrote it: names, order, and fields that
this package does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.format.broker_version import OWN_SYSTEM_TOPICS, STATE_VERSION, TOPIC_ATTRIBUTES, BrokerVersions
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from spark_mq.restorer.config_content import object_in, object_of
from spark_mq.restorer.fastjson_text import fastjson_text

TOPICS = "config/topics.json"

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


def topics_json(
    existing: bytes | None,
    queues: Mapping[str, int],
    topics: Mapping[str, str],
    versions: BrokerVersions,
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
        versions: The versions of the broker; where they differ, the newer form is written, which all can read.
        timestamp: The time of a new file in milliseconds. A file with other topics than before has another version, so
            that name servers take it over.
    """
    content = object_of(existing, TOPICS)
    table = object_in(content, "topicConfigTable", TOPICS)
    renamed: dict[str, object] = {}
    for name, entry in table.items():
        new_name = topics.get(name, name)
        if new_name in renamed and name != new_name:
            continue  # two topics become one; the entry of the topic that had the name counts
        renamed[new_name] = entry if new_name == name else _named(entry, new_name)
    for name, count in queues.items():
        if name not in renamed and not _is_made_at_boot(name, versions):
            renamed[name] = _new_topic(name, count, versions)
        elif name in topics.values():
            renamed[name] = _with_queues(renamed[name], count)
    data_version = _data_version(content.get("dataVersion"), versions, timestamp, is_changed=renamed != table)
    new = {**content, "dataVersion": data_version, "topicConfigTable": renamed}
    return existing if existing is not None and new == content else fastjson_text(new).encode()


def _data_version(existing: object, versions: BrokerVersions, timestamp: int, *, is_changed: bool) -> dict[str, object]:
    """The version of a file (`DataVersion`@5.3.3). Only a file of 5.x has a `stateVersion`."""
    new: dict[str, object] = {"counter": 0, "stateVersion": 0, "timestamp": timestamp}
    if isinstance(existing, dict) and isinstance(existing.get("counter"), int):
        values = {**existing, "counter": existing["counter"] + is_changed}
        new = {**{name: values.get(name, new[name]) for name in new}, **values}
    if versions.decide(STATE_VERSION) is False:
        del new["stateVersion"]
    return new


def _named(entry: object, name: str) -> object:
    return {**entry, "topicName": name} if isinstance(entry, dict) else entry


def _with_queues(entry: object, count: int) -> object:
    """The entry with at least `count` queues to read: a broker serves no message in a queue after them."""
    if isinstance(entry, dict) and isinstance(entry.get("readQueueNums"), int) and entry["readQueueNums"] < count:
        return {**entry, "readQueueNums": count}
    return entry


def _new_topic(name: str, count: int, versions: BrokerVersions) -> dict[str, object]:
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
    if versions.decide(TOPIC_ATTRIBUTES) is False:
        del entry["attributes"]
    return entry


def _is_made_at_boot(name: str, versions: BrokerVersions) -> bool:
    makes_own = versions.decide(OWN_SYSTEM_TOPICS) is not False
    return name in _MADE_AT_BOOT or (makes_own and name.startswith(_MADE_AT_BOOT_BY_5))
