"""`spark-mq`: one entry point, a sub-command for each job.

Results go to stdout, progress and errors to stderr. Exit status: 0 done or found, 1 failed (one line says why), 2 the
arguments cannot be understood, 3 nothing found, 4 done but damage was skipped, 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from spark_mq.cli import archive, messages, rebuild, sql, tables
from spark_mq.cli.exit_status import FAILED, INTERRUPTED
from spark_mq.cli.interrupt import INTERRUPTED_LINE
from spark_mq.cli.output import visible
from spark_mq.cli.packages import missing_package
from spark_mq.errors import SparkMqError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are those of the process by default."""
    parser = argparse.ArgumentParser(
        prog="spark-mq", description="Apache RocketMQ message stores, without a broker.", allow_abbrev=False
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    rebuild.add_command(commands)
    archive.add_commands(commands)
    messages.add_commands(commands)
    tables.add_commands(commands)
    sql.add_command(commands)
    parsed = parser.parse_args(arguments)
    logging.getLogger().addFilter(_is_no_interrupt)
    try:
        status = int(parsed.run(parsed))
        sys.stdout.flush()
    except SparkMqError as error:
        print(f"spark-mq: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # whoever read the output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:  # a file or a network that no part of the package expected to fail
        print(f"spark-mq: {visible(str(error))}", file=sys.stderr)
        return FAILED
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        print(f"spark-mq: {missing}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interrupt:
        reason = " ".join(map(str, interrupt.args))
        print(f"spark-mq: {reason}" if reason else INTERRUPTED_LINE, file=sys.stderr)
        return INTERRUPTED
    return status


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether to log it: of a Ctrl-C, Py4J logs a traceback, and the command says it in one line."""
    return record.exc_info is None or not isinstance(record.exc_info[1], KeyboardInterrupt)


if __name__ == "__main__":
    sys.exit(main())
