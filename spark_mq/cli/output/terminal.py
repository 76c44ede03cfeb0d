"""Whether stdout is a terminal, and how wide it is."""

from __future__ import annotations

import shutil
import sys


def is_terminal() -> bool:
    """Whether stdout is a terminal: output is for a person, not for a program or a file."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """The number of columns of the terminal (`COLUMNS`, if it is set); None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else None
