"""The look-ups of a message's life in one running broker, without its files.

A broker's index finds copies of a message, as far as it has them. Those that decide its state are looked for in the
queues, too: op messages and notes, and the message in the queue to which it belongs after a transaction or a delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import chain

from spark_mq.errors import OptionError, ProtocolError
from spark_mq.format.consume_queue_ext import ExtUnit
from spark_mq.format.dispatch import record_keys
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.format.record import Record
from spark_mq.format.system_topic import (
    HALF_TOPIC,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    delay_level_millis,
)
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.life_store import MAX_FOLLOWING, Cut, FoundMessages, LifeStore, MessageExpiry
from spark_mq.lifecycle.outcomes import DeliveryProgress
from spark_mq.live.cluster import LiveBroker, message_at, place_in_log
from spark_mq.live.look_ups import at_commit_log_offset, read_range, records_of_range, with_key
from spark_mq.live.options import LiveOptions
from spark_mq.live.tables import config_folder
from spark_mq.remoting.client import shown
from spark_mq.remoting.pull import ALL_MESSAGES
from spark_mq.remoting.requests import broker_config, consumer_connections
from spark_mq.source.predicate import ALL, IntegerSet
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.consumer_filters import ConsumerFilter
from spark_mq.store.log.record_lookup import NoRecord

_AT_ONCE = 8
"""Topics of a broker that are asked for a key at the same time."""
_WAITING = (HALF_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which a message is stored before it comes into its own queue."""
_POPS_IN_ROCKSDB = "popConsumerKVServiceInit"


def messages_with_key(broker: LiveBroker, topics: Iterable[str], key: str, times: IntegerSet = ALL) -> list[Record]:
    """The messages of topics that have a key, as KEYS or as unique key, and that a broker's index finds; unordered."""

    def of_topic(topic: str) -> list[Record]:
        found = with_key(broker.client, broker.address, topic, key, broker.max_queried, times)
        records = (one.record for records in found for one in records)
        return [one for one in records if key in record_keys(one) and one.store_timestamp in times]

    _ = broker.max_queried  # asked for once, before the threads
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(chain.from_iterable(pool.map(of_topic, topics)))


class BrokerLife(LifeStore):
    """The look-ups of a running broker, which is asked for its settings and config files when they are needed."""

    not_known = ("when it expires, and whether the broker's index has all of its copies: only the store's files tell",)

    no_filter = "no connected consumer of the group tells it; --tag gives its tags, --filter its expression"

    def __init__(self, broker: LiveBroker, options: LiveOptions) -> None:
        self._broker = broker
        self._options = options

    @cached_property
    def location(self) -> Location:  # type: ignore[override]
        """A folder whose `config/` has what the broker has in memory."""
        self._folder = config_folder(self._broker)  # it is there as long as this object
        return Location.resolve(self._folder.name)

    @cached_property
    def broker_conf(self) -> BrokerConf:  # type: ignore[override]
        """The broker's settings."""
        conf = BrokerConf(broker_config(self._broker.client, self._broker.address), "the broker's settings")
        try:
            delay_level_millis(conf.message_delay_level)
        except OptionError as error:
            what = f"{self._broker.address}: the answer to GET_BROKER_CONFIG"
            raise ProtocolError(f"{what}: {shown(str(error))}") from error
        return conf

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        nothing = f"broker {self._broker.address} has no message at commit log offset {commit_log_offset}"
        try:
            found = at_commit_log_offset(self._broker.client, self._broker.address, commit_log_offset)
        except ProtocolError:  # no record starts there
            return NoRecord(nothing)
        return found[0].record if found else NoRecord(nothing)

    def find_key(self, key: str, also: Iterable[str] = ()) -> FoundMessages:
        if not self._broker.has_index:
            return FoundMessages((), (f"broker {self._broker.address} makes no index (messageIndexEnable)",))
        records = messages_with_key(self._broker, sorted({*self._broker.topics, *also}), key)
        found = {record.commit_log_offset: record for record in records}
        damage = []
        for record in sorted(records, key=lambda one: one.commit_log_offset):
            if decode_utf8(record.topic) in _WAITING:
                for part in self._in_own_queue(record, found.values()):
                    if isinstance(part, Cut):
                        damage.append(part.reason)
                    else:
                        found[part.commit_log_offset] = part
        return FoundMessages(tuple(found[offset] for offset in sorted(found)), tuple(damage))

    def _in_own_queue(self, waiting: Record, found: Iterable[Record]) -> Iterator[Record | Cut]:
        """The messages with the unique key of a waiting one that came into the queue to which it belongs."""
        properties = waiting.text_properties
        topic, queue_id = properties.get("REAL_TOPIC", ""), properties.get("REAL_QID", "")
        unique_key = properties.get("UNIQ_KEY")
        is_there = any(
            one.commit_log_offset > waiting.commit_log_offset and decode_utf8(one.topic) == topic for one in found
        )
        if is_there or unique_key is None or not queue_id.isascii() or not queue_id.isdigit():
            return
        for part in self.messages_after(topic, int(queue_id), waiting.commit_log_offset):
            if isinstance(part, Cut) or part.text_properties.get("UNIQ_KEY") == unique_key:
                yield part

    def known_topics(self) -> Iterable[str]:
        return self._broker.topics

    def due(self, record: Record) -> int | None:
        return None  # a broker does not hand out units of queues, so only the settings tell it

    def queue_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        if self.why_no_queue(topic, queue_id) is not None:
            return 0, 0
        queue = self._broker.queue(topic, queue_id)
        return queue.start, queue.stop

    def why_no_queue(self, topic: str, queue_id: int) -> str | None:
        known = self._broker.topics.get(topic)
        if known is not None and queue_id < known.read_queue_nums:
            return None
        return f"broker {self._broker.address} does not hand out the messages of {topic}/{queue_id}"

    def find_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> Record | NoRecord:
        found = message_at(self._broker, self._broker.queue(topic, queue_id), queue_offset)
        return found or NoRecord(f"broker {self._broker.address} does not hand out a message at this offset")

    def filter_facts(self, record: Record) -> tuple[int | None, ExtUnit | None]:
        tags = record.text_properties.get("TAGS")
        return hash_code(tags or ""), None  # `MessageExtBrokerInner.tagsString2tagsCode`@5.3.3

    def consumer_filters(self) -> Sequence[ConsumerFilter]:
        return ()

    def subscription(self, consumer_group: str, topic: str) -> tuple[str | None, str | None]:
        connected = consumer_connections(self._broker.client, self._broker.address, consumer_group)
        found = None if connected is None else connected.subscriptions.get(topic)
        if found is None:
            return None, None
        expression, kind = found
        return (None, expression) if kind == "SQL92" else (expression, None)

    def queue_notes(self, topic: str) -> Sequence[str]:
        has_bits = self.broker_conf.is_enabled("enableCalcFilterBitMap")
        text = "whether the broker drops it by its bit map (enableCalcFilterBitMap): only the store's files tell"
        return [text] if has_bits else []

    def messages_after(self, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
        why_not = self.why_no_queue(topic, queue_id)  # 4.9 has no settings of the topic of op messages
        if why_not is not None:
            yield Cut(why_not)
            return
        queue = self._broker.queue(topic, queue_id)
        start, _ = place_in_log(self._broker, queue, commit_log_offset + 1)
        stop = min(queue.stop, start + MAX_FOLLOWING)
        rest = replace(queue, start=start, stop=stop)
        parts = read_range(self._broker.client, rest, ALL_MESSAGES, self._options, records_of_range)
        for record in chain.from_iterable(parts):
            if record.commit_log_offset > commit_log_offset:
                yield record
        if stop < queue.stop:
            yield Cut(f"more than {MAX_FOLLOWING:,} messages of {topic}/{queue_id} follow")

    def revive_messages(self, commit_log_offset: int) -> Iterator[Record | Cut]:
        for name, topic in self._broker.topics.items():
            if name == TIMER_TOPIC or name.startswith(REVIVE_PREFIX):
                for queue_id in range(topic.read_queue_nums):
                    yield from self.messages_after(name, queue_id, commit_log_offset)

    def unread_pops(self) -> str | None:
        in_rocksdb = self.broker_conf.is_enabled(_POPS_IN_ROCKSDB)
        return f"the broker can keep pops in RocksDB ({_POPS_IN_ROCKSDB}), which is not read" if in_rocksdb else None

    def deliveries(self) -> DeliveryProgress:
        problem = "how far the broker has delivered timers: only the store's files tell (config/timercheck)"
        return replace(super().deliveries(), timer_problem=problem)

    def missing(self) -> str | None:
        return None

    def expiries(self, offsets: Iterable[int], conf: BrokerConf, name: str, at: int) -> list[MessageExpiry]:
        return []
