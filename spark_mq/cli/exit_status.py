"""Exit statuses of the commands, and the line that goes with one of them."""

from __future__ import annotations

FOUND = 0
"""The command is done; a query has an answer."""
FAILED = 1
"""The command failed; a line on stderr gives the reason."""
NOT_UNDERSTOOD = 2
"""An argument is wrong (`argparse` exits with this status), or its value (`OptionError`)."""
NOT_FOUND = 3
"""The query ran, and nothing matches."""
DAMAGED = 4
"""The command is done, but damage was skipped: the report names what is missing."""
SOUND, UNSOUND, COULD_NOT_RUN = 0, 1, 2
"""`verify` has statuses of its own: the store is sound; it has findings from warning up; the check could not run."""
INTERRUPTED = 130
"""Ctrl-C: 128 plus the number of SIGINT, as in shells."""

INTERRUPTED_LINE = "spark-mq: interrupted"
"""What a command prints on stderr after Ctrl-C."""
