"""A range of the commit log without a readable record."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "MISSING"
"""The code of a range that no segment contains. Other codes are names of `format.kernels.frames.ScanStatus`."""

STRAY = "STRAY"
"""The code of a file that has the name of a segment, but is not one: its name is not a commit log offset."""


@dataclass(frozen=True)
class CorruptRange:
    """Bytes of the log in which no record can be read, up to the next readable record or the segment's end.

    Attributes:
        file: The segment that contains the bytes, or that would contain them. A range of length 0 is about a whole
            queue or index file: `file` is then that queue (`TOPIC/QUEUE ID`) or index file, and `reason` names offsets.
        code: `MISSING`, `STRAY` or another kind of damage.
        reason: The damage, as text for a person.
    """

    file: str
    commit_log_offset: int
    length: int
    code: str
    reason: str

    def holds(self, commit_log_offset: int) -> bool:
        """Whether the range contains the offset."""
        return self.commit_log_offset <= commit_log_offset < self.commit_log_offset + self.length

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"

    def describe(self) -> str:
        """File, offset, length and reason, for a person."""
        if self.code == STRAY or not self.length:
            return f"{self.file}: {self.reason}"
        return f"{self.file}: {self.length} bytes from commit log offset {self.commit_log_offset}: {self.reason}"
