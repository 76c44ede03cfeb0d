"""Every notebook runs, shows what the broker's own facts say, and its plots have something in them."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from nbformat import NotebookNode

from tests.notebooks.run import (
    FOLDER,
    VARIABLES,
    code_cells,
    drawn_part,
    executed,
    keep,
    plots,
    plots_module,
    printed_errors,
    read,
    rows,
    text,
)
from tests.support.stores import PROJECT, WORKLOAD, Fact, Unpack, index_of, tree_of

pytestmark = pytest.mark.notebook

NAMES = sorted(file.stem for file in FOLDER.glob("*.ipynb"))
KEEP_OUTPUTS = os.environ.get("SPARK_MQ_KEEP_OUTPUTS")
TRANSACTION_TYPE = 0b1100
TRANSACTION_COMMIT = 0b1000
LARGEST_FILE = 400_000
SMALLEST_DRAWN_PART = 0.001


@pytest.fixture(autouse=True)
def _delta(request: pytest.FixtureRequest) -> None:
    if "history" in request.node.name and not request.getfixturevalue("delta_jars"):
        pytest.skip("Delta Lake's jars cannot be fetched from Maven Central")


def cell(name: str, cell_id: str) -> NotebookNode:
    """An executed cell."""
    return next(one for one in code_cells(executed(name)) if one.id == cell_id)


def messages(topic: str | None = None) -> list[Fact]:
    return [fact for fact in WORKLOAD.facts("msg") if topic in (None, fact["topic"])]


def in_a_queue() -> list[Fact]:
    """Messages but those of transaction types PREPARED and ROLLBACK (`MessageSysFlag`@5.3.3)."""
    return [fact for fact in messages() if fact["sysFlag"] & TRANSACTION_TYPE in (0, TRANSACTION_COMMIT)]


def keys_of(message: Fact) -> set[str]:
    return set((message["keys"] or "").split())


def counted(values: Iterable[str], most: int) -> list[tuple[str, str]]:
    """Values with their counts, the most frequent first, and by name where counts are equal."""
    ordered = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    return [(value, str(count)) for value, count in ordered[:most]]


def places(table: list[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Queue ids and queue offsets, which are the first columns."""
    return [(int(row[0]), int(row[1])) for row in table]


def places_of(found: Iterable[Fact]) -> list[tuple[int, int]]:
    return [(fact["queueId"], fact["queueOffset"]) for fact in found]


def newest_first(found: Iterable[Fact]) -> list[Fact]:
    return sorted(found, key=lambda fact: -int(fact["offset"]))


def numbers(shown: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", shown)]


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs_and_no_plot_is_empty(name: str) -> None:
    for one in code_cells(executed(name)):
        assert one.execution_count is not None
        draws = re.findall(r"^(?:next\(iter\()?(?:page\.)?plots\b[.(]", one.source, re.MULTILINE)
        assert len(plots(one)) == len(draws), one.id
        for png in plots(one):
            # The map of damage has a colour only where damage is.
            assert drawn_part(png) > SMALLEST_DRAWN_PART or text(one).startswith("No damage:"), one.id


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_prints_an_error_or_a_warning(name: str) -> None:
    assert {one.id: printed_errors(one) for one in code_cells(executed(name)) if printed_errors(one)} == {}


def test_all_notebooks_choose_the_store_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = {next(one.source for one in code_cells(read(name)) if one.id == "store") for name in NAMES}
    monkeypatch.syspath_prepend(FOLDER)
    for variable, value in zip(VARIABLES, ("/data/store", "/data/broker.conf"), strict=True):
        monkeypatch.setenv(variable, value)
    names: dict[str, object] = {}
    exec(source, names)
    assert (names["STORE"], names["BROKER_CONF"]) == ("/data/store", "/data/broker.conf")


def test_a_plot_without_data_counts_as_empty() -> None:
    groups = pd.DataFrame({"consumer_group": ["a", "b"], "lag": [0, 0], "lag_millis": [0.0, 0.0]})
    assert drawn_part(plots_module().lag_time(groups).png()) < SMALLEST_DRAWN_PART


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_in_the_file_is_what_the_cells_show(name: str) -> None:
    if KEEP_OUTPUTS:
        keep(name, PROJECT / KEEP_OUTPUTS)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST_FILE
    for kept, one in zip(code_cells(read(name)), code_cells(executed(name)), strict=True):
        assert text(kept) == text(one), f"{one.id}: `make notebooks KEEP=1` keeps new outputs in the file"
        assert len(plots(kept)) == len(plots(one)), one.id


@pytest.mark.parametrize("name", NAMES)
def test_outputs_name_no_place_of_this_machine(name: str) -> None:
    shown = "".join(str(one.outputs) for one in code_cells(executed(name)))
    for place in (str(PROJECT), str(Path.home()), "/tmp", "file:"):
        assert place not in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_last_section_says_what_differs_on_databricks(name: str) -> None:
    last = read(name).cells[-1]
    assert last.cell_type == "markdown"
    assert last.source.startswith("## On Databricks\n")


def test_first_look_counts_the_stores_messages() -> None:
    count, size, _, _, damaged = rows(cell("01_first_look", "totals"))[0]
    assert int(count) == len(messages())
    assert int(size) == sum(fact["size"] for fact in messages())
    assert int(damaged) == 0


def test_first_look_shows_the_topics_that_the_queues_have() -> None:
    offered: Counter[str] = Counter()
    for queue in WORKLOAD.facts("queue"):
        offered[queue["topic"]] += queue["max"] - queue["min"]
    shown = [(row[0], row[2]) for row in rows(cell("01_first_look", "topics"))]
    assert shown == counted(offered.elements(), 10)


def test_first_look_counts_messages_by_second_and_topic() -> None:
    def second(fact: Fact) -> str:
        return datetime.fromtimestamp(fact["storeTimestamp"] // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")

    counts = Counter((second(fact), fact["topic"]) for fact in messages())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    assert rows(cell("01_first_look", "rates")) == [(*group, str(count)) for group, count in ordered[:5]]


def test_first_look_counts_bytes_by_topic() -> None:
    sizes: Counter[str] = Counter()
    for fact in messages():
        sizes[fact["topic"]] += fact["size"]
    shown = [(row[0], row[1]) for row in rows(cell("01_first_look", "sizes-by-topic"))]
    assert shown == counted(sizes.elements(), 5)


def test_first_look_counts_tags() -> None:
    assert rows(cell("01_first_look", "tags")) == counted((fact["tags"] or "(no tag)" for fact in messages()), 15)


def share(part: int, of: int) -> str:
    return f"{100 * part / of:.0f} %"


def test_first_look_says_which_topic_machine_and_second_have_the_most_messages() -> None:
    offered: Counter[str] = Counter()
    for queue in WORKLOAD.facts("queue"):
        offered[queue["topic"]] += queue["max"] - queue["min"]
    topic, count = offered.most_common(1)[0]
    assert text(cell("01_first_look", "topics-plot")) == f"{topic} has {share(count, offered.total())} of all messages"

    machines = Counter(fact["bornHost"].rpartition("|")[0] for fact in messages())
    machine, count = machines.most_common(1)[0]
    assert rows(cell("01_first_look", "producers"))[0][::2] == (machine, str(count))
    title = f"{machine} sent {share(count, len(messages()))} of all messages"
    assert text(cell("01_first_look", "producers-plot")) == title

    seconds = Counter(fact["storeTimestamp"] // 1000 for fact in messages())
    second, count = seconds.most_common(1)[0]
    moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    title = f"Busiest second: {moment}, with {share(count, len(messages()))} of all messages"
    assert text(cell("01_first_look", "rates-plot")) == title


def test_first_look_measures_the_delays_of_topics() -> None:
    def percentile(values: Iterable[int], part: float) -> int:
        ordered = sorted(values)
        return ordered[math.ceil(part * len(ordered)) - 1]

    shown = rows(cell("01_first_look", "delays"))
    assert [row[0] for row in shown[:3]] == ["DelayDemo", "TimerDemo", "TransactionDemo"]
    for topic, count, median, slow in shown:
        delays = [fact["storeTimestamp"] - fact["bornTimestamp"] for fact in messages(topic)]
        expected = len(delays), percentile(delays, 0.5), percentile(delays, 0.99)
        assert (int(count), int(median), int(slow)) == expected


def test_first_look_says_how_large_messages_are() -> None:
    sizes = sorted(fact["size"] for fact in messages())
    median = sizes[math.ceil(len(sizes) / 2) - 1]
    title = f"Half of the messages have at most {median:,} bytes; the largest has {sizes[-1]:,}"
    assert text(cell("01_first_look", "sizes-plot")) == title


def test_first_look_shows_lags_to_the_queues_ends() -> None:
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in WORKLOAD.facts("queue")}
    shown = rows(cell("01_first_look", "lag"))
    assert shown
    for _, topic, queue_id, consumer_offset, max_offset, lag, _, _ in shown:
        assert int(max_offset) == ends[topic, int(queue_id)]
        assert int(lag) == int(max_offset) - int(consumer_offset)


def test_first_look_shows_segments_up_to_the_logs_end() -> None:
    store = WORKLOAD.facts("store")[0]
    shown = rows(cell("01_first_look", "segments"))
    assert [int(row[0]) for row in shown] == [
        *range(store["minPhyOffset"], store["maxPhyOffset"], store["mappedFileSizeCommitLog"])
    ]
    assert sum(int(row[2]) for row in shown) == store["maxPhyOffset"] - store["minPhyOffset"]


@pytest.mark.parametrize("cell_id", ["key", "options", "sql"])
def test_find_a_message_by_key(cell_id: str) -> None:
    expected = newest_first(fact for fact in messages("OrderEvents") if "user342" in keys_of(fact))
    assert len(expected) == 2
    assert places(rows(cell("02_find_a_message", cell_id))) == places_of(expected)


@pytest.mark.parametrize(("cell_id", "field"), [("unique-key", "uniqKey"), ("offset-message-id", "msgId")])
def test_find_a_message_by_its_ids(cell_id: str, field: str) -> None:
    shown = cell("02_find_a_message", cell_id)
    printed = text(shown).splitlines()[0]
    expected = [fact for fact in messages() if fact[field] == printed]
    assert places(rows(shown)) == places_of(expected) != []


def test_find_a_message_by_queue_offset_and_time() -> None:
    queue = [fact for fact in messages("OrderEvents") if fact["queueId"] == 1]
    moment = datetime(2026, 11, 21, 11, 1, 16, tzinfo=UTC).timestamp() * 1000
    by_offset = [fact for fact in queue if fact["queueOffset"] >= 53][:3]
    by_time = [fact for fact in queue if fact["storeTimestamp"] >= moment][:3]
    assert places(rows(cell("02_find_a_message", "queue-offset"))) == places_of(by_offset)
    assert places(rows(cell("02_find_a_message", "time"))) == places_of(by_time)


def test_find_a_message_follows_a_dead_letter() -> None:
    topic, unique_key = text(cell("02_find_a_message", "failed")).split()
    expected = sorted((fact for fact in messages() if fact["uniqKey"] == unique_key), key=lambda fact: fact["offset"])
    shown = [(row[0], int(row[1]), int(row[2])) for row in rows(cell("02_find_a_message", "way"))]
    assert shown == [(fact["topic"], *place) for fact, place in zip(expected, places_of(expected), strict=True)]
    assert shown[-1][0] == topic == "%DLQ%GID_failing"
    seconds = (expected[-1]["storeTimestamp"] - expected[0]["storeTimestamp"]) / 1000
    title = f"Stored {len(expected)} times in {seconds:.0f} s; since then it is in {topic}"
    assert text(cell("02_find_a_message", "way-plot")) == title


def test_find_a_message_says_which_way_a_look_up_takes() -> None:
    def way(cell_id: str) -> str:
        return text(cell("02_find_a_message", cell_id)).splitlines()[0]

    assert [way(f"explain-{name}").split(maxsplit=1)[1] for name in ("index", "scan", "queue")] == [
        "index",
        "whole log",
        "consume queue",
    ]


def test_find_a_message_says_why_there_is_none() -> None:
    newest = max(fact["storeTimestamp"] for fact in messages("OrderEvents") if "user342" in keys_of(fact))
    moment = datetime.fromtimestamp(newest / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert not any("ORD-999999" in keys_of(fact) for fact in messages())
    assert "no message of topic OrderEvents" in text(cell("02_find_a_message", "why-no-key"))
    assert moment in text(cell("02_find_a_message", "why-other-time"))
    assert "no queue of topic Orders" in text(cell("02_find_a_message", "why-no-topic"))


def test_find_a_message_by_time_range() -> None:
    start, end = (datetime(2026, 11, 21, 11, minute, tzinfo=UTC).timestamp() * 1000 for minute in (1, 2))
    expected = counted((fact["topic"] for fact in messages() if start <= fact["storeTimestamp"] < end), 5)
    assert rows(cell("02_find_a_message", "time-range")) == expected


def test_find_a_message_counts_keys() -> None:
    expected = counted((key for fact in messages("OrderEvents") for key in keys_of(fact)), 5)
    assert rows(cell("02_find_a_message", "by-key")) == expected


def test_find_a_message_for_each_row_and_keeps_rows_without_one() -> None:
    def of_user(user: str) -> list[tuple[str, str, str]]:
        found = [fact for fact in reversed(newest_first(messages("OrderEvents"))) if user in keys_of(fact)]
        return [(user, str(fact["queueId"]), str(fact["queueOffset"])) for fact in found] or [(user, "NULL", "NULL")]

    shown = [(row[0], row[2], row[3]) for row in rows(cell("02_find_a_message", "lateral"))]
    assert shown == [row for user in ("user0", "user342", "user53") for row in of_user(user)]


def test_rebuild_reports_the_stores_counts() -> None:
    shown = dict(line.split() for line in text(cell("03_rebuild", "report")).splitlines())
    counts = {name: int(count.replace(",", "")) for name, count in shown.items()}
    assert counts["messages"] == len(messages())
    assert counts["log_bytes"] == WORKLOAD.facts("store")[0]["maxPhyOffset"]
    assert counts["queues"] == len(WORKLOAD.facts("queue"))
    assert counts["units"] == len(in_a_queue())


def test_rebuild_compares_every_file_of_the_broker(unpacked: Unpack) -> None:
    queue_files, index_files = len(tree_of(unpacked(WORKLOAD) / "consumequeue")), len(index_of(unpacked(WORKLOAD)))
    same = [(str(queue_files), "0", "0", "0"), (str(index_files), "0", "0", "0")]
    assert rows(cell("03_rebuild", "compare")) == same
    title = f"All {queue_files + index_files} files are the same, byte for byte"
    assert text(cell("03_rebuild", "compare-plot")) == title


def test_rebuild_finds_no_difference_in_the_tables() -> None:
    assert numbers(text(cell("03_rebuild", "queues-differ"))) == [0]
    assert numbers(text(cell("03_rebuild", "lost"))) == [len(in_a_queue()), 0]
    expected = [fact for fact in messages("OrderEvents") if "user342" in keys_of(fact)]
    assert [(row[1], row[2]) for row in rows(cell("03_rebuild", "lookup"))] == [
        (str(queue_id), str(offset)) for queue_id, offset in places_of(newest_first(expected))
    ]


def archived_to() -> int:
    """The end of the first three segments."""
    return 3 * int(WORKLOAD.facts("store")[0]["mappedFileSizeCommitLog"])


def test_history_has_each_message_once() -> None:
    archived = sum(fact["offset"] < archived_to() for fact in messages())
    assert numbers(text(cell("04_history", "archive")))[0] == archived
    assert [int(count) for count in rows(cell("04_history", "seam"))[0][:3]] == [len(messages()), len(messages()), 0]
    sides = [("archive", archived), ("store", len(messages()) - archived)]
    shown = cell("04_history", "sides")
    assert re.findall(r"(archive|store)\s+(\d+)", text(shown)) == [(side, str(count)) for side, count in sides]
    title = f"{share(archived, len(messages()))} of all messages come from the archive"
    assert text(cell("04_history", "sides-plot")) == title
    again = numbers(text(cell("04_history", "again")))
    assert again == [len(messages()) - archived, len(messages())]


def test_history_finds_the_messages_of_a_key() -> None:
    def shown(cell_id: str) -> list[tuple[int, int]]:
        return sorted((int(row[1]), int(row[2])) for row in rows(cell("04_history", cell_id)))

    expected = [fact for fact in messages("OrderEvents") if "user342" in keys_of(fact)]
    archived = [fact for fact in expected if fact["offset"] < archived_to()]
    assert shown("key") == sorted(places_of(expected))
    assert shown("key-lookup") == sorted(places_of(archived))
    assert 0 < len(archived) < len(expected)


def test_history_counts_by_property() -> None:
    expected = [fact for fact in messages("OrderEvents") if fact["properties"].get("region") == "eu-west"]
    assert numbers(text(cell("04_history", "property")))[0] == len(expected) > 0
