"""A queue of a topic as a client names it, and the order in which clients sort queues and client ids."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MessageQueue:
    """A queue of a topic in a broker (`MessageQueue`@5.3.3).

    Attributes:
        broker_name: The broker's name (`brokerName`).
    """

    topic: str
    broker_name: str
    queue_id: int

    @property
    def text(self) -> str:
        """The text whose hash strategy CONSISTENT_HASH uses (`MessageQueue.toString`@5.3.3)."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    @property
    def order(self) -> tuple[bytes, bytes, int]:
        """The key by which clients sort queues (`MessageQueue.compareTo`@5.3.3)."""
        return java_order(self.topic), java_order(self.broker_name), self.queue_id


def java_order(text: str) -> bytes:
    r"""The key by which Java sorts a text: its UTF-16 units (`String.compareTo`)."""
    return text.encode("utf-16-be", "surrogatepass")
