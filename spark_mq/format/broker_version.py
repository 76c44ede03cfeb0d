"""Versions of RocketMQ's broker, and the one table of the rules that differ between them.

`VERSION_RULES` says for each rule from which version on, or up to which version, it holds. Every module that depends on
a version asks such a rule; no other module has a version number. Each boundary was read in RocketMQ's sources: of the
version that is named, and of the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from spark_mq.errors import OptionError


def _numbers(text: str, fewest: int) -> list[int]:
    """The numbers of a version, or of a line of versions; raises `OptionError` if they are not that many, up to 3."""
    if not re.fullmatch(rf"[0-9]{{1,3}}(\.[0-9]{{1,3}}){{{fewest - 1},2}}", text, re.ASCII):
        raise OptionError(f"broker version {text!r} is not a version such as 4.9.7 or 5.3.3")
    return [int(number) for number in text.split(".")]


@dataclass(frozen=True, order=True)
class BrokerVersion:
    """A version of RocketMQ: three numbers, which compare as numbers do."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The version with this name.

        Raises:
            OptionError: The text does not consist of three numbers.

        Examples:
            >>> BrokerVersion.parse("5.1.0") < BrokerVersion.parse("5.1.1")
            True
        """
        return cls(*_numbers(text, 3))

    def __str__(self) -> str:
        """The version as text, such as `5.3.3`."""
        return f"{self.major}.{self.minor}.{self.patch}"


RELEASES = tuple(
    BrokerVersion(major, minor, patch)
    for major, minor, patches in [
        (4, 9, range(9)),
        (5, 0, range(1)),
        (5, 1, range(5)),
        (5, 2, range(1)),
        (5, 3, range(4)),
        (5, 4, range(1)),
        (5, 5, range(2)),
    ]
    for patch in patches
)
"""The releases whose rules are known, in order. 5.3.4 is not among them: its sources were not read."""
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]


@dataclass(frozen=True)
class VersionRule:
    """A rule that some versions of the broker follow, and others do not.

    Attributes:
        meaning: What a broker does that follows the rule, as text for a person.
        since: The first version that follows it; None if the oldest known one does.
        until: The first version that does not follow it any more; None if the newest known one does.
        source: Class and method of RocketMQ, and the version in which they were read.
    """

    meaning: str
    since: BrokerVersion | None
    until: BrokerVersion | None
    source: str

    def holds(self, version: BrokerVersion) -> bool:
        """Whether a broker of this version follows the rule."""
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)


def _since(version: str, meaning: str, source: str) -> VersionRule:
    return VersionRule(meaning, BrokerVersion.parse(version), None, source)


def _until(version: str, meaning: str, source: str) -> VersionRule:
    return VersionRule(meaning, None, BrokerVersion.parse(version), source)


# -- files of config/ -------------------------------------------------------------------------------------------------

STATE_VERSION = _since(
    "5.0.0",
    "the dataVersion of a file of config/ has a stateVersion, also in consumerOffset.json and delayOffset.json",
    "DataVersion, ConsumerOffsetManager.encode, ScheduleMessageService.encode@5.0.0",
)
TOPIC_ATTRIBUTES = _since("5.0.0", "an entry of topics.json has attributes", "TopicConfig@5.0.0")
OWN_SYSTEM_TOPICS = _since(
    "5.0.0", "topics that begin with rmq_sys_ are made at each boot", "TopicConfigManager.init@5.0.0"
)
TRANSACTION_CHECK_IN_30_SECONDS = _since(
    "5.1.1", "transactionCheckInterval is 30 seconds by default, not 60", "BrokerConfig@5.1.1"
)
ABORT_BACKUP = _since(
    "5.0.0", "each start leaves a file abort.bak", "DefaultMessageStore.createTempFile, MixAll.string2File@5.0.0"
)
TRANSACTION_METRICS = _since("5.2.0", "config/transactionMetrics is written", "TransactionMetrics.configFilePath@5.2.0")
TIMER_WHEEL = _since("5.0.0", "timerwheel is written", "TimerMessageStore@5.0.0")
COMPACTION_STORE = _since("5.1.0", "compaction/ is made", "CompactionStore@5.1.0")
ROCKSDB_STORE = _since("5.4.0", "each start makes the folder rocksdbstore/", "MessageRocksDBStorage@5.4.0")

# -- checkpoint -------------------------------------------------------------------------------------------------------

CHECKPOINT_MASTER_FLUSHED_OFFSET = _since(
    "5.0.0", "byte 24 of the checkpoint is masterFlushedOffset", "StoreCheckpoint@5.0.0"
)
CHECKPOINT_CONFIRM_OFFSET = _since("5.1.1", "byte 32 of the checkpoint is confirmPhyOffset", "StoreCheckpoint@5.1.1")
CHECKPOINT_LOGICS_OFFSET = _since("5.5.0", "byte 40 of the checkpoint is logicsPhysicalOffset", "StoreCheckpoint@5.5.0")

# -- records and queues -----------------------------------------------------------------------------------------------

MESSAGE_VERSION_2 = _since("5.1.0", "records of version 2 (long topics) are read and written", "MessageVersion@5.1.0")
OP_QUEUE_OFFSET_LISTS = _since(
    "5.1.0",
    "an op message can name a list of half messages",
    "TransactionalMessageServiceImpl.deletePrepareMessage@5.1.0",
)
OFFSET_BY_STORE_TIME = _since(
    "5.1.1",
    "an offset by time is the first message stored at that time or later, in the queue file that has it; before, the "
    "nearer of two messages, in a file chosen by the time of its last change",
    "ConsumeQueue.getOffsetInQueueByTime@5.1.1, @5.1.0, @4.9.7",
)
MIN_OFFSET_BY_HALVING = _since(
    "5.0.0",
    "the min offset of a queue is searched by halves, and is the end of a queue without live messages",
    "ConsumeQueue.correctMinOffset@5.0.0",
)

OFFSET_BY_TIME_IN_QUEUE = _since(
    "5.0.0",
    "an offset by time is at least the queue's min offset, and at most its max offset",
    "DefaultMessageStore.getOffsetInQueueByTime@5.0.0, @4.9.7",
)

# -- index ------------------------------------------------------------------------------------------------------------

INDEX_TAGS = _since("5.4.0", "the index has an entry for the tags of a message", "IndexService.buildIndex@5.4.0")
INDEX_FLUSHED_AT_STOP = _since(
    "5.0.0",
    "an index file is flushed when the broker stops, so the index count of a file without an entry is 1",
    "IndexFile.shutdown@5.0.0",
)

# -- boots ------------------------------------------------------------------------------------------------------------

DISPATCHES_AT_CLEAN_BOOT = _until(
    "5.0.0",
    "after a clean stop, the messages after the last one of all queues are dispatched",
    "DefaultMessageStore.start@4.9.7",
)
DISPATCHES_AFTER_QUEUE_END = _since(
    "5.3.2",
    "after a clean stop, the messages that start after the end of all queues are dispatched",
    "CommitLog.recoverNormally@5.3.2",
)
RECOVERS_FROM_TENTH_FILE = _since(
    "5.4.0",
    "a boot begins with the tenth-last segment at the latest (commitLogRecoverMaxNum), and with one whose first record "
    "is whole; the queues are cut by their end after the dispatch",
    "CommitLog.recoverNormally, recoverAbnormally, isMappedFileMatchedRecover, ConsumeQueueStore.truncateDirty@5.4.0",
)
RECOVERS_FROM_FLUSHED_QUEUES = _since(
    "5.5.0",
    "after an unclean stop, a boot begins with the segment of the checkpoint's logicsPhysicalOffset; "
    "enableAcceleratedRecovery and checkCommitLogOffsetOnRecover are settings",
    "ConsumeQueueStore.isMappedFileMatchedRecover, CommitLog.recoverAbnormally@5.5.0",
)
FOLDERS_ARE_SKIPPED = _since(
    "5.1.0",
    "a folder among files that are mapped is skipped; before, it keeps the broker from starting",
    "MappedFileQueue.doLoad@5.1.0",
)
EMPTY_LAST_FILE_IS_DELETED = _since(
    "5.1.3",
    "a last file without a byte is deleted; before, it keeps the broker from starting",
    "MappedFileQueue.doLoad@5.1.3",
)
SIZE_IS_CHECKED_FIRST = _since(
    "5.3.2",
    "a record that is larger than the rest of its segment ends the log",
    "CommitLog.checkMessageAndReturnSize@5.3.2",
)
READS_BEFORE_EMPTY_QUEUE_FILE = VersionRule(
    "a start fails if the last file of a queue has no unit: the one before its first byte is read",
    BrokerVersion.parse("5.0.0"),
    BrokerVersion.parse("5.5.0"),
    "ConsumeQueue.correctMinOffset@5.0.0, @5.4.0",
)
DLEDGER_DISPATCHES_AFTER_CRASH = _since(
    "5.2.0",
    "after an unclean stop, a boot on a DLedger log dispatches its messages, and then cuts the queues where the log "
    "would end if entries had no heads",
    "DLedgerCommitLog.dledgerRecoverAbnormally@5.2.0",
)
BATCH_PROPERTIES_ARE_CHECKED = _since(
    "5.0.0", "INNER_NUM and INNER_BASE must be numbers", "CommitLog.checkMessageAndReturnSize@5.0.0"
)
PROPERTY_CRC = _since("5.2.0", "forceVerifyPropCRC and enabledAppendPropCRC are settings", "CommitLog@5.2.0")

# -- filters ----------------------------------------------------------------------------------------------------------

SQL92_SEARCH = _since("5.1.3", "SQL92 has CONTAINS, STARTSWITH and ENDSWITH", "SelectorParser@5.1.3")


def version_rules() -> dict[str, VersionRule]:
    """All rules of this module, by name."""
    return {name: rule for name, rule in globals().items() if isinstance(rule, VersionRule)}


@dataclass(frozen=True)
class BrokerVersions:
    """The versions of the broker that are possible for a store: all releases from `first` to `last`.

    Attributes:
        first: The oldest one.
        last: The newest one.
        evidence: Why only these are possible, as text for a person.
        is_assumed: Whether a person named a version whose rules are not known; the evidence says so.
    """

    first: BrokerVersion
    last: BrokerVersion
    evidence: str = field(compare=False)
    is_assumed: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str, option: str = "--broker-version") -> Self:
        """The versions that a person names: `5.1.0` is one, and `5.1`, `5` and `4.9` are all releases of a line.

        A release between two known ones, such as 5.3.4, stands for both: a rule is known if it is the same in both. A
        newer one than all known releases stands for the newest, and the evidence says that its rules are assumed.

        Args:
            text: The text.
            option: The option with which it was given, for the evidence and the error.

        Raises:
            OptionError: The text is not a version of 4.9 or 5.

        Examples:
            >>> str(BrokerVersions.parse("5.1"))
            '5.1.0 to 5.1.4'
        """
        numbers = _numbers(text, 1)
        if numbers[:1] != [5] and numbers[:2] != [4, 9]:
            raise OptionError(f"broker version {text!r} is neither 4.9 nor 5, nor a version such as 4.9.7 or 5.3.3")
        named = [one for one in RELEASES if [one.major, one.minor, one.patch][: len(numbers)] == numbers]
        if named:
            return cls(named[0], named[-1], option)
        version = BrokerVersion(*(*numbers, 0)[:3])
        after = next((one for one in RELEASES if one > version), None)
        if after is None:
            newer = (
                f"{option} {text}: newer than {NEWEST}, the newest release whose rules are known; its rules are assumed"
            )
            return cls(NEWEST, NEWEST, newer, is_assumed=True)
        before = max(one for one in RELEASES if one < version)
        evidence = f"{option} {text}: its rules are not known, only those of {before} and {after}"
        return cls(before, after, evidence, is_assumed=True)

    @property
    def releases(self) -> tuple[BrokerVersion, ...]:
        """The possible releases, in order."""
        return tuple(one for one in RELEASES if self.first <= one <= self.last)

    def within(self, others: BrokerVersions) -> BrokerVersions:
        """The versions that are also among `others`; these ones if there is none, because a person may know better."""
        first, last = max(self.first, others.first), min(self.last, others.last)
        if first > last or (first, last) == (self.first, self.last):
            return self
        return BrokerVersions(first, last, f"{self.evidence}; {others.evidence}")

    def undecided(self, rule: VersionRule) -> str:
        """Why the rule is not decided, as text for a person, with what to do."""
        change = f"from {rule.since} on" if rule.since is not None else f"before {rule.until}"
        return (
            f"{change}, {rule.meaning} ({rule.source}), and the broker can be any of {self} ({self.evidence}): give "
            "its version (--broker-version, option brokerVersion, argument broker_version), such as 5.3.3"
        )

    def decide(self, rule: VersionRule) -> bool | None:
        """Whether the broker follows the rule; None if some of the possible versions do, and others do not."""
        answers = {rule.holds(version) for version in self.releases}
        return answers.pop() if len(answers) == 1 else None

    def __str__(self) -> str:
        """The versions as text, such as `5.1.0` or `5.0.0 to 5.3.3`."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


ALL_VERSIONS = BrokerVersions(OLDEST, NEWEST, "nothing in the store tells the version of its broker")


def versions_text(groups: Iterable[BrokerVersions]) -> str:
    """The versions of some groups as text; groups that follow each other are one range."""
    ranges: list[BrokerVersions] = []
    for group in groups:
        if ranges and RELEASES.index(ranges[-1].last) + 1 == RELEASES.index(group.first):
            ranges[-1] = BrokerVersions(ranges[-1].first, group.last, group.evidence)
        else:
            ranges.append(group)
    return ", ".join(map(str, ranges))
