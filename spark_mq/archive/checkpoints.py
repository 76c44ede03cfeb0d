"""The checkpoints of one store's streams: their folders, and which of them are retired.

A checkpoint is retired when a rename changes rows that its stream wrote: the stream then starts with a new checkpoint,
at the end of the archived messages. A file contains the number of retired checkpoints. The file is published whole, so
a killed run leaves the old state or the new one. The folders stay, because removing a folder takes many steps.
"""

from __future__ import annotations

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.io.location import Location
from spark_mq.io.publish import publish

MESSAGES, KEYS = "messages", "keys"
"""The two streams of a store."""


def checkpoint_of(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> str:
    """The folder of the checkpoint that a stream uses now."""
    retired = _retired(tables, identity, stream)
    return tables.checkpoint(identity, f"{stream}-{retired}" if retired else stream)


def retire_checkpoint(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> None:
    """Make the stream start with a new checkpoint, if it has used its present one."""
    if has_begun(tables, checkpoint_of(tables, identity, stream)):
        content = str(_retired(tables, identity, stream) + 1).encode()
        publish(_retired_file(tables, identity, stream), content, len(content))


def has_begun(tables: ArchiveTables, checkpoint: str) -> bool:
    """Whether a stream has written an offset to this checkpoint; the stream then starts at that offset."""
    return any(entry.base_name.isdigit() for entry in (tables.location(checkpoint) / "offsets").entries())


def _retired(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> int:
    file = _retired_file(tables, identity, stream)
    return int(file.read_bytes()) if file.is_file else 0


def _retired_file(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> Location:
    return tables.location(tables.checkpoint(identity, f"{stream}.retired"))
