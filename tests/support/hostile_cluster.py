"""A small cluster in this process, a name server that is a broker, too, whose answers can be spoilt by a seed."""

from __future__ import annotations

import json
import random
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from spark_mq.format.record import Record
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RESPONSE_FLAG, RemotingCommand, encode
from tests.support.commands import changed, random_text

TOPIC, OTHER, GROUP = "Orders", "Payments", "GID_a"
QUEUES, COUNT = 2, 20
FIRST_TIME = 1_700_000_000_000
_BOMB = zlib.compress(bytes(16 << 20))
_HOST = bytes((127, 0, 0, 1))
_WRONG_NUMBERS = ("-1", "0", "1", "7", "21", "9223372036854775807", "-9223372036854775808", "1" * 5000, "x", "", "1.5")
_WRONG_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 3, 1 << 31, -(1 << 31), 1 << 63, 10**400, 1.5, float("inf")),
    *("", "../x", "/etc/passwd", "\ud83d", "a\0b", "x" * 70_000, "127.0.0.1:0", "127.0.0.1:99999", "nowhere"),
    *([], {}, [[]], {"a": 1}),
)


def record(topic: str, queue_id: int, queue_offset: int, port: int, body: bytes | None = None) -> Record:
    """A message of the cluster."""
    number = queue_offset * QUEUES + queue_id
    name = f"{topic}-{queue_id}-{queue_offset}"
    return Record(
        topic.encode(),
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=number * 1000 + (500 if topic == OTHER else 0),
        body=zlib.compress(name.encode() * 20) if body is None else body,
        sys_flag=1,
        properties=f"KEYS\1k{queue_offset % 5}\2UNIQ_KEY\1{name}\2TAGS\1t{queue_offset % 2}\2".encode(),
        store_timestamp=FIRST_TIME + number * 10,
        born_timestamp=FIRST_TIME,
        store_host=_HOST + struct.pack(">i", port),
    )


class HostileCluster:
    """Answers requests; those of code `spoilt` by a rule that `choice` takes, all others as brokers do."""

    def __init__(self) -> None:
        self.address = ""
        self.others: dict[str, dict[int, str]] = {}
        """Brokers beside this one, and the addresses of their members."""
        self.log_end = COUNT * QUEUES * 1000
        """The end of the commit log."""
        self.spoilt: RequestCode | None = None
        self.spoil: Callable[[random.Random, RemotingCommand, RemotingCommand], Iterator[bytes]] = no_damage
        self.choice = random.Random(0)

    @property
    def port(self) -> int:
        """The port of the cluster."""
        return int(self.address.rpartition(":")[2])

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        """The pieces of bytes that answer a request."""
        code, fields, body = self._right(RequestCode(request.code), request.ext_fields)
        right = RemotingCommand(code, fields, body, request.opaque, RESPONSE_FLAG)
        if request.code == self.spoilt:
            yield from self.spoil(self.choice, request, right)
        else:
            yield encode(right)

    def _right(self, code: RequestCode, fields: Any) -> tuple[int, dict[str, str], bytes]:
        match code:
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                brokers = {
                    name: {"cluster": "c", "brokerName": name, "brokerAddrs": addresses}
                    for name, addresses in ({"b": {0: self.address}} | self.others).items()
                }
                return 0, {}, _json({"brokerAddrTable": brokers, "clusterAddrTable": {"c": sorted(brokers)}})
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                queues: dict[str, Any] = {
                    "brokerName": "b",
                    "readQueueNums": QUEUES,
                    "writeQueueNums": QUEUES,
                    "perm": 6,
                }
                broker = {"cluster": "c", "brokerName": "b", "brokerAddrs": {0: self.address}}
                return 0, {}, _json({"queueDatas": [queues], "brokerDatas": [broker]})
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                one: dict[str, Any] = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "order": False}
                one |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
                return 0, {}, _json({"topicConfigTable": {name: one | {"topicName": name} for name in (TOPIC, OTHER)}})
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return 0, {}, _json({"offsetTable": {f"{TOPIC}@{GROUP}": {0: 3, 1: COUNT}}})
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                group = {"groupName": GROUP, "consumeEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1}
                return 0, {}, _json({"subscriptionGroupTable": {GROUP: group}})
            case RequestCode.GET_ALL_DELAY_OFFSET:
                return 0, {}, _json({"offsetTable": {1: 0}})
            case RequestCode.GET_BROKER_CONFIG:
                return 0, {}, b"brokerName=b\nmaxMsgsNumBatch=16\n"
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                return 0, {}, _json({"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.log_end)}})
            case RequestCode.GET_MIN_OFFSET:
                return 0, {"offset": "0"}, b""
            case RequestCode.GET_MAX_OFFSET:
                return 0, {"offset": str(COUNT)}, b""
            case RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                after = (int(fields["timestamp"]) - FIRST_TIME - 10 * int(fields["queueId"]) + 19) // 20
                return 0, {"offset": str(min(max(after, 0), COUNT))}, b""
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return 0, {"offset": "3"}, b""
            case RequestCode.PULL_MESSAGE:
                start, most = int(fields["queueOffset"]), int(fields["maxMsgNums"])
                stop = min(start + most, start + 12, COUNT)
                found = [self.record(fields["topic"], int(fields["queueId"]), offset) for offset in range(start, stop)]
                ends = {"nextBeginOffset": str(max(start, stop)), "minOffset": "0", "maxOffset": str(COUNT)}
                ends["suggestWhichBrokerId"] = "0"
                return (0 if found else ResponseCode.PULL_NOT_FOUND), ends, b"".join(found)
            case RequestCode.QUERY_MESSAGE:
                last = int(fields["endTimestamp"])
                found = [
                    self.record(fields["topic"], queue_id, offset)
                    for offset in reversed(range(COUNT))
                    for queue_id in range(QUEUES)
                    if fields["key"] in (f"k{offset % 5}", f"{fields['topic']}-{queue_id}-{offset}")
                    and FIRST_TIME + (offset * QUEUES + queue_id) * 10 <= last
                ]
                return (0 if found else ResponseCode.QUERY_NOT_FOUND), {}, b"".join(found[: int(fields["maxNum"])])
            case RequestCode.GET_CONSUMER_CONNECTION_LIST:
                consumer = {"clientId": "a", "clientAddr": "10.0.0.1:5", "language": "JAVA", "version": 453}
                return 0, {}, _json({"connectionSet": [consumer], "subscriptionTable": {TOPIC: {"topic": TOPIC}}})
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                result = {"consumeResult": "CR_SUCCESS", "order": False, "autoCommit": True, "spentTimeMills": 3}
                return 0, {}, _json(result)
            case RequestCode.SEND_MESSAGE_V2:
                return 0, {"msgId": "x", "queueId": fields["e"], "queueOffset": "5"}, b""
            case RequestCode.VIEW_MESSAGE_BY_ID:
                number, is_other = divmod(int(fields["offset"]), 1000)
                topic = OTHER if is_other else TOPIC
                return 0, {}, self.record(topic, number % QUEUES, number // QUEUES)
        return ResponseCode.SYSTEM_ERROR, {}, b""

    def record(self, topic: str, queue_id: int, queue_offset: int) -> bytes:
        """The bytes of a message."""
        return record(topic, queue_id, queue_offset, self.port).encode()


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


Pieces = Iterator[bytes]


def no_damage(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """The right answer."""
    yield encode(right)


def cut_frame(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """A part of the frame, and the end of the connection."""
    frame = encode(right)
    yield frame[: choice.randrange(len(frame))]
    raise ConnectionError


def wrong_length(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """A length that no frame has, or another than this one."""
    length = choice.choice((-1, -(1 << 31), 0, 3, 5, (1 << 31) - 1, 1 << 24, (1 << 24) - 5, len(right.body)))
    yield struct.pack(">i", length) + encode(right)[4:]
    raise ConnectionError


def changed_frame(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """Some bytes of the header, or of anything in an answer without records."""
    empty = RemotingCommand(right.code, right.ext_fields, b"", right.opaque, right.flag)
    yield changed(choice, encode(empty))


def no_frame(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """Any bytes."""
    yield choice.choice((choice.randbytes(choice.randrange(200)), b"HTTP/1.1 400 Bad Request\r\n\r\n", b""))
    raise ConnectionError


def wrong_opaque(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """The answer to no request, before the right one."""
    for opaque in (right.opaque + 1000, -1, 0):
        yield encode(RemotingCommand(0, {"offset": "1"}, b"x" * 100, opaque, RESPONSE_FLAG))
    yield encode(RemotingCommand(right.code, right.ext_fields, right.body, right.opaque, 0))  # a request
    yield encode(right)


def slow_bytes(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """A byte after the other, too slowly."""
    frame = encode(right)
    for position in range(20):
        yield frame[position : position + 1]
        time.sleep(0.02)
    raise ConnectionError


def endless(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """A long frame whose bytes go on until the other side ends it."""
    yield struct.pack(">iI", (1 << 24) - 4, 0)
    while True:
        yield bytes(4096)
        time.sleep(0.005)


def wrong_code(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """Another code."""
    code = choice.choice((*ResponseCode, -1, 77777))
    yield encode(RemotingCommand(code, right.ext_fields, right.body, right.opaque, RESPONSE_FLAG, random_text(choice)))


def wrong_field(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """A field that is missing, or another number."""
    fields = dict(right.ext_fields)
    for name in choice.sample(sorted(fields), min(len(fields), choice.randrange(1, 3))):
        if choice.randrange(4):
            fields[name] = choice.choice(_WRONG_NUMBERS)
        else:
            del fields[name]
    yield encode(RemotingCommand(right.code, fields, right.body, right.opaque, RESPONSE_FLAG))


def wrong_json(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """JSON with other values, more of them, or no JSON."""
    match choice.randrange(8):
        case 0:
            body = changed(choice, bytes(9) + right.body)[9:]
        case 1:
            body = choice.choice((b"", b"null", b"[]", b"7", b"[" * 100_000, b'{"a":' * 50_000, b"\xff", b"NaN"))
        case _:
            try:
                content = json.loads(right.body)
            except ValueError:
                body = choice.choice((b"maxMsgsNumBatch=" + b"9" * 5000, b"maxMsgsNumBatch=0", b"\\u12", b"\xff=\xff"))
            else:
                _spoil_value(choice, content)
                body = _json(content)
    yield encode(RemotingCommand(right.code, right.ext_fields, body, right.opaque, RESPONSE_FLAG))


def _spoil_value(choice: random.Random, content: Any) -> None:
    """Change a value, or a name, somewhere in an object."""
    while True:
        name = choice.choice(sorted(content) if isinstance(content, dict) else range(len(content)))
        inner = content[name]
        if isinstance(inner, dict | list) and inner and choice.randrange(5):
            content = inner
            continue
        if isinstance(content, dict) and not choice.randrange(3):
            del content[name]
            name = choice.choice(("", "../x", "\ud83d", "a\0b", "x" * 70_000, "99999999999", "-1", random_text(choice)))
            content[name] = inner
        else:
            content[name] = choice.choice(_WRONG_VALUES)
        return


def wrong_records(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """Records of another queue, again, in another order, of another topic, none, or with wrong lengths."""
    body, fields = right.body, dict(right.ext_fields)
    records: list[bytes] = []
    while body:
        (size,) = struct.unpack_from(">i", body)
        records.append(body[:size])
        body = body[size:]
    if records and all(len(one) > 100 for one in records):
        match choice.randrange(7):
            case 0:
                records = records[::-1]
            case 1:
                records += records[:1]
            case 2:
                port = struct.unpack_from(">i", records[0], 64)[0]
                other = record(choice.choice((TOPIC, OTHER, "../x")), choice.choice((0, 1, 7, -1)), 3, port).encode()
                records[choice.randrange(len(records))] = other
            case 3:
                records = []
            case 4:
                one = bytearray(choice.choice(records))
                struct.pack_into(">i", one, choice.choice((0, 4, 84)), choice.choice((-1, 0, 1 << 30, 5, 200)))
                records[choice.randrange(len(records))] = bytes(one)
            case 5:
                records[-1] = records[-1][: choice.randrange(len(records[-1]))]
            case 6:
                records = records[choice.randrange(len(records)) :]
                fields |= {"nextBeginOffset": choice.choice(_WRONG_NUMBERS)} if fields else {}
    yield encode(RemotingCommand(right.code, fields, b"".join(records), right.opaque, RESPONSE_FLAG))


def bomb(choice: random.Random, request: RemotingCommand, right: RemotingCommand) -> Pieces:
    """Messages whose bodies are no zlib, or 16 MiB."""
    fields = request.ext_fields
    queue_id, start = int(fields.get("queueId", 0)), int(fields.get("queueOffset", 0))
    body = choice.choice((b"", b"x", choice.randbytes(50), zlib.compress(b"y")[:-3])) if choice.randrange(40) else _BOMB
    one = record(fields.get("topic", TOPIC), queue_id, start, 1, body).encode()
    ends = {"nextBeginOffset": str(start + 1), "minOffset": "0", "maxOffset": str(COUNT)}
    yield encode(RemotingCommand(0, ends, one, right.opaque, RESPONSE_FLAG))
