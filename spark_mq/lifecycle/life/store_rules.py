"""The rules for the meaning of a store's records, out of its config files and its broker's settings."""

from __future__ import annotations

from functools import cached_property

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, TRACE_TOPIC, delay_level_millis
from spark_mq.lifecycle.life.life_store import LifeStore, life_store
from spark_mq.lifecycle.life.situation import Situation, SituationRules, situation
from spark_mq.lifecycle.retry_topic import consumer_groups, retry_max_times
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore


class Situations:
    """What records of one store mean. Its config files are read when the first record is asked about."""

    def __init__(self, store: MessageStore | LifeStore, conf: BrokerConf, trace_topic: str = TRACE_TOPIC) -> None:
        """`conf` is for `messageDelayLevel`."""
        self._store = life_store(store)
        self._conf = conf
        self._trace_topic = trace_topic

    @cached_property
    def rules(self) -> SituationRules:
        """The rules of the store."""
        return SituationRules(
            delay_level_millis(self._conf.message_delay_level or DEFAULT_DELAY_LEVELS),
            consumer_groups(self._store.location),
            frozenset(self._store.known_topics()),
            retry_max_times(self._store.location),
            self._trace_topic,
        )

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
        self.rules = SituationRules()

    def _due(self, record: Record) -> int | None:
        return None
