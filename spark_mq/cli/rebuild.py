"""`spark-mq rebuild STORE`: derived files rebuilt from the commit log."""

from __future__ import annotations

import argparse
import sys

from spark_mq.cli.arguments import (
    add_assume_defaults,
    add_broker_conf,
    add_broker_version,
    add_json_report,
    add_spark_settings,
    add_store,
    broker_conf_path,
)
from spark_mq.cli.exit_status import DAMAGED, FOUND
from spark_mq.cli.output.terminal import print_report
from spark_mq.cli.progress_printer import ProgressPrinter
from spark_mq.cli.spark import given_settings, spark_errors, spark_session
from spark_mq.errors import OptionError
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX

EPILOG = """\
Without --output, the files are written into STORE: only if it has none, or with --replace or --resume.
The broker of the store must not be running: the command has the store's lock while it writes files.

exit status: 0 done; 1 failed; 2 an argument or its value is wrong; 4 done, but --mode permissive skipped damage: the
report names it, and the queue offsets that have no message; 130 interrupted (Ctrl-C): --resume continues.
"""

_KERNELS = ("frames", "big_endian", "dispatch", "index_keys", "index_put")
"""The modules of the kernels that a rebuild calls, in the order in which it needs them."""


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
    add_store(command)
    command.add_argument("--output", metavar="DIR", help="the folder to write the files into (default: STORE)")
    command.add_argument("--only", choices=[CONSUME_QUEUE, INDEX], help="rebuild only one of the two")
    command.add_argument(
        "--topic",
        metavar="TOPIC",
        help="rebuild only the queues of this topic, and no index: an index has all topics",
    )
    command.add_argument("--queue-id", metavar="N", type=int, help="with --topic: rebuild only this queue")
    add_broker_conf(command, "file sizes and delay levels")
    add_assume_defaults(command)
    add_broker_version(command)
    command.add_argument(
        "--time-zone",
        metavar="ZONE",
        help="the time zone of index files' names (default: as existing names show, else UTC)",
    )
    command.add_argument(
        "--mode",
        choices=["failfast", "permissive"],
        default="failfast",
        help="stop at damage (default); or skip it, report it, and exit with status 4",
    )
    command.add_argument(
        "--replace",
        action="store_true",
        help="replace existing files when the new files are complete; the old ones are kept in a folder backup-TIME",
    )
    command.add_argument("--no-backup", action="store_true", help="with --replace: remove the old files")
    command.add_argument(
        "--resume", action="store_true", help="continue a job that was killed; else continue the existing files"
    )
    command.add_argument("--split-size", metavar="SIZE", default="128m", help="bytes of the log per task (128m)")
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="change nothing; print what would be read, written and replaced, with which settings, and the room needed",
    )
    add_json_report(command)
    command.add_argument("--quiet", action="store_true", help="print no progress")
    add_spark_settings(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Rebuild, and print the report; returns the exit status."""
    from spark_mq.indexer.forecast import forecast
    from spark_mq.indexer.rebuild_request import RebuildRequest
    from spark_mq.source.options import MIN_SPLIT_SIZE, parse_size

    # Wrong arguments, and an output that cannot be used, are found before a JVM starts.
    request = RebuildRequest.of(
        arguments.store,
        arguments.output,
        only=arguments.only,
        topic=arguments.topic,
        queue_id=arguments.queue_id,
        broker_conf=broker_conf_path(arguments.broker_conf, arguments.store),
        broker_version=arguments.broker_version,
        time_zone=arguments.time_zone,
        mode=arguments.mode,
        replace=arguments.replace,
        backup=not arguments.no_backup,
        resume=arguments.resume,
        split_size=parse_size("--split-size", arguments.split_size, MIN_SPLIT_SIZE),
        assume_defaults=arguments.assume_defaults,
    )
    if arguments.no_backup and not arguments.replace:
        raise OptionError("--no-backup has no effect without --replace: nothing is replaced")
    plan = forecast(request)
    if arguments.dry_run:
        print_report(plan.to_json() if arguments.json else plan.to_text())
        return FOUND
    work = request.committer.folder

    def hint() -> str:
        return f"; --resume continues with what is in {work}" if work.is_directory else ""

    with spark_errors(), ProgressPrinter(is_quiet=arguments.quiet) as progress:
        if not arguments.quiet:
            print(f"{plan.log_text()}; needs {plan.room_text()}", file=sys.stderr, flush=True)
        progress.announce("starting Spark")
        with spark_session("spark-mq rebuild", given=given_settings(arguments), hint=hint, kernels=_KERNELS) as spark:
            from spark_mq.indexer.rebuild import run_rebuild

            report = run_rebuild(spark, request, progress)
    print_report(report.to_json() if arguments.json else report.to_text())
    return DAMAGED if report.has_damage else FOUND
