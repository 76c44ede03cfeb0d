"""The figures of each report in a file, a line of JSON for each store and run, and their plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from spark_mq.errors import ConfigError
from spark_mq.format.amounts import duration_text, size_text
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.reporter.plot import Plot
from spark_mq.reporter.plots import over_time

HISTORY = "spark-mq-report.jsonl"
VERSION = 1
"""The version of a line. A line of a later one is an error: it can mean something else."""
_NAMES = {
    "messages": "messages in the log",
    "disk_bytes": "bytes of the store",
    "retained_millis": "age of the oldest message",
    "lag": "unread messages of all groups",
    "lag_millis": "age of the oldest unread message",
    "overdue": "overdue delayed messages",
    "pending": "open transactions",
    "dead_letters": "dead letters",
    "errors": "errors of the check",
}


def add_to_history(folder: str, summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the figures of a run to the file in a folder; returns those of all runs, the oldest first.

    The file is written whole or not at all. Two reports must not write it at the same time.

    Raises:
        ConfigError: A line of the file is not one of a report, or is of a later version.
        StorageError: The file cannot be written.
    """
    file = Location.resolve(folder) / HISTORY
    lines = file.read_bytes().decode("utf-8", "replace").splitlines() if file.is_file else []
    runs = [_run(file, number, line) for number, line in enumerate(lines, 1)]
    new = [{"version": VERSION, **summary} for summary in summaries]
    publish(file, "".join(f"{line}\n" for line in [*lines, *map(json.dumps, new)]).encode())
    return sorted([*runs, *new], key=lambda run: int(run["at"]))


def _run(file: Location, number: int, line: str) -> dict[str, Any]:
    try:
        run = json.loads(line)
        version, _, _ = run["version"], run["store"], int(run["at"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}, line {number} is not a line of a report: repair or remove it") from error
    if version != VERSION:
        raise ConfigError(
            f"{file}, line {number} is of version {version!r}, and this spark-mq reads {VERSION}: update it"
        )
    found: dict[str, Any] = run
    return found


def history_plot(runs: Sequence[dict[str, Any]]) -> Plot:
    """The figures of one store over time; `runs` are at least one, the oldest first."""
    columns: dict[str, list[Any]] = {name: [run.get(name) for run in runs] for name in _NAMES}
    frame = pd.DataFrame(columns).apply(pd.to_numeric, errors="coerce")
    frame["time"] = pd.to_datetime([run["at"] for run in runs], unit="ms", utc=True)
    texts = {"disk_bytes": size_text, "retained_millis": duration_text, "lag_millis": duration_text}
    return over_time(frame, _NAMES, texts)
