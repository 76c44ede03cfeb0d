"""What the exit status of a command says."""

from __future__ import annotations

FOUND = 0
"""Done; for a question: there is an answer."""
FAILED = 1
"""A line on stderr says why."""
NOT_UNDERSTOOD = 2
"""The arguments; `argparse` exits with it."""
INTERRUPTED = 130
"""By Ctrl-C: 128 and the number of the signal, as shells have it."""
NOT_FOUND = 3
"""The question was answered: there is nothing."""
DAMAGED = 4
"""Done, but damage was skipped: the report names what is missing."""
INTERRUPTED = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells have it."""
