"""Which half messages were decided, by op messages and by records, and the settings of checks.

The body of an op message contains queue offsets of half messages, which are in the queue of the half topic with the
same queue id. A broker of 4.9 writes one offset; one of 5.x writes many, each with a comma after it
(`TransactionalMessageServiceImpl.getOpMessage`@5.3.3). Commit and rollback write the same op messages, with tag `d`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_mq.errors import ConfigError, OptionError, UnsupportedStoreError
from spark_mq.format.broker_version import TRANSACTION_CHECK_IN_30_SECONDS, BrokerVersions
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.selected_messages import SOUND_COLUMNS, Selection, TopicRule
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import CONSUMER_OFFSETS, load_consumer_offsets
from spark_mq.store.config.store_paths import CONFIG
from spark_mq.store.retention import reserved_time

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
class TransactionSettings:
    """The broker's settings for checks (`BrokerConfig`), in milliseconds.

    Attributes:
        timeout: The least age of a half message that is checked, `transactionTimeOut`.
        check_interval: The time between two rounds of checks, `transactionCheckInterval`.
        check_max: The number of checks after which a half message is discarded, `transactionCheckMax`.
        reserved: The age at which a half message is discarded without more checks, `fileReservedTime`.
    """

    timeout: int = 6_000
    check_interval: int = 30_000
    check_max: int = 15
    reserved: int = 72 * 3_600_000

    @classmethod
    def of(cls, conf: BrokerConf, versions: BrokerVersions) -> TransactionSettings:
        """The settings of a broker, or the defaults of its version; the shorter time where versions differ."""

        def setting(name: str, default: int) -> int:
            text = conf.settings.get(name, str(default)).strip()
            if not text.isdecimal() or len(text) > 18:
                raise OptionError(f"{conf.source}: {name}={text!r} is not a number")
            return int(text)

        is_long = versions.decide(TRANSACTION_CHECK_IN_30_SECONDS) is False
        return cls(
            setting("transactionTimeOut", cls.timeout),
            setting("transactionCheckInterval", 60_000 if is_long else cls.check_interval),
            setting("transactionCheckMax", cls.check_max),
            int(reserved_time(None, conf).value * 3_600_000),
        )


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
