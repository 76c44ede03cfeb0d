"""What a new store has besides its log, queues and index: `config/`, the checkpoint, and queues without a message.

A broker numbers the messages of a queue from the end of its last file on. A queue whose messages all expired keeps that
file. So such a queue gets one file, which ends at its next offset. Its last unit looks like that of an expired message,
and pre-blank units are before it, as in a queue of which only that message was left:

- The commit log offset of the last unit, 1, is before the first segment. So every version takes the unit for expired,
  and finds no message there (`ConsumeQueue.correctMinOffset`, `DefaultMessageStore.getMessage`@4.9.7 and @5.3.3). At
  offset 0 a broker would return the first bytes of the log (`MappedFileQueue.findMappedFileByOffset(0, true)`).
- Its size is 1. A boot takes offset and size of the last unit for the end of what the queue has from the log, and
  ignores messages before that end (`ConsumeQueue.recover`, `putMessagePositionInfo`). With a pre-blank unit
  (0, 0x7FFFFFFF, 0) as the last one, it would ignore all messages in the first 2 GiB of the log.
- A file has at least one unit: a boot of 5.3.3 fails at a last file without one (`correctMinOffset` reads the unit
  before the end). So a queue that ends at the end of a file has this file, full, and not an empty next one.

This works only in a log whose first segment is not at offset 0: there is no expired offset in such a log.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.errors import OptionError
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, UNIT_SIZE, Queue, pre_blank, queue_file_name
from spark_mq.format.system_topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.indexer.queue_plan import carry_over
from spark_mq.indexer.trees import rebuilt_checkpoint
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.restorer.config_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    LMQ_CONSUMER_OFFSETS,
    TOPICS,
    Translate,
    TranslatedOffsets,
    consumer_offsets_json,
    delay_offsets_json,
    topics_json,
)
from spark_mq.restorer.file_rules import (
    Situation,
    Treatment,
    kept_paths,
    rule_of,
)
from spark_mq.restorer.offset_map import OffsetMap, QueueOffset
from spark_mq.restorer.placement import NewLog
from spark_mq.restorer.store_job import StoreJob
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.config_file import is_topic_name
from spark_mq.store.config.store_paths import CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.queue.folders import queue_folders

_LAST_UNIT = (1, 1, 0)
"""Commit log offset, size and tags code."""
_FILES_OF_TOPICS = {
    "config/timercheck": TIMER_TOPIC,
    "config/timermetrics": TIMER_TOPIC,
    "config/transactionMetrics": HALF_TOPIC,
}
"""Files that say nothing to a user if the log has no message of a topic."""
_OFFSET_FILES = (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS, DELAY_OFFSETS)


@dataclass(frozen=True)
class EmptyQueueFile:
    """The file of a queue without a message.

    Attributes:
        content: Its units; zeros follow them.
    """

    name: str
    content: bytes


@dataclass(frozen=True)
class EmptyQueues:
    """The queues without a message.

    Attributes:
        left_out: The queues that did not: their next message gets offset 0 again.
    """

    written: tuple[Queue, ...]
    left_out: tuple[Queue, ...]


def empty_queue_file(next_offset: int, file_size: int) -> EmptyQueueFile:
    """The one file of a queue that has no message, and whose next message gets an offset."""
    units_per_file, rest = divmod(file_size, UNIT_SIZE)
    if rest or units_per_file < 1:
        raise OptionError(f"mappedFileSizeConsumeQueue={file_size}: queue files consist of units of {UNIT_SIZE} bytes")
    file_number = (next_offset - 1) // units_per_file
    if next_offset < 1 or (file_number + 1) * file_size > np.iinfo(np.int64).max:
        raise OptionError(f"a queue file cannot end at queue offset {next_offset}")
    units = pre_blank(next_offset - file_number * units_per_file)
    units[-1] = _LAST_UNIT
    return EmptyQueueFile(queue_file_name(file_number, file_size), units.tobytes())


def write_empty_queues(
    folder: Location, next_offsets: Mapping[Queue, int], file_size: int, log_start: int, modified_millis: int
) -> EmptyQueues:
    """Write the files of queues that have no message.

    Args:
        folder: The folder `consumequeue` of the new store.
        next_offsets: The next offset of each queue without a message, by topic and queue id. A queue with offset 0 is
            no queue yet.
        log_start: The commit log offset of the first segment of the new store.
        modified_millis: The modification time of the files, in milliseconds: that of the last message, for example.

    Returns:
        The queues that were written, and those that were left out: the log begins at 0, or a name or an offset is not
        valid.
    """
    written, left_out = [], []
    for (topic, queue_id), next_offset in sorted(next_offsets.items()):
        if next_offset == 0:
            continue
        try:
            file = empty_queue_file(next_offset, file_size)
        except OptionError:
            left_out.append((topic, queue_id))
            continue
        if sum(_LAST_UNIT[:2]) > log_start or not is_topic_name(topic) or not 0 <= queue_id < 1 << 31:
            left_out.append((topic, queue_id))
            continue
        publish(folder / topic / str(queue_id) / file.name, file.content, file_size, modified_millis)
        written.append((topic, queue_id))
    return EmptyQueues(tuple(written), tuple(left_out))


def finish_store(job: StoreJob, store: Location, log: NewLog, offset_map: OffsetMap | None) -> list[str]:
    """Write everything that is left into a new store; returns what a user has to know, a sentence each.

    Args:
        store: The new store, with log, queues, index, and the checkpoint of a rebuild.
        offset_map: The old and the new offsets; None if offsets and ids stay.
    """
    empty = _write_empty_queues(job, store, log)
    notes = list(empty.notes)
    next_offsets = {**log.next_offsets, **empty.next_offsets}
    notes += _write_config(job, store, log, _translation(job, next_offsets, offset_map))
    _write_checkpoint(job, store, log)
    return notes


@dataclass(frozen=True)
class _EmptyQueues:
    next_offsets: Mapping[Queue, int]
    notes: Sequence[str]


def _write_empty_queues(job: StoreJob, store: Location, log: NewLog) -> _EmptyQueues:
    """Make the files of queues whose messages have all expired, or were left out, if offsets stay."""
    origin, facts, situation = job.origin, job.origin.facts, job.situation
    if facts is None or situation == Situation.RENUMBERED:
        return _EmptyQueues({}, ())
    missing = {
        queue: offset for queue, offset in facts.next_offsets.items() if queue not in log.next_offsets and offset
    }
    folder = store / CONSUME_QUEUE
    file_size = job.request.broker_conf.consume_queue_file_size or DEFAULT_FILE_SIZE
    if situation == Situation.WHOLE and origin.location is not None:
        existing = queue_folders(origin.location / CONSUME_QUEUE)
        kept, lost = carry_over(existing, log.next_offsets, folder, file_size)
        names = set(kept)
        return _EmptyQueues({q: offset for q, offset in missing.items() if f"{q[0]}/{q[1]}" in names}, lost)
    made = write_empty_queues(folder, missing, file_size, log.start, log.last_store_timestamp)
    notes = []
    if made.left_out:
        first = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in made.left_out[:3])
        notes.append(
            f"{len(made.left_out):,} queues have no message left ({first}{', ...' if len(made.left_out) > 3 else ''}): "
            "their next message gets offset 0 again. Only a log that does not start at 0 can keep such an offset"
        )
    return _EmptyQueues({queue: missing[queue] for queue in made.written}, notes)


def _translation(job: StoreJob, next_offsets: Mapping[Queue, int], offset_map: OffsetMap | None) -> Translate:
    """How offsets of consumers become offsets in the new store.

    An offset 0 is always right: a queue that does not exist begins there.
    """
    origin, situation = job.origin, job.situation
    if situation == Situation.WHOLE:
        return lambda topic, queue_id, offset: offset
    if situation == Situation.PARTIAL:

        def within(topic: str, queue_id: int, offset: int) -> int | None:
            end = next_offsets.get((topic, queue_id), 0)
            return min(offset, end) if end or offset == 0 else None

        return within
    if offset_map is None or origin.facts is None:
        return lambda topic, queue_id, offset: None
    wanted: list[QueueOffset] = []
    for path in _OFFSET_FILES:
        content = origin.facts.files.get(path)
        if content is not None:
            # The first pass only asks which offsets there are.
            _translated(path, content, lambda *offset: wanted.append(offset), {})
    found = offset_map.new_offsets(wanted)
    return lambda topic, queue_id, offset: found.get((topic, queue_id, offset), 0 if offset == 0 else None)


def _translated(path: str, content: bytes, translate: Translate, topics: Mapping[str, str]) -> TranslatedOffsets:
    if path == DELAY_OFFSETS:
        return delay_offsets_json(content, translate)
    return consumer_offsets_json(content, translate, topics, path)


def _write_config(job: StoreJob, store: Location, log: NewLog, translate: Translate) -> list[str]:
    origin, request, situation, notes = job.origin, job.request, job.situation, []
    facts = origin.facts
    files = dict(facts.files) if facts is not None else {}
    files.pop(CHECKPOINT, None)
    new = {
        TOPICS: topics_json(
            files.pop(TOPICS, None), log.queue_counts, request.topics, job.broker_versions, log.last_store_timestamp
        )
    }
    for path, content in files.items():
        rule = rule_of(path)
        if rule is None:
            notes.append(f"{path} is left out: it is not known what a broker does with it")
        elif rule.treatment(situation) == Treatment.LEFT_OUT:
            if path not in _FILES_OF_TOPICS or _FILES_OF_TOPICS[path] in log.queue_counts:
                notes.append(f"{path} is left out: {rule.reason}")
        elif path in _OFFSET_FILES:
            translated = _translated(path, content, translate, request.topics)
            new[path] = translated.content
            if translated.dropped:
                count = sum(translated.dropped.values())
                notes.append(f"{path}: offsets in queues without a message here are left out ({count:,})")
        else:
            new[path] = content
    if SCHEDULE_TOPIC in log.queue_counts and DELAY_OFFSETS not in new:
        notes.append(
            f"the source has no {DELAY_OFFSETS}: a broker delivers all messages in {SCHEDULE_TOPIC} again, also those "
            "that were delivered before (--only-delivered leaves them out)"
        )
    for path, content in new.items():
        publish(store / path, content, len(content))
    for path in () if facts is None else facts.databases:
        rule = rule_of(f"{path}/")
        notes.append(f"{path} is left out: {'it is not known' if rule is None else rule.reason}")
    notes += () if facts is None else facts.form_notes
    if origin.location is not None:
        _copy_other_files(origin.location, store, situation)
    return notes


def _copy_other_files(source: Location, store: Location, situation: Situation) -> None:
    """Copy the files and folders outside of `config/` that stay as they are; timerwheel is a sparse file."""
    for path in kept_paths(situation):
        if path.startswith(CONFIG):
            continue
        name = path.rstrip("/")
        if not (source.is_local and store.is_local):
            files = (source / name).files_below()
            names = [f"{name}/{file}" for file in files] or [name] * (source / name).is_file
            for file in names:
                content = (source / file).read_bytes()
                publish(store / file, content, len(content))
        elif (source / name).is_directory:
            shutil.copytree((source / name).path, (store / name).path)
        elif (source / name).is_file:
            os.makedirs((store / name).parent.path, exist_ok=True)
            shutil.copy2((source / name).path, (store / name).path)


def _write_checkpoint(job: StoreJob, store: Location, log: NewLog) -> None:
    facts, rebuilt = job.origin.facts, Checkpoint.load(store)
    checkpoint = restored_checkpoint(
        None if facts is None else facts.files.get(CHECKPOINT),
        last_store_timestamp=log.last_store_timestamp,
        index_end_timestamp=rebuilt.index_msg_timestamp,
        last_unit_offset=rebuilt.logics_physical_offset,
        versions=job.broker_versions,
        log_end=log.end,
        has_new_offsets=job.situation == Situation.RENUMBERED,
    )
    publish(store / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)


def restored_checkpoint(
    existing: bytes | None,
    *,
    last_store_timestamp: int,
    index_end_timestamp: int,
    last_unit_offset: int,
    versions: BrokerVersions,
    log_end: int,
    has_new_offsets: bool,
) -> Checkpoint:
    """The checkpoint of a restored store, whose log, queues and index are complete.

    Its offsets matter in controller mode, where a broker dispatches the log again from `confirmPhyOffset` on
    (`DefaultMessageStore.start`, `CommitLog.getConfirmOffset`@5.3.3); other brokers replace it at their boot. With new
    offsets it is the end of the log if it was set, and `masterFlushedOffset` is unset: it is an offset of another log.

    Args:
        existing: The file of the source; None if there is none.
        last_store_timestamp: The store time of the last message in the log, in milliseconds.
        index_end_timestamp: The latest end timestamp of an index file, in milliseconds.
        last_unit_offset: The commit log offset of the last message that has a unit; 0 if it is not written.
        versions: The versions of the new broker that are possible.
        log_end: The commit log offset after the last message.
        has_new_offsets: Whether messages have other commit log offsets than in the source.
    """
    checkpoint = Checkpoint.decode(existing or b"")
    confirm, flushed = checkpoint.confirm_phy_offset, checkpoint.master_flushed_offset
    if has_new_offsets:
        confirm, flushed = (log_end if confirm else 0), 0
    offsets = replace(
        checkpoint,
        confirm_phy_offset=min(confirm, log_end),
        master_flushed_offset=min(flushed, log_end),
        written_end=log_end,
    )
    trees = (CONSUME_QUEUE, INDEX)
    return rebuilt_checkpoint(offsets, trees, last_store_timestamp, index_end_timestamp, last_unit_offset, versions)
