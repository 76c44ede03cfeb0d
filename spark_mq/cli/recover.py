"""`spark-mq recover`: what a broker does at its next start, as lines of text or as one JSON object."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.format.amounts import counted, size_text
from spark_mq.store.verdict import joined, losses, lost_before, no_more, obstacle_text, setting_line, unknown_index

if TYPE_CHECKING:
    from spark_mq.store.recovery import Recovery

_SHOWN = 8
"""Rows of one kind that are printed; the rest is a number."""

_WIDTH = 10
_COUNTS_OF_BOOT = {
    **{name: name for name in ("cut_bytes", "cut_messages")},
    **{"revived": "revived_records", "gone": "gone_messages", "deleted": "deleted_messages"},
    **{name: name for name in ("damaged_bytes", "completed", "shifted", "lost", "doubled_entries")},
}
"""By name of a number of a boot: its name in JSON."""


@command(
    "recover",
    """
    STORE
    ! --as V            the version of the broker that starts next, such as 5.3.3
    --broker-conf FILE  the broker's settings file, for file sizes, and settings of the index and of recovery
    --json
    """,
    example="/data/store --as 5.3.3",
    epilog="""
    Nothing is changed. The command reads and checks the records that the broker would check: from the segment on with
    which the recovery begins, which is the first one after a crash without a checkpoint. `spark-mq state` answers in a
    fraction of a second, but does not notice damage in the middle of files.

    --as needs a version that tells which rules apply, such as 4.9.7, 5.3.1 or 5.3.3: brokers recover by other rules
    since 5.0.0, and again since 5.3.2.
    """,
)
def recover(arguments: argparse.Namespace) -> int:
    """Print what the broker does; returns the exit status."""
    from spark_mq.store.recovery import next_recovery

    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    recovery = next_recovery(arguments.store, vars(arguments)["as"], conf)
    print_answer(arguments.json, lambda: recovery_fields(recovery), lambda: recovery_lines(recovery))
    return FOUND


def recovery_lines(recovery: Recovery) -> list[str]:
    """The lines; a line of a section begins with two spaces, and the name of its row."""
    sections = [
        verdict(recovery),
        [f"a start of {recovery.release}", *_rows(recovery)],
        ["assumed", *(setting_line(setting, _WIDTH + 2) for setting in recovery.settings)],
        ["what to do", *(f"  - {remedy}" for remedy in _remedies(recovery))],
    ]
    shown = [section for section in sections if len(section) > 1 or section[0][-1:] == "."]
    return [line for section in shown for line in (*section, "")][:-1]


def verdict(recovery: Recovery) -> list[str]:
    """The answer, a sentence each: how the broker stopped, whether it starts, what it cuts off, and what it loses."""
    return [_stop(recovery), *_outcome(recovery)]


def _stop(recovery: Recovery) -> str:
    if recovery.last_stop.is_running:
        return (
            "A broker runs on this store, or a job writes into it. This is what a start does if the broker crashes now."
        )
    return "Stopped cleanly." if recovery.last_stop.is_clean else "Not stopped cleanly: the file abort is there."


def _outcome(recovery: Recovery) -> Iterator[str]:
    broker, boot = f"A broker of {recovery.release}", recovery.boot
    if recovery.obstacles:
        yield f"{broker} does not start: {obstacle_text(recovery.obstacles)}."
    if boot is None:
        return
    if boot.deletes_queues:
        has_queues = recovery.rows.num_rows > 0
        yield f"{broker} finds {'no segment, and deletes all consume queues' if has_queues else 'an empty log'}."
        return
    yield (
        f"{broker} checks {counted(recovery.checked, 'record')} from segment {boot.recovers_from or 0:020d} on, and "
        f"ends the log at commit log offset {recovery.log_end:,} ({recovery.end_reason})."
    )
    said = losses(boot)
    if said or not recovery.obstacles:
        yield f"It {joined(said or [f'loses {no_more(boot)}'])}{unknown_index(boot)}."
    yield from lost_before([boot])


def _remedies(recovery: Recovery) -> Iterator[str]:
    if recovery.obstacles:
        yield "Repair what is named, and run this command again."
    elif not recovery.is_harmless and not recovery.last_stop.is_running:
        yield (
            "Save the store before a broker starts on it. `spark-mq state` says what to do about queues, index and old "
            "records; `spark-mq verify` names all damage."
        )


def _rows(recovery: Recovery) -> Iterator[str]:
    """A line for each row; of many rows of one kind, the first ones and the number of the others."""
    seen: Counter[tuple[str, str]] = Counter()
    rows = recovery.rows.to_pylist()
    totals = Counter((row["action"], row["target"]) for row in rows)
    for row in rows:
        kind = row["action"], row["target"]
        seen[kind] += 1
        if seen[kind] <= _SHOWN:
            yield f"  {row['action']:<{_WIDTH}} {_row_text(row)}"
        elif seen[kind] == totals[kind]:
            others = f"{totals[kind] - _SHOWN:,} more of these ({row['target']}); --json prints all"
            yield f"  {row['action']:<{_WIDTH}} {others}"


def _row_text(row: Mapping[str, Any]) -> str:
    parts = []
    if row["file"] is not None:
        parts.append(row["file"])
    elif row["topic"] is not None:
        parts.append(f"{row['topic']}/{row['queue_id']}")
    elif row["target"] == "index":
        parts.append("index")
    if row["queue_offset"] is not None:
        parts.append(f"queue offset {row['queue_offset']:,}")
    if row["position"]:
        parts.append(f"position {row['position']:,}")
    if row["commit_log_offset"] is not None:
        parts.append(f"commit log offset {row['commit_log_offset']:,}")
    if row["count"] is not None:
        noun = "entry" if row["target"] == "index" else "message"
        if row["action"] in ("check", "revive"):
            noun = "record"
        elif row["target"] == "queue" and row["action"] in ("truncate", "add"):
            noun = "unit"
        parts.append(counted(row["count"], noun, "entries" if noun == "entry" else ""))
    if row["bytes"]:
        parts.append(size_text(row["bytes"]))
    text = ", ".join(parts)
    reason = row["reason"]
    return text if reason is None else f"{text}: {reason}" if text else reason


def recovery_fields(recovery: Recovery) -> dict[str, Any]:
    """The fields; `rows` has an object for each row, in order, with all columns."""
    boot = recovery.boot
    return {
        "store": recovery.store,
        "broker_version": str(recovery.release),
        "rules": str(recovery.release),
        "verdict": " ".join(verdict(recovery)),
        "is_harmless": recovery.is_harmless,
        "is_clean": recovery.last_stop.is_clean,
        "is_running": recovery.last_stop.is_running,
        "obstacles": list(recovery.obstacles),
        "recovers_from": None if boot is None else boot.recovers_from,
        "checked_records": recovery.checked,
        "log_end": recovery.log_end,
        "live_end": recovery.live_end,
        "end_reason": recovery.end_reason,
        **{field: 0 if boot is None else getattr(boot, name) for name, field in _COUNTS_OF_BOOT.items()},
        "rows": recovery.rows.to_pylist(),
        "settings": [asdict(setting) for setting in recovery.settings],
    }
