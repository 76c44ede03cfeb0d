"""Numbers of bytes as text for a person."""

from __future__ import annotations


def size_text(size: int) -> str:
    """A number of bytes with a unit, rounded up.

    >>> size_text(512 << 20)
    '512 MiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1 << 10:
            return f"{size} {unit}"
        size = -(-size // (1 << 10))
    return f"{size} TiB"
