"""When the segment of one message expires: few files are looked at, and none is read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.expiry import MILLIS_PER_HOUR, expire_times
from spark_mq.store.message_store import MessageStore
from spark_mq.store.old_files import live_segments
from spark_mq.store.retention import delete_when, reserved_time


@dataclass(frozen=True)
class MessageExpiry:
    """When a message expires.

    Attributes:
        expire_timestamp: When the segment has expired, and all segments before it, milliseconds since the epoch; None
            for the newest segment, which never expires.
        delete_timestamp: The first time from then on at which the broker deletes files; None as above.
        reserved_hours: For how many hours a segment is kept after its last change.
    """

    segment: str
    expire_timestamp: int | None
    delete_timestamp: int | None
    reserved_hours: float
    reserved_hours_source: str
    store: str = ""


def message_expiry(store: MessageStore, commit_log_offset: int, conf: BrokerConf, name: str) -> MessageExpiry | None:
    """When the segment expires that has an offset of the log; None if no segment with live records has it.

    Args:
        conf: The broker's settings, for `fileReservedTime` and `deleteWhen`.
    """
    live = live_segments(store)
    index = bisect_right([segment.file.base for segment in live], commit_log_offset) - 1
    if index < 0:
        return None
    hours = reserved_time(None, conf)
    times = expire_times([one.modification_timestamp for one in live[:-1]], round(hours.value * MILLIS_PER_HOUR))
    expire = times[index] if index < len(times) else None
    when, _, _ = delete_when(store, conf)
    delete = None if expire is None else when.next_time(expire)
    return MessageExpiry(live[index].file.location.name, expire, delete, hours.value, hours.source, name)
