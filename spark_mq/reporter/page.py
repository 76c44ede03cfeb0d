"""The HTML page of a report: one file that needs nothing else.

Jinja2 makes it: it escapes every text, and a store's names, keys and reasons are texts that anybody can have written. A
policy in the page lets no script run except the page's own, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_mq.format.amounts import counted, duration_text, size_text
from spark_mq.reporter.figures import Figures
from spark_mq.reporter.history import HISTORY, history_plot
from spark_mq.reporter.plot import Plot, narrow, printable
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


def html_page(stores: Sequence[Figures], runs: Sequence[dict[str, Any]] = (), version: str = "") -> str:
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
        version=version,
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
            yield partial(history_plot, mine)


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
