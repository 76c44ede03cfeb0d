"""Why a command found no message, for a person: what is similar, and what there is instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from spark_mq.cli.output.value_text import local_time_of
from spark_mq.similar_names import first_names, similar

if TYPE_CHECKING:
    from spark_mq.cli.messages.message_filter import MessageFilter, Selection
    from spark_mq.store.message_store import MessageStore


def why_no_match(
    store: MessageStore, topic: str, queue_id: int | None, message_filter: MessageFilter, selection: Selection
) -> str:
    """Why `print-message` found no message, as text for a person."""
    unknown = store.why_no_topic(topic) if queue_id is None else store.why_no_queue(topic, queue_id)
    if selection.read == 0:
        if unknown is not None:
            return unknown
        return f"no message was stored in the time asked for{_stored(store, topic)}"
    tags = {tag for tag in selection.tags if tag is not None}
    if message_filter.tags is not None and not message_filter.tags & tags:
        return _why_no_tag(message_filter.tags, tags, selection.read)
    if selection.read == 1:
        return "1 message was read, and it does not match"
    return f"{selection.read} messages were read, and none of them matches"


def _why_no_tag(asked: Collection[str], tags: Collection[str], read: int) -> str:
    names = " || ".join(sorted(asked))
    if not tags:
        return f"none of the {read} messages that were read has a tag"
    meant = "".join(similar(name, tags) for name in sorted(asked))
    return f"none of the {read} messages that were read has tag {names}{meant}; their tags: {first_names(tags)}"


def why_no_key(store: MessageStore, topic: str, key: str, begin: int | None, end: int | None) -> str:
    """Why `query-by-key` found no message, as text for a person."""
    reason = store.why_no_message(topic, key, begin, end)
    is_known = store.why_no_topic(topic) is None
    return f"{reason}{_made(key)}{_stored(store, topic) if is_known else ''}"


def why_no_unique_key(store: MessageStore, topic: str | None, unique_key: str) -> str:
    """Why `query-by-unique-key` found no message, as text for a person."""
    if topic is not None:
        stored = _stored(store, topic) if store.why_no_topic(topic) is None else ""
        return f"{store.why_no_unique_key(topic, unique_key)}{_made(unique_key)}{stored}"
    reason = "no topic of the store has it"
    by_id = store.why_no_offset_message_id(unique_key)
    return f"{reason}{'' if by_id is None else f'; {by_id}'}{_made(unique_key)}{_stored(store)}"


def why_no_key_or_id(store: MessageStore, topic: str | None, key_or_id: str) -> str:
    """Why `life` found no message, as text for a person."""
    unknown = None if topic is None else store.why_no_topic(topic)
    expired = None if topic is None else store.index.expired_timestamp(topic, key_or_id)
    if expired is not None:
        return store.why_no_message(topic or "", key_or_id)
    reason = unknown or why_no_unique_key(store, None, key_or_id)
    return reason if topic is None or unknown else f"{reason}; only messages of topic {topic} were asked for"


def _made(unique_key: str) -> str:
    """The time that a unique key contains. It is only a hint: the key does not contain the month or the zone."""
    from spark_mq.format.message_id import unique_key_time

    time = unique_key_time(unique_key)
    if time is None:
        return ""
    hours, seconds = divmod(time.seconds, 3600)
    moment = f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    return f"; by the client's clock, it was made on day {time.days + 1} of a month, at {moment}"


def _stored(store: MessageStore, topic: str | None = None) -> str:
    times = store.stored_times(topic)
    if times is None:
        return ""
    whose = "the store's messages" if topic is None else f"the messages of {topic}"
    return f"; {whose} were stored from {local_time_of(times[0])} to {local_time_of(times[1])}"
