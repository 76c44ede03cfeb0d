"""What a restore decides about all messages, before it reads one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_mq.errors import OptionError
from spark_mq.format.message_id import host_fault
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS
from spark_mq.store.config.config_file import new_topic_fault

DEFAULT_STORE_HOST = "127.0.0.1:10911"
DEFAULT_BORN_HOST = "127.0.0.1:0"


@dataclass(frozen=True)
class EncodingRules:
    """How rows become records.

    Attributes:
        is_faithful: Whether each record has the offsets of its row, and the bytes that it had. Else both offsets are
            written as 0, and the record is one that a broker could get today.
        now: The store time, in milliseconds since the epoch, of a row without one. It is also the born time of a row
            that has neither.
        store_host: The store host of all records, as `ADDRESS:PORT`; None for the row's own, or `DEFAULT_STORE_HOST`.
        topics: New names by old names, for the topic of a message and its properties REAL_TOPIC and RETRY_TOPIC.
        max_body_size: The largest body in bytes, for a body that did not have this length in a store before.
        properties_crc: Whether each record gets the property CRC of a broker with `enabledAppendPropCRC`. A faithful
            record never gets one that it did not have.
        allows_v2: Whether the broker can read records of version 2, which long topics need: brokers from 5.1.0 on can.
    """

    is_faithful: bool
    now: int
    store_host: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    max_body_size: int = 4 << 20
    properties_crc: bool = False
    allows_v2: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.now <= MAX_TIMESTAMP_MILLIS:
            raise OptionError(f"now={self.now} is not a time: give milliseconds since the epoch")
        if self.store_host is not None and (fault := host_fault(self.store_host)):
            raise OptionError(f"store host {fault}")
        for old, new in self.topics.items():
            if fault := new_topic_fault(new):
                raise OptionError(f"topic map {old!r} to {new[:80]!r}: the new name {fault}")
        if self.topics and self.is_faithful:
            raise OptionError("a topic map changes messages: restore them with new offsets (renumber)")
