"""The names of index files: those that the files had in the source.

A broker names an index file after the moment at which it makes it, which no message shows. A rebuild takes the store
time of the first message instead. A file that begins with the same message as one of the source gets that file's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import index_files


def restore_index_names(store: Location, names: Mapping[int, str]) -> int:
    """The number of index files that were renamed.

    Brokers read index files in the order of their names. If the names of the source would give another order, because
    only some of the files have one, no file is renamed.

    Args:
        store: A store that no broker uses.
        names: Names by the commit log offset at which a file begins.

    """
    files = index_files(store)
    known = [names.get(file.stored_header().begin_commit_log_offset, file.name) for file in files]
    if known != sorted(set(known)):
        return 0
    renamed = [(file.name, name) for file, name in zip(files, known, strict=True) if file.name != name]
    folder = store / INDEX
    # A new name can be the old name of a later file.
    for step in (lambda old, new: (old, f"{new}.new"), lambda old, new: (f"{new}.new", new)):
        for old, new in renamed:
            before, after = step(old, new)
            folder.storage.rename((folder / before).path, (folder / after).path)
    return len(renamed)
