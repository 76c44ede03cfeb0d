"""The files of a snapshot as a filesystem, so that what reads the files of a store also reads those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from spark_mq.io.location import Location


def snapshot_location(files: Mapping[str, bytes], name: str) -> Location:
    """A folder with these files.

    Args:
        files: The contents by path, such as `config/topics.json`.
        name: What error messages call the folder.

    Example:
        >>> (snapshot_location({"config/topics.json": b"{}"}, "/lake/m_snapshots") / "config" / "topics.json").is_file
        True
    """
    return Location(fs.PyFileSystem(_Files(files)), "", name)


class _Files(fs.FileSystemHandler):  # type: ignore[misc]
    """Files in memory, which cannot be changed."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Files) and self._files == other._files

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "snapshot"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = f"{selector.base_dir.strip('/')}/".lstrip("/")
        below = {path[len(folder) :] for path in self._files if path.startswith(folder)}
        names = below if selector.recursive else {path.partition("/")[0] for path in below}
        return [self._info(folder + name) for name in sorted(names)]

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(pa.BufferReader(self._content(path)), mode="r")

    def open_input_file(self, path: str) -> pa.PythonFile:
        return self.open_input_stream(path)

    def _content(self, path: str) -> bytes:
        content = self._files.get(path.strip("/"))
        if content is None:
            raise FileNotFoundError(path)
        return content

    def _info(self, path: str) -> fs.FileInfo:
        name = path.strip("/")
        if name in self._files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self._files[name]))
        is_folder = any(file.startswith(f"{name}/" if name else "") for file in self._files)
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise OSError("a snapshot cannot be changed")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    move = open_append_stream = open_output_stream = _refuse
