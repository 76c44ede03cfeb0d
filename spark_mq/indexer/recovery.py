"""What the next broker makes of a rebuilt store: the checkpoint that it will trust, and what it does at its boot.

`DefaultMessageStore.load`, `recover`, `CommitLog.isMappedFileMatchedRecover`, `IndexService.load`@5.3.3, and the same
in 4.9: without the file `abort` a broker takes queues and index as they are. With it, it dispatches the log again from
a segment that the checkpoint's times choose; a queue ignores what it has, the index takes the keys of the message with
which it ends once more, and an index file that ends later than `indexMsgTimestamp` is thrown away.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import ABORT, CONSUME_QUEUE, INDEX


def rebuilt_checkpoint(
    existing: Checkpoint, trees: Collection[str], last_store_timestamp: int, index_end_timestamp: int
) -> Checkpoint:
    """The checkpoint of a store whose `trees` were rebuilt up to the log's end.

    All that was rebuilt is flushed: the times are those of the last message, and, for the index, of the end of its last
    file, full or not, so that a recovery keeps that file. Offsets stay as they were.
    """
    checkpoint = replace(existing, physic_msg_timestamp=last_store_timestamp)
    if CONSUME_QUEUE in trees:
        checkpoint = replace(checkpoint, logics_msg_timestamp=last_store_timestamp)
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
