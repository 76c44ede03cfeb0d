"""The entries of the small store of a DLedger node, read by their heads alone."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.stores import OWN_STORES, RealStore

STORE = RealStore("fDledger533", OWN_STORES / "forms")
CONF = STORE.broker_conf
SEGMENT = 300_140
_HEAD = struct.Struct(">iiqqqiiii")


def heads(store: Path) -> list[tuple[int, int, int]]:
    """Offset, size and index of each entry, in the order of the log."""
    data = b"".join(file.read_bytes() for file in sorted(store.glob("dledger-*/data/*")))
    position, found = 0, list[tuple[int, int, int]]()
    while position + _HEAD.size <= len(data):
        magic, size, index, *_ = _HEAD.unpack_from(data, position)
        if magic == -1:
            position = (position // SEGMENT + 1) * SEGMENT
        elif size == 0:
            break
        else:
            found.append((position, size, index))
            position += size
    return found


def overwrite(store: Path, offset: int, data: bytes) -> None:
    """Write bytes at an offset of the log."""
    base = offset // SEGMENT * SEGMENT
    with (store / "dledger-n0" / "data" / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        file.write(data)
