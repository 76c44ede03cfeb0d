"""How the last run of a broker ended, from the files `abort` and `lock`."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow import fs

from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_lock import is_locked


@dataclass(frozen=True)
class LastStop:
    """How the last run of the broker ended.

    Attributes:
        is_clean: Whether there is no file `abort`.
        started_timestamp: When the broker that runs, or crashed, was started, milliseconds; None after a clean stop.
        is_running: Whether a broker, or a job that writes into the store, has the store's lock; None if that cannot be
            known.
    """

    is_clean: bool
    started_timestamp: int | None
    is_running: bool | None


def last_stop(store: MessageStore) -> LastStop:
    """How the last run of the broker ended."""
    abort = (store.location / ABORT).info()
    is_clean = abort.type == fs.FileType.NotFound
    started = None if is_clean else (abort.mtime_ns or 0) // NANOS_PER_MILLI
    return LastStop(is_clean, started, is_locked(store.location))
