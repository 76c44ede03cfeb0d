"""The options of a read of a live cluster, and their parser."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_mq.errors import OptionError, similar
from spark_mq.format.consume_queue import Queue
from spark_mq.format.system_topic import SCHEDULE_TOPIC, TIMER_TOPIC, is_system_topic
from spark_mq.remoting.access import Credentials, Tls
from spark_mq.remoting.client import PULL_GROUP, ClientSettings, parse_name_servers
from spark_mq.remoting.pull import ALL_MESSAGES, Subscription
from spark_mq.source.options import (
    EARLIEST,
    LATEST,
    ReadOptions,
    named_options,
    parse_boolean,
    parse_choice,
    parse_optional_integer,
    parse_optional_size,
    parse_optional_timestamp,
    parse_options,
)
from spark_mq.source.predicate import Condition, Predicate, decode_conditions
from spark_mq.tables.live import (
    CLUSTER_OPTIONS,
    LIVE_READ_OPTIONS_OF_STREAMS,
    LIVE_STREAM_OPTIONS,
    LIVE_TABLES,
    live_options,
)
from spark_mq.tables.messages import MESSAGES

COMMITTED = "committed"
STREAM_PATIENCE = 60.0
"""Seconds for which a stream waits for a broker that does not answer, such as one that starts again."""
_PULLS_AT_ONCE = 8
_CLUSTER = tuple(option.name for option in CLUSTER_OPTIONS)
_STREAM_ONLY = tuple(option.name for option in LIVE_STREAM_OPTIONS)
_OTHER_TAGS_CODES = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics whose tags codes are not those of tags, so that a broker cannot select messages by tags."""
_OWN = ("topic", "topicPattern", "queueStarts", "pullsAtOnce", "maxBytesPerSecond", "failOnDataLoss")
"""Options of messages that a store does not have, or has with another meaning."""


@dataclass(frozen=True)
class LiveOptions:
    """The options of a batch read.

    Attributes:
        read: The options that a store has, too.
        topics: The topics that are named; None if a pattern or an offset message id selects messages.
        topic_pattern: Topics whose whole name matches; None if topics are named.
        sql92: The text of the filter that a broker is asked to apply; None for none.
        conditions: Those of a query in SQL, which must lose no row by them; None for a read that has none.
        queue_starts: The first queue offset of queues that are not read from their first message on.
    """

    client: ClientSettings
    read: ReadOptions
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    sql92: str | None = None
    from_slave: bool = False
    pulls_at_once: int = _PULLS_AT_ONCE
    max_bytes_per_second: int | None = None
    fail_on_data_loss: bool = True
    conditions: tuple[Condition, ...] | None = None
    queue_starts: Mapping[Queue, int] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.read.table

    def selects(self, topic: str) -> bool:
        """Whether messages of a topic are read. A pattern never selects a topic of the system."""
        if self.topics is not None:
            return topic in self.topics
        if self.topic_pattern is None or is_system_topic(topic):
            return self.topic_pattern is None
        return re.fullmatch(self.topic_pattern, topic) is not None

    def subscription(self, topic: str) -> Subscription:
        """Which messages a broker is asked for. Rows are checked again, so these can be more than the options say."""
        if topic in _OTHER_TAGS_CODES:
            return ALL_MESSAGES
        tags = self.read.predicate.tags
        if tags and not any(not tag.strip() or "|" in tag or tag != tag.strip() for tag in tags):
            return Subscription(" || ".join(sorted(tags)))
        return ALL_MESSAGES if self.sql92 is None else Subscription(self.sql92, "SQL92")


def parse_live_options(options: Mapping[str, str]) -> LiveOptions:
    """The options of a batch read. Raises `OptionError` if one is unknown, has an invalid value, or has no effect."""
    table = parse_choice("table", _table(options), tuple(LIVE_TABLES))
    given = given_options(options, f"table {table}", [option.name for option in live_options(table)])
    shared = {name: value for name, value in given.items() if name not in _CLUSTER and name not in _OWN}
    topics = _parse_topics(given)
    if table == "route":
        read = ReadOptions(given["path"], table)
    else:
        one = {"topic": topics[0]} if topics is not None and len(topics) == 1 else {}
        read = parse_options(shared | one)
    if topics is not None and len(topics) > 1:
        read = replace(read, predicate=read.predicate & Predicate(topics=frozenset(topics)))
    conditions = tuple(decode_conditions(given["conditions"])) if "conditions" in given else None
    if conditions is not None and read.predicate.topics is not None:
        topics = tuple(sorted(read.predicate.topics))
    if (
        table == MESSAGES.name
        and topics is None
        and "topicPattern" not in given
        and conditions is None
        and read.predicate.offset_message_ids is None
    ):
        raise OptionError("a live cluster is read by topic: give option topic (a, or a,b), or topicPattern")
    return LiveOptions(
        client_settings(given),
        read,
        topics,
        _parse_pattern(given, topics),
        given.get("filter"),
        parse_choice("readFrom", given.get("readFrom", "master").lower(), ("master", "slave")) == "slave",
        parse_optional_integer("pullsAtOnce", given, 1) or _PULLS_AT_ONCE,
        parse_optional_size("maxBytesPerSecond", given),
        parse_boolean("failOnDataLoss", given, default=True),
        conditions,
        _parse_queue_starts(given),
    )


@dataclass(frozen=True)
class LiveStreamOptions:
    """The options of a stream.

    Attributes:
        starting_offsets: EARLIEST, LATEST or COMMITTED.
        starting_timestamp: The store time of the first message, in milliseconds; None for `starting_offsets`.
        consumer_group: The group that COMMITTED means.
        commit_group: The group whose offsets are set after each batch; None for no group.
    """

    read: LiveOptions
    starting_offsets: str = EARLIEST
    starting_timestamp: int | None = None
    consumer_group: str | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    commit_group: str | None = None


def parse_live_stream_options(options: Mapping[str, str]) -> LiveStreamOptions:
    """The options of a stream of a live cluster; see `parse_live_options`."""
    table = _table(options)
    if table != MESSAGES.name:
        raise OptionError(f"table {table} of a live cluster cannot be streamed, only {MESSAGES.name}")
    given = given_options(
        options, table, [option.name for option in (*LIVE_READ_OPTIONS_OF_STREAMS, *LIVE_STREAM_OPTIONS)]
    )
    batch = parse_live_options({name: value for name, value in given.items() if name not in _STREAM_ONLY})
    starting = parse_choice(
        "startingOffsets", given.get("startingOffsets", EARLIEST).lower(), (EARLIEST, LATEST, COMMITTED)
    )
    group, timestamp = given.get("consumerGroup"), parse_optional_timestamp("startingTimestamp", given)
    if timestamp is not None and "startingOffsets" in given:
        raise OptionError("options startingOffsets and startingTimestamp both give a start of the stream: give one")
    if (group is None) == (starting == COMMITTED):
        raise OptionError("options startingOffsets=committed and consumerGroup belong together: give both")
    return LiveStreamOptions(
        replace(batch, client=replace(batch.client, patience=STREAM_PATIENCE)),
        starting,
        timestamp,
        group,
        parse_optional_integer("maxMessagesPerTrigger", given, 1),
        parse_optional_size("maxBytesPerTrigger", given),
        given.get("commitOffsets"),
    )


def parse_live_table(options: Mapping[str, str]) -> str:
    """The table of a batch read or a stream. Raises the errors of the parser of that."""
    table = _table(options)
    batch_names = {option.name.lower() for option in live_options(table)} if table in LIVE_TABLES else set()
    stream_names = {name.lower() for name in _STREAM_ONLY} - batch_names
    if any(key.lower() in stream_names for key in options):
        return parse_live_stream_options(options).read.table
    return parse_live_options(options).table


def _table(options: Mapping[str, str]) -> str:
    return next((value for key, value in options.items() if key.lower() == "table"), MESSAGES.name).lower()


def given_options(options: Mapping[str, str], what: str, own: Sequence[str]) -> dict[str, str]:
    """The options by their names; `own` are those that `what` has, and not everything of a live cluster."""
    names = ["path", "table", *_CLUSTER, *own]
    has = f"It has {', '.join(names)}"
    return named_options(
        options,
        names,
        lambda key: f"option {key} has no effect on {what} of a live cluster{similar(key, names)}. {has}",
    )


def _parse_topics(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if "topic" not in given:
        return None
    topics = tuple(dict.fromkeys(topic.strip() for topic in given["topic"].split(",") if topic.strip()))
    if not topics:
        raise OptionError(f"option topic={given['topic']!r} names no topic: give one, or several as a,b")
    return topics


def _parse_pattern(given: Mapping[str, str], topics: tuple[str, ...] | None) -> str | None:
    pattern = given.get("topicPattern")
    if pattern is None:
        return None
    if topics is not None:
        raise OptionError("options topic and topicPattern both select topics: give one")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"option topicPattern={pattern!r} is not a regular expression: {error}") from error
    return pattern


def _parse_queue_starts(given: Mapping[str, str]) -> dict[Queue, int]:
    text = given.get("queueStarts", "{}")
    try:
        return {
            (topic, int(queue_id)): operator.index(offset)
            for topic, queues in json.loads(text).items()
            for queue_id, offset in queues.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionError(f'option queueStarts={text!r} is not JSON as in {{"orders": {{"0": 1200}}}}') from error


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """How the cluster is reached; the options are by their names."""
    text = given.get("requestTimeout", "10")
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text) or not float(text):
        raise OptionError(f"option requestTimeout={text!r} is not a number of seconds, such as 10")
    servers, group = parse_name_servers(given["path"]), given.get("pullGroup", PULL_GROUP)
    if not group:
        raise OptionError("option pullGroup is empty: name a consumer group, or leave the option out")
    return ClientSettings(servers, float(text), _credentials(given), _tls(given), pull_group=group)


def _credentials(given: Mapping[str, str]) -> Credentials | None:
    access, secret, token = (given.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if access is None and secret is None and token is None:
        return None
    if access is None or secret is None:
        raise OptionError("options accessKey and secretKey belong together: give both")
    return Credentials(access, secret, token)


def _tls(given: Mapping[str, str]) -> Tls | None:
    files = {name: given.get(name) for name in ("tlsCa", "tlsCertificate", "tlsKey")}
    if not parse_boolean("tls", given):
        for name in ("tlsVerify", *(name for name, file in files.items() if file is not None)):
            if name in given:
                raise OptionError(f"option {name} has no effect without tls=true")
        return None
    if files["tlsKey"] is not None and files["tlsCertificate"] is None:
        raise OptionError("option tlsKey is the key of tlsCertificate: give that, too")
    return Tls(
        files["tlsCa"], files["tlsCertificate"], files["tlsKey"], parse_boolean("tlsVerify", given, default=True)
    )
