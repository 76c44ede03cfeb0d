"""The messages of a range of a queue, as a broker hands them out: pulls that follow each other, several at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from spark_mq.errors import DataLossError, ProtocolError, RefusedError, RemotingError
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.requests import integer_field

_SUSPEND, _SUBSCRIPTION = 2, 4
"""Bits of `sysFlag` (`PullSysFlag`): the broker may wait for messages; the request has the subscription."""
_ANSWERS = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_FOUND = "FOUND"
"""The remark of an answer to a pull that has found messages (`GetMessageStatus`)."""
_MAX_MESSAGES = 1024
"""Messages that a pull asks for; a broker returns at most 32 or 256 KiB (`maxTransferCountOnMessageInMemory`)."""
_MIN_PART, _MAX_PART = 32, 8192
_PART_BYTES = 2 << 20
"""About as many bytes are pulled by one thread, before the next range is begun."""
_MAX_PART_BYTES = 8 << 20
"""After so many bytes, a part ends early, so that messages of any size need little memory."""
_WAITS = 10
_WAIT_SECONDS = 1.0
"""How often and how long a reader waits for messages that a broker had when the read was planned."""


@dataclass(frozen=True)
class Subscription:
    """Which messages a broker hands out.

    Attributes:
        expression: `*`, tags (`a || b`), or an expression of SQL92.
        type: `TAG` or `SQL92`.
    """

    expression: str = "*"
    type: str = "TAG"


ALL_MESSAGES = Subscription()


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets `start` to `stop` - 1 of a queue of a broker."""

    broker: str
    address: str
    topic: str
    queue_id: int
    start: int
    stop: int
    master: str = ""
    """The address of the broker's master, if `address` is that of a slave."""

    def __str__(self) -> str:
        return f"queue {self.topic}/{self.queue_id} of broker {self.broker}"


@dataclass(frozen=True)
class Pulled:
    """The answer to a pull.

    Attributes:
        code: SUCCESS; PULL_RETRY_IMMEDIATELY, no message of the subscription up to `next_offset`; PULL_NOT_FOUND, the
            queue ends; PULL_OFFSET_MOVED, the queue does not have the offset.
        records: The bytes of the records, one after the other.
        next_offset: The queue offset of the next pull.
        min_offset: The first queue offset of the queue.
        max_offset: The queue offset after its last message.
        address: The address that answered: that of the queue, or of its master.
    """

    code: ResponseCode
    records: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    address: str = ""


def pull(
    client: RemotingClient,
    queue: QueueRange,
    offset: int,
    subscription: Subscription = ALL_MESSAGES,
    suspend_seconds: float = 0,
) -> Pulled:
    """The messages of a queue from an offset on.

    A slave may leave the answer to its master: one of 5.x does for messages that are in memory, one of 4.9 for all
    unless its setting `slaveReadEnable` is true (`PullMessageProcessor.composeResponseHeader`@5.3.3, `processRequest`
    @4.9.7). Then the master is asked, as the Java client does.

    Args:
        queue: The queue; messages after its range may be in the answer, too.
        suspend_seconds: How long the broker may wait for a message if the queue ends at the offset.

    Raises:
        RemotingError: The broker does not answer, refuses, or gives an answer that does not lead on.
    """
    fields = {
        "consumerGroup": client.settings.pull_group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "maxMsgNums": min(_MAX_MESSAGES, queue.stop - offset) if queue.stop > offset else _MAX_MESSAGES,
        "sysFlag": _SUBSCRIPTION | (_SUSPEND if suspend_seconds else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": int(suspend_seconds * 1000),
        "subscription": subscription.expression,
        "subVersion": 0,
        "expressionType": subscription.type,
    }
    code = RequestCode.PULL_MESSAGE
    is_slave = queue.master not in ("", queue.address)
    try:
        response = client.request(
            queue.address, code, fields, timeout=client.settings.timeout + suspend_seconds, accepted=_ANSWERS
        )
    except RefusedError as error:
        if is_slave and error.code == ResponseCode.SYSTEM_BUSY:
            raise RemotingError(f"{error}. A slave serves pulls only if its setting slaveReadEnable is true") from error
        raise
    if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY and response.remark == _FOUND:
        if not is_slave:
            raise RemotingError(
                f"{queue.address}: PULL_MESSAGE of {queue} was left to the master, which the name servers do not know"
            )
        return pull(client, replace(queue, address=queue.master, master=""), offset, subscription, suspend_seconds)
    next_offset, least, most = (
        integer_field(queue.address, code, response, name) for name in ("nextBeginOffset", "minOffset", "maxOffset")
    )
    answer = ResponseCode(response.code)
    if answer == ResponseCode.SUCCESS and (next_offset <= offset or not response.body):
        raise ProtocolError(
            f"{queue.address}: PULL_MESSAGE of {queue} at queue offset {offset} was answered with "
            f"{len(response.body)} bytes, and next offset {next_offset}"
        )
    records = response.body if answer == ResponseCode.SUCCESS else b""
    return Pulled(answer, records, next_offset, least, most, queue.address)


def pull_range(
    client: RemotingClient,
    queue: QueueRange,
    subscription: Subscription = ALL_MESSAGES,
    at_once: int = 4,
    max_bytes_per_second: int | None = None,
) -> Generator[tuple[QueueRange, bytes], None, None]:
    """The parts of a range, in its order, each with the records of its messages.

    If a broker leaves messages out, records of messages after a part can follow its own.

    Args:
        at_once: How many pulls may be on the way.
        max_bytes_per_second: How many bytes of records are asked for at most, on average.

    Raises:
        DataLossError: The broker no longer has a part of the range.
        RemotingError: The errors of `pull`.
    """
    rate = _Rate(max_bytes_per_second)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="pull")
    parts: deque[tuple[QueueRange, Future[tuple[int, bytes]]]] = deque()
    position, size = queue.start, _MIN_PART
    try:
        while position < queue.stop or parts:
            while position < queue.stop and len(parts) < at_once:
                part = replace(queue, start=position, stop=min(position + size, queue.stop))
                parts.append((part, pool.submit(_pull_part, client, part, subscription, rate)))
                position = part.stop
            part, pulled = parts.popleft()
            reached, records = pulled.result()
            if reached < part.stop:
                rest = replace(part, start=reached)
                parts.appendleft((rest, pool.submit(_pull_part, client, rest, subscription, rate)))
                part = replace(part, stop=reached)
            size = part_size(part, len(records))
            yield part, records
    finally:
        # The garbage collector may end this generator in any thread, also in one that starts and has a lock of
        # `threading`: to wait for other threads here was seen to last for ever.
        pool.shutdown(wait=False, cancel_futures=True)


def part_size(part: QueueRange, size: int) -> int:
    """How many offsets another part has, so that it has about `_PART_BYTES`; at most four times as many as this one."""
    offsets = part.stop - part.start
    fitting = offsets * _PART_BYTES // max(size, 1)
    return max(_MIN_PART, min(fitting, offsets * 4, _MAX_PART))


def _pull_part(client: RemotingClient, part: QueueRange, subscription: Subscription, rate: _Rate) -> tuple[int, bytes]:
    """The queue offset that is reached, at least the end of the part unless it has too many bytes; the records."""
    found, size, offset, waits = [], 0, part.start, 0
    while offset < part.stop and size < _MAX_PART_BYTES:
        pulled = pull(client, part, offset, subscription, _WAIT_SECONDS if waits else 0)
        rate.spend(len(pulled.records))
        part = replace(part, address=pulled.address)
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED:
            raise DataLossError(
                f"{part.address}: PULL_MESSAGE: {part} no longer has queue offset {offset}: it has "
                f"{pulled.min_offset} to {pulled.max_offset - 1}. "
                "Its messages expired, or the topic was deleted and made again; read again, or with "
                "failOnDataLoss=false"
            )
        if pulled.next_offset > offset:
            found.append(pulled.records)
            size += len(pulled.records)
            offset, waits = pulled.next_offset, 0
        elif waits < _WAITS:
            waits += 1
        else:
            raise RemotingError(
                f"{part.address}: PULL_MESSAGE: {part} has no message at queue offset {offset}, but it had messages "
                f"up to {part.stop - 1} when the read was planned: a slave can lack them"
            )
    return offset, b"".join(found)


class _Rate:
    """Bytes that are asked for in a time."""

    def __init__(self, max_bytes_per_second: int | None) -> None:
        self._limit = max_bytes_per_second
        self._start = time.monotonic()
        self._spent = 0

    def spend(self, size: int) -> None:
        """Wait until the bytes that were pulled are within the limit."""
        if self._limit is not None:
            self._spent += size
            time.sleep(max(0.0, self._start + self._spent / self._limit - time.monotonic()))
