"""A setting of a broker, with the source that it comes from: most of them are in no file of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

NOTHING_TELLS = "the default; nothing in the store tells"


@dataclass(frozen=True)
class Sourced(Generic[T]):
    """A value and its source, as a text for a person: `broker.conf`, `the store's queue files`."""

    value: T
    source: str


@dataclass(frozen=True)
class FileSetting:
    """A setting as text for a person: what it is of, its value, and its source."""

    name: str
    value: str
    source: str

    def __str__(self) -> str:
        """The setting in one line."""
        return f"{self.name}: {self.value} ({self.source})"
