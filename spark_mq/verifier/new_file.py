"""Files that a running broker is creating now."""

from __future__ import annotations

import time

from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.store.store_lock import is_locked

_SECONDS, _LOOK_SECONDS = 1.0, 0.01


def settled(store: Location, folder: str, infos: list[fs.FileInfo]) -> list[fs.FileInfo]:
    """The files of a folder, with the sizes that a running broker gives to new ones.

    A broker creates a file without bytes, and sets its size next (`DefaultMappedFile.init`@5.3.3, `MappedFile.init`
    @4.9.7). So a file without bytes is looked at again for a second while a broker runs.
    """
    deadline = time.monotonic() + _SECONDS
    found = list(infos)
    for index, info in enumerate(infos):
        while not found[index].size and time.monotonic() < deadline and is_locked(store):
            time.sleep(_LOOK_SECONDS)
            found[index] = (store / folder / info.base_name).info()
    return [info for info in found if info.type == fs.FileType.File]
