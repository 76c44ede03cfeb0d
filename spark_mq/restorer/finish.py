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
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import (
    BATCH_FILE_SIZE,
    BATCH_UNIT,
    BATCH_UNIT_SIZE,
    DEFAULT_FILE_SIZE,
    UNIT_SIZE,
    Queue,
    pre_blank,
    queue_file_name,
)
from spark_mq.format.system_topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.indexer.queue_plan import carry_over
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.restorer.config_files import FILE_RULES, TOPICS, CopyType, rule_of, topics_json
from spark_mq.restorer.offset_map import OffsetMap, QueueOffset
from spark_mq.restorer.placement import NewLog
from spark_mq.restorer.store_job import StoreJob
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.config_file import is_topic_name
from spark_mq.store.config.offset_files import DELAY_OFFSETS, OFFSET_FILES, Translate, translated_offsets
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE
from spark_mq.store.queue.folders import queue_folders

_LAST_UNIT = (1, 1, 0)
"""Commit log offset, size and tags code."""
_FILES_OF_TOPICS = {
    "config/timercheck": TIMER_TOPIC,
    "config/timermetrics": TIMER_TOPIC,
    "config/transactionMetrics": HALF_TOPIC,
}
"""Files that say nothing to a user if the log has no message of a topic."""


def empty_queue_file(next_offset: int, file_size: int) -> tuple[str, bytes]:
    """Name and units of the one file of a queue that has no message; zeros follow the units."""
    units_per_file, rest = divmod(file_size, UNIT_SIZE)
    if rest or units_per_file < 1:
        raise OptionError(f"mappedFileSizeConsumeQueue={file_size}: queue files consist of units of {UNIT_SIZE} bytes")
    file_number = (next_offset - 1) // units_per_file
    if next_offset < 1 or (file_number + 1) * file_size > np.iinfo(np.int64).max:
        raise OptionError(f"a queue file cannot end at queue offset {next_offset}")
    units = pre_blank(next_offset - file_number * units_per_file)
    units[-1] = _LAST_UNIT
    return queue_file_name(file_number, file_size), units.tobytes()


def write_empty_queues(
    folder: Location, next_offsets: Mapping[Queue, int], file_size: int, log_start: int, modified_millis: int
) -> tuple[list[Queue], list[Queue]]:
    """Write the files of queues that have no message; returns the queues that were written, and those left out.

    A queue is left out if the log begins at 0, or if its name or offset is not valid: its next message gets offset 0
    again. A queue whose next offset is 0 does not exist yet.
    """
    written, left_out = list[Queue](), list[Queue]()
    for (topic, queue_id), next_offset in sorted(next_offsets.items()):
        if next_offset == 0:
            continue
        is_possible = sum(_LAST_UNIT[:2]) <= log_start and is_topic_name(topic) and 0 <= queue_id < 1 << 31
        try:
            name, content = empty_queue_file(next_offset, file_size)
        except OptionError:
            is_possible = False
        if is_possible:
            publish(folder / topic / str(queue_id) / name, content, file_size, modified_millis)
        (written if is_possible else left_out).append((topic, queue_id))
    return written, left_out


def finish_store(job: StoreJob, store: Location, log: NewLog, offset_map: OffsetMap | None) -> list[str]:
    """Write everything that is left into a new store; returns what a user has to know, a sentence each.

    The new store has log, queues, index, and the checkpoint of a rebuild.
    """
    empty, notes = _write_empty_queues(job, store, log)
    translate = _translation(job, {**log.plan.next_queue_offsets, **empty}, offset_map)
    notes += _write_config(job, store, log, translate)
    existing = Checkpoint.decode(job.source.files.get(CHECKPOINT, b""))
    has_new_offsets = job.copy_type == CopyType.RENUMBERED
    checkpoint = restored_checkpoint(Checkpoint.load(store), existing, log.end, has_new_offsets)
    publish(store / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)
    return notes


def _write_empty_queues(job: StoreJob, store: Location, log: NewLog) -> tuple[dict[Queue, int], list[str]]:
    """The next offsets of queues whose messages have all expired, or were left out, if offsets stay; and notes."""
    source, known = job.source, log.plan.next_queue_offsets
    if job.copy_type == CopyType.RENUMBERED:
        return {}, []
    missing = {queue: offset for queue, offset in source.next_offsets.items() if queue not in known and offset}
    folder = store / CONSUME_QUEUE
    file_size = job.request.broker_conf.consume_queue_file_size or DEFAULT_FILE_SIZE
    if job.copy_type == CopyType.WHOLE and source.location is not None and not has_rocksdb_queues(source.location):
        kept, lost = carry_over(queue_folders(source.location / CONSUME_QUEUE), known, folder, file_size)
        if source.batch_file_size is not None:
            existing = queue_folders(source.location / BATCH_CONSUME_QUEUE)
            lost += carry_over(existing, known, store / BATCH_CONSUME_QUEUE, source.batch_file_size)[1]
        names = set(kept)
        return {q: offset for q, offset in missing.items() if f"{q[0]}/{q[1]}" in names}, list(lost)
    batches = {queue: offset for queue, offset in missing.items() if queue[0] in job.batch_topics}
    plain, modified = {queue: missing[queue] for queue in missing.keys() - batches.keys()}, log.last_store_timestamp
    written, left_out = write_empty_queues(folder, plain, file_size, log.start, modified)
    for (topic, queue_id), next_offset in batches.items() if log.start >= sum(_LAST_UNIT[:2]) else ():
        content = BATCH_UNIT.pack(*_LAST_UNIT, modified, next_offset - 1, 1, -1, 0)
        file = store / BATCH_CONSUME_QUEUE / topic / str(queue_id) / queue_file_name(0, BATCH_UNIT_SIZE)
        publish(file, content, source.batch_file_size or BATCH_FILE_SIZE, modified)
        written.append((topic, queue_id))
    left_out += sorted(batches.keys() - written)
    notes = []
    if left_out:
        first = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in left_out[:3])
        notes.append(
            f"{len(left_out):,} queues have no message left ({first}{', ...' if len(left_out) > 3 else ''}): their "
            "next message gets offset 0 again. Only a log that does not start at 0 can keep such an offset"
        )
    return {queue: missing[queue] for queue in written}, notes


def _translation(job: StoreJob, next_offsets: Mapping[Queue, int], offset_map: OffsetMap | None) -> Translate:
    """How offsets of consumers become offsets in the new store. A queue that does not exist begins at 0."""
    if job.copy_type == CopyType.WHOLE:
        return lambda topic, queue_id, offset: offset
    if job.copy_type == CopyType.PARTIAL:

        def within(topic: str, queue_id: int, offset: int) -> int | None:
            end = next_offsets.get((topic, queue_id), 0)
            return min(offset, end) if end or offset == 0 else None

        return within
    if offset_map is None:
        return lambda topic, queue_id, offset: None
    wanted: list[QueueOffset] = []
    for path in OFFSET_FILES:
        content = job.source.files.get(path)
        if content is not None:
            # The first pass only asks which offsets there are.
            translated_offsets(path, content, lambda *offset: wanted.append(offset))
    found = offset_map.new_offsets(wanted)
    return lambda topic, queue_id, offset: found.get((topic, queue_id, offset), 0 if offset == 0 else None)


def _write_config(job: StoreJob, store: Location, log: NewLog, translate: Translate) -> list[str]:
    source, topics, copy_type, notes = job.source, job.request.topic_map, job.copy_type, list[str]()
    files = {path: content for path, content in source.files.items() if path != CHECKPOINT}
    existing, counts = files.pop(TOPICS, None), log.queue_counts
    new = {TOPICS: topics_json(existing, counts, topics, job.broker_versions, log.last_store_timestamp)}
    for path, content in files.items():
        rule = rule_of(path)
        if rule is None:
            notes.append(f"{path} is left out: it is not known what a broker does with it")
        elif copy_type not in rule.copies:
            if path not in _FILES_OF_TOPICS or _FILES_OF_TOPICS[path] in counts:
                notes.append(f"{path} is left out: {rule.reason}")
        elif path in OFFSET_FILES:
            new[path], dropped = translated_offsets(path, content, translate, topics)
            if dropped:
                notes.append(f"{path}: offsets in queues without a message here are left out ({dropped:,})")
        else:
            new[path] = content
    if SCHEDULE_TOPIC in counts and DELAY_OFFSETS not in new:
        notes.append(
            f"the source has no {DELAY_OFFSETS}: a broker delivers all messages in {SCHEDULE_TOPIC} again, also those "
            "that were delivered before (--only-delivered leaves them out)"
        )
    for path, content in new.items():
        publish(store / path, content)
    for path in source.databases:
        rule = rule_of(f"{path}/")
        notes.append(f"{path} is left out: {'it is not known' if rule is None else rule.reason}")
    if source.location is not None:
        _copy_other_files(source.location, store, copy_type)
    return [*notes, *source.form_notes]


def _copy_other_files(source: Location, store: Location, copy_type: CopyType) -> None:
    """Copy the files and folders outside of `config/` that stay as they are; timerwheel is a sparse file."""
    for rule in FILE_RULES:
        if rule.path.startswith(CONFIG) or copy_type not in rule.copies:
            continue
        name = rule.path.rstrip("/")
        if not (source.is_local and store.is_local):
            files = (source / name).files_below()
            names = [f"{name}/{file}" for file in files] or [name] * (source / name).is_file
            for file in names:
                publish(store / file, (source / file).read_bytes())
        elif (source / name).is_directory:
            shutil.copytree((source / name).path, (store / name).path, copy_function=_copy_file)
        elif (source / name).is_file:
            os.makedirs((store / name).parent.path, exist_ok=True)
            _copy_file((source / name).path, (store / name).path)


def _copy_file(source: str, target: str) -> None:
    shutil.copy2(source, target)
    flush_to_disk(target)


def restored_checkpoint(rebuilt: Checkpoint, existing: Checkpoint, log_end: int, has_new_offsets: bool) -> Checkpoint:
    """The checkpoint of a rebuild, with the offsets of the checkpoint that the source has.

    They matter in controller mode, where a broker dispatches the log again from `confirmPhyOffset` on
    (`DefaultMessageStore.start`, `CommitLog.getConfirmOffset`@5.3.3); other brokers replace it at their boot. With new
    offsets it is the end of the log if it was set, and `masterFlushedOffset` is unset: it is an offset of another log.
    """
    confirm, flushed = existing.confirm_phy_offset, existing.master_flushed_offset
    if has_new_offsets:
        confirm, flushed = (log_end if confirm else 0), 0
    confirm, flushed = min(confirm, log_end), min(flushed, log_end)
    return replace(rebuilt, confirm_phy_offset=confirm, master_flushed_offset=flushed)
