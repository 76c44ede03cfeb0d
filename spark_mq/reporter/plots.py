"""Plots of a store, for its page and for notebooks. Each title says what the plot shows, computed from its numbers.

Every function returns a `Plot`. A notebook's cell that ends with it shows it; a page gets it as SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgb
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from spark_mq.format.amounts import size_text
from spark_mq.reporter.plot import (
    COLOUR,
    DARK,
    GREY,
    RED,
    SECOND_COLOUR,
    Plot,
    duration,
    figure_width,
    is_wide,
    name_rows,
    new_figure,
    nothing,
    percent,
    short,
    time_axis,
    whole_numbers,
)

_SHADES = LinearSegmentedColormap.from_list("shades", [(*to_rgb(COLOUR), alpha) for alpha in (0.12, 1.0)])
"""The more, the less transparent: this can be read on a light and on a dark ground."""
_STEPS = ("1s", "10s", "1min", "10min", "1h", "6h", "1D", "7D", "30D")
_NAMES = ("second", "10 seconds", "minute", "10 minutes", "hour", "6 hours", "day", "7 days", "30 days")
_MOST_STEPS = 120
_TICKS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 864_000_000)
_FEW_TICKS = (1, 1000, 60_000, 3_600_000, 86_400_000)
_ROWS = 12
"""The groups or topics of which a plot shows those with the largest values."""
_SHORTEST = 0.5
"""The milliseconds at which a logarithmic axis shows 0."""


def share(
    values: pd.Series[Any],
    what: str,
    label: str,
    verb: str = "has",
    top: int = 8,
    as_text: Callable[[int], str] = "{:,.0f}".format,
    absent: str = "",
) -> Plot:
    """The largest values as bars with their shares, and all others as one grey bar.

    `what` is counted, such as `messages`; `label` says what the names are, `verb` what a name does with its share. The
    name `absent`, such as `(no tag)`, stands for having none: its bar is grey.
    """
    ordered = values[values > 0].sort_values(ascending=False, kind="stable")
    named, rest, total = ordered.iloc[:top], ordered.iloc[top:], ordered.sum()
    if named.empty:
        return nothing(f"There are no {what}")
    names, sizes = [short(name) for name in named.index], [*named]
    colours = [GREY if name == absent else COLOUR for name in named.index]
    if len(rest):
        names.append(f"{len(rest)} others")
        sizes.append(rest.sum())
        colours.append(GREY)
    title = f"{names[0]} {verb} {percent(sizes[0], total)} of all {what}"
    if named.index[0] == absent:
        title = f"{percent(sizes[0], total)} of all {what} have no {label}"
    figure, axes = new_figure(title, 0.9 + 0.32 * len(names))
    bars = axes.barh(range(len(names)), sizes, color=colours)
    axes.bar_label(bars, [f"{as_text(int(size))} ({percent(size, total)})" for size in sizes], padding=4, color=DARK)
    name_rows(axes, names)
    axes.set(xlabel=what, ylabel=label, xlim=(0, max(sizes) * (1.18 if is_wide() else 1.7)))
    whole_numbers(axes.xaxis)
    if as_text is size_text:
        axes.set_xticks([])
    return Plot(title, figure)


def time_step(first: pd.Timestamp, last: pd.Timestamp) -> tuple[pd.Timedelta, str]:
    """The shortest usual step, and its name, with which a plot from `first` to `last` has at most 120 steps."""
    steps = [pd.Timedelta(step) for step in _STEPS]
    number = next((n for n, step in enumerate(steps) if (last - first) / step <= _MOST_STEPS), len(steps) - 1)
    return steps[number], _NAMES[number]


def heat_map(counts: pd.DataFrame, step: pd.Timedelta, step_name: str, top: int = 10) -> Plot:
    """Messages by topic and time: the darker, the more.

    `counts` has the columns `time` (UTC, the start of a step), `topic` and `messages`; `top` topics get a row.
    """
    if counts.empty:
        return nothing("There are no messages")
    by_topic = counts.groupby("topic")["messages"].sum().sort_values(ascending=False, kind="stable")
    named = by_topic.index[:top]
    others = f"{len(by_topic) - top} others"
    row = counts["topic"].where(counts["topic"].isin(named), others)
    table = counts.assign(row=row).pivot_table(index="row", columns="time", values="messages", aggfunc="sum")
    rows = [*named, *([others] if len(by_topic) > top else [])]
    first, last = counts["time"].min(), counts["time"].max()
    times = pd.date_range(first, last + step, freq=step)
    table = table.reindex(index=rows, columns=times[:-1])

    by_time = table.sum()
    busiest, most = by_time.idxmax(), by_time.max()
    moment = f"{busiest:%Y-%m-%d %H:%M:%S} UTC" if step < pd.Timedelta("1D") else f"from {busiest:%Y-%m-%d}"
    title = f"Busiest {step_name}: {moment}, with {percent(most, by_time.sum())} of all messages"
    figure, axes = new_figure(title, 1.4 + 0.3 * len(rows))
    norm = LogNorm(1, max(2, table.max().max()))
    edges = [number - 0.5 for number in range(len(rows) + 1)]
    mesh = axes.pcolormesh(
        times, edges, table.to_numpy(dtype=float), norm=norm, cmap=_SHADES, linewidth=0, rasterized=True
    )
    bar = figure.colorbar(mesh, ax=axes, label=f"messages per {step_name}", pad=0.02)
    whole_numbers(bar.ax.yaxis)
    bar.ax.minorticks_off()
    name_rows(axes, [short(name) for name in rows])
    time_axis(axes, times[0], times[-1])
    axes.set(ylabel="topic")
    return Plot(title, figure)


def sizes(bars: pd.DataFrame, median: float, largest: float) -> Plot:
    """How many messages have which size; both axes are logarithmic.

    `bars` has the columns `left` and `right` (bytes, as are `median` and `largest`) and `messages`.
    """
    title = f"Half of the messages have at most {median:,.0f} bytes; the largest has {largest:,.0f}"
    figure, axes = new_figure(title, 3.2)
    width = bars["right"] - bars["left"]
    axes.bar(bars["left"], bars["messages"], width=width, align="edge", color=COLOUR, edgecolor="white")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    axes.axvline(median, color=SECOND_COLOUR)
    axes.annotate(
        " median", (median, 1), xycoords=("data", "axes fraction"), va="bottom", ha="left", color=SECOND_COLOUR
    )
    axes.set(xlabel="size in the log (bytes)", ylabel="messages", ylim=(0.5, None))
    return Plot(title, figure)


def delays(ranges: pd.DataFrame, within: float, top: int = 12) -> Plot:
    """By topic, the usual delay from a message's birth at its producer to its storing, and that of the slowest 1 %.

    `ranges` has the columns `topic`, `messages`, `median` and `slow`: 99 % of the messages have at most this. Half of
    all messages are stored `within` this time. Times are in milliseconds.
    """
    if ranges.empty:
        return nothing("There are no messages")
    shown = ranges.sort_values(["slow", "median"], ascending=False, kind="stable").iloc[:top]
    slowest = shown.iloc[0]
    title = (
        f"Half of all messages are stored within {duration(max(within, 1))}; "
        f"99 % of those of {short(slowest['topic'])} within {duration(slowest['slow'])}"
    )
    figure, axes = new_figure(title, 1.2 + 0.3 * len(shown))
    rows = range(len(shown))
    median, slow = (shown[column].clip(lower=_SHORTEST) for column in ("median", "slow"))
    axes.hlines(rows, median, slow, color=GREY, linewidth=3, zorder=1)
    axes.scatter(median, rows, color=COLOUR, zorder=3, label="half of the messages")
    axes.scatter(slow, rows, color=SECOND_COLOUR, s=60, zorder=2, label="99 % of the messages")
    axes.set_xscale("log")
    ticks = _TICKS if is_wide() else _FEW_TICKS
    axes.set_xticks(ticks, [duration(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(_SHORTEST * 0.7, max(10.0, slow.max() * (8 if is_wide() else 100)))
    for number, (middle, end) in enumerate(zip(shown["median"], shown["slow"], strict=True)):
        texts = dict.fromkeys([duration(middle), duration(end)])
        place = (max(end, _SHORTEST), number)
        axes.annotate(" to ".join(texts), place, (9, 0), textcoords="offset points", va="center", color=DARK)
    axes.legend(frameon=False, ncols=2 if is_wide() else 1, loc="lower left", bbox_to_anchor=(0, 1))
    more = f" (the slowest {top} of {len(ranges)})" if len(ranges) > top else ""
    name_rows(axes, [short(name) for name in shown["topic"]])
    axes.set(xlabel="time from the producer to the store (logarithmic)", ylabel=f"topic{more}")
    return Plot(title, figure)


def lag_time(groups: pd.DataFrame) -> Plot:
    """By consumer group, how long its oldest unread message has waited.

    `groups` has the columns `consumer_group`, `topic`, `lag` (messages; NaN if it is not known) and `lag_millis`.
    """
    waiting = groups[groups["lag"] > 0].sort_values(["lag_millis", "lag"], ascending=False, kind="stable")
    if groups.empty:
        return nothing("No consumer group has offsets in this store")
    if waiting.empty:
        return nothing("No group is known to have an unread message")
    first, shown = waiting.iloc[0], waiting.iloc[:_ROWS]
    title = (
        f"{short(first['consumer_group'])} lags most: its oldest unread message is {duration(first['lag_millis'])} old"
    )
    figure, axes = new_figure(title, 1.2 + 0.42 * len(shown))
    times = shown["lag_millis"].fillna(_SHORTEST).clip(lower=_SHORTEST * 2)
    bars = axes.barh(range(len(shown)), times, color=COLOUR, height=0.6)
    texts = [
        f"{duration(millis)}, {lag:,.0f} unread" for millis, lag in zip(shown["lag_millis"], shown["lag"], strict=True)
    ]
    longest = times.max()
    axes.set_xscale("log")
    ticks = _FEW_TICKS if is_wide() else _FEW_TICKS[1::2]
    axes.set_xticks(ticks, [duration(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(_SHORTEST, max(10.0, longest) * (300 if is_wide() else 1e6))
    axes.bar_label(bars, texts, padding=4, color=DARK)
    name_rows(axes, [f"{short(one.consumer_group)}\n{short(one.topic)}" for one in shown.itertuples()])
    axes.set(xlabel="age of the oldest unread message (logarithmic)")
    return Plot(title, figure)


def deliveries(messages: pd.DataFrame, top: int = 600) -> Plot:
    """By the time at which each delayed message was due, how long after it the broker delivered it.

    `messages` has the columns `due` (UTC), `late` (milliseconds from then to the delivery, else to the question) and
    `is_delivered`. Of delivered and of overdue ones, `top` are drawn: the latest, and others evenly.
    """
    known = messages.dropna()
    if known.empty:
        return nothing("No delayed message is due")
    done, overdue = known[known["is_delivered"]], known[~known["is_delivered"]]
    parts = []
    if len(done):
        within = done["late"].quantile([0.5, 0.99], interpolation="higher").clip(lower=1)
        parts.append(
            f"Half of the delayed messages came at most {duration(within[0.5])} late, "
            f"99 % at most {duration(within[0.99])}"
        )
    if len(overdue):
        parts.append(f"{len(overdue):,} overdue, the longest for {duration(overdue['late'].max())}")
    title = "; ".join(parts)
    figure, axes = new_figure(title, 3.4)
    for some, colour, name in ((done, COLOUR, "delivered"), (overdue, RED, "overdue")):
        ordered = some.sort_values("late", ascending=False, kind="stable")
        shown = pd.concat([ordered.iloc[:top], ordered.iloc[top :: -(-len(ordered) // top) or 1]])
        if len(shown):
            label = f"{name}: {len(some):,}" + (
                f", of which {len(shown):,} are drawn" if len(shown) < len(some) else ""
            )
            axes.scatter(shown["due"], shown["late"].clip(lower=_SHORTEST), color=colour, s=14, label=label)
    axes.set_yscale("log")
    ticks = [tick for tick in _FEW_TICKS if tick <= 10 * max(known["late"].max(), 1)]
    axes.set_yticks(ticks, [duration(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(_SHORTEST * 0.7, max(10.0, known["late"].max() * 3))
    axes.legend(frameon=False, ncols=2 if is_wide() else 1, loc="lower left", bbox_to_anchor=(0, 1))
    space = max((known["due"].max() - known["due"].min()) * 0.04, pd.Timedelta("1s"))
    time_axis(axes, known["due"].min() - space, known["due"].max() + space)
    axes.set(xlabel=axes.get_xlabel().replace("store time", "due"), ylabel="delivered after (logarithmic)")
    return Plot(title, figure)


def retained(topics: pd.DataFrame, at: pd.Timestamp, reserved_hours: float) -> Plot:
    """By topic, the time from its first message to its last one, beside the time for which segments are kept.

    `topics` has the columns `topic`, `first` and `last` (UTC). Ages refer to the time `at`.
    """
    shown = topics.dropna().sort_values(["first", "topic"], kind="stable").iloc[:_ROWS]
    if shown.empty:
        return nothing("No queue has a message")
    oldest = shown.iloc[0]
    age = (at - oldest["first"]) / pd.Timedelta("1ms")
    old = f"The oldest message, in {short(oldest['topic'])}, is {duration(max(age, 0))} old"
    title = f"{old}; segments stay {reserved_hours:g} h"
    figure, axes = new_figure(title, 1.2 + 0.3 * len(shown))
    axes.hlines(range(len(shown)), shown["first"], shown["last"], color=COLOUR, linewidth=7)
    axes.scatter(shown["last"], range(len(shown)), color=COLOUR, s=30)
    space = max((shown["last"].max() - shown["first"].min()) * 0.04, pd.Timedelta("1s"))
    first, last = shown["first"].min() - space, shown["last"].max() + space
    limit = at - pd.Timedelta(hours=reserved_hours)
    if first < limit < last:
        axes.axvline(date2num(limit), color=SECOND_COLOUR)
        axes.annotate(" expires next", (limit, 1), xycoords=("data", "axes fraction"), color=SECOND_COLOUR, va="bottom")
    name_rows(axes, [short(name) for name in shown["topic"]])
    time_axis(axes, first, last)
    return Plot(title, figure)


def damage_map(cells: pd.DataFrame, trees: Sequence[tuple[str, str, str]], errors: int) -> Plot:
    """Where findings are: a strip for the log, one for the queues, one for the index files, cut into cells.

    `cells` has the columns `tree` (its number), `start` and `stop` (parts of the strip, 0 to 1) and `severity`; `trees`
    has for each strip its name, and what its beginning and its end are.
    """
    if cells.empty:
        title = "No damage: every strip is sound from end to end"
    else:
        title = f"{errors:,} errors; the coloured parts of the strips have findings"
    figure, axes = new_figure(title, 0.8 + 0.65 * len(trees))
    colours = {"error": RED, "warning": SECOND_COLOUR, "note": COLOUR}
    axes.barh(range(len(trees)), 1, height=0.5, color=GREY, alpha=0.45)
    for severity in ("note", "warning", "error"):  # the gravest is drawn last
        some = cells[cells["severity"] == severity]
        if len(some):
            axes.barh(
                some["tree"], some["stop"] - some["start"], left=some["start"], height=0.5, color=colours[severity],
                label=severity,
            )  # fmt: skip
    for number, (_, first, last) in enumerate(trees):
        for place, text, side in ((0, first, "left"), (1, last, "right")):
            axes.annotate(text, (place, number + 0.27), va="top", ha=side, color=DARK)
    if len(cells):
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    name_rows(axes, [name for name, _, _ in trees])
    axes.set_ylim(len(trees) - 0.3, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)
    return Plot(title, figure)


def uneven(topics: pd.DataFrame) -> Plot:
    """By topic, how many times its fair share of the topic's messages the fullest queue has.

    `topics` has the columns `topic`, `queues`, `messages`, and `most` (the messages of the fullest queue).
    """
    several = topics[topics["queues"] > 1]
    if several.empty:
        return nothing("No topic has messages in several queues")
    times = (several["most"] * several["queues"] / several["messages"]).rename("times")
    shown = several.assign(times=times).sort_values(["times", "messages"], ascending=False, kind="stable").iloc[:_ROWS]
    first = shown.iloc[0]
    title = f"The fullest queue of {short(first['topic'])} has {first['times']:.1f} times its fair share"
    figure, axes = new_figure(title, 1.0 + 0.32 * len(shown))
    bars = axes.barh(range(len(shown)), shown["times"], color=COLOUR)
    axes.axvline(1, color=SECOND_COLOUR)
    texts = [f"{one.times:.1f} ({one.queues} queues)" for one in shown.itertuples()]
    axes.bar_label(bars, texts, padding=4, color=DARK)
    name_rows(axes, [short(name) for name in shown["topic"]])
    axes.set(xlabel="fullest queue / fair share", xlim=(0, shown["times"].max() * 1.6))
    return Plot(title, figure)


def over_time(runs: pd.DataFrame, names: dict[str, str], as_text: dict[str, Callable[[int], str]]) -> Plot:
    """Figures of earlier reports, a small plot each.

    `runs` has the column `time` (UTC), and one for each of `names`; NaN is not known.
    """
    title = f"{len(runs):,} reports from {runs['time'].iloc[0]:%Y-%m-%d} to {runs['time'].iloc[-1]:%Y-%m-%d}"
    figure = Figure(figsize=(figure_width(), 0.6 + 0.75 * len(names)), layout="constrained")
    figure.suptitle(title, x=0.01, horizontalalignment="left")
    for axes, (column, name) in zip(
        figure.subplots(len(names), sharex=True, squeeze=False)[:, 0], names.items(), strict=True
    ):
        axes.plot(runs["time"], runs[column], color=COLOUR, marker="o", markersize=3)
        text = as_text.get(column, "{:,.0f}".format)
        known = runs[column].dropna()
        last = text(int(known.iloc[-1])) if len(known) else "not known"
        axes.set_title(f"{name}: {last}", loc="left", fontsize=9, color=DARK)
        axes.set_yticks([])
        axes.set_ylim(bottom=0, top=max(1.0, known.max() * 1.1 if len(known) else 1.0))
    space = max((runs["time"].iloc[-1] - runs["time"].iloc[0]) * 0.03, pd.Timedelta("1s"))
    time_axis(axes, runs["time"].iloc[0] - space, runs["time"].iloc[-1] + space)
    axes.set_xlabel("time of the report (UTC)")
    return Plot(title, figure)
