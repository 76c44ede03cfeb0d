"""How full the disk of a store is, and what its broker does about that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import COMMIT_LOG


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
        used_percent: The used part of the disk, as a broker computes it.
        max_used_percent: `diskMaxUsedSpaceRatio`: above it expired segments are deleted at any hour.
        forcibly_percent: `diskSpaceCleanForciblyRatio`: above it, segments that have not expired are deleted, too, if
            `cleanFileForciblyEnable`.
        is_forcible: `cleanFileForciblyEnable`.
    """

    used_percent: int
    max_used_percent: int
    forcibly_percent: int
    is_forcible: bool

    @property
    def deletion(self) -> Deletion:
        """What the broker deletes now because of the disk (`CleanCommitLogService.isSpaceToDelete`@5.3.3)."""
        if self.used_percent > self.forcibly_percent and self.is_forcible:
            return Deletion.ANY
        limit = min(self.max_used_percent, self.forcibly_percent)
        return Deletion.EXPIRED if self.used_percent > limit else Deletion.NONE


def disk_pressure(store: Location, conf: BrokerConf) -> DiskPressure | None:
    """The disk of the store's commit log now; None if the store is not local."""
    if not store.is_local:
        return None
    max_used = _percent(conf, "diskMaxUsedSpaceRatio", 75, 10, 95)
    forcibly = _percent(conf, "diskSpaceCleanForciblyRatio", 85, 30, 85)
    is_forcible = conf.is_enabled("cleanFileForciblyEnable", default=True)
    return DiskPressure(used_percent(os.statvfs((store / COMMIT_LOG).path)), max_used, forcibly, is_forcible)


def used_percent(status: os.statvfs_result) -> int:
    """The used part of a disk in percent, rounded up (`UtilAll.getDiskPartitionSpaceUsedPercent`@5.3.3)."""
    used, usable = status.f_blocks - status.f_bfree, status.f_bavail
    return -(-used * 100 // (used + usable)) if used + usable else 0


def _percent(conf: BrokerConf, name: str, default: int, least: int, most: int) -> int:
    """A setting, limited as the broker does."""
    text = conf.settings.get(name, str(default)).strip()
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 9:
        raise OptionError(f"{conf.source}: {name}={text!r} is not a number of percent")
    return min(max(int(text), least), most)
