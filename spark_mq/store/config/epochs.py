"""The file `epochFileCheckpoint` of a replica in controller mode: at which offset each master began to write the log.

The first line is the number of entries, the second their CRC-32 (0: not checked), and then `EPOCH-START_OFFSET` a line
(`CheckpointFile`, `EpochFileCache`@5.3.3). 5.0.0 writes no CRC. If the file cannot be read, a broker takes the `.bak`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from spark_mq.errors import ConfigError
from spark_mq.format.record import CRC_MASK
from spark_mq.io.location import Location

EPOCH_FILE = "epochFileCheckpoint"
_ENTRY = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")


@dataclass(frozen=True)
class Epoch:
    """The time of one master, and the commit log offset at which it began to write."""

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class EpochFile:
    """The epochs that a broker reads, in the order of the file; `fault` says why they are those of the `.bak`."""

    epochs: tuple[Epoch, ...] = ()
    fault: str | None = None

    @classmethod
    def of(cls, store: Location) -> Self:
        """The file of a store; without epochs if there is none. Raises `ConfigError` if it cannot be read."""
        found, faults = cls(), list[str]()
        for file in (store / EPOCH_FILE, store / f"{EPOCH_FILE}.bak"):
            if file.is_file:
                try:
                    return cls(_decode(file.read_bytes()), faults[0] if faults else None)
                except ValueError as error:
                    faults.append(f"{file.name} {error}")
        if faults:
            raise ConfigError(f"{store / EPOCH_FILE} cannot be read: {'; '.join(faults)}; nor is there another .bak")
        return found

    def problems(self, log_end: int) -> Iterator[tuple[Epoch, str]]:
        """The epochs that cannot be those of a log that ends at an offset, and why."""
        if self.epochs and self.fault is not None:
            yield self.epochs[0], f"{self.fault}: the epochs are those of the .bak"
        for before, after in pairwise(self.epochs):
            if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
                yield after, f"epoch and start offset do not rise after {before.epoch}-{before.start_offset}"
        for one in self.epochs:
            if one.start_offset > max(log_end, 0):
                yield one, f"the log ends at {log_end}, before the epoch"


def consistent_offset(one: Sequence[Epoch], one_end: int, other: Sequence[Epoch], other_end: int) -> int | None:
    """The offset at which a slave cuts its log before it follows a master; None if the epochs have none in common.

    The arguments are the epochs of both logs, and their ends (`EpochFileCache.findConsistentPoint`@5.3.3).
    """
    ends = [{a: b.start_offset for a, b in pairwise(epochs)} for epochs in (one, other)]
    for epoch in reversed(one):
        if epoch in other:
            return min(ends[0].get(epoch, one_end), ends[1].get(epoch, other_end))
    return None


def _decode(data: bytes) -> tuple[Epoch, ...]:
    first, *lines = data.splitlines() or [b""]
    crc = b"0" if not lines or b"-" in lines[0] else lines.pop(0)
    if not (first.isdigit() and crc.isdigit()):
        raise ValueError("does not begin with the number of its entries, and their CRC")
    found = [Epoch(int(entry[1]), int(entry[2])) for entry in filter(None, map(_ENTRY.fullmatch, lines))]
    if any(one.epoch >= 1 << 31 or one.start_offset >= 1 << 63 for one in found):
        raise ValueError("has a number that is too large")
    if len(found) != len(lines) or len(found) != int(first):
        raise ValueError(f"has {len(found)} of {int(first)} entries")
    if int(crc) not in (0, zlib.crc32(b"".join(line + b"\n" for line in lines)) & CRC_MASK):
        raise ValueError("has entries of another CRC than the file states")
    return tuple(found)
