"""The HTML page of a report: one file that needs nothing else.

Jinja2 makes it: it escapes every text, and a store's names, keys and reasons are texts that anybody can have written. A
policy in the page lets no script run except the page's own, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_mq.format.amounts import counted, duration_text, size_text
from spark_mq.reporter import plots
from spark_mq.reporter.figures import StoreFigures
from spark_mq.reporter.history import HISTORY, history_plot
from spark_mq.reporter.plots import Plot, printable
from spark_mq.reporter.sections import Column, Section, sections
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


@dataclass(frozen=True)
class Drawn:
    """A plot of the page: its title, and its SVG for wide and for narrow screens."""

    title: str
    wide: str
    narrow: str


@dataclass(frozen=True)
class StorePart:
    """What the page says of one store."""

    number: int
    figures: StoreFigures
    status: Status
    sections: Sequence[tuple[Section, Sequence[Drawn]]]


def html_page(stores: Sequence[StoreFigures], runs: Sequence[dict[str, Any]] = (), version: str = "") -> str:
    """The page of some stores; `runs` are the figures of earlier reports."""
    parts = [
        StorePart(number, figures, status_of(figures), _drawn(number, figures)) for number, figures in enumerate(stores)
    ]
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
        history=[_twice(f"h{number}", plot) for number, plot in enumerate(_history(stores, runs))],
        history_file=HISTORY,
        style=Markup(environment.get_template("page.css").render()),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=version,
        counted=counted,
    )


def _drawn(number: int, figures: StoreFigures) -> list[tuple[Section, Sequence[Drawn]]]:
    return [
        (one, [_twice(f"s{number}-{one.name}-{place}", draw) for place, draw in enumerate(one.draws)])
        for one in sections(figures)
    ]


def _twice(name: str, draw: Any) -> Drawn:
    wide: Plot = draw()
    with plots.narrow():
        return Drawn(wide.title, wide.svg(f"{name}w"), draw().svg(f"{name}n"))


def _history(stores: Sequence[StoreFigures], runs: Sequence[dict[str, Any]]) -> Iterator[Any]:
    for figures in stores:
        mine = [run for run in runs if run["store"] == figures.store]
        if len(mine) > 1:
            yield lambda mine=mine: history_plot(mine)


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
