"""What a process found out about files, kept by the state that the files had (`settled_files`).

A session that reads one topic after another asks the same of the same files each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Fact = TypeVar("Fact")

_MOST: Final = 16


class StateMemory(Generic[Fact]):
    """Facts by what they depend on; those that were used last are kept."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, Fact] = OrderedDict()

    def recall(self, key: Hashable) -> Fact | None:
        """The fact that was kept; None if there is none."""
        if key not in self._found:
            return None
        self._found.move_to_end(key)
        return self._found[key]

    def keep(self, key: Hashable, fact: Fact) -> None:
        """Keep a fact.

        Args:
            key: The state of the files from before the fact was found until now, and what else it depends on.
        """
        self._found[key] = fact
        while len(self._found) > _MOST:
            self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()
