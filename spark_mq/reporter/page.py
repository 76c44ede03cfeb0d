"""The HTML page of a report: one file that needs nothing else.

Jinja2 makes it: it escapes every text, and a store's names, keys and reasons are texts that anybody can have written. A
policy in the page lets no script run except the page's own, and nothing be fetched.

The figures of each report are kept in a file, a line of JSON for each store and run, and the page has their plot.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_mq._version import __version__
from spark_mq.errors import ConfigError
from spark_mq.format.amounts import counted, duration_text, size_text
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.reporter.figures import Figures
from spark_mq.reporter.plot import Plot, narrow, printable
from spark_mq.reporter.plots import over_time
from spark_mq.reporter.section import Column, Section
from spark_mq.reporter.sections import sections
from spark_mq.reporter.status import Status, status_of

_SUMMARY = (
    Column("verdict", "check"),
    Column("messages", "messages", "count"),
    Column("log_bytes", "log", "bytes"),
    Column("disk_bytes", "disk", "bytes"),
    Column("retained_millis", "oldest message", "millis"),
    Column("lag", "unread", "count"),
    Column("lag_millis", "oldest unread", "millis"),
    Column("overdue", "overdue", "count"),
    Column("pending", "open transactions", "count"),
    Column("dead_letters", "dead letters", "count"),
    Column("lost_at_boot", "next boot loses", "count"),
)
"""The figures that stores are compared by."""

HISTORY = "spark-mq-report.jsonl"
VERSION = 1
"""The version of a line. A line of a later one is an error: it can mean something else."""
_KEPT = {
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
_MOST_ROWS, _FEWEST_ROWS = 50, 3
_TWICE, _DRAWN = 5, 14
"""Of up to so many stores, plots are drawn for wide and for narrow screens; of up to so many, in one form for both."""


@dataclass(frozen=True)
class Drawn:
    """A plot of the page: its title, and its SVG for narrow screens, and for wide ones if that is another."""

    title: str
    wide: str
    narrow: str


@dataclass(frozen=True)
class StorePart:
    """What the page says of one store."""

    number: int
    figures: Figures
    status: Status
    sections: Sequence[tuple[Section, Sequence[Drawn]]]


def html_page(stores: Sequence[Figures], runs: Sequence[dict[str, Any]] = ()) -> str:
    """The page of some stores; `runs` are the figures of earlier reports."""
    count = len(stores)
    parts = [StorePart(number, one, status_of(one), _drawn(number, one, count)) for number, one in enumerate(stores)]
    environment = Environment(
        loader=PackageLoader("spark_mq.reporter", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": cell_text, "sort_key": _sort_key, "svg": Markup, "utc": _utc}
    script = Markup(environment.get_template("page.js").render())
    return environment.get_template("page.html").render(
        stores=parts,
        summary=_SUMMARY,
        history=[_plot(f"h{number}", draw, count) for number, draw in enumerate(_history(stores, runs))],
        history_file=HISTORY,
        style=Markup(environment.get_template("page.css").render()),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        counted=counted,
    )


def _drawn(number: int, figures: Figures, count: int) -> list[tuple[Section, Sequence[Drawn]]]:
    """The sections of one of `count` stores, and their plots: the more stores, the less of each, for a small page."""
    rows = min(_MOST_ROWS, max(_FEWEST_ROWS, 3 * _MOST_ROWS // count))
    return [
        (one, [_plot(f"s{number}-{one.name}-{place}", draw, count) for place, draw in enumerate(one.draws)])
        for one in sections(figures, rows)
    ]


def _plot(name: str, draw: Callable[[], Plot], count: int) -> Drawn:
    plot = draw()
    if count > _DRAWN:
        return Drawn(plot.title, "", "")
    wide = plot.svg(f"{name}w") if count <= _TWICE else ""
    with narrow():
        return Drawn(plot.title, wide, draw().svg(f"{name}n"))


def _history(stores: Sequence[Figures], runs: Sequence[dict[str, Any]]) -> Iterator[Callable[[], Plot]]:
    for figures in stores:
        mine = [run for run in runs if run["store"] == figures.store]
        if len(mine) > 1:
            yield partial(_history_plot, mine)


def add_to_history(folder: str, summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the figures of a run to the file in a folder; returns those of all runs, the oldest first.

    The file is written whole or not at all. Two reports must not write it at the same time. A line that is not one of a
    report, or is of a later version, is a `ConfigError`.
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


def _history_plot(runs: Sequence[dict[str, Any]]) -> Plot:
    """The figures of one store over time; `runs` are at least one, the oldest first."""
    columns: dict[str, list[Any]] = {name: [run.get(name) for run in runs] for name in _KEPT}
    frame = pd.DataFrame(columns).apply(pd.to_numeric, errors="coerce")
    frame["time"] = pd.to_datetime([run["at"] for run in runs], unit="ms", utc=True)
    texts = {"disk_bytes": size_text, "retained_millis": duration_text, "lag_millis": duration_text}
    return over_time(frame, _KEPT, texts)


def _visible(value: Any) -> Any:
    """What a template prints of a value: no character that cannot be seen."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def cell_text(value: Any, kind: str) -> str:
    """A value of a table as text with its unit; `-` if it is not known."""
    if value is None:
        return "-"
    if kind == "count":
        return f"{value:,}"
    if kind == "bytes":
        return size_text(value)
    if kind == "millis":
        return duration_text(value)
    return _utc(value) if isinstance(value, datetime) else str(value)


def _utc(moment: datetime) -> str:
    return f"{moment.year:04}-{moment:%m-%d %H:%M:%S} UTC"


def _sort_key(value: Any) -> str:
    """The text by which a script sorts: a number, if it is one."""
    return "" if value is None else str(value.timestamp() if isinstance(value, datetime) else value)
