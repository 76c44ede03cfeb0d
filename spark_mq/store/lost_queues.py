"""Queues without files whose messages are in the log: a queue without files looks like one that never had a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from spark_mq.format.record import Record
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import InQueue, scan
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import log_cover

_MERGE_DISTANCE = 64 << 10


def lost_queues(store: MessageStore, queues: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
    """The queues among `queues` that lost their files, each with the reason, as text for a person.

    The units of all queues show which messages of the log have one. Only the rest of the log is read.

    Args:
        queues: Topics and queue ids; those with files are left out.
    """
    without = {queue for queue in queues if queue not in store.queues}
    log = LogRange(max(store.get_min_phy_offset(), 0), store.get_max_phy_offset())
    if not without or log.size <= 0:
        return {}
    covers = [(queue, store.queue_cover(*name)) for name, queue in store.queues.items()]
    found: Counter[tuple[str, int]] = Counter()
    for part in log_cover(covers, store.records, log, _MERGE_DISTANCE).uncovered:
        for topic in {topic for topic, _ in without}:
            for record in scan(store.location, store.records, part, InQueue(topic)):
                if isinstance(record, Record):
                    found[topic, record.queue_id] += 1
    return {
        queue: f"it has no files, but the log has {found[queue]:,} messages of it"
        for queue in sorted(without)
        if found[queue]
    }
