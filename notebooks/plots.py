"""The notebooks' plots: those of `spark-mq report`, and three that only notebooks need.

Every function returns a `Plot`. A cell that ends with it shows it.
"""

from __future__ import annotations

import pandas as pd

from spark_mq.reporter.plot import (
    COLOUR,
    DARK,
    GREY,
    SECOND_COLOUR,
    Plot,
    duration,
    name_rows,
    new_figure,
    nothing,
    percent,
    short,
    time_axis,
    whole_numbers,
)
from spark_mq.reporter.plots import delays, heat_map, lag_time, share, sizes, time_step

__all__ = ["Plot", "comparison", "delays", "heat_map", "lag_time", "share", "sizes", "sources", "time_step", "way"]


def sources(counts: pd.DataFrame, step: pd.Timedelta, step_name: str) -> Plot:
    """Messages over time, by the side that they are read from.

    Args:
        counts: Columns `time` (UTC, the start of a step), `side` and `messages`.
        step: The length of a step.
        step_name: Its name.

    """
    if counts.empty:
        return nothing("There are no messages")
    by_side = counts.groupby("side")["messages"].sum().sort_values(ascending=False)
    title = f"{percent(by_side.iloc[0], by_side.sum())} of all messages come from the {by_side.index[0]}"
    figure, axes = new_figure(title, 3.4)
    table = counts.pivot_table(index="time", columns="side", values="messages", aggfunc="sum", fill_value=0)
    below = pd.Series(0, index=table.index)
    for side, colour in zip(sorted(table), (COLOUR, SECOND_COLOUR), strict=False):
        label = f"{side}: {by_side[side]:,} messages"
        axes.bar(table.index, table[side], width=step, bottom=below, align="edge", color=colour, label=label)
        below = below + table[side]
    axes.legend(frameon=False, loc="upper left")
    time_axis(axes, table.index.min(), table.index.max() + step)
    whole_numbers(axes.yaxis)
    axes.set(ylabel=f"messages per {step_name}")
    return Plot(title, figure)


def way(places: pd.DataFrame) -> Plot:
    """The places at which one message was stored, in the order of time.

    Args:
        places: Columns `topic` and `store_timestamp` (UTC), ordered by time.

    """
    if places.empty:
        return nothing("The log has no such message")
    times = places["store_timestamp"]
    taken = (times.iloc[-1] - times.iloc[0]) / pd.Timedelta("1ms")
    last = short(places["topic"].iloc[-1])
    title = f"Stored once, in {last}"
    if len(places) > 1:
        title = f"Stored {len(places)} times in {duration(taken)}; since then it is in {last}"
    topics = [*dict.fromkeys(places["topic"])]
    rows = [topics.index(topic) for topic in places["topic"]]
    figure, axes = new_figure(title, 1.3 + 0.5 * len(topics))
    axes.plot(times, rows, drawstyle="steps-post", color=GREY, linewidth=2, zorder=1)
    axes.scatter(times.iloc[:-1], rows[:-1], color=COLOUR, s=60, zorder=2)
    axes.scatter(times.iloc[-1:], rows[-1:], color=SECOND_COLOUR, s=110, zorder=3)
    name_rows(axes, [short(topic) for topic in topics])
    space = max((times.iloc[-1] - times.iloc[0]) * 0.05, pd.Timedelta("10ms"))
    time_axis(axes, times.iloc[0] - space, times.iloc[-1] + space)
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
    figure, axes = new_figure(title, 1.2 + 0.4 * len(files))
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
    name_rows(axes, [*files.index])
    whole_numbers(axes.xaxis)
    axes.set(xlabel="files")
    return Plot(title, figure)
