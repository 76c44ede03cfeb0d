"""The notebooks' plots say what their data say, with every name readable."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.notebooks.run import plots_module

plots = plots_module()


def bars(plot: Any) -> list[tuple[str, float, str]]:
    """Name, length and colour of the bars, from the top."""
    (axes,) = plot.figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    shapes = [(bar.get_width(), to_hex(bar.get_facecolor())) for bar in axes.containers[0]]
    return [(name, *shape) for name, shape in zip(names, shapes, strict=True)]


def test_the_title_names_the_largest_share_and_the_others_are_grey() -> None:
    plot = plots.share(pd.Series({"a": 5, "b": 0, "orders": 62, "c": 30, "d": 3}), "messages", "topic", top=2)
    assert plot.title == "orders has 62 % of all messages"
    assert bars(plot) == [("orders", 62, plots.COLOUR), ("c", 30, plots.COLOUR), ("2 others", 8, plots.GREY)]


@pytest.mark.parametrize(
    ("part", "title"), [(2, "rest has 99 % of all messages"), (1000, "a has 100 % of all messages")]
)
def test_only_everything_is_all(part: int, title: str) -> None:
    assert plots.share(pd.Series({"a": part, "rest": 1000 - part}), "messages", "topic").title == title


def test_no_message_is_no_error() -> None:
    assert plots.share(pd.Series({"a": 0}), "messages", "topic").title == "There are no messages"


def test_names_can_have_any_characters_and_any_length() -> None:
    names = ["$\\frac{$", "a\nb\x1b[31m", "", "t" * 200 + "1", "t" * 200 + "2", "订单"]
    plot = plots.share(pd.Series(dict.fromkeys(names, 1)), "messages", "topic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot.png().startswith(b"\x89PNG")
    shown = [name for name, _, _ in bars(plot)]
    assert shown[0] == "$\\frac{$"
    assert all(name.isprintable() and 0 < len(name) <= 30 for name in shown)
    assert len({*shown}) == len(names)


@pytest.mark.parametrize(("last", "step"), [("11:01:49", "second"), ("11:30:00", "minute"), ("18:00:00", "10 minutes")])
def test_a_plot_over_time_has_few_steps_whatever_the_length_of_the_log(last: str, step: str) -> None:
    first = pd.Timestamp("2026-11-21 11:00:42")
    length, name = plots.time_step(first, pd.Timestamp(f"2026-11-21 {last}"))
    assert name == step
    assert (pd.Timestamp(f"2026-11-21 {last}") - first) / length <= 120


def test_a_heat_map_has_a_cell_for_every_step_and_one_row_for_all_other_topics() -> None:
    times = pd.to_datetime(["2026-11-21 11:00:00", "2026-11-21 11:00:03"])
    counts = pd.DataFrame(
        [(time, f"t{n}", n + 1) for n in range(4) for time in times], columns=["time", "topic", "messages"]
    )
    counts.loc[len(counts)] = (times[1], "t0", 10)
    plot = plots.heat_map(counts, pd.Timedelta("1s"), "second", top=2)
    assert plot.title == "Busiest second: 2026-11-21 11:00:03 UTC, with 67 % of all messages"
    axes = plot.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["t0", "t3", "2 others"]
    cells = axes.collections[0].get_array()
    assert cells is not None
    assert np.ma.filled(cells, 0).tolist() == [[1, 0, 0, 11], [4, 0, 0, 4], [5, 0, 0, 5]]


def test_files_that_differ_are_in_the_title() -> None:
    files = pd.DataFrame(
        {"the same": [36], "different": [8], "only the broker's": [2], "only made": [0]}, index=["queue files"]
    )
    assert plots.comparison(files).title == "36 of 46 files are the same, byte for byte"


@pytest.mark.parametrize(
    ("millis", "shown"), [(0, "0 ms"), (49, "49 ms"), (4900, "4.9 s"), (5000, "5 s"), (90e6, "1.0 days")]
)
def test_a_duration_is_readable(millis: float, shown: str) -> None:
    assert plots.duration(millis) == shown
