"""Lite topics of 5.5 (RIP-83) at a real broker, which gets the requests that its proxy sends for clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_mq.format.record import decode_record
from spark_mq.remoting.client import ClientSettings, RemotingClient, parse_name_servers
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.writes import send_message
from tests.broker.harness import Broker, HarnessError

CLIENT_ID = "lite-client"
_REVIVE_QUEUE = 999
_INVISIBLE = 60_000


class LiteTopics:
    """Producers and consumers of the lite topics of one topic."""

    def __init__(self, broker: Broker, parent: str, minutes: int = -1) -> None:
        """Make the topic; a lite topic of it expires after some minutes without a message (-1: never)."""
        self._parent = parent
        self._address = broker.address
        self._client = RemotingClient(ClientSettings(parse_name_servers(broker.name_server)))
        fields = {
            "topic": parent,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": f"+message.type=LITE,+lite.topic.expiration={minutes}",
        }
        self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    def __enter__(self) -> LiteTopics:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def send(self, lite_topic: str, number: int) -> None:
        """Send a message to a lite topic."""
        body = f"{lite_topic} {number}".encode()
        values = {"__LITE_TOPIC": lite_topic, "KEYS": f"{lite_topic}-{number}", "TAGS": f"T{number % 3}"}
        properties = "".join(f"{name}\1{value}\2" for name, value in values.items())
        place = self._address, "broker", "lite-producers", self._parent, number % 2
        send_message(self._client, *place, body, properties)

    def subscribe(self, group: str, lite_topics: Iterable[str]) -> None:
        """Let a group consume lite topics, from the first message on."""
        config = {"groupName": group, "attributes": {"+lite.bind.topic": self._parent}}
        self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(config).encode())
        subscription = {
            "action": "PARTIAL_ADD",
            "clientId": f"{CLIENT_ID}-{group}",
            "group": group,
            "topic": self._parent,
            "liteTopicSet": sorted(lite_topics),
            "offsetOption": {"type": "POLICY", "value": 0},
        }
        self._ask(RequestCode.LITE_SUBSCRIPTION_CTL, {}, json.dumps({"subscriptionSet": [subscription]}).encode())

    def consume(self, group: str, most: int, acknowledged: int) -> list[tuple[str, int]]:
        """Lite topics and offsets of the messages that a group pops once; it acknowledges the first ones."""
        fields = {
            "clientId": f"{CLIENT_ID}-{group}",
            "consumerGroup": group,
            "topic": self._parent,
            "maxMsgNum": most,
            "invisibleTime": _INVISIBLE,
            "pollTime": 0,
            "bornTime": 0,
            "attemptId": "",
        }
        accepted = (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)
        answer = self._client.request_once(self._address, RequestCode.POP_LITE_MESSAGE, fields, accepted=accepted)
        found, position = [], 0
        while position < len(answer.body):
            record = decode_record(answer.body, position)
            position += record.size
            properties = record.text_properties
            found.append((properties["__LITE_TOPIC"], int(properties["INNER_MULTI_QUEUE_OFFSET"])))
        for lite_topic, offset in found[:acknowledged]:
            info = f"0 {answer.ext_fields['popTime']} {_INVISIBLE} {_REVIVE_QUEUE} 0 broker 0 {offset}"
            ack = {"consumerGroup": group, "topic": self._parent, "queueId": 0, "extraInfo": info, "offset": offset}
            self._ask(RequestCode.ACK_MESSAGE, {**ack, "liteTopic": lite_topic})
        return found

    def info(self, lite_topic: str) -> dict[str, Any]:
        """What the broker says of a lite topic (`GetLiteTopicInfoResponseBody`)."""
        fields = {"parentTopic": self._parent, "liteTopic": lite_topic}
        return dict(json.loads(self._ask(RequestCode.GET_LITE_TOPIC_INFO, fields)))

    def lag(self, group: str, lite_topic: str) -> dict[str, Any]:
        """What the broker says of a group and a lite topic (`GetLiteGroupInfoResponseBody`)."""
        fields = {"group": group, "liteTopic": lite_topic, "topK": 10}
        return dict(json.loads(self._ask(RequestCode.GET_LITE_GROUP_INFO, fields)))

    def await_ends(self, ends: Mapping[str, int]) -> None:
        """Wait until lite topics have these max offsets (0: the broker has deleted it), at most three minutes."""
        for _ in range(360):
            if all(self.info(name)["topicOffset"]["maxOffset"] == end for name, end in ends.items()):
                return
            time.sleep(0.5)
        raise HarnessError(f"lite topics do not get the max offsets {ends}")

    def facts(self, lite_topics: Iterable[str], group: str | None = None) -> Iterator[dict[str, Any]]:
        """What the broker says, as facts of a store: the ends of lite topics, and the offsets and lags of a group."""
        for name in lite_topics:
            topic, ends = f"%LMQ%${self._parent}${name}", self.info(name)["topicOffset"]
            yield {"t": "lite", "topic": topic, "min": ends["minOffset"], "max": ends["maxOffset"]}
            said = {} if group is None else self.lag(group, name)
            if (offsets := said.get("liteTopicOffsetWrapper")) is not None:
                lag = {"offset": offsets["consumerOffset"], "lag": said["totalLagCount"]}
                yield {"t": "liteLag", "group": group, "topic": topic, **lag}

    def _ask(self, code: RequestCode, fields: Mapping[str, object], body: bytes = b"") -> bytes:
        return self._client.request_once(self._address, code, fields, body).body
