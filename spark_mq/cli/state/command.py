"""`spark-mq state STORE`: whether a store was stopped cleanly, and what the next boot does. Without Spark or a JVM."""

from __future__ import annotations

import argparse

from spark_mq.cli.arguments import add_next_boot
from spark_mq.cli.exit_status import FOUND

_EPILOG = """\
The first lines are the answer: whether the broker was stopped cleanly, whether it starts, and what it loses. Then come
the details, and what to do.

A log of at most 1 GiB, and with --full any log, is read whole: then the boots are those of `spark-mq recover`, record
by record. Otherwise few bytes are read: names, sizes and times of files, the last units of queues, the ends of index
files, and at most 256 KiB of the log. Then "at least" is in front of the numbers, and what was not read is not known.
`spark-mq verify` checks everything.

Brokers recover by other rules since 5.0.0, 5.1.0, 5.3.2, 5.4.0 and 5.5.0. The files of a store do not show which of
them it was: without --broker-version, all possible ones are printed.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "whether the broker was stopped cleanly, what lags, and what the next boot does"
    command = commands.add_parser("state", help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False)
    add_next_boot(command, "--broker-version")
    depth = command.add_mutually_exclusive_group()
    depth.add_argument("--full", action="store_true", help="read the whole log (the default up to 1 GiB)")
    depth.add_argument("--quick", action="store_true", help="read at most 256 KiB of the log")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state; returns the exit status."""
    import json

    from spark_mq.cli.broker_settings import broker_conf_path
    from spark_mq.cli.output.report import print_report
    from spark_mq.cli.state.report import state_fields, state_lines
    from spark_mq.store.store_state import store_state

    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    full = True if arguments.full else False if arguments.quick else None
    state = store_state(arguments.store, arguments.broker_version, conf, full)
    if arguments.json:
        print(json.dumps(state_fields(state), ensure_ascii=False))
    else:
        print_report("\n".join(state_lines(state)))
    return FOUND
