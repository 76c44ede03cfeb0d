"""`spark-mq restore SOURCE STORE`: a store out of an archive, another store, or a part of either."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from spark_mq.cli.arguments import broker_conf_path, picked
from spark_mq.cli.command import JOB, command
from spark_mq.cli.engine import find_engine, job_tasks
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.cli.spark import given_settings
from spark_mq.errors import OptionError
from spark_mq.job.tasks import SparkTasks

KERNELS = ("encode", "gather", "frames", "big_endian", "dispatch", "queue_table", "index_keys", "index_put")
"""The modules of the kernels that a restore calls, in the order in which it needs them."""


@command(
    "restore",
    """
    SOURCE                  a store directory, or an archive's table of messages: a path, or a catalog name
    STORE                   the store directory to make: missing or empty
    --where SQL             restore only messages for which this condition is true
    --renumber              give messages new offsets without gaps; consumers' offsets follow
    --append                append to STORE, which exists; its broker must be stopped
    --only-delivered        leave out delayed messages, timers and half messages
    --store-host HOST:PORT  the new broker's address; offset message ids change with it
    --topic-map OLD=NEW     rename a topic; can be repeated; needs --renumber or --append
    --broker-conf FILE      the broker's settings file, for file sizes and delay levels of the new store (default: the
                            source's own)
    --broker-version V
    --time-zone ZONE        the time zone of index files' names (default: as the source shows, else UTC)
    --offset-map DIR        the folder for old and new offsets, if they change (STORE_offsets)
    --append-id ID          with --append: nothing is appended if STORE has an append of this id (default: SOURCE and
                            the options)
    --cluster NAME
    --broker NAME
    --store-name NAME
    """,
    JOB,
    example="/lake/messages /data/restored",
    description="""
    Make a store that a broker boots from, out of the messages of an archive or of another store: commit log, consume
    queues, index files, checkpoint and config/. Messages keep their offsets and bytes.
    """,
    epilog="""
    STORE appears when it is complete. A job that is killed leaves only a folder STORE.restoring, and files of the table
    of offsets; the next job removes both. With --append, a job that is killed leaves the store as it was, or the next
    one completes it.
    """,
)
def restore(arguments: argparse.Namespace) -> int:
    """Restore, and print the report; returns the exit status."""
    from spark_mq.restorer.offset_map import check_map_folder
    from spark_mq.restorer.restore_request import RestoreRequest, is_store

    topics = dict(arguments.topic_map)
    if len(topics) < len(arguments.topic_map):
        names = [old for old, _ in arguments.topic_map]
        raise OptionError(f"--topic-map: topic {next(old for old in names if names.count(old) > 1)} has two new names")
    # Wrong arguments, and a store that cannot be made, are found before a JVM starts.
    same = ("where", "renumber", "append", "only_delivered", "store_host", "broker_version", "time_zone", "offset_map")
    request = RestoreRequest.of(
        arguments.store,
        topic_map=topics,
        broker_conf=broker_conf_path(arguments.broker_conf, arguments.store),
        names=picked(arguments, "cluster", "broker", "store_name"),
        **picked(arguments, *same, "append_id"),
    )
    settings = _settings(arguments.source, given_settings(arguments))
    request.check_source(arguments.source)
    request = request.of_source(arguments.source)
    if (request.is_renumbered or request.store_host is not None) and not request.append:
        check_map_folder(request.offset_map_folder)
    # Only Spark reads Delta tables, and evaluates conditions.
    only_spark = "--where" if arguments.where else "" if is_store(arguments.source) else "an archive"
    engine = find_engine(arguments, [arguments.source, arguments.store, arguments.offset_map], only_spark)
    with job_tasks("restore", arguments, engine, KERNELS, lambda: settings) as tasks:
        from spark_mq.restorer.restore import restore_with

        if isinstance(tasks, SparkTasks):
            from spark_mq.datasource import register

            register(tasks.session)
        report = restore_with(tasks, arguments.source, request)
    print_answer(arguments.json, report.to_json, report.to_text)
    return FOUND


def _settings(source: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark that the source needs: those of Delta tables, unless it is a store."""
    from spark_mq.restorer.restore_request import is_store

    if is_store(source):
        return {}
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.cli.archive_source import check_is_archive
    from spark_mq.cli.spark import delta_session_settings, has_empty_catalog

    ArchiveTables.of(source, checkpoint="")
    if "/" not in source and has_empty_catalog(given):
        problem = "is not a store" if os.path.exists(source) else "does not exist"
        raise OptionError(
            f"{source} {problem}: give a store directory, or the TABLE of spark-mq archive (the path of a table needs "
            f"a slash: ./{source})"
        )
    check_is_archive(source, or_store=True)
    return delta_session_settings(given, source)
