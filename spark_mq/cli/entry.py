"""Where the command `spark-mq` begins. It imports next to nothing: Ctrl-C can come while the commands are imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE

owns_process = False
"""Whether this process runs one command, and nothing else."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status, also if Ctrl-C comes at once. See `spark_mq.cli.main.main`."""
    global owns_process
    owns_process = True
    try:
        from spark_mq.cli.main import main

        return main(arguments)
    except KeyboardInterrupt:
        print(INTERRUPTED_LINE, file=sys.stderr)
        return INTERRUPTED
