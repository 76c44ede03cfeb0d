"""Where a job keeps what is not ready yet, and how it becomes the output at the end.

Everything lies under `<output>/.spark_mq/`. On a local filesystem a finished tree is renamed into place as a whole; the
tree that it replaces is set aside first, and removed when the new one is there. A job that was killed between the
two renames left the old tree aside: the next job puts it back. Elsewhere there is no rename of a tree; files are
written whole under their final names.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from spark_mq.errors import OutputExistsError
from spark_mq.store.filesystem import Location
from spark_mq.store.publish import sync_folder

WORK_FOLDER = ".spark_mq"


@dataclass(frozen=True)
class Workplace:
    """The folder of a job that makes the tree `name` below `output`."""

    output: Location
    name: str

    @property
    def folder(self) -> Location:
        """Where the job keeps what is not ready."""
        return self.output / WORK_FOLDER

    @property
    def target(self) -> Location:
        """The finished tree."""
        return self.output / self.name

    @property
    def growing(self) -> Location:
        """Where the tree grows: beside its target if it can be renamed."""
        return self.folder / self.name if self.output.is_local else self.target

    @property
    def replaced(self) -> Location:
        """Where the tree that is being replaced waits."""
        return self.folder / f"replaced-{self.name}"

    def prepare(self, replace: bool) -> None:
        """Remove what a killed job left, and make the folder.

        Raises `OutputExistsError` where the target is there and `replace` is false, or where it cannot be replaced.
        """
        if self.output.is_local and self.replaced.is_directory:
            if self.target.is_directory:
                shutil.rmtree(self.replaced.path)
            else:
                os.rename(self.replaced.path, self.target.path)
        unfinished = not self.output.is_local and self.folder.is_directory
        if self.target.is_directory and self.target.entries() and not unfinished:
            if not replace:
                raise OutputExistsError(
                    f"{self.target} exists: give another --output, or --replace to put the rebuilt tree in its place"
                )
            if not self.output.is_local:
                raise OutputExistsError(
                    f"{self.target} exists, and no tree can be renamed there: give another --output"
                )
        if self.folder.is_directory:
            self.output.filesystem.delete_dir(self.folder.path)
        self.output.filesystem.create_dir(self.folder.path, recursive=True)

    def publish(self) -> None:
        """Put the tree in place, the old one out of the way, and remove the job's folder."""
        if self.output.is_local:
            os.makedirs(self.growing.path, exist_ok=True)
            if self.target.is_directory:
                os.rename(self.target.path, self.replaced.path)
            os.rename(self.growing.path, self.target.path)
            sync_folder(self.output.path)
        self.discard()

    def discard(self) -> None:
        """Remove the job's folder and all in it."""
        self.output.filesystem.delete_dir(self.folder.path)
