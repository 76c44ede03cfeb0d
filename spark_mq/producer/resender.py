"""Messages sent again, one after the other, by a journal; and a receipt that counts what became of each.

At most once: a message is noted before it is sent. One without an answer, or whose run was killed, is uncertain. It
counts as sent if the cluster has a message with the unique key that it got; if not, it is not sent again unless told.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_mq.errors import RefusedError
from spark_mq.format.dispatch import record_keys
from spark_mq.format.record import Record
from spark_mq.live.cluster import live_brokers
from spark_mq.live.look_ups import with_key
from spark_mq.producer.journal import Begun, Journal
from spark_mq.producer.message_queues import MessageQueue, publish_queues
from spark_mq.producer.options import DEFAULT_GROUP
from spark_mq.producer.resend import Resend, new_unique_key, resend_of
from spark_mq.remoting.client import BUSY, RemotingClient
from spark_mq.remoting.requests import Route, find_route
from spark_mq.remoting.writes import send_message
from spark_mq.restorer.queue_choice import by_hash

_ATTEMPTS = 5
_FOUND = 32
"""Messages with one unique key for which a broker is asked; keys are new, so that it has one at most."""


@dataclass
class Receipt:
    """How many messages were found, and what became of them; each of them counts once more below `found`.

    Attributes:
        sent: Those that were sent in this run, or would be; by their topics from and to.
        already_sent: Those that the journal, or the cluster, says were sent before, and those that a run made.
        uncertain: Those that may have been sent, and were not sent again.
        copies: Those that are copies of a message that was found before.
        refused: The others, by the reason; `examples` has the first one of each reason.
    """

    found: int = 0
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    already_sent: int = 0
    uncertain: int = 0
    copies: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, reason: str, example: str) -> None:
        """Count a message that is refused."""
        self.refused[reason] += 1
        self.examples.setdefault(reason, example)


@dataclass
class Resender:
    """Sends messages again, or only counts what would be sent.

    Attributes:
        to_topic: The topic of all messages; None for the one that each came from.
        applies: Whether messages are sent; then the journal can be written.
        sends_uncertain: Whether messages are sent again that may have been sent.
    """

    client: RemotingClient
    journal: Journal
    to_topic: str | None
    applies: bool
    sends_uncertain: bool
    receipt: Receipt = field(default_factory=Receipt)
    _routes: dict[str, Route | None] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _turn: int = field(default_factory=lambda: random.randrange(1 << 16))

    def send(self, records: Iterable[Record]) -> None:
        """Send messages in their order. Every message that was read is in the receipt, also after an error.

        Raises:
            RemotingError: A broker does not answer. The message is uncertain if it was sent.
            StorageError: The journal cannot be written.
        """
        for record in records:
            self.receipt.found += 1
            resend = resend_of(record, self.to_topic)
            if isinstance(resend, str):
                self.receipt.refuse(resend, f"commit log offset {record.commit_log_offset}")
            else:
                self._send_one(resend)

    def _send_one(self, resend: Resend) -> None:
        receipt, identity = self.receipt, resend.identity
        if identity in self._seen:
            receipt.copies += 1
            return
        self._seen.add(identity)
        is_own = resend.unique_key in self.journal.unique_keys
        if is_own or identity in self.journal.sent or self._was_stored(identity):
            receipt.already_sent += 1
            return
        if identity in self.journal.uncertain and not self.sends_uncertain:
            receipt.uncertain += 1
            return
        queues = self._queues(resend.topic)
        if not queues:
            reason = f"no broker has a queue of topic {resend.topic} to which messages can be sent: create the topic"
            receipt.refuse(f"{reason} (mqadmin updateTopic), or give --to-topic", identity)
            return
        refused = self._transmit(resend, queues) if self.applies else None
        if refused is None:
            receipt.sent[resend.from_topic, resend.topic] += 1
        else:
            receipt.refuse(refused, identity)

    def _was_stored(self, identity: str) -> bool:
        """Whether the cluster has an uncertain message. An index that is not up to date, or off, shows nothing."""
        begun = self.journal.uncertain.get(identity)
        if begun is None or not any(self._has(broker.address, begun) for broker in live_brokers(self.client)):
            return False
        if self.applies:
            self.journal.note_sent(identity)
        return True

    def _has(self, address: str, begun: Begun) -> bool:
        found = with_key(self.client, address, begun.topic, begun.unique_key, _FOUND)
        return any(record_keys(one.record).get(begun.unique_key) for records in found for one in records)

    def _queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self._routes:
            self._routes[topic] = find_route(self.client, topic)
        route = self._routes[topic]
        return [] if route is None else publish_queues(route)

    def _transmit(self, resend: Resend, queues: list[MessageQueue]) -> str | None:
        """Send a message; returns why a broker refused it, or None. A broker that is busy is asked again."""
        key = resend.sharding_key
        number = self._turn if key is None else by_hash(key, len(queues))
        self._turn += key is None
        queue = queues[number % len(queues)]
        route = self._routes[resend.topic]
        assert route is not None
        address = next(broker.address() for broker in route.brokers if broker.name == queue.broker)
        for attempt in range(_ATTEMPTS):
            self.client.connection(address)  # an error before anything is noted
            begun = Begun(resend.topic, new_unique_key())
            try:
                self.journal.begin(resend.identity, begun)
                send_message(
                    self.client,
                    address,
                    queue.broker,
                    DEFAULT_GROUP,
                    resend.topic,
                    queue.queue_id,
                    resend.body,
                    resend.properties_text(begun.unique_key),
                    resend.flag,
                    resend.sys_flag,
                )
            except RefusedError as error:
                self.journal.note_refused(resend.identity, str(error))
                if error.code not in BUSY:
                    return str(error)
                if attempt == _ATTEMPTS - 1:
                    self.receipt.refuse(str(error), resend.identity)
                    raise
                time.sleep(0.2 * 2**attempt)
            except BaseException:  # also Ctrl-C
                self.receipt.uncertain += resend.identity in self.journal.uncertain
                raise
            else:
                self.journal.note_sent(resend.identity)
                return None
        raise AssertionError
