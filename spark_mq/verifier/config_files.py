"""The checkpoint and the files of `config/`: whether they can be read, and whether they fit log and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyarrow import fs

from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.system_topic import SCHEDULE_TOPIC, is_system_topic
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint, LostTimers, lost_timers
from spark_mq.store.config.config_file import (
    DELAY_OFFSETS,
    WITHOUT_FILE,
    ConsumerOffset,
    configured_topics,
    consumer_offset_file,
    is_configured,
    json_problem,
    load_config,
    load_consumer_offsets,
    lost_config,
    missing_config,
    parse_delay_offsets,
    read_config,
)
from spark_mq.store.config.epochs import EPOCH_FILE, EpochFile
from spark_mq.store.config.store_paths import ABORT, CONFIG, TIMER_LOG
from spark_mq.verifier.finding import findings

_WITHOUT_SUFFIX = ("timermetrics", "transactionMetrics")


@dataclass(frozen=True)
class BrokerState:
    """What the checkpoint and the file `abort` said before the log was read."""

    checkpoint: Checkpoint
    checkpoint_size: int | None
    has_abort: bool
    epochs: EpochFile | None
    """None if the file cannot be read; `epoch_fault` says why."""
    epoch_fault: str | None
    lost_timers: LostTimers | None

    @classmethod
    def of(cls, store: Location) -> Self:
        """The state of a store now."""
        file = store / CHECKPOINT
        size = file.info().size if file.is_file else None
        epochs, fault = read_config(lambda: EpochFile.of(store))
        return cls(Checkpoint.load(store), size, (store / ABORT).is_file, epochs, fault, lost_timers(store))

    def findings(self, end: int, newest: int) -> Iterator[pa.RecordBatch]:
        """What is wrong. A broker writes times of messages that it has flushed: none is later than the newest."""
        if self.has_abort:
            yield findings("ABORT", ABORT, found="the file exists")
        if self.epochs is None:
            yield findings("EPOCHS", EPOCH_FILE, "a file that can be read", self.epoch_fault)
        else:
            for epoch, problem in self.epochs.problems(end):
                found = f"epoch {epoch.epoch} from offset {epoch.start_offset}: {problem}"
                yield findings("EPOCHS", EPOCH_FILE, "rising epochs that begin inside the log", found)
        if self.lost_timers is not None:
            want = f"a file up to offset {self.lost_timers.log_stop}, which config/timercheck says"
            yield findings("TIMER_LOG_CUT", TIMER_LOG, want, f"files up to {self.lost_timers.end}")
        if self.checkpoint_size is None:
            return
        if self.checkpoint_size != CHECKPOINT_SIZE:
            expected = f"{CHECKPOINT_SIZE} bytes"
            yield findings("CHECKPOINT_SIZE", CHECKPOINT, expected, f"{self.checkpoint_size} bytes")
        checkpoint = self.checkpoint
        for position, name, value, lowest, limit in (
            (0, "physicMsgTimestamp", checkpoint.physic_msg_timestamp, 0, newest),
            (8, "logicsMsgTimestamp", checkpoint.logics_msg_timestamp, 0, newest),
            (16, "indexMsgTimestamp", checkpoint.index_msg_timestamp, 0, newest),
            (32, "confirmPhyOffset", checkpoint.confirm_phy_offset, None, end),
            (40, "logicsPhysicalOffset", checkpoint.logics_physical_offset, None, end),
        ):
            if value > limit or (lowest is not None and value < lowest):
                found = f"{name} {value}"
                yield findings("CHECKPOINT_AHEAD", CHECKPOINT, f"{name} up to {limit}", found, position=position)


@dataclass(frozen=True)
class ConfigFiles:
    """What the files say, before the log is read: a broker that runs writes them later than its messages.

    A file that cannot be read says nothing, and is one of the problems.
    """

    consumer_offsets: tuple[ConsumerOffset, ...]
    consumer_offset_file: str
    delay_offsets: Mapping[int, int]
    topics: frozenset[str] | None
    missing: frozenset[str]
    problems: tuple[pa.RecordBatch, ...]

    @classmethod
    def of(cls, store: Location) -> Self:
        """The files of a store now."""
        return cls(
            tuple(read_config(lambda: load_consumer_offsets(store))[0] or ()),
            consumer_offset_file(store / CONFIG),
            read_config(lambda: load_config(store, DELAY_OFFSETS, parse_delay_offsets))[0] or {},
            configured_topics(store),
            missing_config(store),
            tuple(_problems(store)),
        )

    def lost(self, topics: Iterable[str], is_clean: bool, is_written: bool) -> Iterator[pa.RecordBatch]:
        """The files that are missing, and that a broker with queues of these topics has written (`lost_config`)."""
        for name in lost_config(self.missing, topics, is_clean, is_written):
            yield findings("CONFIG_MISSING", f"{CONFIG}/{name}", "a file with content", WITHOUT_FILE[name])

    def findings(
        self, bounds: Mapping[Queue, range], topics: Iterable[str], is_known: Callable[[str], bool] = lambda topic: True
    ) -> Iterator[pa.RecordBatch]:
        """What is wrong with the files. A queue of a topic that is not known, nor in `bounds`, is of another kind.

        A broker of 4.9 keeps the offsets of topics that were deleted (`AdminBrokerProcessor.deleteTopic`@4.9.7).
        """
        yield from self.problems
        for offset in self.consumer_offsets:
            queue = offset.topic, offset.queue_id
            if queue not in bounds and not (is_known(offset.topic) and is_configured(offset.topic, self.topics)):
                continue
            offsets = bounds.get(queue, range(0))
            file = f"{CONFIG}/{self.consumer_offset_file}"
            found = f"offset {offset.offset} of group {offset.consumer_group}"
            if offset.offset > offsets.stop:
                yield findings("OFFSET_PAST_END", file, f"an offset up to {offsets.stop}", found, queue=queue)
            elif offset.offset < offsets.start:
                yield findings("OFFSET_BEFORE_MIN", file, f"{offsets.start} or more", found, queue=queue)
        for level, number in sorted(self.delay_offsets.items()):
            queue = SCHEDULE_TOPIC, level - 1
            end = bounds.get(queue, range(0)).stop
            if number > end and (queue in bounds or is_known(SCHEDULE_TOPIC)):
                file, found = f"{CONFIG}/delayOffset.json", f"offset {number} of level {level}"
                yield findings("DELAY_OFFSET_PAST_END", file, f"an offset up to {end}", found, queue=queue)
        if self.topics is not None:
            for topic in sorted(set(topics) - self.topics):
                if not is_system_topic(topic) and not topic.startswith(LIGHT_PREFIX):
                    file = f"{CONFIG}/topics.json"
                    yield findings("TOPIC_NOT_CONFIGURED", file, found="no such topic", queue=(topic, None))


def _problems(store: Location) -> Iterator[pa.RecordBatch]:
    """Findings about files that are not JSON, or empty; a file that does not exist is fine."""
    folder = store / CONFIG
    names = {info.base_name for info in folder.entries() if info.type == fs.FileType.File}
    for name in sorted(names):
        if not name.endswith(".json") and name not in _WITHOUT_SUFFIX:
            continue
        problem, backup = _unreadable(folder / name), folder / f"{name}.bak"
        has_backup = backup.name in names and backup.info().size > 0
        if problem or (problem == "" and has_backup):
            is_replaced = has_backup and _unreadable(backup) is None
            code = "CONFIG_FROM_BACKUP" if is_replaced else "CONFIG_BROKEN"
            yield findings(code, f"{CONFIG}/{name}", "JSON", problem or "an empty file")


def _unreadable(file: Location) -> str | None:
    """Why a file is not JSON, empty text if it has no content; None if it is."""
    data = file.read_bytes()
    return json_problem(data) if data.strip() else ""
