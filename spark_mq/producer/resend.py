"""Stored messages that are sent again: where they go, what is kept of them, and which messages are refused.

Consumers get a new message: with a unique key of its own, the time of the resend as its born time, no attempts, and
three properties that name its origin. The properties that its producer chose stay. Those that brokers and consumers
wrote are left out: they would delay the message, begin a transaction, or lead to a queue, an attempt or a pop that is
past.

They are sent one after the other, by a journal (`resend_journal`), and a receipt counts what became of each. At most
once: a message is noted before it is sent. One without an answer, or whose run was killed, is uncertain. It counts as
sent if the cluster has a message with the unique key that it got; if not, it is not sent again unless told.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spark_mq.errors import RefusedError
from spark_mq.format.dispatch import record_keys
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import encode_offset_message_id, has_plausible_port, is_offset_message_id
from spark_mq.format.properties import CRC_PROPERTY, SHARDING_KEY, UNIQUE_KEY, encode_properties, parse_properties
from spark_mq.format.record import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, CRC_MASK, INNER_BATCH_FLAG, Record
from spark_mq.format.system_topic import RETRY_PREFIX, TRANS_OFFSET, is_system_topic
from spark_mq.lifecycle.retry_topic import DLQ_PREFIX
from spark_mq.live.cluster import live_brokers
from spark_mq.live.look_ups import with_key
from spark_mq.producer.message_queues import DEFAULT_GROUP, MessageQueue, publish_queues
from spark_mq.producer.resend_journal import Begun, Journal
from spark_mq.remoting.client import BUSY, RemotingClient
from spark_mq.remoting.requests import Route, find_route
from spark_mq.remoting.writes import send_message
from spark_mq.restorer.queue_choice import by_hash

FROM_TOPIC, FROM_MESSAGE_ID, FROM_UNIQUE_KEY = "RESENT_FROM_TOPIC", "RESENT_FROM_MESSAGE_ID", "RESENT_FROM_UNIQUE_KEY"
"""Properties of a message that was sent again: the topic, offset message id and unique key of the stored message.

They are not among RocketMQ's own names (`MessageConst.STRING_HASH_SET`@5.3.3), so filters and clients can use them.
"""
_LEFT_OUT = frozenset(
    name.encode()
    for name in (
        # of a delay, a timer, or a transaction
        *("DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL"),
        *("TIMER_ROLL_LABEL", "E_T"),
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", TRANS_OFFSET),
        # of attempts of a consumer group
        *("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "RECONSUME_TIME"),
        *("MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
        "ORIGIN_GROUP",
        # of one place in one cluster
        *("CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET", "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM"),
        *("INNER_BASE", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID"),
        *("BUYER_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("__BORNHOST", "BORN_TIMESTAMP", "WAIT"),
    )
) | {UNIQUE_KEY, CRC_PROPERTY}
"""Properties that are not sent again (`MessageConst`@5.3.3, 5.5.0). `WAIT` is false in copies of returned messages."""
_TRANSIENT = b"__RMQ.TRANSIENT."
_KEY_SIZE = 16
_ATTEMPTS = 5
_FOUND = 32
"""Messages with one unique key for which a broker is asked; keys are new, so that it has one at most."""


@dataclass(frozen=True)
class Resend:
    """A message that can be sent again.

    Attributes:
        identity: What a journal calls it: copies of a dead letter have the same identity, other messages have not.
        topic: The topic to which it is sent.
        sys_flag: The bits of the body's compression.
        sharding_key: The text that chooses its queue; None if it can be any queue.
        unique_key: The unique key of the stored message; None if it has none.
    """

    identity: str
    from_topic: str
    topic: str
    body: bytes
    properties: dict[bytes, bytes]
    flag: int
    sys_flag: int
    sharding_key: str | None
    unique_key: str | None

    def properties_text(self, unique_key: str) -> str:
        """The properties, with a unique key, as they are sent."""
        return decode_utf8(encode_properties(self.properties | {UNIQUE_KEY: unique_key.encode()}))


def resend_of(record: Record, to_topic: str | None = None) -> Resend | str:
    """The message that a stored one is sent as, by default to its own topic, or to that of a dead letter's origin.

    A text says why it is refused.
    """
    topic, stored = decode_utf8(record.topic), parse_properties(record.properties)
    reason = _why_refused(record, topic)
    if reason is not None:
        return reason
    target = to_topic or _own_topic(topic, stored)
    if target is None:
        return "the dead letter does not say from which topic it came: give --to-topic"
    own_id = encode_offset_message_id(record.store_host, record.commit_log_offset)
    key = stored.get(UNIQUE_KEY)
    origin = {FROM_TOPIC: record.topic, FROM_MESSAGE_ID: own_id.encode(), FROM_UNIQUE_KEY: key}
    kept = {name: value for name, value in stored.items() if name not in _LEFT_OUT and not name.startswith(_TRANSIENT)}
    sharding_key = stored.get(SHARDING_KEY)
    return Resend(
        f"{topic} {_origin_id(topic, stored) or own_id}",
        topic,
        target,
        record.body,
        kept | {name.encode(): value for name, value in origin.items() if value},
        record.flag,
        record.sys_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK) if record.sys_flag & COMPRESSED_FLAG else 0,
        None if sharding_key is None else decode_utf8(sharding_key),
        None if key is None else decode_utf8(key),
    )


def check_target(topic: str) -> str | None:
    """Why no message is sent again to a topic; None if it may be."""
    if is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return f"{topic} is a topic that brokers write: give a topic of producers"
    return None


def _why_refused(record: Record, topic: str) -> str | None:
    if is_system_topic(topic):
        return f"a record of {topic} is the broker's own: it waits there, or is a note; the message itself can be sent"
    if topic.startswith(RETRY_PREFIX):
        return "a copy in a retry topic: its group gets it again without a resend"
    if not record.is_in_queue:
        return "a half message, or one that was rolled back"
    if record.sys_flag & INNER_BATCH_FLAG:
        return "a batch of messages in one record (bit 0x80 of sys_flag)"
    if record.body_crc is not None and zlib.crc32(record.body) & CRC_MASK != record.body_crc:
        return "its body is damaged: it does not have the CRC that was stored"
    return None


def _own_topic(topic: str, stored: dict[bytes, bytes]) -> str | None:
    """The topic to which producers sent a message."""
    if not topic.startswith(DLQ_PREFIX):
        return topic
    found = stored.get(b"RETRY_TOPIC") or stored.get(b"DLQ_ORIGIN_TOPIC")
    origin = None if found is None else decode_utf8(found)
    of_pops = f"{RETRY_PREFIX}{topic.removeprefix(DLQ_PREFIX)}"
    for separator in "+_":  # the retry topic of popped messages (`KeyBuilder.buildPopRetryTopic`@5.3.3)
        if origin is not None and origin.startswith(of_pops + separator):
            origin = origin.removeprefix(of_pops + separator)
    return None if origin is None or check_target(origin) else origin


def _origin_id(topic: str, stored: dict[bytes, bytes]) -> str | None:
    """The offset message id of the message of which a dead letter is a copy; None if it is not known.

    Clients write a unique key there, too, which the messages of a batch can share (`retry_copies`).
    """
    found = stored.get(b"ORIGIN_MESSAGE_ID", b"") if topic.startswith(DLQ_PREFIX) else b""
    text = found.decode("ascii", "replace")
    is_id = is_offset_message_id(text) and found != stored.get(UNIQUE_KEY) and has_plausible_port(text)
    return text.upper() if is_id else None


def new_unique_key() -> str:
    """A unique key: as a client's (`MessageClientIDSetter.createUniqID`@5.3.3), with random bytes for its process."""
    now = datetime.fromtimestamp(time.time(), UTC)
    since = now - now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    random = bytearray(os.urandom(_KEY_SIZE))
    random[4] |= 0x80  # a process id of 0 would make an offset message id of it
    random[10:14] = int(since.total_seconds() * 1000).to_bytes(4, "big")
    return random.hex().upper()


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
        """Send messages in their order. Every message that was read is in the receipt, also after an error."""
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
