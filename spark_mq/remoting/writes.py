"""Requests that change something in a broker. Nothing else in this package does."""

from __future__ import annotations

from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode


def update_consumer_offset(
    client: RemotingClient, broker: str, group: str, topic: str, queue_id: int, offset: int
) -> None:
    """Set the queue offset that a group consumes next.

    Raises:
        RemotingError: The broker does not answer, or refuses: 5.x does if it does not know the group.
    """
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    client.request(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
