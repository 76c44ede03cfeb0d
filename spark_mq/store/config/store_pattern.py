"""Patterns of paths, such as `/data/broker-*` and `s3://bucket/{a,b}`, and the stores that they match."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate

from pyarrow import fs

from spark_mq.errors import StoreNotFoundError
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.store.config.store_paths import COMMIT_LOG

_URI_GLOB = re.compile(r"\*|\{[^{}]+,[^{}]+\}")
_GLOB = re.compile(rf"{_URI_GLOB.pattern}|\[[^\]]+\]")
_BRACES = re.compile(r"\{([^{}]+,[^{}]+)\}")


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern of several paths, and not the name of a folder that exists.

    `*` is any text without a slash, `{a,b}` is one of several texts, and in a local path `[ab]` is one of several
    characters.
    """
    if "://" in path:
        return _URI_GLOB.search(path.partition("?")[0]) is not None
    return _GLOB.search(path) is not None and not os.path.exists(path.removeprefix("file:"))


def matching_stores(pattern: str) -> list[str]:
    """The paths of the folders that match a pattern and have a folder `commitlog`, sorted.

    A name that begins with a dot matches only a pattern that begins with one, as in a shell.

    Args:
        pattern: A path or URI for which `is_pattern` is true.
    """
    found = sorted({uri for one in _without_braces(pattern) for uri in _matching(one)})
    if not found:
        raise StoreNotFoundError(
            f"no store matches {shown(pattern)}: a store is a folder with a folder {COMMIT_LOG}; check the pattern"
        )
    return found


def _without_braces(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _without_braces(f"{pattern[: braces.start()]}{choice}{pattern[braces.end() :]}")


def _matching(pattern: str) -> Iterator[str]:
    address, mark, settings = pattern.partition("?") if "://" in pattern else (pattern, "", "")
    scheme, slashes, path = address.rpartition("://")
    is_uri = bool(slashes) and scheme != "file"
    if not is_uri:
        path = os.path.abspath(address.removeprefix("file://").removeprefix("file:"))
    first, *parts = path.rstrip("/").split("/")
    # A part without a wildcard needs no listing: the folders before the first wildcard may not be readable.
    plain = [first]
    while parts and not _is_wild(parts[0], is_uri):
        plain.append(parts.pop(0))
    root = f"{scheme}{slashes}{'/'.join(plain)}{mark}{settings}" if is_uri else "/".join(plain) or "/"
    for folder in _below(Location.resolve(root), parts, is_uri):
        if (folder / COMMIT_LOG).is_directory:
            yield folder.uri if is_uri else f"/{folder.path.lstrip('/')}"


def _below(folder: Location, parts: list[str], is_uri: bool) -> Iterator[Location]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not _is_wild(part, is_uri):
        yield from _below(folder / part, rest, is_uri)
        return
    shell = part.replace("?", "\0")
    shell = (shell.replace("[", "[[]") if is_uri else shell).replace("\0", "[?]")
    expression = re.compile(translate(shell))
    for entry in folder.entries():
        if entry.base_name.startswith(".") and not part.startswith("."):
            continue
        if entry.type == fs.FileType.Directory and expression.match(entry.base_name):
            yield from _below(folder / entry.base_name, rest, is_uri)


def _is_wild(part: str, is_uri: bool) -> bool:
    return "*" in part or (not is_uri and re.search(r"\[[^\]]+\]", part) is not None)
