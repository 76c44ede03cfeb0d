"""How much of a disk a store uses, by folder and by topic, how full it is, and what its broker does then."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import Units, is_live
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, DLEDGER, INDEX
from spark_mq.store.log.segment_files import booted_folder
from spark_mq.store.message_store import MessageStore

_UNITS = 1 << 18
"""Units of one read."""
TREES = (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG)
OTHER = "other"
_OF_DLEDGER = 70, 85
"""Percent of a disk above which DLedger deletes expired files at any hour, and any files (`DLedgerConfig`@0.3.1)."""
_BLOCK_SIZE = 512
"""Bytes of a block of `st_blocks` (POSIX systems)."""


class Deletion(StrEnum):
    """What a broker deletes because of a full disk."""

    NONE = "NONE"
    """Nothing: it waits for an hour of `deleteWhen`."""
    EXPIRED = "EXPIRED"
    """Expired segments, at any hour."""
    ANY = "ANY"
    """The oldest segments, at any hour, whether they have expired or not."""


@dataclass(frozen=True)
class DiskPressure:
    """The use of a disk in percent, and the limits above which a broker deletes files at any hour.

    Attributes:
        max_used_percent: `diskMaxUsedSpaceRatio`: above it expired segments are deleted at any hour.
        forcibly_percent: `diskSpaceCleanForciblyRatio`: above it, segments that have not expired are deleted, too, if
            `cleanFileForciblyEnable`.
        folder: The folder whose disk it is: `commitlog`, or `consumequeue` if that one has a fuller disk.
    """

    used_percent: int
    max_used_percent: int
    forcibly_percent: int
    is_forcible: bool
    folder: str = COMMIT_LOG

    @property
    def deletion(self) -> Deletion:
        """What the broker deletes now because of the disk (`CleanCommitLogService.isSpaceToDelete`@5.3.3)."""
        if self.used_percent > self.forcibly_percent and self.is_forcible:
            return Deletion.ANY
        limit = min(self.max_used_percent, self.forcibly_percent)
        return Deletion.EXPIRED if self.used_percent > limit else Deletion.NONE


def disk_pressure(store: Location, conf: BrokerConf) -> DiskPressure | None:
    """The fuller one of the disks of the store's commit log and consume queues now; None if the store is not local.

    A broker deletes segments for either of them, DLedger only for that of its log.
    """
    if not store.is_local:
        return None
    log, has_entries = booted_folder(store)
    used, folder = used_percent(os.statvfs(log.path)), COMMIT_LOG
    queues = store / CONSUME_QUEUE
    if not has_entries and queues.is_directory and (of_queues := used_percent(os.statvfs(queues.path))) > used:
        used, folder = of_queues, CONSUME_QUEUE
    max_used, forcibly = _OF_DLEDGER
    if not has_entries:
        max_used = _percent(conf, "diskMaxUsedSpaceRatio", 75, 10, 95)
        forcibly = _percent(conf, "diskSpaceCleanForciblyRatio", 85, 30, 85)
    is_forcible = conf.is_enabled("cleanFileForciblyEnable", default=True)
    return DiskPressure(used, max_used, forcibly, is_forcible, folder)


def used_percent(status: os.statvfs_result) -> int:
    """The used part of a disk in percent, rounded up (`UtilAll.getDiskPartitionSpaceUsedPercent`@5.3.3)."""
    used, usable = status.f_blocks - status.f_bfree, status.f_bavail
    return -(-used * 100 // (used + usable)) if used + usable else 0


def _percent(conf: BrokerConf, name: str, default: int, least: int, most: int) -> int:
    """A setting, limited as the broker does."""
    text = conf.settings.get(name, str(default))
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        raise OptionError(f"{conf.source}: {name}={text!r} is not a number of percent: a broker ignores it")
    return min(max(int(text), least), most)


@dataclass(frozen=True)
class TopicBytes:
    """The messages of a topic that its queues offer."""

    topic: str
    messages: int
    log_bytes: int
    expired_messages: int
    expired_bytes: int


def topic_bytes(store: MessageStore, min_offset: int) -> list[TopicBytes]:
    """The bytes of the log by topic, the largest first.

    All live units are read: 20 bytes for each message. Messages that are in no queue, such as half messages that were
    committed, are not counted.

    Args:
        min_offset: Messages before this commit log offset count as expired.
    """
    sums: dict[str, list[int]] = {}
    for name in store.queues:
        entry = sums.setdefault(name[0], [0, 0, 0, 0])
        for counted in _units_of_log(store, *name):
            expired = counted[counted["commit_log_offset"] < min_offset]
            for at, part in ((0, counted), (2, expired)):
                entry[at] += part.size
                entry[at + 1] += int(part["store_size"].sum(dtype="int64"))
    found = [TopicBytes(topic, *entry) for topic, entry in sums.items() if entry[0]]
    return sorted(found, key=lambda one: (-one.log_bytes, one.topic))


def queue_bytes(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """The number of messages that a queue offers, and bytes of their records; 0 if the queue has no files."""
    sizes = [(part.size, int(part["store_size"].sum(dtype="int64"))) for part in _units_of_log(store, topic, queue_id)]
    return sum(count for count, _ in sizes), sum(size for _, size in sizes)


def _units_of_log(store: MessageStore, topic: str, queue_id: int) -> Iterator[Units]:
    """The live units of a queue whose messages the log has; none if the queue has no files."""
    queue, log_start = store.queues.get((topic, queue_id)), store.get_min_phy_offset()
    if queue is None:
        return
    stop, before = store.get_max_offset_in_queue(topic, queue_id), -1
    for first in range(store.get_min_offset_in_queue(topic, queue_id), stop, _UNITS):
        units = queue.units(first, min(first + _UNITS, stop))
        units = units[is_live(units) & (units["commit_log_offset"] >= log_start)]
        # The messages of an inner batch have one record.
        offsets = units["commit_log_offset"].astype(np.int64)
        units["store_size"][np.diff(offsets, prepend=before) == 0] = 0
        before = offsets[-1] if offsets.size else before
        yield units


@dataclass(frozen=True)
class DiskUse:
    """The files of one tree of a store.

    Attributes:
        allocated: The bytes that they take on the disk: less than `size` if files have holes, such as `timerwheel` or a
            segment that is not full. None if the filesystem does not say.
    """

    tree: str
    files: int
    size: int
    allocated: int | None


def disk_use(store: Location) -> tuple[DiskUse, ...]:
    """The disk use of each tree of `TREES`, and of all other files; a DLedger log counts as `commitlog`.

    Files that vanish meanwhile are left out.
    """
    counts = {tree: [0, 0, 0] for tree in (*TREES, OTHER)}
    files = ((path, size, 0) for path, size in store.files_below().items()) if not store.is_local else None
    for path, size, allocated in files or _local_files(store.path, ""):
        top, _, rest = path.partition("/")
        top = COMMIT_LOG if top.startswith(DLEDGER) else top
        count = counts[top if rest and top in TREES else OTHER]
        count[:] = count[0] + 1, count[1] + size, count[2] + allocated
    return tuple(
        DiskUse(tree, files, size, allocated if store.is_local else None)
        for tree, (files, size, allocated) in counts.items()
    )


def _local_files(folder: str, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Path below the store, size and allocated bytes of each file; links in the store's directory are followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=not prefix)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    yield from _local_files(entry.path, f"{prefix}{entry.name}/")
                elif stat.S_ISREG(status.st_mode):
                    yield f"{prefix}{entry.name}", status.st_size, status.st_blocks * _BLOCK_SIZE
    except FileNotFoundError:
        return
