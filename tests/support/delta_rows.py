"""The rows of a local Delta table, read without Spark: a query of Spark takes most of a small test's time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable


def delta_rows(table: Path) -> list[dict[str, Any]]:
    """The rows of the newest version of a table."""
    rows: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return rows
