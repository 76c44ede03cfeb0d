"""The check of a rebuild's output folder, which is never inside the files of a store; and of the settings, by files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from spark_mq.errors import OptionError, StorageError
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import unfinished_append
from spark_mq.store.config.store_paths import (
    APPEND_UNFINISHED,
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    MAPPED_FILE_NAME,
)
from spark_mq.store.index.folder import index_files
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.store_lock import LOCK

_STORE_TREES = (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
"""Folders of a store in which a broker uses every entry (`StorePathConfigHelper`@5.3.3)."""


def check_output(output: Location, store: Location, trees: tuple[str, ...]) -> None:
    """Raise an error if the trees cannot be written in `output`. The check creates and changes nothing."""
    output.check_bucket()
    if (output / COMMIT_LOG / APPEND_UNFINISHED).is_file:
        raise unfinished_append(output)
    for folder in _folders_above(output):
        kind = _store_tree(folder, store)
        if kind is not None:
            raise OptionError(
                f"--output {output} is inside {folder}, which is {kind}: a broker would take the new files for its "
                "own; give a folder outside of it"
            )
        if folder.is_file:
            raise StorageError(f"--output {output}: {folder} is a file; give the name of a folder")
    for tree in trees:
        if any(_is_same(output / tree, folder) for folder in _folders_above(store)):
            raise OptionError(f"--output {output}: its {tree}/ would take the place of the store {store} itself")
        if output.is_local and not _is_same(output, store) and _is_link_into_a_store(output, tree, store):
            raise OptionError(
                f"--output {output}: its {tree} is a symbolic link to a tree of a store, which would be changed; give "
                "a folder without such a link"
            )


def is_store_folder(folder: Location) -> bool:
    """Whether a broker can run on `folder`: it has a commit log, or the lock of a broker whose log is elsewhere."""
    return (folder / COMMIT_LOG).is_directory or (folder / LOCK).is_file


def _folders_above(location: Location) -> Iterator[Location]:
    """The folder and all its parents; if it is local, also those of its path without symbolic links."""
    paths = [location.path, os.path.realpath(location.path)] if location.is_local else [location.path]
    for path in dict.fromkeys(paths):
        while path.strip("/"):
            yield Location(location.storage, path)
            path = path.rpartition("/")[0]


def _store_tree(folder: Location, store: Location) -> str | None:
    """A description of the folder if it is a tree of a store, by location or by the names of its files; else None."""
    parent, _, name = folder.path.rpartition("/")
    commit_log = Location(folder.storage, f"{parent}/{COMMIT_LOG}")
    if name in _STORE_TREES and not folder.is_bucket and commit_log.is_directory:
        return f"{name}/ of a store"
    if any(_is_same(store / tree, folder) for tree in _STORE_TREES):
        return f"a folder of the store {store}"
    if folder.is_local and folder.is_directory and _has_mapped_files(folder):
        return "a folder of a commit log or of a queue"
    return None


def _is_link_into_a_store(output: Location, tree: str, store: Location) -> bool:
    if not os.path.islink((output / tree).path):
        return False
    real = Location.resolve(os.path.realpath((output / tree).path))
    holder = Location.resolve(os.path.dirname(real.path))
    is_of_another = real.name in _STORE_TREES and (holder / COMMIT_LOG).is_directory and not _is_same(holder, output)
    return is_of_another or _is_same(real, store / tree)


def _has_mapped_files(folder: Location) -> bool:
    try:
        with os.scandir(folder.path) as entries:
            return any(MAPPED_FILE_NAME.fullmatch(entry.name) and entry.is_file() for entry in entries)
    except OSError:  # no permission to list a parent of the output
        return False


def _is_same(first: Location, second: Location) -> bool:
    if first.is_local and second.is_local:
        return os.path.realpath(first.path) == os.path.realpath(second.path)
    return first == second


def check_file_sizes(conf: BrokerConf, queue_tree: Location | None, index_of: Location | None) -> None:
    """Raise `OptionError` if the settings are not those of the broker of these queue files, and of a store's index."""
    if queue_tree is not None:
        sizes = [info.size for folder in queue_folders(queue_tree) for info in folder.files]
        conf.check_size(f"the files in {queue_tree}", conf.consume_queue_file_size, sizes, "mappedFileSizeConsumeQueue")
    if index_of is not None and conf.index_layout is not None:
        given, sizes = conf.index_layout.file_size, [file.size for file in index_files(index_of)]
        conf.check_size(f"the files in {index_of / INDEX}", given, sizes, "maxHashSlotNum, maxIndexNum")
