"""What becomes of each file of a restored store: it is kept, it is translated, or a broker has to make it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_mq.restorer.config_files import CONSUMER_OFFSETS, DELAY_OFFSETS, LMQ_CONSUMER_OFFSETS, TOPICS


class Situation(StrEnum):
    """How the messages of a source come into the new store."""

    WHOLE = "whole"
    """All messages of a store directory, with their offsets."""
    PARTIAL = "partial"
    """Messages of an archive, or a part of the messages of a store directory, with their offsets."""
    RENUMBERED = "renumbered"
    """Messages with new offsets."""


class Treatment(StrEnum):
    """What becomes of a file."""

    KEPT = "kept"
    """The bytes of the source."""
    TRANSLATED = "translated"
    """The content of the source, as far as it fits the result; new offsets and topics instead of the old ones."""
    LEFT_OUT = "left out"
    """The new store does not have the file."""


@dataclass(frozen=True)
class FileRule:
    """What becomes of a file, or of a folder, of the source.

    Attributes:
        path: The path in the store; a folder ends with a slash.
        reason: Why, and what a broker does without the file.
    """

    path: str
    whole: Treatment
    partial: Treatment
    renumbered: Treatment
    reason: str

    def treatment(self, situation: Situation) -> Treatment:
        """The treatment in a situation."""
        return {
            Situation.WHOLE: self.whole,
            Situation.PARTIAL: self.partial,
            Situation.RENUMBERED: self.renumbered,
        }[situation]


_KEPT, _TRANSLATED, _LEFT_OUT = Treatment.KEPT, Treatment.TRANSLATED, Treatment.LEFT_OUT

_TIMERS = (
    "it leads to timer messages by their commit log offsets; a left-out record there would stop all timers "
    "(TimerDequeuePutMessageService). Without it a broker of 5.x reads the timer messages of the log again: one whose "
    "time has passed is delivered at once, also if it was delivered before (--only-delivered leaves them out)"
)
_DATABASE = (
    "it is a RocksDB database, which is not read here. The new store has topics.json only; export the database with "
    "mqadmin rocksDBConfigToJson to have consumers' offsets and groups"
)

FILE_RULES = (
    FileRule(TOPICS, _TRANSLATED, _TRANSLATED, _TRANSLATED, "topics that lack an entry are added"),
    FileRule("config/subscriptionGroup.json", _KEPT, _KEPT, _KEPT, "it names neither offsets nor topics"),
    FileRule(
        "config/consumerFilter.json",
        _KEPT,
        _KEPT,
        _KEPT,
        "it has filters of groups, without offsets; renamed topics have their old names in it",
    ),
    FileRule(
        "config/messageRequestMode.json",
        _KEPT,
        _KEPT,
        _KEPT,
        "it has pull or pop modes of groups, without offsets; renamed topics have their old names in it",
    ),
    FileRule(
        CONSUMER_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "offsets in queues that the result does not have are left out: a group begins there as a new group does",
    ),
    FileRule(
        LMQ_CONSUMER_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "as consumerOffset.json; offsets in LMQ queues stay, because messages name their places in them",
    ),
    FileRule(
        DELAY_OFFSETS,
        _TRANSLATED,
        _TRANSLATED,
        _TRANSLATED,
        "without the offset of a level, a broker delivers all delayed messages of the level again",
    ),
    FileRule(
        "config/topicQueueMapping.json",
        _KEPT,
        _KEPT,
        _LEFT_OUT,
        "it maps queue offsets of static topics to offsets of this broker's queues, which are new. Without it the "
        "topics are ordinary ones",
    ),
    FileRule(
        "config/consumerOrderInfo.json",
        _KEPT,
        _KEPT,
        _LEFT_OUT,
        "it has queue offsets of messages that ordered pop consumers have not acknowledged. Without it they are "
        "delivered again",
    ),
    FileRule(
        "config/transactionMetrics",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it counts half messages, which can be others now. A broker counts from 0; nothing else uses the numbers",
    ),
    FileRule(
        "config/tieredStoreMetadata.json",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it says which messages are in tiered storage. Without it a broker uploads messages again",
    ),
    FileRule("config/timercheck", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule("timerwheel", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule("timerlog/", _KEPT, _LEFT_OUT, _LEFT_OUT, _TIMERS),
    FileRule(
        "config/timermetrics",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it counts waiting timer messages. A broker counts them again when it reads them",
    ),
    FileRule(
        "compaction/",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it has compacted copies of messages with their offsets. Without it a broker with enableCompaction compacts, "
        "and serves, only new messages of topics with cleanup.policy=COMPACTION",
    ),
    FileRule(
        "batchconsumequeue/",
        _KEPT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it has the queues of topics with queue.type=BatchCQ, which are not built here. A broker builds them if the "
        "store has a file abort and neither checkpoint nor queues",
    ),
    FileRule(
        "consumequeue_ext/",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "units of rebuilt queues have tags codes, and lead to no extension",
    ),
    FileRule(
        "epochFileCheckpoint",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it is the history of masters in a replica group (controller mode), of which a restored store is not a replica",
    ),
    FileRule(
        "brokerIdentity",
        _LEFT_OUT,
        _LEFT_OUT,
        _LEFT_OUT,
        "it is a replica's name in controller mode, which two brokers must not have. A broker registers again",
    ),
    FileRule("config/topics/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/subscriptionGroups/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/consumerOffsets/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
    FileRule("config/rdb/", _LEFT_OUT, _LEFT_OUT, _LEFT_OUT, _DATABASE),
)
"""What becomes of each file and folder, except those that the job makes: commit log, queues, index and checkpoint, and
except `abort` and `lock`, which a broker makes for itself."""

_RULES = {rule.path: rule for rule in FILE_RULES}


def rule_of(path: str) -> FileRule | None:
    """The rule for a file of the source; None if this package does not know the file."""
    folder = "/".join(path.split("/")[: 2 if path.startswith("config/") else 1]) + "/"
    return _RULES.get(path) or _RULES.get(folder)


def kept_paths(situation: Situation) -> list[str]:
    """The files and folders that the new store has as they are in the source."""
    return [rule.path for rule in FILE_RULES if rule.treatment(situation) == Treatment.KEPT]
