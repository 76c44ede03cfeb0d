"""Progress of a job on stderr: one rewritten line on a terminal, few lines in a log."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from spark_mq.job.progress import StageProgress

_SECONDS_BETWEEN_LINES = 30.0
"""In a log, the time between two lines of a stage that runs."""
_CLEAR_LINE = "\r\033[K"


class ProgressPrinter:
    """Prints the progress of stages, which can run at the same time. Its context ends with a clear line."""

    def __init__(
        self, is_quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_quiet = is_quiet
        self._is_terminal = self._stream.isatty() and not is_quiet
        self._clock = clock
        self._running: dict[str, StageProgress] = {}
        self._printed_at: dict[str, float] = {}
        self._is_announced = False
        self._lock = threading.Lock()

    def __call__(self, stage: StageProgress) -> None:
        """Show how far a stage is."""
        with self._lock:
            if self._is_terminal:
                self._rewrite(stage)
            elif not self._is_quiet and (stage.is_done or self._is_due(stage)):
                print(stage, file=self._stream, flush=True)

    def announce(self, text: str) -> None:
        """Show what happens before the first stage; only on a terminal, where the first stage takes the line."""
        if self._is_terminal:
            self._stream.write(f"{_CLEAR_LINE}{text}")
            self._stream.flush()
            self._is_announced = True

    def _is_due(self, stage: StageProgress) -> bool:
        now = self._clock()
        if now - self._printed_at.setdefault(stage.name, now) < _SECONDS_BETWEEN_LINES:
            return False
        self._printed_at[stage.name] = now
        return True

    def _rewrite(self, stage: StageProgress) -> None:
        if stage.is_done:
            self._running.pop(stage.name, None)
            finished = f"{stage}\n"
        else:
            self._running[stage.name] = stage
            finished = ""
        line = "; ".join(map(str, self._running.values()))[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"{_CLEAR_LINE}{finished}{line}")
        self._stream.flush()

    def __enter__(self) -> Self:
        """The printer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the line of stages that did not end."""
        if self._is_terminal and (self._running or self._is_announced):
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
