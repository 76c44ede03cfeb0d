"""The notebooks' plots. Each title says what the plot shows, and is computed from the same numbers.

Every function returns a `Plot`. A cell that ends with it shows it.
"""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import matplotlib
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, DateFormatter, num2date
from matplotlib.figure import Figure
from PIL import Image

COLOUR, SECOND_COLOUR, GREY, DARK = "#1f6fb2", "#e08214", "#b8b8b8", "#404040"
FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei")
FONTS += ("Microsoft YaHei", "PingFang SC", "Hiragino Sans GB", "Arial Unicode MS", "SimHei", "Droid Sans Fallback")
"""Fonts with Chinese characters, the best first. matplotlib's own font has none."""


def _chinese_fonts() -> list[str]:
    """The best of `FONTS` that is installed; empty if none is."""
    if not {*FONTS} & {*font_manager.get_font_names()}:
        # matplotlib keeps a list of fonts from its first run. It lacks fonts that were installed since.
        known = {font.fname for font in font_manager.fontManager.ttflist}
        for file in {*font_manager.findSystemFonts()} - known:
            with suppress(OSError, RuntimeError):  # some kinds of font files cannot be read
                font_manager.fontManager.addfont(file)
    installed = font_manager.get_font_names()
    return [font for font in FONTS if font in installed][:1]


_STYLE = {
    # Only the fonts of this list are tried one after the other; of the list "font.sans-serif" only the first is used.
    "font.family": ["DejaVu Sans", *_chinese_fonts()],
    "text.parse_math": False,  # a name can contain `$`, and is not a formula
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
}
matplotlib.rcParams.update(_STYLE)
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # that a font has no bold letters is fine
_WIDTH = 9.0
_LONGEST_LABEL = 30
_STEPS = ("1s", "10s", "1min", "10min", "1h", "6h", "1D", "7D", "30D")
_NAMES = ("second", "10 seconds", "minute", "10 minutes", "hour", "6 hours", "day", "7 days", "30 days")
_MOST_STEPS = 120
_TIME_FORMS = (("2s", "%H:%M:%S.%f"), ("10min", "%H:%M:%S"), ("36h", "%H:%M"), ("10D", "%m-%d %H:%M"))
_DURATIONS = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))
_TICKS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)
_SHORTEST = 0.5
"""The milliseconds at which a logarithmic axis shows 0."""


@dataclass(frozen=True)
class Plot:
    """A figure and its title, which is also its text for readers who do not see it."""

    title: str
    figure: Figure

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {"image/png": self.png(), "text/plain": self.title}
        return data, {"image/png": {"alt": self.title}}

    def png(self) -> bytes:
        """The figure as a PNG file. If no font has a character of it, a line below says what to install."""
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            png = _png(self.figure)
        if any("missing from font" in str(one.message) for one in raised):
            note = "The boxes are characters that no font here has. On Debian, install fonts-noto-cjk."
            self.figure.supxlabel(note, fontsize=8, color=DARK)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                png = _png(self.figure)
        return png


def share(values: pd.Series[Any], what: str, label: str, verb: str = "has", top: int = 8) -> Plot:
    """The largest values as bars with their shares, and all others as one grey bar.

    Args:
        values: The numbers, by name.
        what: What the numbers count, such as `messages`.
        label: What the names are, such as `topic`.
        verb: What a name does with its share, for the title.
        top: The number of values that get a bar of their own.

    """
    ordered = values[values > 0].sort_values(ascending=False, kind="stable")
    named, rest, total = ordered.iloc[:top], ordered.iloc[top:], ordered.sum()
    if named.empty:
        return _nothing(f"There are no {what}")
    names, sizes = [_short(name) for name in named.index], [*named]
    colours = [COLOUR] * len(names)
    if len(rest):
        names.append(f"{len(rest)} others")
        sizes.append(rest.sum())
        colours.append(GREY)
    title = f"{names[0]} {verb} {_percent(sizes[0], total)} of all {what}"
    figure, axes = _figure(title, 0.9 + 0.32 * len(names))
    bars = axes.barh(range(len(names)), sizes, color=colours)
    axes.bar_label(bars, [f"{size:,.0f} ({_percent(size, total)})" for size in sizes], padding=4, color=DARK)
    _name_rows(axes, names)
    axes.set(xlabel=what, ylabel=label, xlim=(0, max(sizes) * 1.18))
    _whole_numbers(axes.xaxis)
    return Plot(title, figure)


def time_step(first: pd.Timestamp, last: pd.Timestamp) -> tuple[pd.Timedelta, str]:
    """The shortest usual step, and its name, with which a plot from `first` to `last` has at most 120 steps."""
    steps = [pd.Timedelta(step) for step in _STEPS]
    number = next((n for n, step in enumerate(steps) if (last - first) / step <= _MOST_STEPS), len(steps) - 1)
    return steps[number], _NAMES[number]


def heat_map(counts: pd.DataFrame, step: pd.Timedelta, step_name: str, top: int = 10) -> Plot:
    """Messages by topic and time: the darker, the more.

    Args:
        counts: Columns `time` (UTC, the start of a step), `topic` and `messages`.
        step: The length of a step.
        step_name: Its name.
        top: The number of topics that get a row of their own.

    """
    if counts.empty:
        return _nothing("There are no messages")
    by_topic = counts.groupby("topic")["messages"].sum().sort_values(ascending=False, kind="stable")
    named = by_topic.index[:top]
    others = f"{len(by_topic) - top} others"
    row = counts["topic"].where(counts["topic"].isin(named), others)
    table = counts.assign(row=row).pivot_table(index="row", columns="time", values="messages", aggfunc="sum")
    rows = [*named, *([others] if len(by_topic) > top else [])]
    times = pd.date_range(table.columns.min(), table.columns.max() + step, freq=step)
    table = table.reindex(index=rows, columns=times[:-1])

    by_time = table.sum()
    busiest, most = by_time.idxmax(), by_time.max()
    moment = f"{busiest:%Y-%m-%d %H:%M:%S} UTC" if step < pd.Timedelta("1D") else f"from {busiest:%Y-%m-%d}"
    title = f"Busiest {step_name}: {moment}, with {_percent(most, by_time.sum())} of all messages"
    figure, axes = _figure(title, 1.4 + 0.3 * len(rows))
    norm = LogNorm(1, max(2, table.max().max()))
    edges = [number - 0.5 for number in range(len(rows) + 1)]
    mesh = axes.pcolormesh(times, edges, table.to_numpy(dtype=float), norm=norm, cmap="YlGnBu", linewidth=0)
    bar = figure.colorbar(mesh, ax=axes, label=f"messages per {step_name}", pad=0.02)
    _whole_numbers(bar.ax.yaxis)
    bar.ax.minorticks_off()
    _name_rows(axes, [_short(name) for name in rows])
    _time_axis(axes, times[0], times[-1])
    axes.set(ylabel="topic")
    return Plot(title, figure)


def sizes(bars: pd.DataFrame, median: float, largest: float) -> Plot:
    """How many messages have which size; both axes are logarithmic.

    Args:
        bars: Columns `left` and `right` (bytes) and `messages`.
        median: Half of the messages are not larger (bytes).
        largest: The size of the largest message (bytes).

    """
    title = f"Half of the messages have at most {median:,.0f} bytes; the largest has {largest:,.0f}"
    figure, axes = _figure(title, 3.2)
    width = bars["right"] - bars["left"]
    axes.bar(bars["left"], bars["messages"], width=width, align="edge", color=COLOUR, edgecolor="white")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _whole_numbers(axes.xaxis)
    _whole_numbers(axes.yaxis)
    axes.axvline(median, color=SECOND_COLOUR)
    axes.annotate(" median", (median, 1), xycoords=("data", "axes fraction"), va="top", ha="left", color=SECOND_COLOUR)
    axes.set(xlabel="size in the log (bytes, each step doubles)", ylabel="messages", ylim=(0.5, None))
    return Plot(title, figure)


def delays(ranges: pd.DataFrame, within: float, top: int = 12) -> Plot:
    """By topic, the usual delay from a message's birth at its producer to its storing, and that of the slowest 1 %.

    Args:
        ranges: Columns `topic`, `messages`, `median` and `slow` (milliseconds; 99 % of the messages have at most this).
        within: Half of all messages are stored within this time (milliseconds).
        top: The number of topics, those with the longest delays.

    """
    if ranges.empty:
        return _nothing("There are no messages")
    shown = ranges.sort_values(["slow", "median"], ascending=False, kind="stable").iloc[:top]
    slowest = shown.iloc[0]
    title = (
        f"Half of all messages are stored within {_duration(max(within, 1))}; "
        f"{_short(slowest['topic'])} takes up to {_duration(slowest['slow'])}"
    )
    figure, axes = _figure(title, 1.2 + 0.3 * len(shown))
    rows = range(len(shown))
    median, slow = (shown[column].clip(lower=_SHORTEST) for column in ("median", "slow"))
    axes.hlines(rows, median, slow, color=GREY, linewidth=3, zorder=1)
    axes.scatter(median, rows, color=COLOUR, zorder=3, label="half of the messages")
    axes.scatter(slow, rows, color=SECOND_COLOUR, s=60, zorder=2, label="99 % of the messages")
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [_duration(tick) for tick in _TICKS])
    axes.set_xticks([], minor=True)
    axes.set_xlim(_SHORTEST * 0.7, max(10.0, slow.max() * 8))
    for number, (middle, end) in enumerate(zip(shown["median"], shown["slow"], strict=True)):
        texts = dict.fromkeys([_duration(middle), _duration(end)])
        place = (max(end, _SHORTEST), number)
        axes.annotate(" to ".join(texts), place, (9, 0), textcoords="offset points", va="center", color=DARK)
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    more = f" (the slowest {top} of {len(ranges)})" if len(ranges) > top else ""
    _name_rows(axes, [_short(name) for name in shown["topic"]])
    axes.set(xlabel="time from the producer to the store (logarithmic)", ylabel=f"topic{more}")
    return Plot(title, figure)


def lag(groups: pd.DataFrame, top: int = 10) -> Plot:
    """By consumer group, the messages that it has not read, and how old the log is that it reads.

    Args:
        groups: Columns `consumer_group`, `lag` (messages) and `seconds` (from the last message that the group has read
            to the newest message of the queue).
        top: The number of groups, those with the largest lags.

    """
    behind = groups[groups["lag"] > 0].sort_values("lag", ascending=False, kind="stable")
    done = len(groups) - len(behind)
    if groups.empty:
        return _nothing("No consumer group has offsets in this store")
    if behind.empty:
        title = "No lag: every consumer group has read everything"
    else:
        first = behind.iloc[0]
        rest = f"; no lag: {done} of {len(groups)} groups" if done else ""
        title = f"{_short(first['consumer_group'])} has not read {first['lag']:,.0f} messages{rest}"
    shown = groups.sort_values("lag", ascending=False, kind="stable").iloc[:top]
    figure, axes = _figure(title, 1.0 + 0.36 * len(shown))
    bars = axes.barh(range(len(shown)), shown["lag"], color=COLOUR, height=0.6)
    axes.bar_label(bars, [_lag_text(row) for _, row in shown.iterrows()], padding=4, color=DARK)
    _name_rows(axes, [_short(name) for name in shown["consumer_group"]])
    axes.set(xlabel="lag (messages)", ylabel="consumer group", xlim=(0, max(1, shown["lag"].max()) * 1.5))
    _whole_numbers(axes.xaxis)
    return Plot(title, figure)


def sources(counts: pd.DataFrame, step: pd.Timedelta, step_name: str) -> Plot:
    """Messages over time, by the side that they are read from.

    Args:
        counts: Columns `time` (UTC, the start of a step), `side` and `messages`.
        step: The length of a step.
        step_name: Its name.

    """
    if counts.empty:
        return _nothing("There are no messages")
    by_side = counts.groupby("side")["messages"].sum().sort_values(ascending=False)
    title = f"{_percent(by_side.iloc[0], by_side.sum())} of all messages come from the {by_side.index[0]}"
    figure, axes = _figure(title, 3.4)
    table = counts.pivot_table(index="time", columns="side", values="messages", aggfunc="sum", fill_value=0)
    below = pd.Series(0, index=table.index)
    for side, colour in zip(sorted(table), (COLOUR, SECOND_COLOUR), strict=False):
        label = f"{side}: {by_side[side]:,} messages"
        axes.bar(table.index, table[side], width=step, bottom=below, align="edge", color=colour, label=label)
        below = below + table[side]
    axes.legend(frameon=False, loc="upper left")
    _time_axis(axes, table.index.min(), table.index.max() + step)
    _whole_numbers(axes.yaxis)
    axes.set(ylabel=f"messages per {step_name}")
    return Plot(title, figure)


def way(places: pd.DataFrame) -> Plot:
    """The places at which one message was stored, in the order of time.

    Args:
        places: Columns `topic` and `store_timestamp` (UTC), ordered by time.

    """
    if places.empty:
        return _nothing("The log has no such message")
    times = places["store_timestamp"]
    taken = (times.iloc[-1] - times.iloc[0]) / pd.Timedelta("1ms")
    last = _short(places["topic"].iloc[-1])
    title = f"Stored once, in {last}"
    if len(places) > 1:
        title = f"Stored {len(places)} times in {_duration(taken)}; since then it is in {last}"
    topics = [*dict.fromkeys(places["topic"])]
    rows = [topics.index(topic) for topic in places["topic"]]
    figure, axes = _figure(title, 1.3 + 0.5 * len(topics))
    axes.plot(times, rows, drawstyle="steps-post", color=GREY, linewidth=2, zorder=1)
    axes.scatter(times.iloc[:-1], rows[:-1], color=COLOUR, s=60, zorder=2)
    axes.scatter(times.iloc[-1:], rows[-1:], color=SECOND_COLOUR, s=110, zorder=3)
    _name_rows(axes, [_short(topic) for topic in topics])
    space = max((times.iloc[-1] - times.iloc[0]) * 0.05, pd.Timedelta("10ms"))
    _time_axis(axes, times.iloc[0] - space, times.iloc[-1] + space)
    axes.set_ylim(len(topics) - 0.5, -0.5)
    axes.set(ylabel="topic")
    return Plot(title, figure)


def comparison(files: pd.DataFrame) -> Plot:
    """Files that are the same, and files that are not.

    Args:
        files: By kind of files, columns `the same`, `different`, `only the broker's` and `only made`.

    """
    total, same = int(files.to_numpy().sum()), int(files["the same"].sum())
    number = f"All {total:,}" if same == total else f"{same:,} of {total:,}"
    title = f"{number} files are the same, byte for byte"
    figure, axes = _figure(title, 1.2 + 0.4 * len(files))
    left = pd.Series(0, index=files.index)
    for column, colour in zip(files, (COLOUR, SECOND_COLOUR, GREY, DARK), strict=True):
        if files[column].any():
            bars = axes.barh(range(len(files)), files[column], left=left, color=colour, label=column)
            texts = [f"{number:,} {column}" if number else "" for number in files[column]]
            if column == "the same":
                axes.bar_label(bars, texts, label_type="center", color="white")
        left = left + files[column]
    if same < total:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    _name_rows(axes, [*files.index])
    _whole_numbers(axes.xaxis)
    axes.set(xlabel="files")
    return Plot(title, figure)


def _figure(title: str, height: float) -> tuple[Figure, Axes]:
    """A figure with axes."""
    figure = Figure(figsize=(_WIDTH, max(2.0, height)), layout="constrained")
    axes = figure.subplots()
    figure.suptitle("\n".join(textwrap.wrap(title, 84)), x=0.01, horizontalalignment="left")
    return figure, axes


def _nothing(title: str) -> Plot:
    figure, axes = _figure(title, 1.0)
    axes.set_axis_off()
    return Plot(title, figure)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    small = io.BytesIO()  # 128 colours are enough, and need a third of the bytes
    Image.open(file).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Give the rows their names, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _time_axis(axes: Axes, first: pd.Timestamp, last: pd.Timestamp) -> None:
    span = last - first
    form = next((form for longest, form in _TIME_FORMS if span < pd.Timedelta(longest)), "%Y-%m-%d")
    axes.xaxis.set_major_locator(AutoDateLocator(tz="UTC", maxticks=8))
    axes.xaxis.set_major_formatter(DateFormatter(form, tz="UTC"))
    if form.endswith("%f"):
        axes.xaxis.set_major_formatter(lambda number, _: f"{num2date(number):{form}}"[:-3])
    axes.set_xlim(first, last)
    axes.set_xlabel(f"store time (UTC), {_days(first, last)}")


def _days(first: pd.Timestamp, last: pd.Timestamp) -> str:
    days = [f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"]
    return days[0] if days[0] == days[1] else " to ".join(days)


def _whole_numbers(axis: Any) -> None:
    axis.set_major_formatter("{x:,.0f}")
    if axis.get_scale() == "linear":
        axis.get_major_locator().set_params(integer=True)


def _lag_text(group: pd.Series[Any]) -> str:
    if not group["lag"] > 0:
        return "0"
    seconds = group["seconds"]
    return f"{group['lag']:,.0f}" + ("" if pd.isna(seconds) else f" (the last {_duration(seconds * 1000)} of the log)")


def _duration(millis: float) -> str:
    """A time for people: `3 ms`, `4.9 s`, `22 s`."""
    size, unit = next((one for one in _DURATIONS if millis >= one[0]), _DURATIONS[-1])
    digits = 1 if millis / size < 10 and millis % size else 0
    return f"{millis / size:.{digits}f} {unit}"


def _percent(part: float, total: float) -> str:
    """A share; a small one is `less than 1 %`, and only all is `100 %`."""
    percent = 100 * part / total
    if 0 < percent < 1:
        return "less than 1 %"
    return f"{min(percent, 99) if part < total else 100:.0f} %"


def _short(name: object) -> str:
    """A name of at most 30 characters, all of which can be seen: its middle is left out."""
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in str(name)) or "(empty)"
    if len(text) <= _LONGEST_LABEL:
        return text
    return f"{text[: _LONGEST_LABEL - 12]}…{text[-11:]}"
