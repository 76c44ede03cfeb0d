"""What a command says, for tests that run it in their own process (fixture `run`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Said(NamedTuple):
    """The text that a command wrote."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of what it answered."""
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its answer, if that is a JSON object in each line."""
        return [json.loads(line) for line in self.lines]

    @property
    def report(self) -> Any:
        """Its answer, if that is one JSON value."""
        return json.loads(self.out)

    @property
    def offsets(self) -> list[int]:
        """The commit log offsets of its rows."""
        return [row["commit_log_offset"] for row in self.rows]


Run = Callable[..., Said]
"""Runs a command of these words, which must exit with `status`, by default 0."""
