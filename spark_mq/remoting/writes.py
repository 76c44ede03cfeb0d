"""Requests that change something in a broker, or in a consumer. Nothing else in this package does."""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.remoting.requests import read_content
from spark_mq.store.config.config_file import as_integer

STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
"""Answers after which the message is stored, if perhaps not yet on disk or in a slave (`SendStatus`)."""
_CLIENT_SECONDS = 10
"""For how long a broker waits for the answer of a client (`Broker2Client.callClient`@5.3.3)."""


@dataclass(frozen=True)
class DirectResult:
    """What a consumer answered that consumed a message directly (`ConsumeMessageDirectlyResult`).

    Attributes:
        consume_result: A name of `CMResult`, such as CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION.
        order: Whether the listener consumes in order.
        remark: The exception of the listener; None if it threw none.
        spent_time_millis: The time that the listener took.
    """

    consume_result: str
    order: bool
    auto_commit: bool
    remark: str | None
    spent_time_millis: int


def update_consumer_offset(
    client: RemotingClient, broker: str, group: str, topic: str, queue_id: int, offset: int
) -> None:
    """Set the queue offset that a group consumes next. A broker of 5.x refuses a group that it does not know."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    client.request(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def consume_message_directly(
    client: RemotingClient, broker: str, group: str, client_id: str, topic: str, offset_message_id: str
) -> DirectResult:
    """What a connected consumer answers to which the broker gives a message now.

    `RefusedError`: it is not connected, or did not answer the broker in time. Then it can have consumed the message.
    """
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    fields = {"consumerGroup": group, "clientId": client_id, "topic": topic, "msgId": offset_message_id}
    timeout = client.settings.timeout + _CLIENT_SECONDS
    response = client.request_once(broker, code, fields, timeout=timeout)
    return read_content(
        broker,
        response,
        code,
        lambda content: DirectResult(
            str(content["consumeResult"]),
            bool(content.get("order")),
            bool(content.get("autoCommit")),
            None if content.get("remark") is None else str(content["remark"]),
            as_integer(content.get("spentTimeMills", 0), 64),
        ),
    )


def send_message(
    client: RemotingClient,
    address: str,
    broker: str,
    producer_group: str,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: str,
    flag: int = 0,
    sys_flag: int = 0,
    is_batch: bool = False,
) -> RemotingCommand:
    """The answer of a broker that stored a message, or the messages of a batch.

    `broker` is its name, `sys_flag` has the bits of the body's compression. Raises `RefusedError` if the broker did not
    store the message. After any other `RemotingError`, the message may be stored.
    """
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    fields = {
        "a": producer_group,
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": sys_flag,
        "g": int(time.time() * 1000),
        "h": flag,
        "i": properties,
        "j": 0,
        "k": False,
        "m": is_batch,
        "n": broker,
    }
    return client.request_once(address, code, fields, body, accepted=STORED)
