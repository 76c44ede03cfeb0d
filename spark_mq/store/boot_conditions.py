"""On what a boot of a store depends, besides its messages: the broker's last stop, version and settings.

`boot` has the rules. A store or a setting whose rules are not known is an error here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from pyarrow import fs

from spark_mq.errors import OptionError, UnsupportedStoreError
from spark_mq.format.broker_version import (
    DISPATCHES_AFTER_QUEUE_END,
    DISPATCHES_AT_CLEAN_BOOT,
    DLEDGER_DISPATCHES_AFTER_CRASH,
    INDEX_TAGS,
    MESSAGE_VERSION_2,
    PROPERTY_CRC,
    RECOVERS_FROM_FLUSHED_QUEUES,
    RECOVERS_FROM_TENTH_FILE,
    BrokerVersions,
    versions_text,
)
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, RocksDatabase
from spark_mq.store.boot_obstacles import BootObstacles
from spark_mq.store.config.broker_conf import ROCKSDB_STORE, BrokerConf, FileSetting, Sourced
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_kind import Door, check_form, double_written_database, message_database
from spark_mq.store.config.store_paths import ABORT, CONSUME_QUEUE
from spark_mq.store.index.folder import find_index_layout
from spark_mq.store.index.index_database import last_offset
from spark_mq.store.log.segment_files import DEFAULT_SEGMENT_SIZE
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import find_batch_file_size
from spark_mq.store.queue.queue_database import (
    QueueDatabase,
    dispatches_to_light_queues,
    has_light_database,
    light_database,
    lost_light_database,
    makes_light_queues,
)
from spark_mq.store.store_lock import is_locked

_RULES = (
    DISPATCHES_AT_CLEAN_BOOT,
    MESSAGE_VERSION_2,
    DISPATCHES_AFTER_QUEUE_END,
    RECOVERS_FROM_TENTH_FILE,
    INDEX_TAGS,
    RECOVERS_FROM_FLUSHED_QUEUES,
)
"""The rules on which a boot depends, whatever the settings are."""
_NOT_PREDICTED = "what a broker does with them at its start is not predicted"
_MOST_FILES = 10
"""Since 5.4.0 a boot begins with the tenth-last file at the latest."""


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

    @classmethod
    def of(cls, store: Location) -> Self:
        """That of the broker of a store."""
        abort = (store / ABORT).info()
        is_clean = abort.type == fs.FileType.NotFound
        started = None if is_clean else (abort.mtime_ns or 0) // NANOS_PER_MILLI
        return cls(is_clean, started, is_locked(store))


def boot_groups(versions: BrokerVersions, has_entries: bool = False) -> tuple[BrokerVersions, ...]:
    """The versions in groups, in order: those of one group boot in the same way, on a plain or on a DLedger log."""
    rules = (*_RULES, DLEDGER_DISPATCHES_AFTER_CRASH) if has_entries else _RULES
    by_rules = groupby(versions.releases, lambda version: [rule.holds(version) for rule in rules])
    groups = [list(group) for _, group in by_rules]
    return tuple(BrokerVersions(group[0], group[-1], versions.evidence) for group in groups)


def one_boot_group(version: str, has_entries: bool = False) -> BrokerVersions:
    """The versions that a person names with `--as`, which must boot in the same way."""
    groups = boot_groups(BrokerVersions.parse(version, "--as"), has_entries)
    if len(groups) > 1:
        raise OptionError(f"brokers of {version} recover by different rules: give a version such as 5.3.1 or 5.3.3")
    return groups[0]


@dataclass(frozen=True)
class BootSettings:
    """The broker's settings on which a boot depends (`MessageStoreConfig`@5.5.1), with their defaults."""

    message_index_enable: bool = True
    writes_index_files: bool = True
    message_index_safe: bool = False
    dispatches_to_light_queues: bool = True
    recheck_reput_offset_from_cq: bool = False
    commit_log_recover_max_num: int = _MOST_FILES
    enable_accelerated_recovery: bool = False
    check_commit_log_offset_on_recover: bool = False

    @classmethod
    def of(cls, conf: BrokerConf) -> Self:
        """The settings that a file of settings has."""
        most = conf.settings.get("commitLogRecoverMaxNum", "")
        return cls(
            conf.is_enabled("messageIndexEnable", default=True),
            conf.without_index_files is None,
            conf.is_enabled("messageIndexSafe"),
            dispatches_to_light_queues(conf),
            conf.is_enabled("recheckReputOffsetFromCq"),
            int(most) if most.isdecimal() and int(most) else _MOST_FILES,
            conf.is_enabled("enableAcceleratedRecovery"),
            conf.is_enabled("checkCommitLogOffsetOnRecover"),
        )


@dataclass(frozen=True)
class LastInDatabase:
    """The commit log offsets of the last messages in the database of a broker; None of what is not enabled.

    Attributes:
        indexed: That of the last message with index records (`IndexRocksDBStore`@5.4.0, `indexRocksDBEnable`).
        transaction: That of the last half message (`TransMessageRocksDBStore`@5.5.0, `transRocksDBEnable`).
    """

    indexed: int | None = None
    transaction: int | None = None

    @classmethod
    def of(cls, store: MessageStore) -> Self:
        """Those of a store."""
        families, conf = ("indexRocksDBEnable", "transRocksDBEnable"), store.broker_conf
        if not any(map(conf.is_enabled, families)):
            return cls()
        folder = message_database(store.location)
        found = [0, 0]
        if folder is not None:
            with closing(RocksDatabase(folder)) as database:
                found = [last_offset(database, family) for family in (DEFAULT, "trans")]
        return cls(*(last if conf.is_enabled(name) else None for name, last in zip(families, found, strict=True)))

    def asked_by(self, rules: BrokerVersions) -> list[int]:
        """The offsets that a version asks for, from 5.4.0 on."""
        transaction = self.transaction if rules.decide(RECOVERS_FROM_FLUSHED_QUEUES) else None
        return [last for last in (self.indexed, transaction) if last is not None]


@dataclass(frozen=True)
class BootConditions:
    """What all boots of a store depend on, besides its messages.

    Attributes:
        database: The database of the store's queues, if they are in RocksDB.
        light: The database of light message queues beside queue files, if there is one.
        obstacles: Why the broker does not start, whatever its messages are.
    """

    store: MessageStore
    database: QueueDatabase | None
    light: QueueDatabase | None
    last_stop: LastStop
    checkpoint: Checkpoint
    settings: BootSettings
    last_in_database: LastInDatabase
    obstacles: BootObstacles

    @classmethod
    def of(cls, store: MessageStore) -> Self:
        """Those of a store; `UnsupportedStoreError` if rules for its form, or for a setting, are not known here."""
        check_form(store.location, Door.BOOT)
        _ = store.queues  # an error if RocksDB does not open the database
        location, conf = store.location, store.broker_conf
        light = light_database(location, conf)
        _check_form(store, light)
        return cls(
            store,
            store.queue_database,
            light,
            LastStop.of(location),
            Checkpoint.load(location),
            BootSettings.of(conf),
            LastInDatabase.of(store),
            BootObstacles(location, conf),
        )

    def are_known(self, rules: BrokerVersions) -> bool:
        """Whether boots of the versions can be predicted.

        Those with queues in RocksDB can from 5.3.2 on. 4.9 has no batch consume queues, and no version before 5.5.0 has
        light message queues in a database beside files.
        """
        if self.database is not None:
            return rules.decide(DISPATCHES_AFTER_QUEUE_END) is True
        if self.light is not None:
            return rules.decide(RECOVERS_FROM_FLUSHED_QUEUES) is True
        return not (self.store.batch_topics and rules.decide(DISPATCHES_AT_CLEAN_BOOT))

    def unknown_rules(self) -> UnsupportedStoreError:
        """The error for versions whose rules are not known."""
        if self.database is not None:
            return UnsupportedStoreError(
                f"{self.store.tree} is a RocksDB database of queues: what a broker does with it at its start is "
                "predicted for 5.3.2 and later"
            )
        if self.light is not None:
            return UnsupportedStoreError(
                f"{self.store.location} has light message queues in a RocksDB database beside queue files "
                "(combineCQUseRocksdbForLmq), which brokers have from 5.5.0 on"
            )
        return UnsupportedStoreError(
            f"{self.store.location} has batch consume queues (queue.type=BatchCQ), which brokers have from 5.0.0 on"
        )


def _check_form(store: MessageStore, light: QueueDatabase | None) -> None:
    conf, database, batches = store.broker_conf, store.queue_database, store.batch_topics
    if database is None and conf.has_rocksdb_store and store.queues and not double_written_database(store.location):
        raise UnsupportedStoreError(
            f"{store.location / CONSUME_QUEUE} has queue files, and {conf.source} says storeType={ROCKSDB_STORE}: such "
            f"a broker does not read them. First `spark-mq rebuild {shlex.quote(store.location.path)} --only "
            "consumequeue --queue-store rocksdb --replace`"
        )
    if lost_light_database(store.location, conf):
        raise UnsupportedStoreError(
            f"{store.location} has no RocksDB database, in which its broker has light message queues "
            f"(combineCQUseRocksdbForLmq=true in {conf.source}). It is lost, unless such a broker never ran. "
            f"First `spark-mq repair {shlex.quote(store.location.path)} --apply --broker-conf "
            f"{shlex.quote(conf.source)}`"
        )
    if database is None and light is None and not batches:
        return
    what = f"{store.location} has batch consume queues (queue.type=BatchCQ)"
    if light is not None:
        what = f"{light.folder} is a RocksDB database of light message queues beside queue files"
    if database is not None:
        what = f"{database.folder} is a RocksDB database of queues"
        if conf.is_given and not conf.has_rocksdb_store:
            raise UnsupportedStoreError(
                f"{what}, which a broker reads with storeType={ROCKSDB_STORE}. {conf.source} says otherwise: give the "
                "settings of this broker (--broker-conf)"
            )
    if batches and (database is not None or light is not None):
        raise UnsupportedStoreError(f"{what} beside topics with queue.type=BatchCQ: {_NOT_PREDICTED}")
    if store.records.has_entries:
        raise UnsupportedStoreError(f"{what} beside a DLedger log: {_NOT_PREDICTED}")
    for setting in filter(conf.is_enabled, ("recheckReputOffsetFromCq", "enableAcceleratedRecovery")):
        raise UnsupportedStoreError(f"{what}: {_NOT_PREDICTED} with {setting}=true, as in {conf.source}")


def assumed_settings(
    store: MessageStore, rules: Sequence[BrokerVersions], segment_size: int, queue_files: Sourced[int]
) -> tuple[FileSetting, ...]:
    """The settings on which a boot depends, and others that do not count; `segment_size` is the usual one, or 0."""
    conf = store.broker_conf
    size, source = conf.commit_log_file_size, conf.source
    if size is None:
        size, source = segment_size, "most segments" if segment_size else conf.source_of_defaults
    try:
        layout = find_index_layout(store.location, conf)
        text = f"{layout.value.hash_slot_num:,} slots and {layout.value.index_num:,} entries each"
        index_files = FileSetting("index files", text, layout.source)
    except OptionError as error:
        index_files = FileSetting("index files", "slots and entries unknown", str(error))
    switches = {"checkCRCOnRecover": True, "messageIndexEnable": True, "messageIndexSafe": False}
    if rules[-1].decide(RECOVERS_FROM_TENTH_FILE):
        switches["indexFileWriteEnable"] = True
    if not rules[-1].decide(DISPATCHES_AT_CLEAN_BOOT):
        switches["recheckReputOffsetFromCq"] = False
    if PROPERTY_CRC.holds(rules[-1].last):
        switches["forceVerifyPropCRC"] = False
    not_considered = ["enableControllerMode", "duplicationEnable"]
    if not makes_light_queues(store.location, conf):
        not_considered.append("enableMultiDispatch")
    has_light = has_light_database(store.location, conf)
    if rules[-1].decide(RECOVERS_FROM_TENTH_FILE) and not has_light:  # then both kinds of queues decide
        not_considered.append("rocksdbCQDoubleWriteEnable")
    queues = FileSetting("queue files", f"{queue_files.value:,} bytes each", queue_files.source)
    if store.queue_database is not None:
        queues = FileSetting("storeType", ROCKSDB_STORE, f"the database {store.tree.name}/")
    batches = []
    if store.batch_topics:
        found = find_batch_file_size(conf, store.location)
        batches.append(FileSetting("batch queue files", f"{found.value:,} bytes each", found.source))
    return (
        FileSetting("segments", f"{size or DEFAULT_SEGMENT_SIZE:,} bytes each", source),
        queues,
        *batches,
        index_files,
        FileSetting("rules", f"of a broker of {versions_text(rules)}", rules[0].evidence),
        *conf.switches(switches, not_considered),
    )
