"""The options of a write to a topic of a live cluster, and their parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.format.amounts import parse_size
from spark_mq.live.options import client_settings, given_options
from spark_mq.remoting.client import ClientSettings
from spark_mq.restorer.queue_choice import QueueSelector, parse_queue_selector
from spark_mq.tables.live import LIVE_WRITE_OPTIONS
from spark_mq.tables.messages import MESSAGES

DEFAULT_GROUP = "spark_mq_producer"
_CHECKPOINT = "checkpointlocation"
"""An option of Spark, which also the writer of a stream gets."""
_DEFAULT_BATCH = "512k"
_MAX_BATCH = 4 << 20
"""A broker refuses larger bodies (`maxMessageSize`)."""


@dataclass(frozen=True)
class TopicWriteOptions:
    """The options of a write.

    Attributes:
        topic: The topic of rows without one; None if rows have to name it.
        batch_size: About the bytes of the messages that one request has at most.
    """

    client: ClientSettings
    topic: str | None = None
    selector: QueueSelector = QueueSelector.QUEUE_ID
    producer_group: str = DEFAULT_GROUP
    batch_size: int = 512 << 10


def parse_topic_write_options(options: Mapping[str, str]) -> TopicWriteOptions:
    """The options of a write. Raises `OptionError` if one is unknown, has an invalid value, or has no effect."""
    own = {name: value for name, value in options.items() if name.lower() != _CHECKPOINT}
    given = given_options(own, "a write to topics", [option.name for option in LIVE_WRITE_OPTIONS])
    if given.get("table", MESSAGES.name).lower() != MESSAGES.name:
        raise OptionError(f"table {given['table']} of a live cluster cannot be written, only {MESSAGES.name}")
    size = parse_size("option batchSize", given.get("batchSize", _DEFAULT_BATCH))
    if size > _MAX_BATCH:
        raise OptionError(f"option batchSize={given['batchSize']!r} is more than 4m, which a broker accepts at most")
    return TopicWriteOptions(
        client_settings(given),
        given.get("topic"),
        parse_queue_selector(given.get("queueSelector", QueueSelector.QUEUE_ID)),
        given.get("producerGroup", DEFAULT_GROUP),
        size,
    )
