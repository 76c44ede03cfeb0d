"""The plots of a page say what their data say, and are SVG that a page can hold."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from spark_mq.reporter import plots
from spark_mq.reporter.plot import narrow, short

NOW = pd.Timestamp("2026-11-21 11:00", tz="UTC")


def test_having_none_is_grey_and_no_name() -> None:
    plot = plots.share(pd.Series({"(none)": 21, "a": 10}), "messages", "tag", absent="(none)")
    assert plot.title == "68 % of all messages have no tag"


def test_the_longest_lag_comes_first() -> None:
    groups = pd.DataFrame(
        [("a", "T", 5, 1000.0), ("b", "T", 2, 7_200_000.0), ("c", "T", 0, 0.0), ("d", "T", None, None)],
        columns=["consumer_group", "topic", "lag", "lag_millis"],
    )
    plot = plots.lag_time(groups)
    assert plot.title == "b lags most: its oldest unread message is 2 h old"
    (axes,) = plot.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b\nT", "a\nT"]
    assert plots.lag_time(groups[2:]).title == "No group is known to have an unread message"


def test_deliveries_are_compared_with_their_due_times() -> None:
    lates = [*range(1, 100), 5_000, 7_200_000]
    messages = pd.DataFrame({"due": [NOW] * 101, "late": lates, "is_delivered": [True] * 100 + [False]})
    plot = plots.deliveries(messages, top=20)
    assert plot.title == (
        "Half of the delayed messages came at most 51 ms late, 99 % at most 5 s; 1 overdue, the longest for 2 h"
    )
    drawn, overdue = plot.figure.axes[0].collections
    assert (drawn.get_label(), len(np.asarray(drawn.get_offsets()))) == ("delivered: 100, of which 36 are drawn", 36)
    assert len(np.asarray(overdue.get_offsets())) == 1
    assert plots.deliveries(messages[:0]).title == "No delayed message is due"


def test_what_is_retained_is_compared_with_the_reserved_time() -> None:
    hours = [pd.Timedelta(hours=number) for number in (5, 1, 3)]
    topics = pd.DataFrame({"topic": ["a", "b", "c"], "first": [NOW - one for one in hours], "last": [NOW] * 3})
    plot = plots.retained(topics, NOW, 4)
    assert plot.title == "The oldest message, in a, is 5 h old; segments stay 4 h"
    assert [text.get_text() for text in plot.figure.axes[0].texts] == [" expires next"]
    assert [text.get_text() for text in plots.retained(topics, NOW, 6).figure.axes[0].texts] == []


def test_the_map_of_damage_has_the_gravest_on_top() -> None:
    cells = pd.DataFrame([(0, 0.5, 0.51, "error"), (0, 0.5, 0.51, "note"), (2, 0, 1, "warning")])
    cells.columns = pd.Index(["tree", "start", "stop", "severity"])
    trees = [(name, "first", "last") for name in ("log", "queues", "index")]
    plot = plots.damage_map(cells, trees, 1)
    bars = [container for container in plot.figure.axes[0].containers if container.get_label() in ("note", "error")]
    assert [bar.get_label() for bar in bars] == ["note", "error"]
    assert plots.damage_map(cells[:0], trees, 0).title == "No damage: every strip is sound from end to end"


def test_the_most_uneven_topic_comes_first() -> None:
    topics = pd.DataFrame({"topic": ["a", "b", "c"], "queues": [4, 2, 1], "messages": [40, 10, 9], "most": [10, 9, 9]})
    assert plots.uneven(topics).title == "The fullest queue of b has 1.8 times its fair share"
    assert plots.uneven(topics[2:]).title == "No topic has messages in several queues"


@pytest.mark.parametrize("name", ["</svg><script>", "fill: #1f6fb2", "a & b", "\ud800"])
def test_a_name_is_a_text_of_the_svg(name: str) -> None:
    plot = plots.share(pd.Series({name: 3, "b": 1}), "messages", "topic")
    root = ElementTree.fromstring(plot.svg("p"))
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert short(name) in texts
    assert root.get("aria-label") == plot.title
    assert not [element for element in root.iter() if element.tag.endswith("script")]


def test_ids_of_two_plots_differ_and_lead_to_their_parts() -> None:
    plot = plots.share(pd.Series({"a": 3, "b": 1}), "messages", "topic")
    first, second = plot.svg("p"), plot.svg("q")
    for name, text in (("p", first), ("q", second)):
        ids = re.findall(r' id="([^"]*)"', text)
        assert all(one.startswith(f"{name}-") for one in ids)
        assert {*re.findall(r'(?:url\(|href=")#([^")]*)', text)} <= {*ids}


def test_a_narrow_plot_is_as_wide_as_a_telephone() -> None:
    values = pd.Series({"a-very-long-name-of-a-topic-that-is-cut": 3})
    with narrow():
        plot = plots.share(values, "messages", "topic")
    assert float((ElementTree.fromstring(plot.svg("p")).get("viewBox") or "").split()[2]) == 360
    assert plot.title == "a-very-lo…is-cut has 100 % of all messages"
