"""`spark-mq retention STORE`: when segments expire, and who loses messages by that. Without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_conf, add_json_report, add_store, hours
from spark_mq.cli.exit_status import FOUND

if TYPE_CHECKING:
    from spark_mq.store.retention import Retention

_EPILOG = """\
A broker deletes a segment when its file has not changed for fileReservedTime hours, in an hour of deleteWhen; oldest
first, and never the newest. Then it deletes the queue files and index files that only have messages before the log.
Times do not consider a full disk: then a broker deletes at any hour, and above diskSpaceCleanForciblyRatio it also
deletes segments that have not expired. The answer says whether the disk is that full now.

The hours of deleteWhen are in the time zone of the broker, which the names of index files show; else in that of this
machine. `spark-mq expire` deletes what has expired, while the broker is stopped.
"""
_LEAST_WIDTH = {"topic": 16, "consumer_group": 12}
_NEAR = 3_600_000
"""Milliseconds: a broker flushes a message long before."""
_SHOWN = 20
"""Rows of a table; the rest is a number. `--json` has all."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "when segments expire, what is deleted with them, and who loses unread messages"
    command = commands.add_parser(
        "retention", help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False
    )
    add_store(command)
    command.add_argument(
        "--reserved-hours",
        metavar="H",
        type=hours,
        help="hours for which a segment is kept (default: fileReservedTime of --broker-conf, else 72)",
    )
    command.add_argument("--at", metavar="TIME", help="the time for which the question is answered (default: now)")
    add_broker_conf(command, "fileReservedTime, deleteWhen and the limits of disk use")
    command.add_argument(
        "--by-topic", action="store_true", help="also print bytes by topic: reads 20 bytes for each message"
    )
    command.add_argument(
        "--archive", metavar="TABLE", help="also print what is not archived yet in this archive (spark-mq archive)"
    )
    add_json_report(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print when segments expire; returns the exit status."""
    from datetime import datetime

    from spark_mq.cli.arguments import broker_conf_path, parse_moment
    from spark_mq.store.retention import retention

    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    at = None if arguments.at is None else parse_moment("--at", arguments.at, datetime.now().astimezone())
    found = retention(arguments.store, arguments.reserved_hours, at, conf, arguments.by_topic)
    archived_to = None if arguments.archive is None else _archived_to(arguments.store, arguments.archive, conf)
    if arguments.json:
        _print_json(found, arguments.archive, archived_to)
    else:
        _print_text(found, arguments.archive, archived_to)
    return FOUND


def _archived_to(store: str, table: str, conf: str | None) -> int | None:
    """The commit log offset up to which the store is archived; None if that is not known without Spark."""
    from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
    from spark_mq.archive.last_run import archived_to
    from spark_mq.store.config.broker_conf import BrokerConf
    from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
    from spark_mq.store.message_store import MessageStore

    settings = BrokerConf.of(conf).settings
    with MessageStore(store) as opened:
        identity = StoreIdentity(
            settings.get("brokerClusterName", DEFAULT_CLUSTER),
            settings.get("brokerName", DEFAULT_BROKER),
            str(opened.location),
        )
        return archived_to(opened, ArchiveTables.of(table), identity)


def _print_json(found: Retention, archive: str | None, archived_to: int | None) -> None:
    import json
    from dataclasses import asdict

    from spark_mq.cli.output.json_lines import with_times

    expired = [segment.file for segment in found.expired]
    fields: dict[str, Any] = {
        "store": found.store,
        "verdict": " ".join(_verdict(found)),
        "at_timestamp": found.at,
        "reserved_hours": found.reserved_hours.value,
        "delete_when_hours": sorted(found.delete_when.hours),
        "expired": expired,
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
    print(json.dumps(with_times(fields), ensure_ascii=False))


def _print_text(found: Retention, archive: str | None, archived_to: int | None) -> None:
    from spark_mq.cli.output import visible
    from spark_mq.cli.output.terminal import print_report

    lines = [*_verdict(found), "", "rules", *_rules(found)]
    if archive is not None:
        lines += ["", "archive", *_archive(found, archive, archived_to)]
    print_report("\n".join(map(visible, lines)))
    if found.segments:
        print("\nsegments")
        _print_segments(found)
    if found.unread:
        print("\nunread messages that groups lose")
        losses = [
            (
                loss.delete_timestamp and _moment(loss.delete_timestamp),
                loss.consumer_group,
                loss.topic,
                loss.queue_id,
                loss.unread,
                loss.loses,
                loss.lost,
            )
            for loss in found.unread
        ]
        columns = ("delete_timestamp", "consumer_group", "topic", "queue_id", "unread", "loses", "lost")
        _print_table(columns, losses, (), ("delete_timestamp", "consumer_group", "topic", "queue_id", "loses"))
    print("\nbytes by age of the newest message of a segment")
    ages = [(_age(one.from_hours, one.to_hours), one.segments, one.log_bytes) for one in found.ages]
    _print_table(("age", "segments", "log_bytes"), ages, ("log_bytes",))
    if found.topics is not None:
        print("\nbytes by topic")
        topics = [
            (one.topic, one.messages, one.log_bytes, one.expired_messages, one.expired_bytes) for one in found.topics
        ]
        names = ("topic", "messages", "log_bytes", "expired_messages", "expired_bytes")
        _print_table(names, topics, ("log_bytes", "expired_bytes"), ("topic", "log_bytes", "expired_bytes"))


def _verdict(found: Retention) -> Iterator[str]:
    """The answer, a sentence a line."""
    from spark_mq.cli.output.value_text import local_time_of, size_text
    from spark_mq.store.disk_use import Deletion

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
            f"The disk is {found.disk.used_percent} % full: a broker deletes the oldest segments at any hour, whether "
            "they have expired or not."
        )


def _deletion(found: Retention) -> str:
    """When the broker deletes the segments that have expired."""
    from spark_mq.store.disk_use import Deletion

    if found.disk is not None and found.disk.deletion != Deletion.NONE:
        return f"A broker deletes them at once, because the disk is {found.disk.used_percent} % full."
    return _deletes("them", found.delete_when.next_time(found.at))


def _deletes(what: str, millis: int | None) -> str:
    from spark_mq.cli.output.value_text import local_time_of

    if millis is None:
        return f"A broker never deletes {what}: deleteWhen names no hour of a day."
    return f"A broker that runs deletes {what} at {local_time_of(millis)}."


def _rules(found: Retention) -> Iterator[str]:
    hours_kept = found.reserved_hours
    yield f"  kept for        {hours_kept.value:g} hours after the last change of a segment ({hours_kept.source})"
    named = ", ".join(f"{hour:02}" for hour in sorted(found.delete_when.hours))
    yield f"  deleted in      hour {named} of a day ({found.delete_when_source}), in {_zone(found)}"
    disk = found.disk
    if disk is not None:
        forcibly = f"; above {disk.forcibly_percent} % any segments" if disk.is_forcible else ""
        yield (
            f"  disk            {disk.used_percent} % used; above {disk.max_used_percent} % expired segments are "
            f"deleted at any hour{forcibly}"
        )
    copied = [one for one in found.segments[:-1] if _is_off(one.modification_timestamp, one.last_store_timestamp)]
    if copied:
        are = "segment was" if len(copied) == 1 else "segments were"
        yield (
            f"  file times      {len(copied):,} {are} changed at another time than their newest message was stored (a "
            "copy has new times); a broker goes by the file"
        )
    for problem in found.problems:
        yield f"  kept            {problem}"


def _is_off(modified: int, stored: int | None) -> bool:
    """Whether the last change of a segment is not about the store time of its newest message."""
    return stored is not None and abs(modified - stored) > _NEAR


def _zone(found: Retention) -> str:
    zone = found.delete_when.zone
    return found.zone_source if zone is None else f"{zone} ({found.zone_source})"


def _archive(found: Retention, table: str, archived_to: int | None) -> Iterator[str]:
    from spark_mq.cli.output.value_text import local_time_of, size_text

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


def _moment(millis: int) -> Any:
    from spark_mq.format.timestamp import micros, of_micros

    value = micros(millis)
    return None if value is None else of_micros(value)


def _print_segments(found: Retention) -> None:
    from spark_mq.cli.output.json_lines import plain_rows
    from spark_mq.store.expiry import retention_table
    from spark_mq.tables.store_files import RETENTION

    rows = plain_rows(retention_table(found.segments))
    _print_table(
        RETENTION.names, [tuple(row.values()) for row in rows], ("file_size", "freed_bytes"), RETENTION.importance
    )


def _print_table(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    sizes: Sequence[str],
    importance: Sequence[str] = (),
) -> None:
    from spark_mq.cli.output.terminal import terminal_width
    from spark_mq.cli.output.text_table import TableStyle, TextTable, print_notes

    width = terminal_width()
    style = TableStyle(importance, _LEAST_WIDTH, whole=("file",), sizes=sizes, hint="--json prints everything")
    table = TextTable(names, style, width)
    shown = rows if width is None else rows[:_SHOWN]
    table.write(shown)
    print_notes(table)
    if len(shown) < len(rows):
        print(f"spark-mq: {len(rows) - len(shown):,} more rows; --json prints all", file=sys.stderr)
