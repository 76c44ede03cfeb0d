"""`spark-mq`: one entry point, a sub-command for each job.

Results go to stdout, progress and errors to stderr. Exit status: 0 done, 1 failed (one line says why), 2 the
arguments cannot be understood.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from spark_mq.cli import rebuild
from spark_mq.errors import SparkMqError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are those of the process by default."""
    parser = argparse.ArgumentParser(
        prog="spark-mq", description="Apache RocketMQ message stores, without a broker.", allow_abbrev=False
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    rebuild.add_command(commands)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except SparkMqError as error:
        print(f"spark-mq: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
