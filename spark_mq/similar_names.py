"""Names that a person may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_NAMES = 10


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that are most similar to `name`, upper and lower case being equal; the most similar one first."""
    folded = {known.casefold(): known for known in sorted(names)}
    return [folded[match] for match in get_close_matches(name.casefold(), folded)]


def similar(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that names similar ones: `; similar: a, b`, or nothing if there is none."""
    found = similar_names(name, names)
    return f"; similar: {', '.join(found)}" if found else ""


def first_names(names: Iterable[str]) -> str:
    """The names, sorted, as text; of more than ten, the first ten and the number of the others."""
    known = sorted(names)
    rest = len(known) - _MOST_NAMES
    return ", ".join(known[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
