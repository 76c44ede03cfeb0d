"""The JSON content of a file of `config/`, with errors that name the file and say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.errors import ConfigError
from spark_mq.store.config.config_file import parse_fastjson


def object_of(data: bytes | None, path: str) -> dict[str, Any]:
    """The JSON object that a file contains; an empty one if there is no file."""
    if data is None:
        return {}
    try:
        content = parse_fastjson(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it cannot be read: {error}. Put a readable copy in its place") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: it does not contain a JSON object. Put a readable copy in its place")
    return content


def object_in(content: Mapping[str, Any], name: str, path: str) -> dict[str, Any]:
    """The JSON object with a name in the content of a file; an empty one if there is none."""
    table = content.get(name) or {}
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is not a JSON object. Put a readable copy in its place")
    return table
