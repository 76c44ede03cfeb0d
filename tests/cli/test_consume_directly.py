"""`consume-directly`: what a consumer answers, what a server may answer, and what is never sent. A real consumer:
`tests/broker/test_resend.py`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import TOPIC, HostileCluster

CLIENTS: dict[str, Any] = {
    "connectionSet": [{"clientId": name, "clientAddr": "10.0.0.1:5", "language": "JAVA"} for name in ("b", "a")],
    "subscriptionTable": {TOPIC: {}},
}
LATER = {"consumeResult": "CR_LATER", "order": False, "autoCommit": True, "remark": None, "spentTimeMills": 12}


class Cluster(HostileCluster):
    """A cluster that has two consumers, and counts what is asked of them."""

    def __init__(self, result: bytes, code: int = 0) -> None:
        super().__init__()
        self.result, self.code = result, code
        self.asked: list[dict[str, str]] = []

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            yield response(request, body=json.dumps(CLIENTS).encode())
        elif request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            self.asked.append(dict(request.ext_fields))
            yield response(request, self.code, body=self.result, remark="consumer <a> Timeout")
        else:
            yield from super().answer(request)


def run(cluster: Cluster, *more: str) -> int:
    with serving(cluster.answer) as address:
        cluster.address = address
        message_id = encode_offset_message_id(b"\x7f\0\0\1" + struct.pack(">i", cluster.port), 4000)
        return main(["consume-directly", f"rocketmq://{address}", "GID", message_id.lower(), "--json", *more])


def test_nothing_is_sent_without_apply(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(b"")
    assert run(cluster) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert cluster.asked == []
    assert (plan["applied"], plan["client_id"], plan["topic"], plan["subscribed"]) == (False, "a", TOPIC, True)
    assert (plan["queue_id"], plan["queue_offset"], plan["unique_key"]) == (0, 2, f"{TOPIC}-0-2")


def test_another_answer_than_success_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(json.dumps(LATER).encode())
    assert run(cluster, "--client-id", "b", "--apply") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["consume_result"], answer["order"], answer["spent_time_millis"]) == ("CR_LATER", False, 12)
    (asked,) = cluster.asked
    assert (asked["consumerGroup"], asked["clientId"], asked["topic"]) == ("GID", "b", TOPIC)


@pytest.mark.parametrize(
    ("result", "code", "error"),
    [
        (b"", ResponseCode.CONSUME_MSG_TIMEOUT, "CONSUME_MSG_TIMEOUT: consumer <a> Timeout"),
        (b"", 0, "the answer to CONSUME_MESSAGE_DIRECTLY cannot be read"),
        (b"[]", 0, "the answer to CONSUME_MESSAGE_DIRECTLY cannot be read"),
        (b'{"order": true}', 0, "the answer to CONSUME_MESSAGE_DIRECTLY cannot be read"),
        (b'{"consumeResult": "CR_SUCCESS", "spentTimeMills": {}}', 0, "cannot be read"),
    ],
)
def test_an_answer_that_is_none_is_an_error(
    result: bytes, code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(result, code)
    assert run(cluster, "--apply") == 1
    assert error in capsys.readouterr().err
    assert len(cluster.asked) == 1  # a request that has an effect is not sent again
