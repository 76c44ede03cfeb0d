"""How a broker recovers a rebuilt store: the checkpoint that it accepts, and what it does when it starts.

The rules are those of `DefaultMessageStore.load` and `recover`, `CommitLog.isMappedFileMatchedRecover` and
`IndexService.load`@5.3.3, and the same in 4.9. Without the file `abort`, a broker uses queues and index unchanged. If
`abort` exists, the broker dispatches the log again from a segment chosen by the checkpoint's timestamps. Consume queues
ignore units that they already have; the index adds the keys of its last message again; an index file that ends after
`indexMsgTimestamp` is deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_mq.format.broker_version import CHECKPOINT_LOGICS_OFFSET, BrokerVersions
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import ABORT, CONSUME_QUEUE, INDEX


def rebuilt_checkpoint(
    existing: Checkpoint,
    trees: Collection[str],
    last_store_timestamp: int,
    index_end_timestamp: int,
    last_unit_offset: int,
    versions: BrokerVersions,
) -> Checkpoint:
    """The checkpoint of a store whose trees were rebuilt up to the log's end. Other offsets stay unchanged.

    Args:
        trees: The names of the rebuilt trees, which are flushed.
        last_store_timestamp: The store time of the last message in the log, in milliseconds. A broker writes that of
            the last message that it flushed, which is not the latest one if its clock was set back; readers take older
            messages after it for stale ones. With an earlier time a recovery begins at an earlier segment.
        index_end_timestamp: The latest end timestamp of an index file, full or not, in milliseconds; with it a recovery
            keeps all files.
        last_unit_offset: The commit log offset of the last message that has a unit; 0 without one. It becomes
            `logicsPhysicalOffset`, unless a possible version does not write that: without it, a broker that knows the
            field goes by the times (`ConsumeQueueStore.isMappedFileMatchedRecover`@5.5.0).
    """
    last = max(last_store_timestamp, 0)  # brokers know no time before 1970: they take one of 0 for unknown
    checkpoint = replace(existing, physic_msg_timestamp=last)
    if CONSUME_QUEUE in trees:
        offset = last_unit_offset if versions.decide(CHECKPOINT_LOGICS_OFFSET) else 0
        checkpoint = replace(checkpoint, logics_msg_timestamp=last, logics_physical_offset=offset)
    if INDEX in trees:
        checkpoint = replace(checkpoint, index_msg_timestamp=index_end_timestamp)
    return checkpoint


def next_boot(store: Location) -> str:
    """What a broker does at its next boot, for the report."""
    if (store / ABORT).is_file:
        return (
            "the file abort says that the broker did not stop cleanly: it will check the log, and dispatch it again "
            "from one of its last segments. Queues ignore what they have; the index takes the keys of one message "
            "twice, which harms no query. Keep abort: the check finds a damaged end of the log"
        )
    return "without a file abort, a broker takes the rebuilt files as they are, and dispatches only new messages"
