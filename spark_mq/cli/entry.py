"""Where the command `spark-mq` begins. It imports nothing itself: Ctrl-C can come while the commands are imported."""

from __future__ import annotations

from collections.abc import Sequence


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status, also if Ctrl-C comes at once. See `spark_mq.cli.main.main`."""
    try:
        from spark_mq.cli.main import main

        return main(arguments)
    except KeyboardInterrupt:
        import sys

        print("spark-mq: interrupted", file=sys.stderr)
        return 130
