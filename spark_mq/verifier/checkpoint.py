"""The files `checkpoint` and `abort`, against the log and the index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_paths import ABORT
from spark_mq.verifier.finding import findings

_FIELDS = (
    (0, "physicMsgTimestamp", "physic_msg_timestamp"),
    (8, "logicsMsgTimestamp", "logics_msg_timestamp"),
    (16, "indexMsgTimestamp", "index_msg_timestamp"),
)
_OFFSETS = (
    (32, "confirmPhyOffset", "confirm_phy_offset"),
    (40, "logicsPhysicalOffset", "logics_physical_offset"),
)


@dataclass(frozen=True)
class BrokerState:
    """What the two files said before the log was read.

    Attributes:
        checkpoint_size: Bytes of its file; None if there is none.
        has_abort: Whether a broker runs, or did not stop cleanly.
    """

    checkpoint: Checkpoint
    checkpoint_size: int | None
    has_abort: bool

    @classmethod
    def of(cls, store: Location) -> Self:
        """The state of a store now."""
        file = store / CHECKPOINT
        size = file.info().size if file.is_file else None
        return cls(Checkpoint.load(store), size, (store / ABORT).is_file)


def checkpoint_findings(state: BrokerState, end: int, newest: int) -> Iterator[pa.RecordBatch]:
    """What is wrong with the checkpoint.

    A broker writes the times of messages that it has flushed, so none of them can be later than the last message.

    Args:
        state: The files, as they were before the log was read.
        end: The commit log offset at which the log ends.
        newest: The latest store time of the log in milliseconds; 0 without a message.

    Yields:
        Findings.
    """
    if state.has_abort:
        yield findings("ABORT", file=ABORT, found="the file exists")
    if state.checkpoint_size is None:
        return
    if state.checkpoint_size != CHECKPOINT_SIZE:
        yield findings(
            "CHECKPOINT_SIZE",
            file=CHECKPOINT,
            expected=f"{CHECKPOINT_SIZE} bytes",
            found=f"{state.checkpoint_size} bytes",
        )
    for position, name, attribute in _FIELDS:
        time = getattr(state.checkpoint, attribute)
        if time > newest or time < 0:
            yield findings(
                "CHECKPOINT_AHEAD",
                file=CHECKPOINT,
                position=position,
                expected=f"{name} up to {newest}",
                found=f"{name} {time}",
            )
    for position, name, attribute in _OFFSETS:
        offset = getattr(state.checkpoint, attribute)
        if offset > end:
            yield findings(
                "CHECKPOINT_AHEAD",
                file=CHECKPOINT,
                position=position,
                expected=f"{name} up to {end}",
                found=f"{name} {offset}",
            )
