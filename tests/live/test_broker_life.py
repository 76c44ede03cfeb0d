"""Copies of a message that a broker's index lacks, and queues that a broker does not hand out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from spark_mq.format.record import Record
from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.lifecycle.life.life_store import Cut
from spark_mq.lifecycle.why_not_consumed import NotConsumed, why_not_consumed
from spark_mq.live.broker_life import BrokerLife
from spark_mq.live.cluster import live_brokers
from spark_mq.live.options import parse_live_options
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.command import RemotingCommand
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import GROUP, QUEUES, TOPIC, HostileCluster

KEY = f"{TOPIC}-1-7"
OWN_QUEUE = {"REAL_TOPIC": TOPIC, "REAL_QID": "1"}


def half(**properties: str) -> bytes:
    text = "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": KEY, **properties}.items())
    return Record(HALF_TOPIC.encode(), properties=text.encode(), commit_log_offset=10).encode()


class WithHalf(HostileCluster):
    """A broker whose index knows the key of a half message, and not of the committed one."""

    properties = OWN_QUEUE
    subscription: dict[str, str] | None = None

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.QUERY_MESSAGE:
            is_half = request.ext_fields["topic"] == HALF_TOPIC
            body = half(**self.properties) if is_half and int(request.ext_fields["endTimestamp"]) > 0 else b""
            yield response(request, 0 if body else 22, body=body)
        elif request.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            table = {} if self.subscription is None else {TOPIC: self.subscription}
            yield response(request, body=json.dumps({"connectionSet": [], "subscriptionTable": table}).encode())
        else:
            yield from super().answer(request)


@pytest.fixture
def cluster() -> Iterator[WithHalf]:
    cluster = WithHalf()
    with serving(cluster.answer) as cluster.address:
        yield cluster


@pytest.fixture
def life_of(cluster: WithHalf) -> Iterator[BrokerLife]:
    options = parse_live_options({"path": f"rocketmq://{cluster.address}", "topicPattern": ".*"})
    with RemotingClient(options.client) as client:
        yield BrokerLife(live_brokers(client)[0], options)


def test_a_message_that_the_index_lacks_is_found_in_its_queue(life_of: BrokerLife) -> None:
    found = life_of.find_key(KEY, [HALF_TOPIC])
    assert [(one.topic.decode(), one.queue_offset) for one in found.records] == [(HALF_TOPIC, 0), (TOPIC, 7)]
    assert found.damage == ()


@pytest.mark.parametrize("properties", [{}, {"REAL_TOPIC": TOPIC}, OWN_QUEUE | {"REAL_QID": "x"}])
def test_a_half_message_without_a_queue(cluster: WithHalf, life_of: BrokerLife, properties: dict[str, str]) -> None:
    cluster.properties = properties
    assert len(life_of.find_key(KEY, [HALF_TOPIC]).records) == 1


def test_a_queue_that_a_broker_does_not_hand_out(cluster: WithHalf, life_of: BrokerLife) -> None:
    cluster.properties = {"REAL_TOPIC": TOPIC, "REAL_QID": str(QUEUES)}
    (damage,) = life_of.find_key(KEY, [HALF_TOPIC]).damage
    assert damage == f"broker {cluster.address} does not hand out the messages of {TOPIC}/{QUEUES}"
    assert [type(one) for one in life_of.messages_after("Unknown", 0, 0)] == [Cut]


@pytest.mark.parametrize(
    ("subscription", "reason"),
    [
        (None, NotConsumed.CONSUMED),
        ({"subString": "t0", "expressionType": "TAG"}, NotConsumed.CONSUMED),
        ({"subString": "t1 || t2"}, NotConsumed.FILTERED_BY_TAG_HASH),
        ({"subString": "TAGS = 't1'", "expressionType": "SQL92"}, NotConsumed.FILTERED_BY_SQL),
    ],
)
def test_the_subscription_is_that_of_connected_consumers(
    cluster: WithHalf, life_of: BrokerLife, subscription: dict[str, str] | None, reason: NotConsumed
) -> None:
    cluster.subscription = subscription
    found = why_not_consumed(life_of, GROUP, TOPIC, 0, 2)
    assert (found.reason, found.tags, found.subscription) == (reason, "t0", (subscription or {}).get("subString"))
    assert why_not_consumed(life_of, GROUP, TOPIC, 0, 2, tags="t3").reason == NotConsumed.FILTERED_BY_TAG_HASH
