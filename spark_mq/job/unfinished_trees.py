"""Trees that a job writes under their final names, because their filesystem cannot rename a tree (S3).

A file in the job's folder names them before their first file is written. While it exists, the trees count as
unfinished: a job without `resume` removes them, and one with `resume` continues them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_mq.io.location import Location
from spark_mq.io.publish import publish, remove_folder

NAMES: Final = "unfinished.json"
"""The file in the job's folder."""
_REMOVERS: Final = 8
"""Threads that remove files: each removal is a request or two."""


@dataclass(frozen=True)
class UnfinishedTrees:
    """The unfinished trees of an output.

    Attributes:
        output: The folder that gets the trees.
    """

    output: Location
    folder: Location

    def names(self) -> tuple[str, ...]:
        """The trees, as paths relative to the output; empty if the job's folder names none."""
        file = self.folder / NAMES
        if not file.is_file:
            return ()
        try:
            names = json.loads(file.read_bytes())
        except ValueError:
            return ()
        return tuple(filter(_is_tree, names)) if isinstance(names, list) else ()

    def add(self, names: Iterable[str]) -> None:
        """Name these trees as unfinished, besides those that are named already."""
        known = self.names()
        content = json.dumps([*dict.fromkeys((*known, *names))]).encode()
        publish(self.folder / NAMES, content, len(content))

    def remove(self) -> None:
        """Remove all files of the trees."""
        for name in self.names():
            if (self.output / name).is_directory:
                remove_folder(self.output / name)

    def finish(self) -> None:
        """Make the trees finished."""
        if (self.folder / NAMES).is_file:
            (self.folder / NAMES).delete()


def keep_only(tree: Location, is_planned: Callable[[str], bool]) -> None:
    """Remove the files of a tree that are not planned.

    A task of the failed job can still run, and remove its own temporary file at the same time.

    Args:
        tree: The folder; it need not exist.
        is_planned: Whether the job writes the file with this path in the tree.
    """
    others = [tree / path for path in tree.files_below() if not is_planned(path)]

    def remove(file: Location) -> None:
        with suppress(FileNotFoundError):
            file.delete()

    with ThreadPoolExecutor(_REMOVERS) as removers:
        list(removers.map(remove, others))


def _is_tree(name: object) -> bool:
    """Whether a value of the file is a path that does not leave the output."""
    return isinstance(name, str) and not {"", ".", ".."} & set(name.split("/"))
