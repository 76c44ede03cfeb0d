"""`spark-mq repair STORE`: a store is made again from its log, or its log from a replica; a plan first.

`spark-mq compare STORE REPLICA` says where the logs of two replicas part, and what only one of them has.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import broker_conf_path, picked
from spark_mq.cli.command import JOB, command
from spark_mq.cli.engine import find_engine, job_tasks
from spark_mq.cli.exit_status import DAMAGED, FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.cli.verify import KERNELS
from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.format.amounts import counted, size_text
from spark_mq.job.tasks import ENGINES
from spark_mq.store.store_state import store_state
from spark_mq.store.verdict import verdict
from spark_mq.verifier.codes import CODES

if TYPE_CHECKING:
    from spark_mq.repairer.changes import Change
    from spark_mq.repairer.comparison import Comparison, Part, Side
    from spark_mq.repairer.from_replica import ReplicaRepair
    from spark_mq.repairer.plan import Action
    from spark_mq.repairer.repair import RepairReport


_SHOWN = 20
"""Files of a plan, and parts and topics of a comparison, that are printed of each kind."""


@command(
    "repair",
    """
    STORE
    --output DIR             write the repaired files into this new folder, instead of into the store
    --in-place               repair the store itself (the default)
    --apply
    | --dry-run              change nothing; print the plan (the default)
    --undo                   put back what the newest repair replaced
    --from REPLICA           repair the log itself: take damaged records and lost segments from this replica's store
    --offsets                also set offsets of consumers and delay levels after the end of a queue to that end
    --cut-log-at OFFSET      end the log at this commit log offset: later records are taken out; a copy is kept
    --blank-range START:END  make these bytes of the log a blank, so that no boot cuts the log there; a copy is kept
    --assume-defaults
    --broker-conf FILE       the broker's settings file, for file sizes, slots and entries, and delay levels
    --scratch DIR
    --split-size SIZE
    """,
    JOB,
    example="/data/store",
    description="Check a store, and make again from its log what is wrong with it. With --from, repair the log itself, "
    "from a replica. A plan, without --apply.",
    epilog="""
    Without --apply, nothing is changed: the plan is printed. The broker must not run: the command takes its file
    `lock`, and refuses if it has it. Sound files keep every byte. What is replaced is kept in
    STORE/.spark_mq/backup-TIME until you remove it. Records of the log are never changed, except with --from, which
    takes from a replica what is damaged here and sound there, and nothing if the two logs differ where both are sound.
    --cut-log-at and --blank-range take records out of the log, with a copy. Run the command again after these three.
    """,
    split_size="128m",
)
def repair(arguments: argparse.Namespace) -> int:
    """Repair the store, or undo a repair, and print the report; returns the exit status."""
    if arguments.in_place and arguments.output is not None:
        raise OptionError("--in-place repairs the store itself, --output another folder: give one of them")
    replica = getattr(arguments, "from")
    verbs = [arguments.undo, *(one is not None for one in (replica, arguments.cut_log_at, arguments.blank_range))]
    if sum(verbs) > 1:
        raise OptionError("--undo, --from, --cut-log-at and --blank-range are different commands: give one of them")
    if any(verbs) and arguments.output is not None:
        raise OptionError("--undo, --from, --cut-log-at and --blank-range change the store itself: leave out --output")
    if arguments.undo:
        return _undo(arguments)
    if replica is not None:
        from spark_mq.repairer.from_replica import repair_from

        found = repair_from(arguments.store, replica, apply=arguments.apply)
        print_answer(arguments.json, found.to_json, lambda: _replica_lines(found))
        return FOUND if found.is_complete else DAMAGED
    if arguments.cut_log_at is not None or arguments.blank_range is not None:
        return _edit_log(arguments)
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    report = _repair(arguments, conf)
    print_answer(
        arguments.json, report.to_json, lambda: [*report_lines(report), *_boot_lines(arguments.store, conf, report)]
    )
    return FOUND if report.is_complete else DAMAGED


def _repair(arguments: argparse.Namespace, conf: str | None) -> RepairReport:
    from spark_mq.repairer.plan import RepairRequest
    from spark_mq.verifier.check import VerifyRequest

    # Wrong arguments, and a path that is not a store, are found before a JVM starts.
    request = RepairRequest.of(
        VerifyRequest.of(arguments.store, conf, arguments.scratch, arguments.split_size),
        arguments.output,
        **picked(arguments, "apply", "offsets", "assume_defaults"),
    )
    engine = find_engine(arguments, [arguments.store, arguments.output, arguments.scratch])
    with job_tasks("repair", arguments, engine, KERNELS) as tasks:
        from spark_mq.repairer.repair import repair_with

        return repair_with(tasks, request)


def _undo(arguments: argparse.Namespace) -> int:
    from spark_mq.repairer.changes import undo_repair

    folder, changes = undo_repair(arguments.store, apply=arguments.apply)
    rows = [{"kind": change.kind, "file": change.file} for change in changes]
    what = "put back" if arguments.apply else "would be put back; nothing was changed (--apply puts it back)"
    print_answer(
        arguments.json,
        lambda: {"backup": folder, "is_applied": arguments.apply, "changes": rows},
        lambda: [*_change_lines(changes), f"{len(changes):,} changes of {folder} {what}"],
    )
    return FOUND


def _change_lines(changes: Sequence[Change]) -> list[str]:
    return [f"{change.kind:12} {change.file}" for change in changes]


def _edit_log(arguments: argparse.Namespace) -> int:
    from spark_mq.repairer.log_edit import blank_range, cut_log

    if arguments.cut_log_at is not None:
        edit = cut_log(arguments.store, arguments.cut_log_at, apply=arguments.apply)
    else:
        edit = blank_range(arguments.store, *_range(arguments.blank_range), apply=arguments.apply)
    what = f"{edit.size:,} bytes of the log, from commit log offset {edit.start} on,"
    if edit.backup is None:
        said = [f"{what} would be moved into a backup; nothing was changed (--apply does it)"]
    else:
        said = [
            f"{what} are in the backup {edit.backup}",
            "queues and index still have these messages: run `spark-mq repair STORE --apply` now",
        ]
    print_answer(arguments.json, edit.to_json, lambda: [*_change_lines(edit.changes), *said])
    return FOUND


def _replica_lines(found: ReplicaRepair) -> Iterator[str]:
    yield f"repair of {found.before.store.store} from {found.before.replica.store}"
    yield f"  comparison      {found.before.verdict}"
    if found.changes:
        yield ""
        yield from _change_lines(found.changes)
    for title, parts in (("take from the replica", found.taken), ("not repaired", found.left)):
        for reason in dict.fromkeys(one.reason for one in parts):
            yield from _part_lines(title, [one.part for one in parts if one.reason == reason])
            yield f"  why             {reason}"
    yield from _only_lines(found.before)
    yield ""
    if found.backup is not None:
        yield f"backup            {found.backup} (--undo puts it back; remove it when you are sure)"
        yield f"next              `spark-mq repair {shlex.quote(found.before.store.store)} --apply`: queues and index"
    elif found.changes:
        yield "--apply           makes these changes"
        yield f"room              about {size_text(found.room_needed)}"
    yield f"verdict: {found.verdict}"


def _range(text: str) -> tuple[int, int]:
    start, _, stop = text.partition(":")
    if not (start.isdecimal() and stop.isdecimal()):
        raise OptionError(f"--blank-range {text!r} is not START:END, two commit log offsets")
    return int(start), int(stop)


def report_lines(report: RepairReport) -> Iterator[str]:
    """The lines of a report: the plan by file, what is left, and the verdict in the last line."""
    yield f"repair of {report.store}"
    yield f"  check           {report.before.verdict}"
    yield f"  seconds         {report.seconds:.1f} {ENGINES[report.before.engine]}"
    if report.actions:
        yield "  keep            all files that are not named here, byte for byte"
    kinds: dict[str, list[Action]] = {}
    for action in report.actions:
        kinds.setdefault(action.change.kind, []).append(action)
    for kind, actions in kinds.items():
        yield ""
        yield f"{kind}: {len(actions):,}"
        for action in actions[:_SHOWN]:
            codes = ", ".join(f"{code} {count:,}" for code, count in action.codes)
            yield f"  {action.change.file}"
            yield f"    why           {codes}"
            yield f"    how           {action.treatment}"
        if len(actions) > _SHOWN:
            yield f"  more            {len(actions) - _SHOWN:,}; --json prints all of them"
    for setting in report.assumed:
        yield ""
        yield f"assumed: {setting!s}"
        yield "  do              check it; --broker-conf gives the broker's settings"
    made = {action.change.file for action in report.actions}
    for left in report.left:
        yield ""
        yield f"not repaired: {left.code} {left.count:,}"
        places = [one.place for one in report.before.first.get(left.code, ()) if one.file not in made]
        yield from (f"  where           {place}" for place in places)
        if places and left.count > len(places):
            yield f"  more            {left.count - len(places):,}; `spark-mq verify --report FILE` writes all of them"
        yield f"  why             {left.reason}"
        yield f"  do              {CODES[left.code].remedy}"
    yield ""
    if report.backup is not None:
        yield f"backup            {report.backup} (--undo puts it back; remove it when you are sure)"
    if report.output is not None and report.is_applied:
        yield f"output            {report.output}: copy its files over those of the store"
    if report.after is not None:
        yield f"check             {report.after.verdict}; records, and what was sound and is kept, were read before"
    if report.actions and not report.is_applied:
        yield "--apply           makes these changes"
        free = "" if report.room_free is None else f"; {size_text(report.room_free)} are free"
        yield f"room              about {size_text(report.room_needed)}{free}"
        yield f"time              {report.seconds:.1f} seconds for the check again, and then the files and their check"
    yield f"verdict: {report.verdict}"


def _boot_lines(store: str, conf: str | None, report: RepairReport) -> Iterator[str]:
    if report.output is not None:
        return
    yield ""
    yield (
        "the next boot, with the store as it is now:"
        if report.is_applied or not report.actions
        else ("the next boot, if nothing is repaired:")
    )
    try:
        is_checked = (report.after or report.before).shows_boots
        lines = verdict(store_state(store, None, conf, with_forced=False, is_checked=is_checked))
    except (StorageError, UnsupportedStoreError) as error:  # a broken database, or a form whose start is not predicted
        lines = [f"not known: {error}"]
    yield from (f"  {line}" for line in lines)


@command(
    "compare",
    """
    STORE
    REPLICA  the store directory of another replica of the same broker
    --json
    """,
    example="/data/master /data/slave",
    description="Print where the commit logs of two replicas differ, which of them is damaged there, and what only one "
    "has.",
    epilog="""
    Replicas have the same bytes at the same commit log offsets. Each log is read once, and segments that differ are
    read again as records. Brokers can run on both. What both have alike is not checked: `spark-mq verify` does that.
    `spark-mq repair STORE --from REPLICA` takes what is damaged in STORE from REPLICA.
    """,
)
def compare(arguments: argparse.Namespace) -> int:
    """Compare two replicas, and print how they differ; returns the exit status."""
    from spark_mq.repairer.comparison import compare as compare_stores

    found = compare_stores(arguments.store, arguments.replica)
    print_answer(arguments.json, found.to_json, lambda: _comparison_lines(found))
    return FOUND if found.is_same else DAMAGED


def _comparison_lines(found: Comparison) -> Iterator[str]:
    from spark_mq.repairer.comparison import PartState

    yield f"comparison of {found.store.store} and {found.replica.store}"
    for name, side in (("STORE", found.store), ("REPLICA", found.replica)):
        yield f"  {name:<14}  commit log offsets {side.start} to {side.end}{_committed(side)}"
    yield f"  compared        {size_text(found.compared_bytes)}, in {found.seconds:.1f} seconds"
    if found.consistent_offset is not None:
        yield f"  epochs          a slave cuts its log at {found.consistent_offset} before it follows the other one"
    for state in PartState:
        yield from _part_lines(str(state), found.of(state))
    yield from _only_lines(found)
    yield ""
    if found.of(PartState.STORE_DAMAGED):
        store, replica = shlex.quote(found.store.store), shlex.quote(found.replica.store)
        yield f"next: `spark-mq repair {store} --from {replica}`"
    yield f"verdict: {found.verdict}"


def _committed(side: Side) -> str:
    return "" if side.committed is None else f"; it knows that its group committed what is before {side.committed}"


def _part_lines(title: str, parts: list[Part]) -> Iterator[str]:
    """The lines about parts of two logs that have something in common; no line if there are none."""
    if parts:
        yield ""
        yield f"{title}: {counted(len(parts), 'part')}, {size_text(sum(part.size for part in parts))}"
        for part in parts[:_SHOWN]:
            yield f"  {part.name}"
        if len(parts) > _SHOWN:
            yield f"  more            {len(parts) - _SHOWN:,}; --json prints all of them"


def _only_lines(found: Comparison) -> Iterator[str]:
    """The lines about what only one of two logs has."""
    for name, only in [("STORE", one) for one in found.store.only] + [("REPLICA", one) for one in found.replica.only]:
        yield ""
        size, messages = size_text(only.stop - only.start), counted(only.messages, "message")
        yield f"only in {name}: commit log offsets {only.start} to {only.stop}, {size}, {messages}"
        topics = sorted(only.topics.items(), key=lambda item: (-item[1], item[0]))
        yield from (f"  {topic:<14}  {count:,}" for topic, count in topics[:_SHOWN])
        if len(topics) > _SHOWN:
            yield f"  more            {len(topics) - _SHOWN:,} topics; --json prints all of them"
