"""`spark-mq recover`: what a broker does at its next start, as lines of text or as one JSON object."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.format.amounts import counted, size_text
from spark_mq.store.boot import Boot
from spark_mq.store.boot_conditions import one_boot_group
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.store.store_state import StoreState, store_state
from spark_mq.store.verdict import remedies, setting_line, verdict

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
    version = vars(arguments)["as"]
    one_boot_group(version)
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    state = store_state(arguments.store, version, conf, full=True, with_forced=False)
    print_answer(arguments.json, lambda: recovery_fields(state), lambda: recovery_lines(state))
    return FOUND


def recovery_lines(state: StoreState) -> list[str]:
    """The lines; a line of a section begins with two spaces, and the name of its row."""
    (boot,) = state.boots
    sections = [
        recovery_verdict(state),
        [f"a start of {boot.rules}", *_rows(boot)],
        ["assumed", *(setting_line(setting, _WIDTH + 2) for setting in _settings(state))],
        ["what to do", *(f"  - {remedy}" for remedy in remedies(state))],
    ]
    shown = [section for section in sections if len(section) > 1 or section[0][-1:] == "."]
    return [line for section in shown for line in (*section, "")][:-1]


def _settings(state: StoreState) -> list[FileSetting]:
    """The settings that are assumed; the version is that of this command's option."""
    return [replace(one, source="--as") if one.source == "--broker-version" else one for one in state.settings]


def recovery_verdict(state: StoreState) -> list[str]:
    """The answer of `state`, and where the check of the log ends."""
    (boot,) = state.boots
    if boot.log_end is None:
        return verdict(state)
    end = f"commit log offset {boot.log_end:,} ({boot.end_reason})"
    return [*verdict(state), f"It checks {counted(boot.checked or 0, 'record')}, and ends the log at {end}."]


def _rows(boot: Boot) -> Iterator[str]:
    """A line for each row; of many rows of one kind, the first ones and the number of the others."""
    seen: Counter[tuple[str, str]] = Counter()
    rows = boot.rows.to_pylist()
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


def recovery_fields(state: StoreState) -> dict[str, Any]:
    """The fields; `rows` has an object for each row, in order, with all columns."""
    (boot,) = state.boots
    return {
        "store": state.store,
        "broker_version": str(boot.rules),
        "rules": str(boot.rules),
        "verdict": " ".join(recovery_verdict(state)),
        "is_harmless": boot.is_harmless,
        "is_clean": state.last_stop.is_clean,
        "is_running": state.last_stop.is_running,
        "obstacles": list(boot.obstacles),
        "recovers_from": boot.recovers_from,
        "checked_records": boot.checked,
        "log_end": boot.log_end,
        "live_end": state.log.end,
        "end_reason": boot.end_reason,
        **{field: getattr(boot, name) for name, field in _COUNTS_OF_BOOT.items()},
        "rows": boot.rows.to_pylist(),
        "settings": [asdict(setting) for setting in _settings(state)],
    }
