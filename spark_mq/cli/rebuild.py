"""`spark-mq rebuild STORE`: derived files rebuilt from the commit log."""

from __future__ import annotations

import argparse

from spark_mq.cli.arguments import broker_conf_path, picked
from spark_mq.cli.command import JOB, command
from spark_mq.cli.engine import find_engine, job_tasks
from spark_mq.cli.exit_status import DAMAGED, FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.errors import OptionError

KERNELS = ("frames", "big_endian", "dispatch", "queue_table", "index_keys", "index_put")
"""The modules of the kernels that a rebuild calls, in the order in which it needs them."""


@command(
    "rebuild",
    """
    STORE
    --output DIR          the folder to write the files into (default: STORE)
    --only {consumequeue,index}
                          rebuild only one of the two
    --topic TOPIC         rebuild only the queues of this topic, and no index: an index has all topics
    --queue-id N          with --topic: rebuild only this queue
    --queue-store {files,rocksdb}
                          write queue files; or a RocksDB database, for storeType=defaultRocksDB (default: files, which
                          do not replace a database; both if --broker-conf has rocksdbCQDoubleWriteEnable=true)
    --broker-conf FILE    the broker's settings file, for file sizes and delay levels
    --assume-defaults
    --broker-version V
    --time-zone ZONE      the time zone of index files' names (default: as existing names show, else UTC)
    --mode {failfast,permissive}
                          stop at damage (default); or skip it, report it, and exit with status 4
    --replace             replace existing files when the new files are complete; the old ones are kept in a folder
                          backup-TIME
    --no-backup           with --replace: remove the old files
    --resume              continue a job that was killed; else continue the existing files
    --split-size SIZE
    --dry-run             change nothing; print what would be read, written and replaced, with which settings, and the
                          room needed
    """,
    JOB,
    example="/data/store --output /data/rebuilt",
    description="Rebuild consumequeue/ and index/ of a store from commitlog/, byte for byte as the broker does.",
    epilog="""
    Without --output, the files are written into STORE: only if it has none, or with --replace or --resume.
    The broker of the store must not be running: the command has the store's lock while it writes files.
    """,
    kinds={"queue_id": int},
    mode="failfast",
    split_size="128m",
)
def rebuild(arguments: argparse.Namespace) -> int:
    """Rebuild, and print the report; returns the exit status."""
    from spark_mq.indexer.forecast import forecast
    from spark_mq.indexer.rebuild_request import RebuildRequest

    # Wrong arguments, and an output that cannot be used, are found before a JVM starts.
    same = ("only", "topic", "queue_id", "broker_version", "time_zone", "mode", "replace", "resume", "split_size")
    request = RebuildRequest.of(
        arguments.store,
        arguments.output,
        broker_conf=broker_conf_path(arguments.broker_conf, arguments.store),
        backup=not arguments.no_backup,
        **picked(arguments, *same, "assume_defaults", "queue_store"),
    )
    if arguments.no_backup and not arguments.replace:
        raise OptionError("--no-backup has no effect without --replace: nothing is replaced")
    engine = find_engine(arguments, [arguments.store, arguments.output])
    plan = forecast(request)
    if arguments.dry_run:
        print_answer(arguments.json, plan.to_json, plan.to_text)
        return FOUND
    work = request.committer.folder

    def hint() -> str:
        return f"; --resume continues with what is in {work}" if work.is_directory else ""

    before = f"{plan.log_text()}; needs {plan.room_text()}"
    with job_tasks("rebuild", arguments, engine, KERNELS, hint=hint, before=before) as tasks:
        from spark_mq.indexer.rebuild import rebuild_with

        report = rebuild_with(tasks, request)
    print_answer(arguments.json, report.to_json, report.to_text)
    return DAMAGED if report.has_damage else FOUND
