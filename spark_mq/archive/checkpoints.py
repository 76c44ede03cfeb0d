"""The checkpoints of one store's streams: their folders, and which of them are retired.

A checkpoint is retired when a rename changes rows that its stream wrote: the stream then starts with a new checkpoint,
at the end of the archived messages. A file contains the number of retired checkpoints. The file is published whole, so
a killed run leaves the old state or the new one. The folders stay, because removing a folder takes many steps.
"""

from __future__ import annotations

import json
from typing import Any

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.io.location import Location
from spark_mq.io.publish import publish

MESSAGES, KEYS = "messages", "keys"
"""The two streams of a store."""
_OFFSET_LOG_VERSION = "v1"


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


def stream_id(tables: ArchiveTables, checkpoint: str) -> str:
    """The id of the stream, which Spark writes before the first batch."""
    return str(json.loads((tables.location(checkpoint) / "metadata").read_bytes())["id"])


def finished_batch(tables: ArchiveTables, checkpoint: str) -> Location | None:
    """The file with the offset of a stream's last batch; None if there is none, or the batch is not finished."""
    folder = tables.location(checkpoint)
    numbers = [int(entry.base_name) for entry in (folder / "offsets").entries() if entry.base_name.isdigit()]
    if not numbers or not (folder / "commits" / str(max(numbers))).is_file:
        return None
    return folder / "offsets" / str(max(numbers))


def source_offset(batch: Location) -> dict[str, Any] | None:
    """The offset of the only source in a file of Spark's offset log; None for another form."""
    lines = batch.read_bytes().decode().splitlines()
    if len(lines) != 3 or lines[0] != _OFFSET_LOG_VERSION:
        return None
    values = json.loads(lines[2])
    return values if isinstance(values, dict) else None


def _retired(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> int:
    file = _retired_file(tables, identity, stream)
    return int(file.read_bytes()) if file.is_file else 0


def _retired_file(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> Location:
    return tables.location(tables.checkpoint(identity, f"{stream}.retired"))
