"""Whether the end of a log is lost without a damaged range that shows it."""

from __future__ import annotations

from spark_mq.format.timestamp import iso_text
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT, Checkpoint


def lost_end(store: Location, newest_timestamp: int) -> str | None:
    """Why the end of the log can be lost; None if it is there.

    A broker writes the store time of the last flushed message into `checkpoint` (`StoreCheckpoint`@5.3.3).

    Args:
        store: The folder that contains `checkpoint`.
        newest_timestamp: The newest store time in the log, in milliseconds.
    """
    if not (store / CHECKPOINT).is_file:
        return "there is no file checkpoint, which would show whether the end of the log is lost"
    flushed = Checkpoint.load(store).physic_msg_timestamp
    if flushed <= newest_timestamp:
        return None
    return f"the end of the log is lost: its newest message is older than the time in checkpoint, {iso_text(flushed)}"
