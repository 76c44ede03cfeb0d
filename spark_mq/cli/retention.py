"""`spark-mq retention` and `expire`: when segments expire, who loses messages by that; and their deletion. No Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spark_mq.cli.arguments import broker_conf_path, picked, whole
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND, INTERRUPTED, INTERRUPTED_LINE
from spark_mq.cli.output.terminal import print_answer
from spark_mq.cli.output.text_table import TableStyle, print_lines
from spark_mq.cli.output.value_text import local_time_of, plain_rows
from spark_mq.expirer import expire
from spark_mq.format.amounts import size_text
from spark_mq.format.timestamp import moment_of_millis
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.disk_use import Deletion
from spark_mq.store.expiry import retention_table
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import Retention, retention
from spark_mq.tables.store_files import RETENTION

_NEAR = 3_600_000
"""Milliseconds: a broker flushes a message long before."""


@command(
    "retention",
    """
    STORE
    --reserved-hours H  hours for which a segment is kept (default: fileReservedTime of --broker-conf, else 72)
    --at TIME
    --broker-conf FILE  the broker's settings file, for fileReservedTime, deleteWhen and the limits of disk use
    --by-topic          also print bytes by topic: reads 20 bytes for each message
    --archive TABLE     also print what is not archived yet in this archive (spark-mq archive)
    --json
    """,
    example="/data/store --by-topic",
    epilog="""
    A broker deletes a segment when its file has not changed for fileReservedTime hours, in an hour of deleteWhen;
    oldest first, and never the newest. Then it deletes the queue files and index files that only have messages before
    the log. Times do not consider a full disk: then a broker deletes at any hour, and above diskSpaceCleanForciblyRatio
    it also deletes segments that have not expired. The answer says whether the disk is that full now.

    The hours of deleteWhen are in the time zone of the broker, which the names of index files show; else in that of
    this machine. `spark-mq expire` deletes what has expired, while the broker is stopped.
    """,
)
def print_retention(arguments: argparse.Namespace) -> int:
    """Print when segments expire; returns the exit status."""
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    found = retention(arguments.store, arguments.reserved_hours, arguments.at, conf, arguments.by_topic)
    archived_to = None if arguments.archive is None else _archived_end(arguments.store, arguments.archive, conf)
    print_answer(
        arguments.json,
        lambda: _fields(found, arguments.archive, archived_to),
        lambda: _lines(found, arguments.archive, archived_to),
    )
    if not arguments.json:
        if found.segments:
            segments = [row.values() for row in plain_rows(retention_table(found.segments))]
            _print_table("segments", RETENTION.names, segments, RETENTION.importance)
        if found.unread:
            columns = ("delete_timestamp", "consumer_group", "topic", "queue_id", "unread", "loses", "lost")
            losses = [[getattr(loss, name) for name in columns] for loss in found.unread]
            losses = [[moment_of_millis(time), *rest] for time, *rest in losses]
            _print_table("unread messages that groups lose", columns, losses, (*columns[:4], "loses"))
        ages = [(_age(one.from_hours, one.to_hours), one.segments, one.log_bytes) for one in found.ages]
        _print_table("bytes by age of the newest message of a segment", ("age", "segments", "log_bytes"), ages)
        if found.topics is not None:
            names = ("topic", "messages", "log_bytes", "expired_messages", "expired_bytes")
            topics = [[getattr(one, name) for name in names] for one in found.topics]
            _print_table("bytes by topic", names, topics, ("topic", "log_bytes", "expired_bytes"))
    return FOUND


@command(
    "expire",
    """
    STORE
    ! --min-offset N      delete segments that end at or before this commit log offset
    | --reserved-hours H  delete segments whose files have not changed for H hours, as a broker with fileReservedTime=H
    --at TIME             with --reserved-hours: the time that counts as now
    --apply
    | --dry-run           change nothing; print what would be deleted (the default)
    --even-if-unread      also delete messages that a consumer group has not read
    --json
    """,
    example="/data/store --reserved-hours 72",
    description="""
    Delete old segments of a stopped store, and the queue files and index files that go with them. Without --apply this
    is a dry run: the command changes nothing, and prints what would be deleted.
    """,
    epilog="""
    The rules and the order are those of a broker: first segments, then queue files, then index files; whole files, the
    oldest first; never the newest file of the log, of a queue or of the index. The broker must not be running: with
    --apply, the command has the store's lock while it deletes. It can be killed at any moment: a broker boots from the
    rest, and the same command deletes what is left.
    """,
    kinds={"min_offset": whole("a commit log offset")},
)
def delete_expired(arguments: argparse.Namespace) -> int:
    """Delete, or show what would be deleted; returns the exit status."""
    deleted = ""

    def count(_: object, number: int, total: int) -> None:
        nonlocal deleted
        deleted = f"; {number:,} of {total:,} files are deleted, and the same command deletes the rest"

    chosen = picked(arguments, "min_offset", "reserved_hours", "at", "apply", "even_if_unread")
    try:
        report = expire(arguments.store, **chosen, progress=count)
    except KeyboardInterrupt:
        print(f"{INTERRUPTED_LINE}{deleted}", file=sys.stderr)
        return INTERRUPTED
    print_answer(arguments.json, report.to_json, lambda: report.to_text().split("\n"))
    return FOUND


def _archived_end(store: str, table: str, conf: str | None) -> int | None:
    from spark_mq.archive.last_run import archived_end

    with MessageStore(store) as opened:
        return archived_end(opened, table, BrokerConf.of(conf))


def _fields(found: Retention, archive: str | None, archived_to: int | None) -> dict[str, Any]:
    from dataclasses import asdict

    fields: dict[str, Any] = {
        "store": found.store,
        "verdict": " ".join(_verdict(found)),
        "at_timestamp": found.at,
        "reserved_hours": found.reserved_hours.value,
        "delete_when_hours": sorted(found.delete_when.hours),
        "expired": [segment.file for segment in found.expired],
        "segments": [
            {
                **{name: value for name, value in asdict(segment).items() if name != "files"},
                "queue_files": segment.queue_files,
                "index_files": segment.index_files,
                "freed_bytes": segment.freed_bytes,
                "files": [file.path for file in segment.files],
            }
            for segment in found.segments
        ],
        "left_over": [file.path for file in found.left_over],
        "ages": [asdict(age) for age in found.ages],
        "unread": [asdict(loss) for loss in found.unread],
        "topics": None if found.topics is None else [asdict(topic) for topic in found.topics],
        "disk": None if found.disk is None else {**asdict(found.disk), "deletion": found.disk.deletion.value},
        "problems": list(found.problems),
    }
    if archive is not None:
        fields["archive"] = {
            "table": archive,
            "archived_to": archived_to,
            "not_archived": None if archived_to is None else [one.file for one in _not_archived(found, archived_to)],
        }
    return fields


def _lines(found: Retention, archive: str | None, archived_to: int | None) -> Iterator[str]:
    yield from (*_verdict(found), "", "rules", *_rules(found))
    if archive is not None:
        yield from ("", "archive", *_archive(found, archive, archived_to))


def _print_table(
    title: str, columns: Sequence[str], rows: Sequence[Iterable[object]], importance: Sequence[str] = ()
) -> None:
    print(f"\n{title}")
    sizes = ("file_size", "freed_bytes", "log_bytes", "expired_bytes")
    least = {"topic": 16, "consumer_group": 12}
    style = TableStyle(importance, least, whole=("file",), sizes=sizes, hint="--json prints everything")
    print_lines(map(tuple, rows), columns, style, most=20)


def _verdict(found: Retention) -> Iterator[str]:
    if not found.segments:
        yield "The log has no message."
        return
    expired, at = found.expired, local_time_of(found.at)
    if expired:
        size = sum(segment.freed_bytes or 0 for segment in expired)
        queue_files, index_files = sum(one.queue_files for one in expired), sum(one.index_files for one in expired)
        files = f"{queue_files:,} queue files and {index_files:,} index files"
        have = "has" if len(expired) == 1 else "have"
        yield f"{len(expired):,} of {len(found.segments):,} segments {have} expired at {at}."
        yield f"With {files}, {size_text(size)} are freed. {_deletion(found)}"
    elif len(found.segments) == 1:
        yield "The log has only one segment with messages, and a broker never deletes the newest one."
    else:
        first = found.segments[0]
        expires = local_time_of(first.expire_timestamp or 0)
        yield f"No segment has expired at {at}."
        deleted = _deletes("it", first.delete_timestamp)
        yield f"The first one, {first.file}, expires at {expires}. {deleted}"
    if found.left_over:
        left = size_text(sum(file.size for file in found.left_over))
        yield f"{len(found.left_over):,} files ({left}) have only messages that are deleted: they are deleted next."
    losses = [loss for loss in found.unread if loss.expired]
    if losses:
        count, groups = sum(loss.expired for loss in losses), len({loss.consumer_group for loss in losses})
        yield f"{groups:,} consumer group{'s lose' if groups > 1 else ' loses'} {count:,} unread messages by that."
    if found.disk is not None and found.disk.deletion == Deletion.ANY:
        yield (
            f"The disk of {found.disk.folder}/ is {found.disk.used_percent} % full: a broker deletes the oldest "
            "segments at any hour, whether they have expired or not."
        )


def _deletion(found: Retention) -> str:
    if found.disk is not None and found.disk.deletion != Deletion.NONE:
        disk = found.disk
        return f"A broker deletes them at once, because the disk of {disk.folder}/ is {disk.used_percent} % full."
    return _deletes("them", found.delete_when.next_time(found.at))


def _deletes(what: str, millis: int | None) -> str:
    if millis is None:
        return f"A broker never deletes {what}: deleteWhen names no hour of a day."
    return f"A broker that runs deletes {what} at {local_time_of(millis)}."


def _rules(found: Retention) -> Iterator[str]:
    hours_kept = found.reserved_hours
    yield f"  kept for        {hours_kept.value:g} hours after the last change of a segment ({hours_kept.source})"
    named, zone = ", ".join(f"{hour:02}" for hour in sorted(found.delete_when.hours)), found.delete_when.zone
    in_zone = found.zone_source if zone is None else f"{zone} ({found.zone_source})"
    yield f"  deleted in      hour {named} of a day ({found.delete_when_source}), in {in_zone}"
    disk = found.disk
    if disk is not None:
        forcibly = f"; above {disk.forcibly_percent} % any segments" if disk.is_forcible else ""
        yield (
            f"  disk            that of {disk.folder}/ is {disk.used_percent} % used; above {disk.max_used_percent} % "
            f"expired segments are deleted at any hour{forcibly}"
        )
    copied = [
        one
        for one in found.segments[:-1]
        if one.last_store_timestamp is not None and abs(one.modification_timestamp - one.last_store_timestamp) > _NEAR
    ]
    if copied:
        are = "segment was" if len(copied) == 1 else "segments were"
        yield (
            f"  file times      {len(copied):,} {are} changed at another time than their newest message was stored (a "
            "copy has new times); a broker goes by the file"
        )
    for problem in found.problems:
        yield f"  kept            {problem}"


def _archive(found: Retention, table: str, archived_to: int | None) -> Iterator[str]:
    if archived_to is None:
        yield f"  {table}: not known without Spark. `spark-mq archive {found.store} {table}` archives what is missing."
        return
    missing = _not_archived(found, archived_to)
    end = found.segments[-1].end_offset if found.segments else 0
    yield f"  archived to     commit log offset {archived_to:,}; the log ends at {end:,}"
    if not missing or archived_to >= end:
        yield "  not archived    nothing"
        return
    first = max(archived_to, found.segments[0].commit_log_offset)
    files = f"{len(missing):,} segments from {missing[0].file} on"
    yield f"  not archived    {size_text(end - first)} of the log, in {files}"
    if missing[0].is_expired:
        yield f"  at risk         segment {missing[0].file} has expired: run `spark-mq archive` before it is deleted"
    elif missing[0].delete_timestamp is not None:
        yield f"  in time until   {local_time_of(missing[0].delete_timestamp)}, when that segment is deleted"


def _not_archived(found: Retention, archived_to: int) -> list[Any]:
    return [segment for segment in found.segments if segment.end_offset > archived_to]


def _age(low: int, high: int | None) -> str:
    def text(count: int) -> str:
        return f"{count // 24} d" if count >= 24 else f"{count} h"

    if high is None:
        return f"{text(low)} or more"
    return f"{text(low)} to {text(high)}" if low else f"below {text(high)}"
