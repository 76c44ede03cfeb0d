"""The pops of all messages of some topics, by one read of the log."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.lifecycle.consumption.popped_messages import NOTE_TAGS, PoppedMessages, parse_pop_note
from spark_mq.lifecycle.consumption.retry_topic import RETRY_PREFIX
from spark_mq.lifecycle.messages.log_source import LogSource
from spark_mq.lifecycle.messages.selected_messages import Selection, TopicRule
from spark_mq.lifecycle.messages.sound_messages import SOUND_COLUMNS, sound_messages
from spark_mq.store.log.corrupt_range import CorruptRange

NOTES = Selection(
    TopicRule(names=frozenset({TIMER_TOPIC}), prefixes=(REVIVE_PREFIX,), tags=NOTE_TAGS),
    ("commit_log_offset", "topic", "tags", "body", "_corrupt_record", *SOUND_COLUMNS),
    ("REAL_TOPIC",),
    check_crc=True,
)


def popped_messages(source: LogSource, topics: Iterable[str]) -> PoppedMessages:
    """The pops of the messages of some topics, by one read of the log.

    Args:
        topics: The topics whose messages were popped, such as retry topics.

    Raises the errors of `LogSource.selections_of`.
    """
    (found,) = source.selections_of(NOTES)
    messages, damage = sound_messages(found)
    is_timer = pc.equal(messages["topic"], TIMER_TOPIC)
    real = pc.if_else(is_timer, messages["REAL_TOPIC"], messages["topic"])
    messages = messages.filter(pc.fill_null(pc.starts_with(real, REVIVE_PREFIX), False))
    wanted = frozenset(topics)
    notes, unreadable = [], list(damage)
    for offset, tags, body in _candidates(messages, wanted):
        note = parse_pop_note(tags, body)
        if note is None:
            unreadable.append(CorruptRange("commitlog", offset, 1, "CONTENT", "a note about popped messages"))
        elif note.topic in wanted:
            notes.append(note)
    return PoppedMessages(notes, damage=tuple(unreadable))


def _candidates(messages: pa.Table, topics: frozenset[str]) -> Iterable[tuple[int, str, bytes]]:
    """The offset, the tags and the body of notes that can be about the topics.

    Most notes are not about retry topics, and need not be parsed: the name of a topic is in the body as it is, unless
    the body has a backslash.
    """
    common = RETRY_PREFIX if all(topic.startswith(RETRY_PREFIX) for topic in topics) else ""
    is_one = pc.match_substring(messages["body"], "\\")
    is_one = pc.or_(is_one, pc.match_substring(messages["body"], common))
    found = messages.filter(is_one)
    columns = (found[name].to_pylist() for name in ("commit_log_offset", "tags", "body"))
    return zip(*columns, strict=True)
