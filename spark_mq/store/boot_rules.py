"""The rules by which brokers recover a store when they start, by version, and how the last run ended.

They changed four times in 4.9.0 to 5.5.1 (`CommitLog.recoverNormally`, `recoverAbnormally` and
`isMappedFileMatchedRecover`, `DefaultMessageStore.start`, `ConsumeQueueStore`):

| rules | clean stop: which segments are checked | clean stop: which messages are dispatched again |
| --- | --- | --- |
| 4.9 | from the third-last one | those after the last message of any queue |
| 5.0.0 to 5.3.1 | from the third-last one | none; with `recheckReputOffsetFromCq`, as in 4.9 |
| 5.3.2, 5.3.3 | from the last one that starts at or before the end of the queues | those that start after that end |
| 5.4.0 to 5.5.1 | as 5.3.2, if its first record is whole; at most ten (`commitLogRecoverMaxNum`) | as 5.3.2 |

After any other stop, all dispatch the log again from a segment that the checkpoint selects: by its times up to 5.4.0,
by the offset up to which queues were flushed (`logicsPhysicalOffset`) since 5.5.0. Since 5.4.0, both are at most ten
segments. Records of format V2 end the log for brokers before 5.1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from pyarrow import fs

from spark_mq.errors import OptionError
from spark_mq.format.broker_version import (
    DISPATCHES_AFTER_QUEUE_END,
    DISPATCHES_AT_CLEAN_BOOT,
    INDEX_TAGS,
    MESSAGE_VERSION_2,
    RECOVERS_FROM_FLUSHED_QUEUES,
    RECOVERS_FROM_TENTH_FILE,
    BrokerVersion,
    BrokerVersions,
)
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.location import Location
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_lock import is_locked

BOOT_RULES = (
    DISPATCHES_AT_CLEAN_BOOT,
    MESSAGE_VERSION_2,
    DISPATCHES_AFTER_QUEUE_END,
    RECOVERS_FROM_TENTH_FILE,
    INDEX_TAGS,
    RECOVERS_FROM_FLUSHED_QUEUES,
)
"""The rules on which a boot depends, whatever the settings are."""


@dataclass(frozen=True)
class LastStop:
    """How the last run of the broker ended.

    Attributes:
        is_running: Whether a broker, or a job that writes into the store, has the store's lock; None if that cannot be
            known.
    """

    is_clean: bool
    started_timestamp: int | None
    is_running: bool | None


def last_stop(store: MessageStore) -> LastStop:
    """How the last run of the broker ended."""
    abort = (store.location / ABORT).info()
    is_clean = abort.type == fs.FileType.NotFound
    started = None if is_clean else (abort.mtime_ns or 0) // NANOS_PER_MILLI
    return LastStop(is_clean, started, is_locked(store.location))


def boot_groups(versions: BrokerVersions) -> tuple[BrokerVersions, ...]:
    """The versions in groups, in order: those of one group boot in the same way."""

    def rules_of(version: BrokerVersion) -> tuple[bool, ...]:
        return tuple(rule.holds(version) for rule in BOOT_RULES)

    groups = [list(group) for _, group in groupby(versions.releases, rules_of)]
    return tuple(BrokerVersions(group[0], group[-1], versions.evidence) for group in groups)


def find_boot_groups(store: Location, given: str | None) -> tuple[BrokerVersions, ...]:
    """The versions that can be that of the broker that starts next, in groups that boot in the same way."""
    return boot_groups(find_broker_versions(store, given))


def one_boot_group(version: str, option: str) -> BrokerVersions:
    """The versions that a person names, which must boot in the same way."""
    groups = boot_groups(BrokerVersions.parse(version, option))
    if len(groups) > 1:
        raise OptionError(f"brokers of {version} recover by different rules: give a version such as 5.3.1 or 5.3.3")
    return groups[0]
