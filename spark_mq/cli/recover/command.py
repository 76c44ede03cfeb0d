"""`spark-mq recover STORE --as V`: what a broker would do to a store at its next start. A dry run, without Spark."""

from __future__ import annotations

import argparse

from spark_mq.cli.arguments import add_next_boot
from spark_mq.cli.exit_status import FOUND

_EPILOG = """\
Nothing is changed. The command reads and checks the records that the broker would check: from the segment on with which
the recovery begins, which is the first one after a crash without a checkpoint. `spark-mq state` answers in a fraction
of a second, but does not notice damage in the middle of files.

--as needs a version that tells which rules apply, such as 4.9.7, 5.3.1 or 5.3.3: brokers recover by other rules since
5.0.0, and again since 5.3.2.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "what a broker would do to a store at its next start: a dry run over the records that it would check"
    command = commands.add_parser(
        "recover", help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False
    )
    add_next_boot(command, "--as", is_required=True)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what the broker does; returns the exit status."""
    import json

    from spark_mq.cli.broker_settings import broker_conf_path
    from spark_mq.cli.output.report import print_report
    from spark_mq.cli.recover.report import recovery_fields, recovery_lines
    from spark_mq.store.recovery import next_recovery

    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    recovery = next_recovery(arguments.store, arguments.broker_version, conf)
    if arguments.json:
        print(json.dumps(recovery_fields(recovery), ensure_ascii=False))
    else:
        print_report("\n".join(recovery_lines(recovery)))
    return FOUND
