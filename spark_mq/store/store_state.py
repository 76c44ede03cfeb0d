"""The state of a whole store, as an operator asks for it after a stop: what is there, and what the next boot does.

The boots are those of `recovery`, which reads the whole log, or of `boot`, which knows a few facts: names, sizes and
times of files, the last unit of each queue, the last files of one, the ends of index files, and at most 256 KiB of the
log. The latter says what it saw; what it did not see is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from pyarrow import fs

from spark_mq.format.broker_version import ALL_VERSIONS, BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.format.record import HEAD_SIZE, is_body_crc_wrong
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.location import Location
from spark_mq.store.boot import Boot, BootFacts, SegmentHead, matches_recovery, newest_heads, next_boot
from spark_mq.store.boot_conditions import BootConditions, LastStop, assumed_settings, boot_groups
from spark_mq.store.boot_obstacles import CONFIG_FILES
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.store.config.checkpoint import Checkpoint, LostTimers, checkpoint_problem, lost_timers
from spark_mq.store.config.config_file import missing_config
from spark_mq.store.config.epochs import EPOCH_FILE
from spark_mq.store.config.store_paths import CONFIG, CONSUME_QUEUE, mapped_files
from spark_mq.store.disk_use import DiskUse, disk_use
from spark_mq.store.file_states import IndexState, cut_index_ends, index_state
from spark_mq.store.lacking_messages import (
    GoneMessages,
    LackingMessage,
    LackingMessages,
    find_gone_messages,
    find_lacking_messages,
)
from spark_mq.store.log.log_range import LogRange, between
from spark_mq.store.log.segment_files import booted_folder, usual_size
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import find_queue_file_size, queues_in_files
from spark_mq.store.queue.queue_database import in_files, makes_light_queues
from spark_mq.store.queue.recovered_queue import RecoveredQueue, recover_queue, truncate_queue

_MAX_REVIVED = 1000
"""Stale records that are counted."""
SMALL_LOG = 1 << 30
"""Bytes of a log that is read whole unless told otherwise: that takes about a second."""


@dataclass(frozen=True)
class StaleTail:
    """Whole old records that follow the live end without a gap: a boot takes them for live ones."""

    start: int
    stop: int
    count: int


@dataclass(frozen=True)
class LogState:
    """The commit log.

    Attributes:
        last_store_timestamp: The store time of the newest message that queues lead to, milliseconds; None without one.
        stale_tail: Old records after the live end that the next boot takes for live ones; None if there are none.
    """

    start: int
    end: int
    last_segment: str | None
    files: int
    file_size: int
    last_store_timestamp: int | None
    gaps: tuple[LogRange, ...]
    stale_tail: StaleTail | None


@dataclass(frozen=True)
class ConfigSnapshot:
    """A file of `config/`: its name, and when the broker last wrote it, in milliseconds."""

    name: str
    modification_timestamp: int


@dataclass(frozen=True)
class StoreState:
    """The state of a store.

    Attributes:
        lacking: The messages at the end of the log that queues lack.
        index: The index; None if the broker writes no index files.
        boots: What the next boot does, for each possible version. With the whole log, nothing is known of one that
            does not start.
        forced_boots: The same if a file `abort` is created before it; empty if there is one, or if nobody asked.
        has_rocksdb_queues: Whether the queues are in RocksDB.
        is_replica: Whether the store shows, or the settings say, that its broker is in controller mode.
        lost_timers: What the timer log lost; None if it has all that was flushed.
        missing_config: The files of `config/` that `missing_config` names.
        unpredicted: The possible versions whose next boot is not predicted, because the queues are in RocksDB.
    """

    store: str
    last_stop: LastStop
    checkpoint: Checkpoint
    checkpoint_problem: str | None
    log: LogState
    queue_count: int
    lacking: LackingMessages
    gone: GoneMessages
    index: IndexState | None
    config: tuple[ConfigSnapshot, ...]
    obstacles: tuple[str, ...]
    settings: tuple[FileSetting, ...]
    boots: tuple[Boot, ...]
    forced_boots: tuple[Boot, ...]
    disk: tuple[DiskUse, ...]
    has_rocksdb_queues: bool = False
    unpredicted: tuple[BrokerVersions, ...] = ()
    is_replica: bool = False
    lost_timers: LostTimers | None = None
    missing_config: frozenset[str] = frozenset()

    def is_emptied_by(self, boot: Boot) -> bool:
        """Whether the boot deletes queues; the store of a broker that never got a message has none."""
        return boot.deletes_queues and self.queue_count > 0


def store_state(
    path: str,
    broker_version: str | None = None,
    broker_conf: str | None = None,
    full: bool | None = None,
    with_forced: bool = True,
    is_checked: bool = False,
) -> StoreState:
    """The state of the store at `path`. Nothing is changed, and Spark is not started.

    Args:
        broker_version: The version of the broker that starts next, such as `5.3.3`; by default, all versions that
            `config/` allows are considered.
        full: Whether the whole log is read, so that the boots are exact; by default, if it has up to `SMALL_LOG` bytes.
            A DLedger log is always read.
        with_forced: Whether the boots after a file `abort` is created are predicted, too.
        is_checked: Whether a whole check has just shown that log, queues and index are as a broker wrote them
            (`VerifyReport.shows_boots`). Then the boots are exact without a second read of the log.
    """
    with MessageStore(path, broker_version, broker_conf) as store:
        conditions = BootConditions.of(store)
        conf, database, checkpoint = store.broker_conf, conditions.database, conditions.checkpoint
        groups = boot_groups(store.broker_versions, store.records.has_entries)
        rules = [group for group in groups if conditions.are_known(group)]
        if not rules:
            raise conditions.unknown_rules()
        stop, lacking, gone = conditions.last_stop, find_lacking_messages(store), find_gone_messages(store)
        log = _log_state(store, lacking, stop)
        folders = [] if database is not None else list(queues_in_files(store.location))
        only = rules[0].last if len(rules) == 1 and rules[0].first == rules[0].last else None
        obstacles = conditions.obstacles.of(folders, only)
        is_read = log.end - log.start <= SMALL_LOG if full is None else full
        if store.records.has_entries or store.batch_topics:  # a few facts do not tell what happens to them
            is_checked, is_read = False, True
        is_checked &= not obstacles and _are_usual(conditions)
        is_read &= not is_checked
        index = None
        if conf.without_index_files is None:
            index = index_state(store, checkpoint.index_msg_timestamp if is_read else None)
        stops = (False, True) if stop.is_clean and with_forced else (not stop.is_clean,)
        starts = [(release, after_crash) for after_crash in stops for release in rules]
        if is_read:
            from spark_mq.store.recovery import next_recoveries  # the kernels take half a second

            boots = next_recoveries(conditions, starts, gone.count, index)
        else:
            facts = _boot_facts(conditions, log, lacking, index, gone.count)
            boots = [next_boot(release, replace(facts, is_clean=not after_crash)) for release, after_crash in starts]
            boots = [replace(boot, is_full=True) if is_checked else _quick(boot, index) for boot in boots]
        for boot in boots[: len(rules)]:
            obstacles += [f"{boot.rules}: {one}" if boot.is_full else one for one in boot.obstacles]
        queue_files = find_queue_file_size(conf, [(store.location / CONSUME_QUEUE, folders)])
        return StoreState(
            store=str(store.location),
            last_stop=stop,
            checkpoint=checkpoint,
            checkpoint_problem=checkpoint_problem(store.location),
            log=log,
            queue_count=len(store.queues),
            lacking=lacking,
            gone=gone,
            index=index,
            config=tuple(_config_snapshots(store.location)),
            obstacles=tuple(dict.fromkeys(obstacles)),
            settings=assumed_settings(store, rules, log.file_size, queue_files),
            boots=tuple(boots[: len(rules)]),
            forced_boots=tuple(boots[len(rules) :]),
            disk=disk_use(store.location),
            has_rocksdb_queues=database is not None,
            unpredicted=tuple(group for group in groups if group not in rules),
            is_replica=(store.location / EPOCH_FILE).is_file or conf.is_enabled("enableControllerMode"),
            lost_timers=lost_timers(store.location),
            missing_config=missing_config(store.location),
        )


def _are_usual(conditions: BootConditions) -> bool:
    """Whether a sound store boots as a check of its files shows, without what only a read of the log tells."""
    store, asks_more = conditions.store, ("forceVerifyPropCRC", "enableAcceleratedRecovery")
    if conditions.database is not None or makes_light_queues(store.location, store.broker_conf):
        return False
    return not any(map(store.broker_conf.is_enabled, asks_more))


def _config_snapshots(store: Location) -> Iterator[ConfigSnapshot]:
    for info in (store / CONFIG).entries():
        if info.type == fs.FileType.File and info.base_name in CONFIG_FILES:
            yield ConfigSnapshot(info.base_name, (info.mtime_ns or 0) // NANOS_PER_MILLI)


def _quick(boot: Boot, index: IndexState | None) -> Boot:
    """What is known of a boot without the entries of index files: a file without a header can have some."""
    is_whole = index is None or not (index.problems or any(file.next_entry <= 1 for file in index.files))
    return replace(boot, unindexed=boot.unindexed if is_whole else None)


def _log_state(store: MessageStore, lacking: LackingMessages, stop: LastStop) -> LogState:
    folder, _ = booted_folder(store.location)
    infos = mapped_files(folder.entries())
    start, end = store.get_min_phy_offset(), store.get_max_phy_offset()
    last = max((segment.base for segment in store.records.segments if segment.base <= end), default=None)
    name = None if last is None else f"{last:020d}"
    dispatched = lacking.last_dispatched
    newest = None if dispatched is None else store.records.store_timestamp(dispatched)
    parts = [(segment.base, segment.end_offset) for segment in store.records.segments]
    gaps = tuple(between(parts, start, end))
    tail = None if stop.is_running else _stale_tail(store, end, newest)
    return LogState(start, end, name, len(infos), usual_size(infos), newest, gaps, tail)


def _stale_tail(store: MessageStore, end: int, newest: int | None) -> StaleTail | None:
    """The whole records after the live end: recovery checks sizes and CRCs, and takes them for live ones.

    A record that is not older than `newest`, the time of a live one, was appended by a broker since the end was found.
    """
    offset, count = end, 0
    while count < _MAX_REVIVED and end >= 0:
        record = store.records.find(offset)
        if record is None or (newest is not None and record.store_timestamp >= newest):
            break
        offset, count = offset + record.size, count + 1
    return StaleTail(end, offset, count) if count else None


def _boot_facts(
    conditions: BootConditions, log: LogState, lacking: LackingMessages, index: IndexState | None, gone: int
) -> BootFacts:
    store, database, checkpoint = conditions.store, conditions.database, conditions.checkpoint
    queues, light = store.queues, conditions.light
    segments = tuple(segment.base for segment in store.records.segments)
    log_end = log.end if log.stale_tail is None else log.stale_tail.stop
    if store.records.segment_of(log_end) is None:  # the check goes on with the next file, and notices no gap
        log_end = min((base for base in segments if base > log_end), default=log_end)
    if database is None:
        queue_end, live_queue_end, messages = _ends_of_queues(store, lacking.messages, log_end)
    else:
        queue_end, messages = database.offset_table().checkpoint or 0, lacking.messages
        live_queue_end = lacking.dispatched_to if queues else -1
    names = {(message.topic, message.queue_id) for message in messages} & queues.keys()
    facts = BootFacts(
        True,
        log.start,
        log_end,
        segments,
        checkpoint=checkpoint,
        queue_end=queue_end,
        live_queue_end=live_queue_end,
        lacking=messages,
        next_queue_offsets={name: store.get_max_offset_in_queue(*name) for name in names},
        index=index,
        cut_index_ends=frozenset() if index is None else cut_index_ends(store, index, checkpoint.index_msg_timestamp),
        settings=conditions.settings,
        gone=gone,
        revived=0 if log.stale_tail is None else log.stale_tail.count,
        missing_bytes=sum(gap.size for gap in log.gaps),
        read_from=lacking.checked.start,
        has_rocksdb_queues=database is not None,
        fails_at=None if database is not None or light is not None else lacking.fails_at,
        light_end=None if light is None else light.offset_table().checkpoint or 0,
        last_in_database=conditions.last_in_database,
    )

    def head(base: int) -> SegmentHead:
        record = store.records.find(base)
        is_whole = record is not None and not is_body_crc_wrong(record)
        return SegmentHead.of(base, store.records.read(base, HEAD_SIZE), is_whole=is_whole)

    either = [replace(facts, is_clean=is_clean) for is_clean in (True, False)]

    def is_first(head: SegmentHead) -> bool:
        """Whether every version begins there at the latest, after any stop."""
        return all(matches_recovery(head, one, rules) for one in either for rules in boot_groups(ALL_VERSIONS))

    return replace(facts, heads=newest_heads(map(head, reversed(segments)), is_first))


def _ends_of_queues(
    store: MessageStore, messages: tuple[LackingMessage, ...], log_end: int
) -> tuple[int, int, tuple[LackingMessage, ...]]:
    """`BootFacts.queue_end` and `live_queue_end`, and the messages of which they tell what becomes of them.

    A boot takes a hole in the last three files of a queue for its end, and then dispatches messages that have units,
    too. Only if the queue with the newest message has a hole, or leads after the end of the log, the files of all
    queues say where the queues end.
    """
    folders = in_files(queue.folder for queue in store.queues.values())
    names = {(folder.topic, folder.queue_id) for folder in folders}
    queues = {name: queue for name, queue in store.queues.items() if name in names}
    size = find_queue_file_size(store.broker_conf, [(store.location / CONSUME_QUEUE, folders)])
    last = {name: queue.unit(queue.written_end - 1)[0] for name, queue in queues.items()}

    @cache
    def recovered(name: Queue) -> RecoveredQueue:
        return recover_queue(queues[name].folder, size.value, store.files)

    def has_hole(name: Queue) -> bool:
        return recovered(name).next_offset < queues[name].written_end

    newest = sorted(last, key=last.__getitem__)[-1:]
    deciding = last if any(map(has_hole, newest)) else newest
    unknown = set(filter(has_hole, {(message.topic, message.queue_id) for message in messages} & queues.keys()))
    known = tuple(message for message in messages if (message.topic, message.queue_id) not in unknown)
    live_end = end = max((recovered(name).max_physic_offset for name in deciding), default=-1)
    if end > log_end:
        cut = (truncate_queue(recovered(name), log_end, store.files) for name in queues)
        live_end = max((queue.max_physic_offset for queue in cut), default=-1)
    return end, live_end, known
