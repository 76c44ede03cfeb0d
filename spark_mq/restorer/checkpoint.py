"""The checkpoint of a restored store."""

from __future__ import annotations

from dataclasses import replace

from spark_mq.format.broker_version import BrokerVersions
from spark_mq.indexer.recovery import rebuilt_checkpoint
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX


def restored_checkpoint(
    existing: bytes | None,
    *,
    last_store_timestamp: int,
    index_end_timestamp: int,
    last_unit_offset: int,
    versions: BrokerVersions,
    log_end: int,
    has_new_offsets: bool,
) -> Checkpoint:
    """The checkpoint of a restored store, whose log, queues and index are complete.

    Its offsets matter in controller mode, where a broker dispatches the log again from `confirmPhyOffset` on
    (`DefaultMessageStore.start`, `CommitLog.getConfirmOffset`@5.3.3); other brokers replace it at their boot. With new
    offsets it is the end of the log if it was set, and `masterFlushedOffset` is unset: it is an offset of another log.

    Args:
        existing: The file of the source; None if there is none.
        last_store_timestamp: The store time of the last message in the log, in milliseconds.
        index_end_timestamp: The latest end timestamp of an index file, in milliseconds.
        last_unit_offset: The commit log offset of the last message that has a unit; 0 if it is not written.
        versions: The versions of the new broker that are possible.
        log_end: The commit log offset after the last message.
        has_new_offsets: Whether messages have other commit log offsets than in the source.

    """
    checkpoint = Checkpoint.decode(existing or b"")
    confirm, flushed = checkpoint.confirm_phy_offset, checkpoint.master_flushed_offset
    if has_new_offsets:
        confirm, flushed = (log_end if confirm else 0), 0
    offsets = replace(
        checkpoint,
        confirm_phy_offset=min(confirm, log_end),
        master_flushed_offset=min(flushed, log_end),
        written_end=log_end,
    )
    trees = (CONSUME_QUEUE, INDEX)
    return rebuilt_checkpoint(offsets, trees, last_store_timestamp, index_end_timestamp, last_unit_offset, versions)
