"""What the exit status of a command says."""

from __future__ import annotations

FOUND = 0
"""Done; for a question: there is an answer."""
FAILED = 1
"""A line on stderr says why."""
NOT_UNDERSTOOD = 2
"""The arguments; `argparse` exits with it."""
NOT_FOUND = 3
"""The question was answered: there is nothing."""
