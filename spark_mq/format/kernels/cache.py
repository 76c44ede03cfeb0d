"""Where compiled kernels are kept: in a folder of the user, which is named after the content of the package's source.

A package that Spark ships as a zip file has another path in every application, and a kernel contains code of other
modules (rules, constants). So the name of the folder is a hash of all sources of `spark_mq.format`, and of the versions
of Python and numba. The folder is `kernels/HASH` in the first of these that can be used:

| folder | |
| --- | --- |
| `$NUMBA_CACHE_DIR/spark-mq-UID` | if the variable is set |
| `$XDG_CACHE_HOME/spark-mq`, by default `~/.cache/spark-mq` | |
| `spark-mq-UID` in the folder for temporary files | if the user has no home, or cannot write there |

The files contain code. A folder of another user, or one that others may write, is not used. Without a folder, each
process compiles the kernels that it uses.

The module does not import numba.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path

_LOCK = "lock"
_SECONDS_TO_WAIT = 60.0
_SECONDS_BETWEEN_TRIES = 0.01
_KEPT_VERSIONS = 5
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@cache
def cache_folder() -> Path | None:
    """The folder of this package's compiled kernels, which is created if it does not exist; None if there is none."""
    for root in _roots():
        folder = root / "kernels" / _source_hash()
        with suppress(OSError):
            if not folder.exists():
                _remove_old(folder.parent)
            for part in (root, folder.parent, folder):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not _is_private(part):
                    break
            else:
                tempfile.TemporaryFile(dir=folder).close()
                return folder
    return None


def is_compiled(modules: Sequence[str] = ()) -> bool:
    """Whether the cache has all kernels of these modules; of all modules if `modules` is empty."""
    folder = cache_folder()
    return folder is not None and any((folder / _mark(names)).exists() for names in ((), modules))


def mark_compiled(modules: Sequence[str] = ()) -> None:
    """Remember that the cache has all kernels of these modules."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):
            (folder / _mark(modules)).touch()


def _mark(modules: Sequence[str]) -> str:
    return ".".join(["compiled", *modules])


@contextmanager
def locked(name: str) -> Iterator[None]:
    """A context in which no other process compiles kernel `name`. After a minute, it is entered in any case."""
    descriptor = _lock_file()
    number = zlib.crc32(name.encode())
    if descriptor is None:
        yield
        return
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    while not _lock(descriptor, number) and time.monotonic() < deadline:
        time.sleep(_SECONDS_BETWEEN_TRIES)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, number)


def _lock(descriptor: int, number: int) -> bool:
    """Whether byte `number` of the file is locked now, or never can be."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a filesystem without locks
        return True
    return True


@cache
def _lock_file() -> int | None:
    """A descriptor of the file whose bytes are locked. It stays open: closing it would end all locks of the process."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _remove_old(folders: Path) -> None:
    """Remove the folders of earlier versions, except the newest ones. A process that uses one compiles for itself."""
    with suppress(OSError):
        if _is_private(folders):
            for old in sorted(folders.iterdir(), key=lambda folder: folder.stat().st_mtime)[:-_KEPT_VERSIONS]:
                shutil.rmtree(old, ignore_errors=True)


def _roots() -> Iterator[Path]:
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"]).absolute() / f"spark-mq-{os.geteuid()}"
        return
    given = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):  # no home
        yield (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "spark-mq"
    yield Path(tempfile.gettempdir()) / f"spark-mq-{os.geteuid()}"


def _is_private(folder: Path) -> bool:
    """Whether `folder` is a folder of this user, which nobody else can write."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _WRITABLE_BY_OTHERS


@cache
def _source_hash() -> str:
    """A hash of the package's sources, and of the versions with which they are compiled."""
    digest = hashlib.sha256(f"{sys.version} numba {version('numba')} llvmlite {version('llvmlite')}".encode())
    for name, content in _sources(resources.files("spark_mq.format"), ""):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:24]


def _sources(folder: Traversable, before: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _sources(entry, f"{before}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield before + entry.name, entry.read_bytes()
