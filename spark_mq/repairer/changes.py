"""Changes of a store's files, put in place one by one, with a backup of all that they replace, and undone.

Before the first change, `changes.json` in the backup names all of them. A new file takes the place of an old one in one
step, after the old one has a second name in the backup. So a job that is killed leaves each file old or new, and a
backup that is complete for what it changed. Nothing has to be finished: the next repair finds what is still damaged.

`undo` puts back what a backup has. It refuses if a file has changed since the repair, because a broker has run then.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

import numpy as np

from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.format.record import BLANK_SIZE, encode_blank
from spark_mq.io.local import flush_to_disk, make_folders
from spark_mq.io.location import Location
from spark_mq.io.publish import publish, published
from spark_mq.job.output_committer import BACKUP, WORK_FOLDER, unused
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import linked_segment
from spark_mq.store.store_lock import store_lock

CHANGES = "changes.json"
_BLOCK = 4 << 20

Identity = tuple[int, ...]


def undo_repair(store: str, *, apply: bool = True) -> tuple[str, list[Change]]:
    """Put back what the newest repair replaced, or only name it; returns the backup, which is removed, and changes."""
    location = Location.resolve(store)
    CommitLog.open(location)
    backup = Backup.newest(location)
    if not apply:
        return str(backup.folder), backup.made()
    with store_lock(location):
        return str(backup.folder), backup.undo()


class ChangeKind(StrEnum):
    """What happens to a file."""

    CREATE = "create"
    REPLACE = "replace"
    ASIDE = "move aside"
    CLEAR = "clear"
    BLANK = "blank"


@dataclass(frozen=True)
class Change:
    """One change of a file, or of the bytes from `start` to `stop` of one; these are 0 for a whole file."""

    kind: ChangeKind
    file: str
    start: int = 0
    stop: int = 0


def check_links(store: Location, changes: Iterable[Change]) -> None:
    """Raise `UnsupportedStoreError` if segments are links, and a change puts a file in the place of a segment."""
    of_bytes = ChangeKind.CLEAR, ChangeKind.BLANK  # in the file to which a link leads
    moved = next((one for one in changes if one.kind not in of_bytes and one.file.startswith(f"{COMMIT_LOG}/")), None)
    if moved is not None and (link := linked_segment(store)) is not None:
        raise UnsupportedStoreError(
            f"{store / moved.file}: a change ({moved.kind}) that the broker would not see: segments of this store are "
            f"links, such as {link}, and the broker opens the files in the folders of storePathCommitLog. Repair a "
            "copy that has the files themselves (cp -rL)"
        )


@dataclass(frozen=True)
class Backup:
    """A folder with what a repair replaced."""

    store: Path
    folder: Path

    @classmethod
    def create(cls, store: Location) -> Self:
        """A new folder `.spark_mq/backup-TIME` of a local store."""
        folder = Path(unused(store / WORK_FOLDER, f"{BACKUP}{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z").path)
        make_folders(str(folder))
        return cls(Path(store.path), folder)

    @classmethod
    def newest(cls, store: Location) -> Self:
        """The newest backup that has not been undone."""
        found = list(Path(store.path, WORK_FOLDER).glob(f"{BACKUP}*/{CHANGES}"))
        if not found:
            raise OptionError(f"--undo: {store} has no backup of a repair in {WORK_FOLDER}/")
        return cls(Path(store.path), max(found).parent)

    def apply(self, changes: Sequence[Change], new_files: Location) -> None:
        """Make changes; new files are moved out of the folder `new_files`, where they have their paths in the store."""
        new = []
        for change in changes:
            # Folders that a new file needs and that do not exist
            folders = [str(one) for one in Path(change.file).parents[:-1] if not (self.store / one).exists()]
            new.append([asdict(change), _identity(Path(new_files.path, change.file)), folders])
        publish(Location.resolve(str(self.folder / CHANGES)), json.dumps(new, indent=1).encode())
        for number, change in enumerate(changes):
            try:
                self._apply(change, Path(new_files.path, change.file))
            except OSError as error:
                raise StorageError(
                    f"{error.filename or self.store}: a file cannot be changed: {error.strerror}; {number} of "
                    f"{len(changes)} changes are done, their backup is {self.folder}: run the repair again, or --undo"
                ) from error

    def undo(self) -> list[Change]:
        """Put back what the backup has, and remove it; returns the changes that were undone, the last one first."""
        made = self.made()
        for change in made:
            self._undo(change)
        for folder in sorted({folder for _, _, folders in self._stated() for folder in folders}, reverse=True):
            with suppress(OSError):  # if something else is in it
                (self.store / folder).rmdir()
        shutil.rmtree(self.folder)
        with suppress(OSError):
            self.folder.parent.rmdir()
        return made

    def made(self) -> list[Change]:
        """The changes that were made, the last one first."""
        return [change for change, new, _ in self._stated() if self._is_made(change, new)][::-1]

    def _stated(self) -> list[tuple[Change, Identity, list[str]]]:
        """The changes, what identifies the new file of each, and the folders that were made for it."""
        stated = json.loads((self.folder / CHANGES).read_bytes())
        return [
            (Change(**{**change, "kind": ChangeKind(change["kind"])}), tuple(identity), folders)
            for change, identity, folders in stated
        ]

    def _is_made(self, change: Change, new: Identity) -> bool:
        """Whether a change was made. Raises `StorageError` if the file has changed since then."""
        target, kept = self.store / change.file, self.folder / change.file
        now = _identity(target)
        if change.kind == ChangeKind.CREATE:
            has_changed, is_made = now not in ((), new), now == new
        elif change.kind == ChangeKind.REPLACE:
            # A folder is moved away before the file takes its name, so a killed job can leave nothing there.
            between = [()] if kept.is_dir() else []
            has_changed = kept.exists() and now not in (new, _identity(kept), *between)
            is_made = kept.exists() and now in (new, *between)
        elif change.kind == ChangeKind.ASIDE:
            has_changed, is_made = kept.exists() and now != (), kept.exists()
        else:
            has_changed, is_made = kept.exists() and not _is_old_or_new(target, kept, change), kept.exists()
        if has_changed:
            raise StorageError(
                f"{target} has changed since the repair: a broker has used it; what the repair replaced is in "
                f"{self.folder}"
            )
        return is_made

    def _apply(self, change: Change, new: Path) -> None:
        target, kept = self.store / change.file, self.folder / change.file
        make_folders(str(kept.parent))
        if change.kind == ChangeKind.ASIDE:
            os.rename(target, kept)
        elif change.kind in (ChangeKind.CLEAR, ChangeKind.BLANK):
            with target.open("rb") as file, published(Location.resolve(str(kept)), change.stop - change.start) as copy:
                file.seek(change.start)
                for part in _parts(change):
                    copy.write(part.start - change.start, file.read(len(part)))
            _overwrite(target, change, _content(change))
            return
        else:
            make_folders(str(target.parent))
            if change.kind == ChangeKind.REPLACE:
                if target.is_dir():
                    os.rename(target, kept)
                else:
                    os.link(target, kept)
                flush_to_disk(str(kept.parent))
            os.replace(new, target)
        flush_to_disk(str(kept.parent))
        flush_to_disk(str(target.parent))

    def _undo(self, change: Change) -> None:
        target, kept = self.store / change.file, self.folder / change.file
        if change.kind == ChangeKind.CREATE:
            target.unlink()
        elif change.kind in (ChangeKind.CLEAR, ChangeKind.BLANK):
            with kept.open("rb") as saved:
                _overwrite(target, change, iter(lambda: saved.read(_BLOCK), b""))
        else:
            make_folders(str(target.parent))
            if kept.is_dir():
                target.unlink(missing_ok=True)
            os.replace(kept, target)
        flush_to_disk(str(target.parent))


def _identity(file: Path) -> Identity:
    """What changes when a file is written: size and modification time; empty for a file that does not exist."""
    try:
        stat = file.lstat()
    except FileNotFoundError:
        return ()
    return stat.st_size, stat.st_mtime_ns


def _is_old_or_new(file: Path, kept: Path, change: Change) -> bool:
    """Whether each byte of a range is what it was, or what the change wrote: a job can be killed between two bytes."""
    with file.open("rb") as stream, kept.open("rb") as old:
        stream.seek(change.start)
        for part in _content(change):
            now = np.frombuffer(stream.read(len(part)), np.uint8)
            choices = (np.frombuffer(data, np.uint8) for data in (old.read(len(part)), part))
            if now.size != len(part) or not np.logical_or(*(now == choice for choice in choices)).all():
                return False
    return True


def _overwrite(file: Path, change: Change, parts: Iterable[bytes]) -> None:
    with file.open("r+b") as stream:
        stream.seek(change.start)
        stream.writelines(parts)
        stream.flush()
        os.fsync(stream.fileno())


def _content(change: Change) -> Iterator[bytes]:
    """What a range becomes, in parts: zeros, or a blank, whose head is not zeros."""
    for part in _parts(change):
        is_head = change.kind == ChangeKind.BLANK and part.start == change.start
        head = encode_blank(change.stop - change.start)[:BLANK_SIZE] if is_head else b""
        yield head.ljust(len(part), b"\0")


def _parts(change: Change) -> Iterator[range]:
    for start in range(change.start, change.stop, _BLOCK):
        yield range(start, min(start + _BLOCK, change.stop))
