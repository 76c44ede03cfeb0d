"""What a client asks name servers and brokers: one function a request, all of which only read.

Texts of a broker's configuration have the same JSON as the files in its `config/`, so the same code reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from time import sleep
from typing import Any, Self, TypeVar

from spark_mq.errors import ProtocolError, RefusedError, RemotingError
from spark_mq.format.consume_queue import Queue
from spark_mq.remoting.client import RemotingClient, parse_address, shown
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.store.config.broker_conf import parse_java_properties
from spark_mq.store.config.config_file import as_integer, parse_fastjson

MASTER_ID = 0
READABLE, WRITABLE = 4, 2
"""Bits of a topic's `perm` (`PermName`)."""
CONFIG_REQUESTS = {
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "consumerOffset.json": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "delayOffset.json": RequestCode.GET_ALL_DELAY_OFFSET,
}
"""The requests whose answers are the contents of files in `config/`."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Broker:
    """A broker: a master and its slaves.

    Attributes:
        addresses: The address of each member by its broker id; the master's id is 0.
    """

    cluster: str
    name: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str:
        """The address of the master; empty if the name server knows none."""
        return self.addresses.get(MASTER_ID, "")

    def address(self, from_slave: bool = False) -> str:
        """The address of the master, or of the slave with the smallest id; `RemotingError` if none is known."""
        ids = sorted(self.addresses)
        wanted = [one for one in ids if one != MASTER_ID] if from_slave else [one for one in ids if one == MASTER_ID]
        if not wanted:
            what = "slave" if from_slave else "master"
            known = ", ".join(f"{one}: {self.addresses[one]}" for one in ids) or "none"
            raise RemotingError(
                f"broker {self.name} has no {what} (GET_BROKER_CLUSTER_INFO, members by broker id: {known})"
            )
        return self.addresses[wanted[0]]


@dataclass(frozen=True)
class TopicQueues:
    """The queues of a topic in one broker (`QueueData`, `TopicConfig`)."""

    broker: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int

    @classmethod
    def of(cls, broker: str, content: Mapping[str, Any]) -> Self:
        """The queues that an answer of a name server or of the broker describes."""
        return cls(broker, *(as_integer(content[name], 32) for name in ("readQueueNums", "writeQueueNums", "perm")))


@dataclass(frozen=True)
class Route:
    """The brokers that have a topic, and its queues there."""

    queues: tuple[TopicQueues, ...]
    brokers: tuple[Broker, ...]


@dataclass(frozen=True)
class Consumer:
    """A consumer that is connected to a broker (`Connection`); `language` is that of its client."""

    client_id: str
    address: str
    language: str


@dataclass(frozen=True)
class ConsumerConnections:
    """The consumers of a group that are connected to a broker, by client id, and what they subscribe to.

    `subscriptions` has by topic an expression, and its type, TAG or SQL92 (`SubscriptionData`).
    """

    consumers: Mapping[str, Consumer]
    subscriptions: Mapping[str, tuple[str, str]]


def find_brokers(client: RemotingClient) -> list[Broker]:
    """All brokers that the name servers know, by name. Raises `RemotingError` also if the address is a broker's."""
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    try:
        server, response = client.name_server_request(code)
    except RefusedError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise RemotingError(
                f"{', '.join(client.settings.name_servers)} is not a name server, perhaps a broker, and does not know "
                f"{code.name}: give the address of a name server, whose port is 9876 by default"
            ) from error
        raise
    return read_content(
        server,
        response,
        code,
        lambda content: [_broker(one) for _, one in sorted((content.get("brokerAddrTable") or {}).items())],
    )


def find_route(client: RemotingClient, topic: str) -> Route | None:
    """The brokers that have a topic; None if there is none."""
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    try:
        server, response = client.name_server_request(code, {"topic": topic, "acceptStandardJsonOnly": True})
    except RefusedError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    return read_content(server, response, code, _route)


def config_text(client: RemotingClient, broker: str, name: str) -> bytes:
    """The content of a broker's file in `config/`, as the broker has it in memory; empty if it has none."""
    try:
        return client.request(broker, CONFIG_REQUESTS[name]).body
    except RefusedError as error:
        if error.code == ResponseCode.SYSTEM_ERROR and name in ("consumerOffset.json", "delayOffset.json"):
            return b""  # a broker without any offset answers "No consumer offset in this broker"
        raise


def broker_config(client: RemotingClient, broker: str) -> dict[str, str]:
    """The settings of a broker, by name."""
    code = RequestCode.GET_BROKER_CONFIG
    response = client.request(broker, code)
    try:
        return parse_java_properties(response.body.decode("utf-8", "replace"))
    except ValueError as error:
        raise ProtocolError(f"{broker}: the answer to {code.name} cannot be read: {error}") from error


def log_offsets(client: RemotingClient, broker: str) -> tuple[int, int]:
    """The commit log offsets at which a broker's log starts and ends."""
    code = RequestCode.GET_BROKER_RUNTIME_INFO

    def read(content: Mapping[str, Any]) -> tuple[int, int]:
        start, stop = (as_integer(content["table"][f"commitLog{name}Offset"], 64) for name in ("Min", "Max"))
        return max(start, 0), max(stop, 0)

    for pause in (1, 2, 0):
        try:
            return read_content(broker, client.request(broker, code), code, read)
        except RefusedError as error:  # 5.x has no figures, and fails, for a second after its start
            if error.code != ResponseCode.SYSTEM_ERROR or not pause:
                raise
        sleep(pause)
    raise AssertionError


def min_offset(client: RemotingClient, broker: str, topic: str, queue_id: int) -> int:
    """The first queue offset that a broker offers."""
    return _of_queue(client, broker, RequestCode.GET_MIN_OFFSET, topic, queue_id)


def earliest_store_time(client: RemotingClient, broker: str, topic: str, queue_id: int) -> int | None:
    """The store time in milliseconds of the message at the first queue offset; None if the log does not have it.

    It is None while the broker deletes files: first those of the log, and then it corrects the first offset of each
    queue (`DefaultMessageStore.cleanFilesPeriodically`, `CommitLog.pickupStoreTimestamp`@5.3.3; the same in 4.9.7 and
    5.5.0).
    """
    time = _of_queue(client, broker, RequestCode.GET_EARLIEST_MSG_STORETIME, topic, queue_id, "timestamp")
    return None if time < 0 else time


def max_offset(client: RemotingClient, broker: str, topic: str, queue_id: int) -> int:
    """The queue offset after the last message."""
    return _of_queue(client, broker, RequestCode.GET_MAX_OFFSET, topic, queue_id, committed=True)


def queue_ends(client: RemotingClient, broker: str, queues: Sequence[Queue]) -> list[tuple[int, int]]:
    """The first offset of each queue that a broker offers, and the one after the last; by topic and queue id."""

    def offsets(code: RequestCode) -> list[int]:
        many = ({"topic": topic, "queueId": queue_id, "committed": True} for topic, queue_id in queues)
        return [integer_field(broker, code, response, "offset") for response in client.requests(broker, code, many)]

    first, stop = offsets(RequestCode.GET_MIN_OFFSET), offsets(RequestCode.GET_MAX_OFFSET)
    return [(max(least, 0), max(least, most, 0)) for least, most in zip(first, stop, strict=True)]


def offset_by_time(client: RemotingClient, broker: str, topic: str, queue_id: int, timestamp: int) -> int:
    """The queue offset that the broker finds for a store time in milliseconds.

    It is that of the first message at the time or after it (`ConsumeQueue.getOffsetInQueueByTime`), if store times in
    the queue never decrease.
    """
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return _of_queue(client, broker, code, topic, queue_id, timestamp=timestamp, boundaryType="LOWER")


def _of_queue(
    client: RemotingClient,
    broker: str,
    code: RequestCode,
    topic: str,
    queue_id: int,
    answer: str = "offset",
    **others: object,
) -> int:
    response = client.request(broker, code, {"topic": topic, "queueId": queue_id, **others})
    return integer_field(broker, code, response, answer)


def consumer_offset(client: RemotingClient, broker: str, group: str, topic: str, queue_id: int) -> int | None:
    """The queue offset that a group consumes next; None if it has none (4.9: 0 if the queue begins with 0)."""
    code = RequestCode.QUERY_CONSUMER_OFFSET
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "setZeroIfNotFound": False}
    response = _answer(client, broker, code, fields, ResponseCode.QUERY_NOT_FOUND)
    return None if response is None else integer_field(broker, code, response, "offset")


def consumer_connections(client: RemotingClient, broker: str, group: str) -> ConsumerConnections | None:
    """The consumers of a group that are connected, and their subscriptions; None if none is (`ConsumerConnection`)."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    response = _answer(client, broker, code, {"consumerGroup": group}, ResponseCode.CONSUMER_NOT_ONLINE)
    return None if response is None else read_content(broker, response, code, _connections)


def query_messages(
    client: RemotingClient, broker: str, topic: str, key: str, max_num: int, begin: int, end: int
) -> bytes:
    """The records of messages of a topic that have a key, by the broker's index; other keys can be among them.

    Args:
        max_num: The largest number of messages. The broker has a limit of its own (`maxMsgsNumBatch`, 64).
        begin: The first store time, in milliseconds; `end` is the last one.
    """
    fields = {"topic": topic, "key": key, "maxNum": max_num, "beginTimestamp": begin, "endTimestamp": end}
    response = _answer(client, broker, RequestCode.QUERY_MESSAGE, fields, ResponseCode.QUERY_NOT_FOUND)
    return b"" if response is None else response.body


def view_message(client: RemotingClient, broker: str, commit_log_offset: int) -> bytes:
    """The record at a commit log offset; empty if the broker finds none there."""
    fields = {"offset": commit_log_offset}
    response = _answer(client, broker, RequestCode.VIEW_MESSAGE_BY_ID, fields, ResponseCode.SYSTEM_ERROR)
    return b"" if response is None else response.body


def _answer(
    client: RemotingClient, broker: str, code: RequestCode, fields: Mapping[str, object], nothing: ResponseCode
) -> RemotingCommand | None:
    response = client.request(broker, code, fields, accepted=(ResponseCode.SUCCESS, nothing))
    return None if response.code == nothing else response


def integer_field(broker: str, code: RequestCode, response: RemotingCommand, name: str) -> int:
    """An integer of a response. Raises `ProtocolError` if it is missing, or another value."""
    try:
        return as_integer(response.ext_fields.get(name), 64)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{broker}: the answer to {code.name} has no field {name}: {shown(str(error))}") from error


def read_content(
    address: str, response: RemotingCommand, code: RequestCode, read: Callable[[Mapping[str, Any]], _T]
) -> _T:
    """What `read` makes of the JSON body of a response. Raises `ProtocolError` if it cannot be read."""
    try:
        content = parse_fastjson(response.body.decode("utf-8", "replace"))
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        return read(content)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ProtocolError(f"{address}: the answer to {code.name} cannot be read: {shown(repr(error))}") from error


def _connections(content: Mapping[str, Any]) -> ConsumerConnections:
    consumers = [
        Consumer(str(one["clientId"]), str(one.get("clientAddr")), str(one.get("language")))
        for one in content.get("connectionSet") or ()
    ]
    subscriptions = {
        str(topic): (str(one.get("subString", "*")), str(one.get("expressionType") or "TAG"))
        for topic, one in (content.get("subscriptionTable") or {}).items()
    }
    by_id = sorted(consumers, key=attrgetter("client_id"))
    return ConsumerConnections({one.client_id: one for one in by_id}, subscriptions)


def _broker(content: Mapping[str, Any]) -> Broker:
    addresses = {as_integer(one, 64): str(address) for one, address in content["brokerAddrs"].items()}
    for address in addresses.values():
        parse_address(address)
    return Broker(str(content.get("cluster")), str(content["brokerName"]), addresses)


def _route(content: Mapping[str, Any]) -> Route:
    queues = [TopicQueues.of(str(one["brokerName"]), one) for one in content.get("queueDatas") or ()]
    brokers = [_broker(one) for one in content.get("brokerDatas") or ()]
    return Route(tuple(sorted(queues, key=attrgetter("broker"))), tuple(sorted(brokers, key=attrgetter("name"))))
