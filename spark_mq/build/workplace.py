"""Where a job keeps what is not ready yet, and how it becomes the output at the end.

Everything lies under `<output>/.spark_mq/`. On a local filesystem a finished tree is renamed into place as a whole; the
tree that it replaces is set aside first, and removed when the new one is there. A job that was killed between the
two renames left the old tree aside: the next job puts it back. Elsewhere there is no rename of a tree; files are
written whole under their final names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from spark_mq.errors import OutputExistsError
from spark_mq.store.filesystem import Location
from spark_mq.store.publish import sync_folder

WORK_FOLDER = ".spark_mq"
_REPLACED = "replaced-"


@dataclass(frozen=True)
class Workplace:
    """The folder of a job that makes the trees `names` below `output`."""

    output: Location
    names: tuple[str, ...]

    @property
    def folder(self) -> Location:
        """Where the job keeps what is not ready."""
        return self.output / WORK_FOLDER

    def target(self, name: str) -> Location:
        """A finished tree."""
        return self.output / name

    def growing(self, name: str) -> Location:
        """Where a tree grows: beside its target if it can be renamed."""
        return self.folder / name if self.output.is_local else self.target(name)

    def replaced(self, name: str) -> Location:
        """Where a tree that is being replaced waits."""
        return self.folder / f"{_REPLACED}{name}"

    def prepare(self, replace: bool) -> None:
        """Remove what a killed job left, and make the folder.

        Raises `OutputExistsError` where a target is there and `replace` is false, or where it cannot be replaced.
        """
        self._put_back()
        unfinished = not self.output.is_local and self.folder.is_directory
        for target in map(self.target, () if unfinished else self.names):
            if target.is_directory and target.entries():
                self._check_replaceable(target, replace)
        if self.folder.is_directory:
            self.output.filesystem.delete_dir(self.folder.path)
        self.output.filesystem.create_dir(self.folder.path, recursive=True)

    def _put_back(self) -> None:
        """Put trees back that were set aside for others that did not come."""
        for entry in self.folder.entries() if self.output.is_local else ():
            name = entry.base_name.removeprefix(_REPLACED)
            if name != entry.base_name and not self.target(name).is_directory:
                os.rename(self.replaced(name).path, self.target(name).path)

    def _check_replaceable(self, target: Location, replace: bool) -> None:
        if not replace:
            raise OutputExistsError(
                f"{target} exists: give another --output, or --replace to put the rebuilt tree in its place, or --only "
                "the other one"
            )
        if not self.output.is_local:
            raise OutputExistsError(f"{target} exists, and no tree can be renamed there: give another --output")

    def publish(self) -> None:
        """Put the trees in place, the old ones out of the way, and remove the job's folder."""
        for name in self.names if self.output.is_local else ():
            os.makedirs(self.growing(name).path, exist_ok=True)
            if self.target(name).is_directory:
                os.rename(self.target(name).path, self.replaced(name).path)
            os.rename(self.growing(name).path, self.target(name).path)
            sync_folder(self.output.path)
        self.discard()

    def discard(self) -> None:
        """Remove the job's folder and all in it, but for a tree that has no successor."""
        self._put_back()
        self.output.filesystem.delete_dir(self.folder.path)
