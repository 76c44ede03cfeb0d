"""The life of a message: everything that stores have of it, in the order of time.

Nothing but look-ups: the key in the index (`life_store`), single records by their offsets, and a few units of the
broker's own queues (`life_store`). What no index file covers is read in the log. `message_life` tells of one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import is_offset_message_id
from spark_mq.format.record import Record
from spark_mq.format.system_topic import TRACE_TOPIC
from spark_mq.lifecycle.life.event import text_properties
from spark_mq.lifecycle.life.life_store import FoundMessages, LifeStore, life_store
from spark_mq.lifecycle.life.message_life import FoundMessage, MessageLife, TracedStep, message_life, traced_steps
from spark_mq.lifecycle.life.outcome import Source
from spark_mq.lifecycle.life.situation import UNIQUE_KEY, Kind
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore

DEFAULT_LIMIT = 10


@dataclass(frozen=True)
class Lives:
    """The answer of `life`.

    Attributes:
        lives: The lives of the messages, the newest message first.
        more: The number of further messages that have the key.
        has_even_more: Whether there are still more, which were not looked at.
    """

    lives: tuple[MessageLife, ...]
    more: int = 0
    has_even_more: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The answer as values that JSON can hold; times are milliseconds since the epoch."""
        return asdict(self)


def life(
    store: MessageStore | LifeStore | Mapping[str, MessageStore | LifeStore],
    key_or_id: str,
    topic: str | None = None,
    limit: int = DEFAULT_LIMIT,
    at: int | datetime | None = None,
    broker_conf: str | None = None,
    any_host: bool = False,
    trace_topic: str = TRACE_TOPIC,
) -> Lives:
    """The lives of the messages that have a key or an id.

    Args:
        store: The store, or several by the names that events give them: a message can be sent in one, and be retried
            in another.
        key_or_id: A unique key, one key of KEYS, or an offset message id.
        topic: Only messages that belong to this topic; None for all.
        limit: The largest number of messages to tell of.
        at: The time of the question: epoch milliseconds or an aware datetime; None for now, or for the
            newest time of which an archive knows the store.
        broker_conf: The file of the broker's settings, for `messageDelayLevel`, `fileReservedTime` and `deleteWhen`;
            None for those with which each store was opened.
        any_host: Whether the host of an offset message id is ignored; see `MessageStore.find_record_by_id`.
        trace_topic: The topic of trace messages.

    Raises:
        OptionError: An argument, or a setting of the broker, is not valid.

    Example:
        >>> for event in life(MessageStore("/data/store"), "7F0000010B5F18B4AAC28F1B3B6D0000").lives[0].events:
        ...     print(event.timestamp, event.text)
    """
    if not key_or_id:
        raise OptionError("the key or id is empty")
    stores = store if isinstance(store, Mapping) else {"": store}
    conf = None if broker_conf is None else BrokerConf.of(broker_conf)
    opened = {name: life_store(one) for name, one in stores.items()}
    sources = [Source(one, name, conf or one.broker_conf, one.moment(at), trace_topic) for name, one in opened.items()]
    groups: dict[object, list[FoundMessage]] = {}
    has_even_more = False
    key, record = _resolved(sources, key_or_id, any_host)
    for source in sources:
        found = _search(source, key, trace_topic)
        has_even_more |= found.has_more
        for name, one in _messages(source, found, key).items():
            groups.setdefault(name, []).append(one)
    if record is not None and isinstance(key, str):
        groups = {name: found for name, found in groups.items() if name == key}
    lives = sorted(groups.values(), key=_newest, reverse=True)
    if topic is not None:
        lives = [one for one in lives if _belongs_to(one, topic)]
    shown = tuple(message_life(one, record) for one in lives[: max(limit, 0)])
    return Lives(shown, len(lives) - len(shown), has_even_more)


def _resolved(sources: Sequence[Source], key_or_id: str, any_host: bool) -> tuple[str | Record, Record | None]:
    """What to look up, and the record that has the text as its offset message id; None if there is none.

    What to look up is the unique key of that record, or the record if it has none; else the text.
    """
    if not is_offset_message_id(key_or_id):
        return key_or_id, None
    for source in sources:
        record = source.store.find_record_by_id(key_or_id, any_host)
        if isinstance(record, Record):
            return text_properties(record).get(UNIQUE_KEY) or record, record
    return key_or_id, None


def _search(source: Source, key: str | Record, trace_topic: str) -> FoundMessages:
    if isinstance(key, Record):
        own = source.store.find_record(key.commit_log_offset)
        return FoundMessages((own,) if own == key else ())
    found = source.store.find_key(key, (trace_topic,))
    source.damage = found.damage
    return found


def _messages(source: Source, found: FoundMessages, key: str | Record) -> dict[object, FoundMessage]:
    """What was found, by message: by its unique key, or a record by its offset if it has none."""
    messages: dict[object, FoundMessage] = {}
    traces: list[TracedStep] = []
    for record in found.records:
        if source.situations.of(record).kind is Kind.TRACE:
            traces += traced_steps(record, source.name)
            continue
        name = text_properties(record).get(UNIQUE_KEY, (source.name, record.commit_log_offset))
        messages.setdefault(name, FoundMessage(source, [], [])).records.append(record)
    for traced in traces:
        if traced.unique_key in messages or traced.unique_key == key or key in traced.keys:
            messages.setdefault(traced.unique_key, FoundMessage(source, [], [])).traces.append(traced)
    return messages


def _newest(found: Sequence[FoundMessage]) -> tuple[int, int]:
    """The store time and the offset of the first record of a message: the newest message is told first."""
    firsts = [(one.records[0].store_timestamp, one.records[0].commit_log_offset) for one in found if one.records]
    return min(firsts, key=lambda first: first[0], default=(0, 0))


def _belongs_to(found: Sequence[FoundMessage], topic: str) -> bool:
    return any(
        topic in (decode_utf8(record.topic), one.source.situations.of(record).real_topic)
        for one in found
        for record in one.records
    )
