"""The rules for the meaning of a store's records, out of its config files and its broker's settings."""

from __future__ import annotations

from typing import Any

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, TRACE_TOPIC, delay_level_millis
from spark_mq.lifecycle.life.life_store import LifeStore, life_store
from spark_mq.lifecycle.life.situation import Situation, SituationRules, situation
from spark_mq.lifecycle.retry_topic import consumer_groups
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import as_integer, load_config
from spark_mq.store.message_store import MessageStore


def store_rules(store: LifeStore, conf: BrokerConf, trace_topic: str = TRACE_TOPIC) -> SituationRules:
    """The rules of a store.

    Args:
        conf: The broker's settings, for `messageDelayLevel`.
    """
    return SituationRules(
        delay_level_millis(conf.message_delay_level or DEFAULT_DELAY_LEVELS),
        consumer_groups(store.location),
        frozenset(store.known_topics()),
        _retry_max_times(store),
        trace_topic,
    )


class Situations:
    """What records of one store mean. Its config files are read when the first record is asked about."""

    def __init__(self, store: MessageStore | LifeStore, conf: BrokerConf, trace_topic: str = TRACE_TOPIC) -> None:
        """As `store_rules`."""
        self._store = life_store(store)
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
        """When a delayed message is due; None for another message, and if only the settings tell that."""
        return self._store.due(record) if decode_utf8(record.topic) == SCHEDULE_TOPIC else None


class DefaultSituations(Situations):
    """What records mean by the settings that a store has by default, if nothing else than the records is known."""

    def __init__(self) -> None:
        """Without a store."""
        self._rules = SituationRules()

    def _due(self, record: Record) -> int | None:
        return None


def _retry_max_times(store: LifeStore) -> dict[str, int]:
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
