"""The checkpoint and the files of `config/`: whether they can be read, and whether they fit log and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.system_topic import SCHEDULE_TOPIC, is_system_topic
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.config_file import (
    DELAY_OFFSETS,
    ConsumerOffset,
    configured_topics,
    load_config,
    load_consumer_offsets,
    parse_delay_offsets,
    parse_fastjson,
)
from spark_mq.store.config.store_paths import ABORT, CONFIG
from spark_mq.verifier.finding import findings

_FIELDS = (
    (0, "physicMsgTimestamp", "physic_msg_timestamp"),
    (8, "logicsMsgTimestamp", "logics_msg_timestamp"),
    (16, "indexMsgTimestamp", "index_msg_timestamp"),
)
_OFFSETS = (
    (32, "confirmPhyOffset", "confirm_phy_offset"),
    (40, "logicsPhysicalOffset", "logics_physical_offset"),
)
_WITHOUT_SUFFIX = ("timermetrics", "transactionMetrics")

_Content = TypeVar("_Content")


@dataclass(frozen=True)
class BrokerState:
    """What the two files said before the log was read.

    Attributes:
        checkpoint_size: Bytes of its file; None if there is none.
        has_abort: Whether a broker runs, or did not stop cleanly.
    """

    checkpoint: Checkpoint
    checkpoint_size: int | None
    has_abort: bool

    @classmethod
    def of(cls, store: Location) -> Self:
        """The state of a store now."""
        file = store / CHECKPOINT
        size = file.info().size if file.is_file else None
        return cls(Checkpoint.load(store), size, (store / ABORT).is_file)


def checkpoint_findings(state: BrokerState, end: int, newest: int) -> Iterator[pa.RecordBatch]:
    """What is wrong with the checkpoint.

    A broker writes the times of messages that it has flushed, so none of them can be later than the last message.

    Args:
        state: The files, as they were before the log was read.
        end: The commit log offset at which the log ends.
        newest: The latest store time of the log in milliseconds; 0 without a message.

    Yields:
        Findings.
    """
    if state.has_abort:
        yield findings("ABORT", file=ABORT, found="the file exists")
    if state.checkpoint_size is None:
        return
    if state.checkpoint_size != CHECKPOINT_SIZE:
        yield findings(
            "CHECKPOINT_SIZE",
            file=CHECKPOINT,
            expected=f"{CHECKPOINT_SIZE} bytes",
            found=f"{state.checkpoint_size} bytes",
        )
    for position, name, attribute in _FIELDS:
        time = getattr(state.checkpoint, attribute)
        if time > newest or time < 0:
            yield findings(
                "CHECKPOINT_AHEAD",
                file=CHECKPOINT,
                position=position,
                expected=f"{name} up to {newest}",
                found=f"{name} {time}",
            )
    for position, name, attribute in _OFFSETS:
        offset = getattr(state.checkpoint, attribute)
        if offset > end:
            yield findings(
                "CHECKPOINT_AHEAD",
                file=CHECKPOINT,
                position=position,
                expected=f"{name} up to {end}",
                found=f"{name} {offset}",
            )


@dataclass(frozen=True)
class QueueBounds:
    """The first and the next queue offset of a queue."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True)
class ConfigFiles:
    """What the files say, before the log is read: a broker that runs writes them later than its messages.

    Attributes:
        consumer_offsets: The offsets of consumer groups; none if the file cannot be read.
        delay_offsets: The offset of each delay level; none if the file cannot be read.
        topics: The configured topics; None if no file names them.
        problems: Findings about files that cannot be read.
    """

    consumer_offsets: tuple[ConsumerOffset, ...]
    delay_offsets: Mapping[int, int]
    topics: frozenset[str] | None
    problems: tuple[pa.RecordBatch, ...]

    @classmethod
    def of(cls, store: Location) -> Self:
        """The files of a store now."""
        return cls(
            _readable(lambda: tuple(load_consumer_offsets(store)), ()),
            _readable(lambda: load_config(store, DELAY_OFFSETS, parse_delay_offsets) or {}, {}),
            configured_topics(store),
            tuple(_problems(store)),
        )


def _readable(load: Callable[[], _Content], otherwise: _Content) -> _Content:
    """What a file says; `otherwise` if it cannot be read, which is a finding of its own."""
    try:
        return load()
    except (ConfigError, UnsupportedStoreError):
        return otherwise


def _problems(store: Location) -> Iterator[pa.RecordBatch]:
    """Findings about files that are not JSON, or empty; a file that does not exist is fine."""
    folder = store / CONFIG
    names = {info.base_name for info in folder.entries() if info.type == fs.FileType.File}
    for name in sorted(names):
        if not name.endswith(".json") and name not in _WITHOUT_SUFFIX:
            continue
        problem = _unreadable(folder / name)
        if problem is None:
            continue
        backup = f"{name}.bak"
        has_backup = backup in names and (folder / backup).info().size > 0
        if problem == "" and not has_backup:
            continue
        backup_problem = _unreadable(folder / backup) if has_backup else "there is none"
        yield findings(
            "CONFIG_FROM_BACKUP" if backup_problem is None else "CONFIG_BROKEN",
            file=f"{CONFIG}/{name}",
            expected="JSON",
            found=problem or "an empty file",
        )


def _unreadable(file: Location) -> str | None:
    """Why a file is not JSON, empty text if it has no content; None if it is."""
    data = file.read_bytes()
    if not data.strip():
        return ""
    try:
        content = parse_fastjson(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return str(error)
    return None if isinstance(content, dict) else "no JSON object"


def config_findings(
    config: ConfigFiles,
    bounds: Mapping[Queue, QueueBounds],
    topics: Iterable[str],
    is_known: Callable[[str], bool] = lambda topic: True,
) -> Iterator[pa.RecordBatch]:
    """What is wrong with the files.

    Args:
        bounds: The offsets of each queue that has messages or files.
        is_known: Says whether a queue of a topic that is not in `bounds` does not exist; else it is of another kind.

    Yields:
        Findings.
    """
    yield from config.problems
    for offset in config.consumer_offsets:
        if (offset.topic, offset.queue_id) not in bounds and not is_known(offset.topic):
            continue
        queue = bounds.get((offset.topic, offset.queue_id), QueueBounds(0, 0))
        columns: dict[str, Any] = {
            "file": f"{CONFIG}/consumerOffset.json",
            "topic": offset.topic,
            "queue_id": offset.queue_id,
        }
        found = f"offset {offset.offset} of group {offset.consumer_group}"
        if offset.offset > queue.max_offset:
            yield findings("OFFSET_PAST_END", expected=f"an offset up to {queue.max_offset}", found=found, **columns)
        elif offset.offset < queue.min_offset:
            yield findings("OFFSET_BEFORE_MIN", expected=f"{queue.min_offset} or more", found=found, **columns)
    for level, number in sorted(config.delay_offsets.items()):
        if (SCHEDULE_TOPIC, level - 1) not in bounds and not is_known(SCHEDULE_TOPIC):
            continue
        queue = bounds.get((SCHEDULE_TOPIC, level - 1), QueueBounds(0, 0))
        if number > queue.max_offset:
            yield findings(
                "DELAY_OFFSET_PAST_END",
                file=f"{CONFIG}/delayOffset.json",
                topic=SCHEDULE_TOPIC,
                queue_id=level - 1,
                expected=f"an offset up to {queue.max_offset}",
                found=f"offset {number} of level {level}",
            )
    if config.topics is not None:
        for topic in sorted(set(topics) - config.topics):
            if not is_system_topic(topic):
                yield findings("TOPIC_NOT_CONFIGURED", file=f"{CONFIG}/topics.json", topic=topic, found="no such topic")
