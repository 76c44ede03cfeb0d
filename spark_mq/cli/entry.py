"""Where the command `spark-mq` begins. It imports next to nothing: Ctrl-C can come while the commands are imported."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from spark_mq.cli.exit_status import INTERRUPTED, INTERRUPTED_LINE

_NEW_OBJECTS = 100_000
"""New objects before Python looks for unused cycles; by default, that takes 0.04 s of the imports."""
owns_process = False
"""Whether this process runs one command, and nothing else."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status, also if Ctrl-C comes at once. See `spark_mq.cli.main.main`."""
    global owns_process
    owns_process = True
    gc.set_threshold(_NEW_OBJECTS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from spark_mq.cli.main import main

        return main(arguments)
    except KeyboardInterrupt:
        print(INTERRUPTED_LINE, file=sys.stderr)
        return INTERRUPTED
    finally:
        gc.freeze()  # at its end, Python would look through all objects once more, for 0.06 s
