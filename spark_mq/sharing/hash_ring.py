"""The ring of strategy CONSISTENT_HASH (`ConsistentHashRouter`@5.3.3).

Each client has several points on a ring of 2^32 places. A queue belongs to the client of the first point at or after
the queue's own place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import md5

POINTS = 10
"""Points of a client, if the client does not say another number (`AllocateMessageQueueConsistentHash`@5.3.3)."""


class HashRing:
    """The points of clients on the ring.

    A client id that is given twice has twice the points. If two points are at one place, the later one counts.
    """

    def __init__(self, client_ids: Sequence[str], points: int = POINTS) -> None:
        """A ring of `client_ids`, each with `points` points."""
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            first = sum(owner == client_id for owner in owners.values()) if client_id in seen else 0
            seen.add(client_id)
            for number in range(first, first + points):
                owners[place(f"{client_id}-{number}")] = client_id
        self._places = sorted(owners)
        self._owners = [owners[one] for one in self._places]

    def owner(self, text: str) -> str | None:
        """The client to which a text belongs; None if the ring has no point."""
        if not self._places:
            return None
        found = bisect_left(self._places, place(text))
        return self._owners[found % len(self._owners)]


def place(text: str) -> int:
    """The place of a text on the ring: the first four bytes of the MD5 of its UTF-8, as an unsigned number.

    Half of a surrogate pair becomes a question mark, as in `String.getBytes`.
    """
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])
