"""A stretch of the commit log that holds no readable record."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "MISSING"
"""The code of a range that no segment contains. Other codes are names of `format.kernels.frames.ScanStatus`."""

STRAY = "STRAY"
"""The code of a file that is named as a segment, but is none: the number in its name is not a commit log offset."""


@dataclass(frozen=True)
class CorruptRange:
    """Bytes of the log in which no record can be read, up to the next readable record or the segment's end.

    `file` is where the bytes lie, or would lie. A range of length 0 is about the file or queue as a whole: `file` is
    then a queue (`TOPIC/QUEUE ID`) or an index file, and the reason names offsets.
    """

    file: str
    commit_log_offset: int
    length: int
    code: str
    reason: str

    def holds(self, commit_log_offset: int) -> bool:
        """Whether the offset is one of the range."""
        return self.commit_log_offset <= commit_log_offset < self.commit_log_offset + self.length

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"

    def describe(self) -> str:
        """File, offset, length and reason, for a person."""
        if self.code == STRAY or not self.length:
            return f"{self.file}: {self.reason}"
        return f"{self.file}: {self.length} bytes from commit log offset {self.commit_log_offset}: {self.reason}"
