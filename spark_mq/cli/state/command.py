"""`spark-mq state STORE`: whether a store was stopped cleanly, and what the next boot does. Without Spark or a JVM."""

from __future__ import annotations

import argparse

from spark_mq.cli.arguments import add_broker_conf, add_json_report, add_store
from spark_mq.cli.exit_status import FOUND

_EPILOG = """\
The first lines are the answer: whether the broker was stopped cleanly, whether it starts, and what it loses. Then come
the details, and what to do.

Few bytes are read: names, sizes and times of files, the last units of queues, the ends of index files, and at most
256 KiB of the log. "At least" in front of a number says that the rest was not read. Damage in the middle of files is
not noticed: the boot checks the records after the segment at which it starts, and cuts the log at the first damaged
one. `spark-mq verify` reads the whole log, and checks everything.

Brokers recover by other rules since 5.0.0, and again since 5.3.2. The files of a store do not show which of them it
was: without --broker-version, all possible ones are printed.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "whether the broker was stopped cleanly, what lags, and what the next boot does"
    command = commands.add_parser("state", help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False)
    add_store(command)
    command.add_argument(
        "--broker-version",
        metavar="V",
        help="the version of the broker that starts next, such as 5.3.3 (default: all that config/ allows)",
    )
    add_broker_conf(command, "file sizes, and settings of the index and of recovery")
    add_json_report(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state; returns the exit status."""
    import json

    from spark_mq.cli.broker_settings import broker_conf_path
    from spark_mq.cli.output.report import print_report
    from spark_mq.cli.state.fields import state_fields
    from spark_mq.cli.state.text import state_lines
    from spark_mq.store.store_state import store_state

    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    state = store_state(arguments.store, arguments.broker_version, conf)
    if arguments.json:
        print(json.dumps(state_fields(state), ensure_ascii=False))
    else:
        print_report("\n".join(state_lines(state)))
    return FOUND
