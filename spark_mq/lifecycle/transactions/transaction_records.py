"""What a store has about transactions: which messages, and up to where the broker has decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.messages.selected_messages import Selection, TopicRule
from spark_mq.lifecycle.messages.sound_messages import SOUND_COLUMNS
from spark_mq.store.config.consumer_offsets import CONSUMER_OFFSETS, load_consumer_offsets
from spark_mq.store.config.store_paths import CONFIG

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of half messages that the broker gave up (`TopicValidator.RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC`@5.3.3)."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offset in the half topic says how far the broker has decided."""

RECORDS = Selection(
    TopicRule(names=frozenset({HALF_TOPIC, DISCARD_TOPIC}), transaction_types=frozenset({"COMMIT"})),
    (
        "commit_log_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "unique_key",
        "sys_flag",
        "born_timestamp_millis",
        "born_host",
        "store_timestamp_millis",
        "prepared_transaction_offset",
        *SOUND_COLUMNS,
    ),
    (
        "REAL_TOPIC",
        "REAL_QID",
        "PGROUP",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
    ),
)
"""The half messages, commits and discarded messages of a store."""

OPS = Selection(
    TopicRule(names=frozenset({OP_TOPIC})),
    ("commit_log_offset", "queue_id", "tags", "body", "store_timestamp_millis", CORRUPT_RECORD, *SOUND_COLUMNS),
    check_crc=True,
)
"""The op messages of a store."""


@dataclass(frozen=True)
class DecidedHalves:
    """Up to which queue offset the broker has decided about half messages, by queue id of the half topic.

    `problem` is the reason if that is not known. A queue that is absent has no decided half message.
    """

    offsets: Mapping[int, int]
    problem: str | None = None

    @classmethod
    def of(cls, store: Location) -> DecidedHalves:
        """The offsets of CID_RMQ_SYS_TRANS in `config/consumerOffset.json` of a store."""
        file = store / CONFIG / CONSUMER_OFFSETS
        try:
            found = load_consumer_offsets(store)
        except (ConfigError, UnsupportedStoreError) as error:
            return cls({}, str(error))
        if not found and not file.is_file and not (store / CONFIG / f"{CONSUMER_OFFSETS}.bak").is_file:
            return cls({}, f"there is no file {file}")
        mine = (one for one in found if (one.topic, one.consumer_group) == (HALF_TOPIC, TRANSACTION_GROUP))
        return cls({one.queue_id: one.offset for one in mine})
