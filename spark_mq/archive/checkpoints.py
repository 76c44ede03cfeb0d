"""The checkpoints of one store's streams: where they are, and which of them may no longer be used.

A checkpoint is retired where rows changed under it: the stream then begins with a new one, at the end of what is
archived. A file says how many were retired. It is written whole, so that a run that is killed leaves the old state or
the new one; the folders themselves, which take many steps to remove, stay.
"""

from __future__ import annotations

import re

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.io.location import Location
from spark_mq.io.publish import publish

MESSAGES, KEYS = "messages", "keys"
"""The two streams of a store."""


def checkpoint_of(place: ArchiveTables, identity: StoreIdentity, stream: str) -> str:
    """The folder of the checkpoint that the stream uses now."""
    retired = _retired(place, identity, stream)
    return place.checkpoint(identity, f"{stream}-{retired}" if retired else stream)


def retire_checkpoint(place: ArchiveTables, identity: StoreIdentity, stream: str) -> None:
    """Let the stream begin with a new checkpoint, if it has one."""
    if has_begun(checkpoint_of(place, identity, stream)):
        content = str(_retired(place, identity, stream) + 1).encode()
        publish(_retired_file(place, identity, stream), content, len(content))


def has_begun(checkpoint: str) -> bool:
    """Whether a stream noted an offset in this checkpoint: from there on it starts where that says."""
    return any(entry.base_name.isdigit() for entry in (_location(checkpoint) / "offsets").entries())


def _retired(place: ArchiveTables, identity: StoreIdentity, stream: str) -> int:
    file = _retired_file(place, identity, stream)
    return int(file.read_bytes()) if file.is_file else 0


def _retired_file(place: ArchiveTables, identity: StoreIdentity, stream: str) -> Location:
    return _location(place.checkpoint(identity, f"{stream}.retired"))


def _location(path: str) -> Location:
    return Location.resolve(re.sub("^s3a:", "s3:", path))
