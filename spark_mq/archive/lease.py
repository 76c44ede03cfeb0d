"""A lease of an archive on S3: at most one run at a time writes into its tables.

Two runs on a local disk may write at the same time: the second of two commits with one number fails, and is repeated.
On S3, Delta Lake's usual log store replaces the first commit silently, unless both are in one JVM: its rows are lost.
So a run writes a file of its own into the folder of the checkpoints, and then lists the files of others. S3 lists what
was written before, so of two runs at least one sees the other. A run renews its file until it ends. If nobody renews a
file, its run was killed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import ArchiveTables
from spark_mq.errors import ArchiveInUseError, SparkMqError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.io.s3 import is_s3

FOLDER: Final = "_runs"
"""The folder in the folder of the checkpoints."""
RENEWAL_SECONDS = 10.0
EXPIRY_SECONDS = 60.0
"""After this time without a renewal, a run counts as killed."""
_LOOK_SECONDS = 1.0
_LOG_STORES: Final = ("spark.delta.logStore.s3a.impl", "spark.delta.logStore.class")
"""Settings of a log store that knows of other writers, such as the one with DynamoDB."""


@contextmanager
def lease(spark: SparkSession, tables: ArchiveTables) -> Iterator[None]:
    """A context in which no other run writes into an archive on S3; of another archive, there is no lease.

    If a run was killed, the context waits until its file has not been renewed for a minute.
    """
    has_log_store = any(spark.conf.get(name, None) is not None for name in _LOG_STORES)
    if not is_s3(tables.name) or not is_s3(tables.checkpoints) or has_log_store:
        yield
        return
    own = tables.location(f"{tables.checkpoints}/{FOLDER}/{uuid.uuid4().hex}")
    _renew(own)
    has_ended = threading.Event()
    renewer = threading.Thread(target=_keep, args=(own, has_ended), daemon=True)
    renewer.start()
    try:
        _wait_for_others(own, tables)
        yield
    finally:
        has_ended.set()
        renewer.join()
        with suppress(OSError):
            own.delete()


def _renew(own: Location) -> None:
    publish(own, f"{time.time()} {socket.gethostname()} {os.getpid()}".encode())


def _keep(own: Location, has_ended: threading.Event) -> None:
    while not has_ended.wait(RENEWAL_SECONDS):
        with suppress(SparkMqError, OSError):  # the next one is in time, too
            _renew(own)


def _wait_for_others(own: Location, tables: ArchiveTables) -> None:
    """Remove the files of killed runs. Raises `ArchiveInUseError` when a file is renewed, or a new one comes."""
    first = _others(own)
    started = time.monotonic()
    while first:
        others = _others(own)
        if any(first.get(name) != content for name, content in others.items()):
            raise ArchiveInUseError(
                f"{tables.name}: another run writes into this archive on S3, where commits of two runs would replace "
                "each other: wait until it has ended, or stop it, and run again"
            )
        first = {name: first[name] for name in others}
        if time.monotonic() - started >= EXPIRY_SECONDS:
            for name in first:
                with suppress(OSError):
                    (own.parent / name).delete()
            return
        time.sleep(_LOOK_SECONDS)


def _others(own: Location) -> dict[str, bytes]:
    found = {}
    for info in own.parent.entries():
        if info.base_name != own.name:
            with suppress(FileNotFoundError):
                found[info.base_name] = (own.parent / info.base_name).read_bytes()
    return found
