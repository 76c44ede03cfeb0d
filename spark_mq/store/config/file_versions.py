"""The broker versions that are possible for a store, as names of its files and small files show them.

`spark_mq.store.broker_versions` also looks into its index and its messages.

| file | what it shows |
| --- | --- |
| `config/*.json` | whether a broker of 4.9 or one of 5 wrote it last: `stateVersion` in its `dataVersion` |
| `abort.bak`, `timerwheel`, `compaction/`, `config/transactionMetrics`, `rocksdbstore/` | the version that made it |
| `checkpoint` | a number in a field that older brokers do not write |
| a queue folder with a name of more than 127 characters | 5.1.0: only records of version 2 have such topics |

A file shows the oldest version that makes it. That a file is missing shows something only of `rocksdbstore/`, if
`abort.bak` shows that a broker of 5 started in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from spark_mq.format import broker_version as rules
from spark_mq.format.broker_version import ALL_VERSIONS, RELEASES, BrokerVersion, BrokerVersions, VersionRule
from spark_mq.format.record import MAX_V1_TOPIC
from spark_mq.io.location import Location
from spark_mq.store.config import store_paths as paths
from spark_mq.store.config.checkpoint import CHECKPOINT, Checkpoint
from spark_mq.store.config.config_file import load_config, read_config

_OFTEN_WRITTEN = ("consumerOffset.json", "delayOffset.json")
"""Files that a broker writes every few seconds. Only those of 5 have a `dataVersion` at all."""
_SELDOM_WRITTEN = ("topics.json", "subscriptionGroup.json")
"""Files that a broker writes when they change. After an upgrade, they are the old ones for a while."""


def versions_of_files(store: Location) -> BrokerVersions:
    """The versions of the broker that are possible for a store, with the evidence."""
    oldest = max(_marks(store), key=lambda mark: mark[0], default=None)
    is_5, evidence = _line(store) or (None, "")
    if is_5 is False and oldest is None:
        return replace(ALL_VERSIONS, last=_before(rules.STATE_VERSION), evidence=evidence)
    if oldest is None:
        if is_5 is None:
            return ALL_VERSIONS
        return replace(ALL_VERSIONS, first=_first_of(rules.STATE_VERSION), evidence=evidence)
    (first, shown), last, lacking = oldest, ALL_VERSIONS.last, ""
    if first < _first_of(rules.ROCKSDB_STORE) and (store / paths.ABORT_BACKUP).is_file:
        last, lacking = _before(rules.ROCKSDB_STORE), "; there is no folder rocksdbstore/"
    if is_5 is False:
        both = f"{evidence}, although {shown}: brokers of 4.9 and of 5 wrote here"
        return BrokerVersions(ALL_VERSIONS.first, last, both + lacking)
    return BrokerVersions(first, last, shown + lacking)


def _line(store: Location) -> tuple[bool, str] | None:
    """Whether a broker of 5 wrote `config/` last, and what shows it; None if nothing does."""
    often = {name: _has_state_version(store, name) for name in _OFTEN_WRITTEN}
    seldom = {name: _has_state_version(store, name) for name in _SELDOM_WRITTEN}
    lacking: dict[str, bool | None] = {name: False for name, found in often.items() if found is False}
    newer: dict[str, bool | None] = {name: True for name, found in often.items() if found}
    # One of the files that 4.9 writes without a dataVersion can also be written by hand.
    witnesses = newer or (lacking if len(lacking) == len(often) else {**seldom, **lacking})
    for name, found in witnesses.items():
        if found is not None:
            return found, f"config/{name} has {'a' if found else 'no'} stateVersion"
    return None


def _has_state_version(store: Location, name: str) -> bool | None:
    """Whether a file's `dataVersion` has a `stateVersion`; None if the file cannot be read."""

    def decode(content: Mapping[str, Any]) -> bool:
        version = content.get("dataVersion", {}) if name in _OFTEN_WRITTEN else content["dataVersion"]
        return "stateVersion" in dict(version)

    return read_config(lambda: load_config(store, name, decode))[0]


def _marks(store: Location) -> Iterator[tuple[BrokerVersion, str]]:
    """What only brokers from a version on make: that version, and the evidence."""
    names = {info.base_name for info in store.entries()}
    config = {info.base_name for info in (store / paths.CONFIG).entries()} if paths.CONFIG in names else set()
    files = [
        (rules.ABORT_BACKUP, paths.ABORT_BACKUP in names, "a file abort.bak"),
        (rules.TIMER_WHEEL, paths.TIMER_WHEEL in names, "a file timerwheel"),
        (rules.COMPACTION_STORE, paths.COMPACTION in names, "a folder compaction/"),
        (rules.TRANSACTION_METRICS, "transactionMetrics" in config, "a file config/transactionMetrics"),
        (rules.ROCKSDB_STORE, paths.ROCKSDB_STORE in names, "a folder rocksdbstore/"),
    ]
    for rule, is_there, what in files:
        if is_there:
            yield _first_of(rule), f"there is {what}"
    checkpoint = Checkpoint.load(store) if CHECKPOINT in names else Checkpoint()
    for rule, offset, field in (
        (rules.CHECKPOINT_MASTER_FLUSHED_OFFSET, checkpoint.master_flushed_offset, "masterFlushedOffset"),
        (rules.CHECKPOINT_CONFIRM_OFFSET, checkpoint.confirm_phy_offset, "confirmPhyOffset"),
        (rules.CHECKPOINT_LOGICS_OFFSET, checkpoint.logics_physical_offset, "logicsPhysicalOffset"),
    ):
        if offset > 0:
            yield _first_of(rule), f"the checkpoint has a {field}"
    topics = (store / paths.CONSUME_QUEUE).folders() if paths.CONSUME_QUEUE in names else []
    if any(len(topic) > MAX_V1_TOPIC for topic in topics):
        yield _first_of(rules.MESSAGE_VERSION_2), "consumequeue/ has a topic of more than 127 characters"


def _first_of(rule: VersionRule) -> BrokerVersion:
    assert rule.since is not None
    return rule.since


def _before(rule: VersionRule) -> BrokerVersion:
    return max(version for version in RELEASES if not rule.holds(version))
