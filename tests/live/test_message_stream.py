"""A stream of a cluster, one of whose brokers does not answer, or no longer has a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_mq.errors import DataLossError, RemotingError
from spark_mq.live import datasource as live
from spark_mq.live import options
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.command import RemotingCommand
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import COUNT, GROUP, OTHER, QUEUES, TOPIC, HostileCluster

ENDS = {"b": {TOPIC: {str(number): COUNT for number in range(QUEUES)}}}


class Cluster(HostileCluster):
    """A cluster that notes the offsets of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[dict[str, str]] = []

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.committed.append(dict(request.ext_fields))
            yield response(request)
        else:
            yield from super().answer(request)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    with serving(found.answer) as found.address:
        yield found


def stream(cluster: Cluster, **more: str) -> Any:
    given = {"path": f"rocketmq://{cluster.address}", "topicPattern": TOPIC} | more
    return live.stream_reader(given, live.schema(given))


def test_a_broker_that_does_not_answer_holds_up_no_batch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("spark_mq.remoting.client.sleep", pauses.append)
    cluster.others = {"z": {0: "127.0.0.1:1"}}
    reader = stream(cluster, commitOffsets=GROUP)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert end["queues"] == ENDS
    end["queues"]["z"] = {TOPIC: {"0": 7}}  # those that were read before stay
    assert reader.latestOffset(end) == end
    reader.commit(end)
    assert [int(one["commitOffset"]) for one in cluster.committed] == [COUNT] * QUEUES
    assert pauses == []


@pytest.mark.parametrize(
    "start", [{"startingOffsets": "latest"}, {"startingTimestamp": "2026-01-01T00:00:00Z"}], ids=["latest", "time"]
)
def test_a_start_after_the_first_message_needs_all_brokers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, start: dict[str, str]
) -> None:
    """Queues of a broker that is left out would be read from their first message on."""
    monkeypatch.setattr(options, "STREAM_PATIENCE", 0.0)
    monkeypatch.setattr("spark_mq.remoting.client.sleep", lambda seconds: None)
    cluster.others = {"z": {0: "127.0.0.1:1"}}
    with pytest.raises(RemotingError, match=r"127\.0\.0\.1:1: no connection"):
        stream(cluster, **start).initialOffset()


@pytest.mark.parametrize("selected", [TOPIC, OTHER])
def test_a_topic_that_was_deleted_is_a_loss_if_the_stream_reads_it(cluster: Cluster, selected: str) -> None:
    end = stream(cluster).latestOffset(stream(cluster).initialOffset())
    end["queues"]["b"]["Gone"] = {"0": 7}
    pattern = f"{selected}|Gone"
    with pytest.raises(DataLossError, match="topic Gone was deleted in broker b"):
        stream(cluster, topicPattern=pattern).latestOffset(end)
    later = stream(cluster, topicPattern=pattern, failOnDataLoss="false").latestOffset(end)
    assert "Gone" not in later["queues"]["b"]
    assert later["queues"]["b"][TOPIC] == ENDS["b"][TOPIC]
    kept = stream(cluster, topicPattern=selected).latestOffset(end)  # the stream does not read it any more
    assert kept["queues"]["b"]["Gone"] == {"0": 7}
