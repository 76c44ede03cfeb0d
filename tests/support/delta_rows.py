"""The rows of a local Delta table, read without Spark: a query of Spark takes most of a small test's time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """The rows of the newest version of a table, by the commits in its log, each of which must still be there.

    A column that a file lacks is NULL in its rows.
    """
    files: dict[str, Path] = {}
    columns: list[str] = []
    commits = sorted((table / "_delta_log").glob("*.json"))
    assert [int(commit.stem) for commit in commits] == list(range(len(commits)))
    for commit in commits:
        for action in map(json.loads, commit.read_text().splitlines()):
            if "metaData" in action:
                columns = [field["name"] for field in json.loads(action["metaData"]["schemaString"])["fields"]]
            if "remove" in action:
                files.pop(action["remove"]["path"])
            if "add" in action:
                path = action["add"]["path"]
                assert action["add"].get("deletionVector") is None
                files[path] = table / unquote(path)
    # ParquetFile, because pq.read_table takes names such as `a=b` in the path for columns.
    rows = [row for file in files.values() for row in pq.ParquetFile(file).read().to_pylist()]
    return [{name: row.get(name) for name in columns} for row in rows]
