"""What `archive --follow` prints while it runs: a line for each batch, and a sign of life while nothing is new."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from spark_mq.archive.report import BatchProgress

_SECONDS_BETWEEN_LINES = 300.0
"""The interval of the lines in a log. A terminal has one line, which is rewritten every second."""
_SECONDS_BETWEEN_REWRITES = 1.0
_CLEAR = "\r\x1b[K"


class FollowOutput:
    """Prints batches, and how long nothing was new. On a terminal that is one line, which the next line replaces."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        """Print to `stream`; `clock` returns epoch seconds."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._since: float | None = None
        self._printed = 0.0
        self._is_line_open = False

    def print_batch(self, batch: BatchProgress) -> None:
        """Print the line of a batch."""
        self.end()
        self._since = None
        print(f"{_moment(self._clock())} {batch}", file=self._stream, flush=True)

    def print_waiting(self, archived_to: int) -> None:
        """Print that nothing is new, if it is time to. `archived_to` is a commit log offset, -1 if unknown."""
        now = self._clock()
        if self._since is None:
            self._since, self._printed = now, now
            if not self._is_terminal:
                return
        elif now - self._printed < (_SECONDS_BETWEEN_REWRITES if self._is_terminal else _SECONDS_BETWEEN_LINES):
            return
        self._printed = now
        place = f", log offset {archived_to:,}" if archived_to >= 0 else ""
        since = _moment(self._since).partition("T")[2] if self._is_terminal else _moment(self._since)
        line = f"waiting: nothing new since {since} ({_duration(now - self._since)}){place}"
        if self._is_terminal:
            # A line that is as wide as the terminal would wrap, and could not be rewritten.
            width = shutil.get_terminal_size().columns - 1
            print(f"{_CLEAR}{line[:width]}", end="", file=self._stream, flush=True)
            self._is_line_open = True
        else:
            print(f"{_moment(now)} {line}", file=self._stream, flush=True)

    def end(self) -> None:
        """Remove the line that is rewritten, so that another line can be printed."""
        if self._is_line_open:
            print(_CLEAR, end="", file=self._stream, flush=True)
            self._is_line_open = False


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
