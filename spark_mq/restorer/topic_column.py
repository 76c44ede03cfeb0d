"""The topics of rows, and the queues to which the rows belong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.errors import UnsafeNameError
from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.pieces import Pieces, pieces_of_bytes
from spark_mq.restorer.encoding_rules import EncodingRules
from spark_mq.restorer.source_columns import SourceColumns, is_fault
from spark_mq.store.config.topic_name import check_topic_name, new_topic_fault

_REPLACED = "\ufffd"


@dataclass(frozen=True)
class Topics:
    """The topics of many messages.

    Attributes:
        names: The distinct topics.
        numbers: The number of each message's topic in `names`.
        pieces: The bytes of each message's topic.

    """

    names: tuple[str, ...]
    numbers: Int64s
    pieces: Pieces


def read_topics(columns: SourceColumns, rules: EncodingRules, is_from_source: Flags) -> Topics:
    """The topics of the rows, under their new names.

    Args:
        columns: The rows.
        rules: The rules with the new names.
        is_from_source: Which rows were in a store before: a topic that a store had needs only be the name of a folder.

    Raises:
        InvalidMessageError: A topic is NULL, or is not a topic.
    """
    columns.check(~columns.is_given("topic"), "topic is NULL: every message needs a topic")
    distinct = columns.array("topic").cast(pa.string()).dictionary_encode()
    indices = distinct.indices.to_numpy()
    old = [text.decode("utf-8", "replace") for text in distinct.dictionary.cast(pa.binary()).to_pylist()]
    faults = [None if topic in rules.topics else _folder_fault(topic) for topic in old]
    new_faults = [None if topic in rules.topics else new_topic_fault(topic) for topic in old]
    is_wrong = np.where(is_from_source, is_fault(faults)[indices], is_fault(new_faults)[indices])
    columns.check(
        is_wrong,
        lambda row: (
            f"the topic {(faults if is_from_source[row] else new_faults)[indices[row]]}: "
            "rename it (topic map), or leave out its rows"
        ),
    )
    names = [rules.topics.get(topic, topic) for topic in old]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    of_names = np.array([numbers[name] for name in names], np.int64)[indices]
    pieces = pieces_of_bytes([name.encode("utf-8") for name in numbers])
    return Topics(tuple(numbers), of_names, pieces.take(of_names))


def number_queues(topics: Topics, queue_ids: Int32s) -> tuple[Int32s, tuple[tuple[str, int], ...]]:
    """The number of each message's queue, and the topic and queue id of each queue, in the order of first messages."""
    distinct = pa.array((topics.numbers << 32) | queue_ids).dictionary_encode()
    queues = tuple((topics.names[queue >> 32], queue & 0xFFFFFFFF) for queue in distinct.dictionary.to_pylist())
    return distinct.indices.to_numpy(), queues


def _folder_fault(topic: str) -> str | None:
    if _REPLACED in topic:
        return "has bytes that are not UTF-8, which its text does not show"
    try:
        check_topic_name(topic)
    except UnsafeNameError:
        return "cannot be the name of a folder"
    return None
