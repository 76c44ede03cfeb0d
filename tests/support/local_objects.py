"""A local folder as an object store: what the code for S3 does, without a server."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from obstore.store import LocalStore

from spark_mq.io.location import Location
from spark_mq.io.object_store import ObjectStore


class LocalObjects(ObjectStore):
    """The bucket `folder`, whose objects are the files of a local folder: its only setting."""

    @property
    def _client(self) -> Any:
        return _store(self.settings[0][1])


@cache
def _store(folder: str) -> LocalStore:
    return LocalStore(folder)


def local_objects(folder: Path, name: str = "", **settings: str) -> Location:
    """A file or folder of a local folder, as a location in a bucket.

    Args:
        folder: The local folder.
        name: A path in it.
        settings: More settings of the address.

    """
    return Location(LocalObjects("folder", (("folder", str(folder)), *settings.items())), f"folder/{name}".rstrip("/"))
