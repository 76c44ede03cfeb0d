"""`spark-mq rebuild STORE`: derived files rebuilt from the commit log."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_mq.cli.exit_status import DAMAGED, FOUND
from spark_mq.cli.spark import spark_errors, spark_session

EPILOG = """\
Without --output the files are written into STORE itself, and only if it has none, or with --replace or --resume.
The broker of the store must not be running: its lock is taken for as long as files are written.

exit status: 0 done; 1 failed; 2 arguments not understood; 4 done, but --mode permissive skipped damage: the report
names it, and the queue offsets that have no message; 130 interrupted (Ctrl-C): --resume continues.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "rebuild",
        help="rebuild consumequeue/ and index/ from commitlog/",
        description="Rebuild consumequeue/ and index/ of a store from commitlog/, byte for byte as the broker does.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("store", metavar="STORE", help="the broker's store directory (storePathRootDir)")
    command.add_argument("--output", metavar="DIR", help="where to write them (default: STORE)")
    command.add_argument("--only", choices=["consumequeue", "index"], help="rebuild one of the two")
    command.add_argument("--broker-conf", metavar="FILE", help="the broker's settings: file sizes, delay levels")
    command.add_argument("--broker-version", metavar="V", help="4.9 or 5 (default: as config/ shows, else 5)")
    command.add_argument(
        "--time-zone", metavar="ZONE", help="zone of index files' names (default: as existing names show, else UTC)"
    )
    command.add_argument(
        "--mode",
        choices=["failfast", "permissive"],
        default="failfast",
        help="stop at damage (default), or skip it, report it and exit with status 4",
    )
    command.add_argument("--replace", action="store_true", help="replace what is there when the new is whole")
    command.add_argument(
        "--resume", action="store_true", help="continue a job that was killed, or else where the existing files end"
    )
    command.add_argument("--split-size", metavar="SIZE", default="128m", help="bytes of the log for a task (128m)")
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.add_argument("--quiet", action="store_true", help="no progress")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Rebuild, and print the report."""
    from spark_mq.indexer.rebuild import rebuild
    from spark_mq.job.output_committer import WORK_FOLDER
    from spark_mq.job.progress import print_progress
    from spark_mq.source.option_values import parse_size
    from spark_mq.source.options import MIN_SPLIT_SIZE

    split_size = parse_size("--split-size", arguments.split_size, MIN_SPLIT_SIZE)
    try:
        with spark_errors(), spark_session("spark-mq rebuild", ends_on_interrupt=True) as spark:
            report = rebuild(
                spark,
                arguments.store,
                arguments.output,
                only=arguments.only,
                broker_conf=arguments.broker_conf,
                broker_version=arguments.broker_version,
                time_zone=arguments.time_zone,
                mode=arguments.mode,
                replace=arguments.replace,
                resume=arguments.resume,
                split_size=split_size,
                progress=None if arguments.quiet else print_progress,
            )
    except KeyboardInterrupt as interrupt:
        work = Path(arguments.output or arguments.store) / WORK_FOLDER
        left = f"; --resume continues with what is in {work}" if work.is_dir() else ""
        raise KeyboardInterrupt(f"interrupted{left}") from interrupt
    print(report.to_json() if arguments.json else report.to_text())
    return DAMAGED if report.has_damage else FOUND
