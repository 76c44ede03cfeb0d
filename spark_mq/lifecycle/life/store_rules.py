"""The rules for the meaning of a store's records, out of its config files and its broker's settings."""

from __future__ import annotations

from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.delay_level import DEFAULT_DELAY_LEVELS, delay_level_millis
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.format.system_topic import SCHEDULE_TOPIC, TRACE_TOPIC
from spark_mq.lifecycle.consumption.retry_topic import consumer_groups
from spark_mq.lifecycle.life.situation import Situation, SituationRules, situation
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.message_store import MessageStore
from spark_mq.store.unique_key_search import known_topics


def store_rules(store: MessageStore, conf: BrokerConf, trace_topic: str = TRACE_TOPIC) -> SituationRules:
    """The rules of a store.

    Args:
        store: The store.
        conf: The broker's settings, for `messageDelayLevel`.
        trace_topic: The topic of trace messages.

    Raises:
        OptionError: `messageDelayLevel` is not valid.

    """
    return SituationRules(
        delay_level_millis(conf.message_delay_level or DEFAULT_DELAY_LEVELS),
        consumer_groups(store.location),
        frozenset(known_topics(store)),
        _retry_max_times(store),
        trace_topic,
    )


class Situations:
    """What records of one store mean. Its config files are read when the first record is asked about."""

    def __init__(self, store: MessageStore, conf: BrokerConf, trace_topic: str = TRACE_TOPIC) -> None:
        """As `store_rules`."""
        self._store = store
        self._conf = conf
        self._trace_topic = trace_topic
        self._rules: SituationRules | None = None

    @property
    def rules(self) -> SituationRules:
        """The rules of the store."""
        if self._rules is None:
            self._rules = store_rules(self._store, self._conf, self._trace_topic)
        return self._rules

    def of(self, record: Record) -> Situation:
        """What a record means; for a delayed message, its unit says when it is due."""
        return situation(record, self.rules, self._due(record))

    def _due(self, record: Record) -> int | None:
        """The tags code of the unit of a delayed message; None if the unit does not point to the message."""
        if decode_utf8(record.topic) != SCHEDULE_TOPIC or record.queue_offset < 0:
            return None
        queue = self._store.find_queue(SCHEDULE_TOPIC, record.queue_id)
        if queue is None:
            return None
        commit_log_offset, store_size, _ = queue.unit(record.queue_offset)
        is_its_own = (commit_log_offset, store_size) == (record.commit_log_offset, record.size)
        return queue.tags_code(record.queue_offset) if is_its_own and store_size != PRE_BLANK_SIZE else None


def _retry_max_times(store: MessageStore) -> dict[str, int]:
    """`retryMaxTimes` of each group; empty if the file is missing or cannot be read."""
    try:
        return load_config(store.location, "subscriptionGroup.json", _decode) or {}
    except (ConfigError, UnsupportedStoreError):
        return {}


def _decode(content: dict[str, Any]) -> dict[str, int]:
    groups = content.get("subscriptionGroupTable") or {}
    return {
        str(name): as_integer(settings["retryMaxTimes"], 32)
        for name, settings in groups.items()
        if "retryMaxTimes" in settings
    }
