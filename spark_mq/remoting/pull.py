"""The messages of a range of a queue, as a broker hands them out: pulls that follow each other, several at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace

from spark_mq.errors import DataLossError, ProtocolError, RefusedError, RemotingError
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
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
"""About as many bytes are pulled one after the other, before the next part is begun, and are one part of the rows."""
_MAX_PART_BYTES = 8 << 20
"""After so many bytes, a part ends early, so that messages of any size need little memory."""
_SAVED_SECONDS = 0.25
"""After a pause, the bytes of so many seconds can be pulled beyond the limit."""
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


class QueueGoneError(DataLossError):
    """A broker no longer hands out a queue: its topic was deleted, or has fewer queues that can be read."""


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
    """The messages of a queue from an offset on; messages after its range may be among them.

    A slave may leave the answer to its master: one of 5.x does for messages that are in memory, one of 4.9 for all
    unless its setting `slaveReadEnable` is true (`PullMessageProcessor.composeResponseHeader`@5.3.3, `processRequest`
    @4.9.7). Then the master is asked, as the Java client does. If the queue ends at the offset, the broker may wait for
    a message. Raises `RemotingError` without an answer, and if the answer refuses or does not lead on.
    """
    code = RequestCode.PULL_MESSAGE
    fields = _fields(client, queue, offset, subscription, suspend_seconds)
    timeout = client.settings.timeout + suspend_seconds
    is_slave = queue.master not in ("", queue.address)
    try:
        response = client.request(queue.address, code, fields, timeout=timeout, accepted=_ANSWERS)
    except RefusedError as error:
        if is_slave and error.code == ResponseCode.SYSTEM_BUSY:
            raise RemotingError(f"{error}. A slave serves pulls only if its setting slaveReadEnable is true") from error
        raise
    if not _is_left_to_master(response):
        return _pulled(queue, offset, response)
    if not is_slave:
        raise RemotingError(
            f"{queue.address}: PULL_MESSAGE of {queue} was left to the master, which the name servers do not know"
        )
    return pull(client, replace(queue, address=queue.master, master=""), offset, subscription, suspend_seconds)


def is_gone(error: RefusedError) -> bool:
    """Whether a pull was refused because the broker does not have the topic, or lets nobody read so many queues of it.

    For the second reason, 4.9 and 5.x have different codes, and the same text (`PullMessageProcessor.processRequest`).
    """
    return error.code == ResponseCode.TOPIC_NOT_EXIST or ": queueId[" in str(error)


def _fields(
    client: RemotingClient, queue: QueueRange, offset: int, subscription: Subscription, suspend_seconds: float = 0
) -> dict[str, object]:
    """The fields of a pull."""
    return {
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


def _is_left_to_master(response: RemotingCommand) -> bool:
    return response.code == ResponseCode.PULL_RETRY_IMMEDIATELY and response.remark == _FOUND


def _pulled(queue: QueueRange, offset: int, response: RemotingCommand) -> Pulled:
    """What the answer to a pull says. Raises `ProtocolError` if it does not lead on."""
    next_offset, least, most = (
        integer_field(queue.address, RequestCode.PULL_MESSAGE, response, name)
        for name in ("nextBeginOffset", "minOffset", "maxOffset")
    )
    answer = ResponseCode(response.code)
    if answer == ResponseCode.SUCCESS and (next_offset <= offset or not response.body):
        raise ProtocolError(
            f"{queue.address}: PULL_MESSAGE of {queue} at queue offset {offset} was answered with "
            f"{len(response.body)} bytes, and next offset {next_offset}"
        )
    records = response.body if answer == ResponseCode.SUCCESS else b""
    return Pulled(answer, records, next_offset, least, most, queue.address)


class Rate:
    """A limit of the bytes that are pulled in a second. Of what a pause saved, only a moment stays."""

    def __init__(self, max_bytes_per_second: int) -> None:
        self._limit = max_bytes_per_second
        self._free = time.monotonic()

    @property
    def part_bytes(self) -> int:
        """How many bytes are pulled without a look at the time."""
        return min(_PART_BYTES, self._limit // 16)

    def spend(self, size: int) -> None:
        """Wait until all that was pulled is within the limit, and count bytes that are pulled now."""
        time.sleep(max(0.0, self._free - time.monotonic()))
        self.correct(size)

    def correct(self, size: int) -> None:
        """Count bytes that were pulled beyond those that were expected."""
        self._free = max(self._free, time.monotonic() - _SAVED_SECONDS) + size / self._limit


def pull_range(
    client: RemotingClient,
    queue: QueueRange,
    subscription: Subscription = ALL_MESSAGES,
    at_once: int = 8,
    rate: Rate | None = None,
) -> Generator[tuple[QueueRange, bytes], None, None]:
    """The parts of a range, in its order, each with the records of its messages.

    If a broker leaves messages out, records of messages after a part can follow its own. At most `at_once` pulls are
    on the way. Raises `DataLossError` if the broker no longer has a part of the range, and the errors of `pull`.
    """
    parts: deque[_Part] = deque()

    def begin(start: int, stop: int) -> _Part:
        expected = int(mean_size * (stop - start))
        if rate is not None:
            rate.spend(expected)
        return _Part(client, replace(queue, start=start, stop=stop), subscription, expected)

    position, size, mean_size, most = queue.start, _MIN_PART, 0.0, 1  # the first part shows how large messages are
    try:
        while position < queue.stop or parts:
            while position < queue.stop and len(parts) < most:
                parts.append(begin(position, min(position + size, queue.stop)))
                position = parts[-1].queue.stop
            part, expected = parts[0].queue, parts[0].expected
            reached, records = parts.popleft().end()
            if reached == part.start:
                pulled = _pull_once(client, part, subscription)
                reached, records = pulled.next_offset, pulled.records
                part = replace(part, address=pulled.address)  # the master's, where a slave leaves messages to it
                queue = replace(queue, address=pulled.address)
            if rate is not None:
                rate.correct(len(records) - expected)
            if reached < part.stop:
                parts.appendleft(begin(reached, part.stop))
                part = replace(part, stop=reached)
            mean_size = len(records) / (part.stop - part.start)
            size = part_size(part, len(records), _PART_BYTES if rate is None else rate.part_bytes)
            most = at_once
            yield part, records
    finally:
        for left in parts:
            left.leave()


def part_size(part: QueueRange, size: int, part_bytes: int = _PART_BYTES) -> int:
    """How many offsets another part has, so that it has about `part_bytes`; at most 16 times as many as this one."""
    offsets = part.stop - part.start
    return max(_MIN_PART, min(offsets * part_bytes // max(size, 1), offsets * 16, _MAX_PART))


class _Part:
    """A part of a range on its way: whoever receives an answer sends the next pull.

    It ends early after many bytes, and where an answer has no message or does not come: `_pull_once` asks again then.
    """

    def __init__(self, client: RemotingClient, queue: QueueRange, subscription: Subscription, expected: int) -> None:
        self.queue = queue
        self.expected = expected
        """About how many bytes it has."""
        self._client = client
        self._subscription = subscription
        self._found: list[bytes] = []
        self._size = 0
        self._reached = queue.start
        self._asked = 0.0
        self._is_left = False
        self._end: Future[None] = Future()
        self._ask()

    def end(self) -> tuple[int, bytes]:
        """The queue offset that is reached, and the records before it; waits for them."""
        while True:
            seconds = self._asked + self._client.settings.timeout - time.monotonic()
            try:
                self._end.result(max(seconds, 0))
                return self._reached, b"".join(self._found)
            except FutureTimeoutError:
                if seconds <= 0:
                    self._client.disconnect(self.queue.address)  # ends all parts

    def leave(self) -> None:
        """Send no further pull."""
        self._is_left = True

    def _ask(self) -> None:
        self._asked = time.monotonic()
        fields = _fields(self._client, self.queue, self._reached, self._subscription)
        try:
            sent = self._client.send(self.queue.address, RequestCode.PULL_MESSAGE, fields)
        except RemotingError:
            self._end.set_result(None)
        else:
            sent.add_done_callback(self._take)

    def _take(self, answer: Future[RemotingCommand]) -> None:
        """Take an answer, in the thread that reads from the connection."""
        try:
            response = answer.result()
            is_known = response.code in _ANSWERS and not _is_left_to_master(response)
            pulled = _pulled(self.queue, self._reached, response) if is_known else None
        except RemotingError:
            pulled = None
        if pulled is None or pulled.code == ResponseCode.PULL_OFFSET_MOVED or pulled.next_offset <= self._reached:
            self._end.set_result(None)
            return
        self._found.append(pulled.records)
        self._size += len(pulled.records)
        self._reached = pulled.next_offset
        if self._is_left or self._reached >= self.queue.stop or self._size >= _MAX_PART_BYTES:
            self._end.set_result(None)
        else:
            self._ask()


def _pull_once(client: RemotingClient, part: QueueRange, subscription: Subscription) -> Pulled:
    """The first messages of a part; asks again for those that come later."""
    for number in range(_WAITS + 1):
        try:
            pulled = pull(client, part, part.start, subscription, _WAIT_SECONDS if number else 0)
        except RefusedError as error:
            if is_gone(error):
                raise QueueGoneError(f"{error} ({part} from queue offset {part.start} on is gone)") from error
            raise
        if pulled.code == ResponseCode.PULL_OFFSET_MOVED:
            raise DataLossError(
                f"{part.address}: PULL_MESSAGE: {part} no longer has queue offset {part.start}: it has "
                f"{pulled.min_offset} to {pulled.max_offset - 1}. "
                "Its messages expired, or the topic was deleted and made again"
            )
        if pulled.next_offset > part.start:
            return pulled
    raise RemotingError(
        f"{part.address}: PULL_MESSAGE: {part} has no message at queue offset {part.start}, but it had messages "
        f"up to {part.stop - 1} when the read was planned: a slave can lack them"
    )
