"""Where a job keeps what is not ready yet, and how it becomes the output at the end.

Everything lies under `<output>/.spark_mq/`. On a local filesystem a finished tree is renamed into place as a whole; the
tree that it replaces is set aside first, and removed when the new one is there. A job that was killed between the
two renames left the old tree aside: the next job puts it back. A tree that is continued stays where it is, and its new
files are renamed into it one by one, by name, so that what is there is always the beginning of what comes. Elsewhere
there is no rename of a tree; files are written whole under their final names.

The manifest is the first file that is removed when the folder is cleared: without it nothing in the folder counts as
staged, so a job that is killed while it clears leaves nothing that `--resume` could take for complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from spark_mq.errors import OutputExistsError, StorageError
from spark_mq.io.location import Location
from spark_mq.io.publish import sync_folder
from spark_mq.job.storage_errors import is_full, reason_of

WORK_FOLDER = ".spark_mq"
_REPLACED = "replaced-"


@dataclass(frozen=True)
class OutputCommitter:
    """The folder of a job that makes the trees `names` below `output`."""

    output: Location
    names: tuple[str, ...]
    removed_first: str | None = None

    @property
    def folder(self) -> Location:
        """Where the job keeps what is not ready."""
        return self.output / WORK_FOLDER

    def target(self, name: str) -> Location:
        """A finished tree."""
        return self.output / name

    def staging_path(self, name: str) -> Location:
        """Where a tree grows: beside its target if it can be renamed."""
        return self.folder / name if self.output.is_local else self.target(name)

    def replaced(self, name: str) -> Location:
        """Where a tree that is being replaced waits."""
        return self.folder / f"{_REPLACED}{name}"

    def setup(self, replace: bool) -> None:
        """Remove what a killed job left, and make the folder.

        Raises `OutputExistsError` where a target is there and `replace` is false, or where it cannot be replaced.
        """
        self._put_back()
        self.check_targets(replace)
        self.clear()

    def check_targets(self, replace: bool) -> None:
        """Raise `OutputExistsError` if a target is there and `replace` is false, or if it cannot be replaced."""
        for name in self._existing():
            self._check_replaceable(self.target(name), replace)

    def resume(self) -> tuple[str, ...]:
        """Make the folder, keep what a killed job left in it, and return the trees that are there, to be continued.

        Raises `OutputExistsError` where there are trees, and no file of theirs can be renamed.
        """
        self._put_back()
        existing = self._existing()
        if existing and not self.output.is_local:
            raise OutputExistsError(
                f"{self.target(existing[0])} exists, and no file can be replaced whole there: give another --output"
            )
        for name in self.names if self.output.is_local else ():
            if self.replaced(name).is_directory:
                _remove_folder(self.replaced(name))
        self._make()
        return existing

    def clear(self) -> None:
        """Begin with an empty folder."""
        self._remove()
        self._make()

    def _make(self) -> None:
        try:
            self.output.filesystem.create_dir(self.folder.path, recursive=True)
        except OSError as error:
            if is_full(error):
                raise
            raise StorageError(
                f"--output {self.output}: the job's folder {self.folder} cannot be made: {reason_of(error)}; give a "
                "folder that can be written"
            ) from error

    def remove_staged(self, paths: Iterable[str]) -> None:
        """Remove these files and folders from the job's folder; the paths are relative to it."""
        for path in paths:
            staged = self.folder / path
            if staged.is_directory:
                _remove_folder(staged)
            else:
                self.output.filesystem.delete_file(staged.path)

    def _remove(self) -> None:
        """Remove the folder if it exists: first the file `removed_first`, then all others."""
        if not self.folder.is_directory:
            return
        if self.removed_first is not None and (self.folder / self.removed_first).is_file:
            self._remove_file(self.folder / self.removed_first)
        _remove_folder(self.folder)

    def _remove_file(self, file: Location) -> None:
        if not self.output.is_local:
            self.output.filesystem.delete_file(file.path)
            return
        os.unlink(file.path)
        sync_folder(self.folder.path)

    def _existing(self) -> tuple[str, ...]:
        """The trees that are there; where none can be renamed, what a killed job left does not count."""
        if not self.output.is_local and self.folder.is_directory:
            return ()
        return tuple(name for name in self.names if self.target(name).is_directory and self.target(name).entries())

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

    def keep_only(self, name: str, is_planned: Callable[[str], bool]) -> None:
        """Remove what a killed job left in a growing tree, but for planned files, of which the path in it is given."""
        growing = Path(self.staging_path(name).path)
        for file in growing.rglob("*") if self.output.is_local else ():
            if file.is_file() and not is_planned(str(file.relative_to(growing))):
                file.unlink()

    def commit(self, continued: Collection[str] = (), stale: Iterable[Location] = ()) -> None:
        """Put the trees in place, the old ones out of the way, and remove the job's folder.

        The files of the trees `continued` are put into what is there, and the files `stale` are removed from it.
        """
        for name in self.names if self.output.is_local else ():
            os.makedirs(self.staging_path(name).path, exist_ok=True)
            if name in continued:
                self._merge(name)
                continue
            if self.target(name).is_directory:
                os.rename(self.target(name).path, self.replaced(name).path)
            os.rename(self.staging_path(name).path, self.target(name).path)
            sync_folder(self.output.path)
        for file in stale:
            os.unlink(file.path)
        self.abort()

    def _merge(self, name: str) -> None:
        growing, target = Path(self.staging_path(name).path), Path(self.target(name).path)
        for file in sorted(path for path in growing.rglob("*") if path.is_file()):
            place = target / file.relative_to(growing)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(file, place)
            sync_folder(str(place.parent))

    def abort(self) -> None:
        """Remove the job's folder and all in it, but for a tree that has no successor."""
        self._put_back()
        self._remove()


def _remove_folder(folder: Location) -> None:
    """Remove a folder and all in it; of a symbolic link only the link."""
    if not folder.is_local:
        folder.filesystem.delete_dir(folder.path)
    elif os.path.islink(folder.path):
        os.unlink(folder.path)
    else:
        shutil.rmtree(folder.path)
