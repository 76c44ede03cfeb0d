"""The stream over several stores without Spark: its offset, stores that grow, expire, appear and go."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import DataLossError, OptionError, StoreNotFoundError
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.source.several_stores import SeveralOffset, SeveralStoresStreamReader
from spark_mq.source.store_choice import StoreChoice
from spark_mq.testing import LogWriter
from tests.support.growing_stores import NOW, Place, log_of, places, put
from tests.support.stores import OWN_STORES, Unpack, segment_files, stores_in

NEW, OLD = (next(one for one in stores_in(OWN_STORES) if one.name == name) for name in ("workload-533", "workload-49x"))
NAMES = ["store", "commit_log_offset"]
A, B, C = ("c", "b", "a"), ("c", "b", "b"), ("c", "b", "c")
AT_5 = {"version": 1, "commit_log_offset": 5, "lost_bytes": 0}
AT_9 = {"version": 1, "commit_log_offset": 9, "lost_bytes": 0}


def stores_option(*stores: Path) -> str:
    return json.dumps([{"name": store.name, "path": str(store)} for store in stores])


def reader(*stores: Path, **options: str) -> SeveralStoresStreamReader:
    return SeveralStoresStreamReader.of(StoreChoice.of({"stores": stores_option(*stores), **options}), NAMES)


def text(offset: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(offset))


def batch(stream: SeveralStoresStreamReader, start: Any, end: Any) -> list[Place]:
    parts = [part for one in stream.partitions(text(start), text(end)) for part in stream.read(one)]
    rows = pa.Table.from_batches(parts).to_pylist() if parts else []
    return [(row["store"], row["commit_log_offset"]) for row in rows]


def follow(stream: SeveralStoresStreamReader, start: Any = None) -> Iterator[tuple[Any, list[Place]]]:
    """Batches, each with its end, until nothing is new."""
    start = stream.initialOffset() if start is None else start
    while (end := stream.latestOffset(text(start), stream.getDefaultReadLimit())) != start:
        yield end, batch(stream, start, end)
        start = end


def given(stream: SeveralStoresStreamReader, start: Any = None) -> tuple[Any, list[Place]]:
    """The last end, and all rows."""
    ends = list(follow(stream, start))
    return (ends[-1][0] if ends else start), sorted(row for _, rows in ends for row in rows)


def test_an_offset_has_stores_in_the_order_of_their_names() -> None:
    offset = SeveralOffset({B: AT_9, A: AT_5}, {B: AT_5})
    assert json.dumps(offset.to_json()) == (
        '{"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": "a", '
        '"offset": {"version": 1, "commit_log_offset": 5, "lost_bytes": 0}}, '
        '{"cluster": "c", "broker": "b", "store": "b", '
        '"offset": {"version": 1, "commit_log_offset": 9, "lost_bytes": 0}, '
        '"begin": {"version": 1, "commit_log_offset": 5, "lost_bytes": 0}}]}'
    )
    assert SeveralOffset.of_json(text(offset.to_json()), C) == offset


def test_an_offset_of_one_store_is_that_of_the_first_one() -> None:
    for old in (AT_5, {**AT_5, "version": 2, "read_from": None, "marks": [[0, 100, 5, 5]]}):
        assert SeveralOffset.of_json(old, B) == SeveralOffset({B: old})


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"version": 4, "stores": []},
        {"version": 3},
        {"version": 3, "stores": {}},
        {"version": 3, "stores": [1]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "offset": AT_5}]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": 1, "offset": AT_5}]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": "s"}]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": "s", "offset": {"version": 3}}]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": "s", "offset": AT_5, "begin": 5}]},
        {"version": 3, "stores": [{"cluster": "c", "broker": "b", "store": "s", "offset": AT_5}] * 2},
    ],
)
def test_an_offset_of_another_source_is_refused(offset: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="checkpoint's offset"):
        SeveralOffset.of_json(offset, A)


def test_messages_of_two_brokers_come_once(unpacked: Unpack) -> None:
    stores = {str(unpacked(store)): store for store in (NEW, OLD)}
    for options in ({}, {"maxMessagesPerTrigger": "300"}, {"maxBytesPerTrigger": "200k"}):
        choice = StoreChoice.of({"stores": json.dumps([{"path": path} for path in stores]), **options})
        ends = list(follow(SeveralStoresStreamReader.of(choice, NAMES)))
        rows = sorted(row for _, found in ends for row in found)
        assert rows == places(
            **{path: [fact["offset"] for fact in store.facts("msg")] for path, store in stores.items()}
        )
        assert len(ends) == 1 if not options else len(ends) > 2
        if "maxMessagesPerTrigger" in options:
            assert max(len(found) for _, found in ends) == 300


def test_one_store_grows_while_another_one_expires_its_head(tmp_path: Path) -> None:
    grows, expires = tmp_path / "grows", tmp_path / "expires"
    first = places(grows=put(log_of(50), grows), expires=put(log_of(50), expires))
    stream = reader(grows, expires)
    end, rows = given(stream)
    assert rows == first
    # What was read expires, and the store grows no more: nothing is lost.
    writer = log_of(400)
    put(writer, expires)
    more, head = put(log_of(120), grows), segment_files(expires)
    for file in head[:1]:
        file.unlink()
    assert int(head[1].name) > 0
    with pytest.raises(DataLossError, match=r"expires.*failOnDataLoss=false"):
        given(reader(grows, expires), end)
    end, rows = given(reader(grows, expires, failOnDataLoss="false", mode="DROPMALFORMED"), end)
    kept = [offset for offset in log_of(400).offsets if offset >= int(head[1].name)]
    assert rows == places(grows=more[50:], expires=kept)
    assert given(reader(grows, expires, failOnDataLoss="false"), end) == (end, [])
    lost = {entry["store"]: entry["offset"]["lost_bytes"] for entry in end["stores"]}
    assert lost == {"grows": 0, "expires": int(head[1].name) - log_of(50).next_offset}


def test_a_store_that_is_added_begins_where_a_stream_would(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    first, second = put(log_of(50), old), put(log_of(80), new)
    end, _ = given(reader(old))
    added = reader(new, old)
    later = added.latestOffset(text(end), None)
    assert later["stores"][0]["store"] == "new"
    assert "begin" in later["stores"][0]
    # A run that was killed has to read the same batch again, and knows where it begins from the offset alone.
    for stream in (added, reader(old, new)):
        assert sorted(batch(stream, end, later)) == places(new=second)
    assert given(reader(old, new), later)[1] == []
    assert given(reader(old, new, startingOffsets="latest"), end)[1] == []
    more = put(log_of(90), new)
    last, rows = given(reader(old, new), later)
    assert rows == places(new=more[80:])
    assert "begin" not in last["stores"][0]
    assert first == log_of(50).offsets


def test_an_offset_of_a_stream_over_one_store_is_continued(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    put(log_of(50), one)
    put(log_of(30), other)
    alone = MessagesStreamReader(parse_stream_options({"path": str(one)}), ["commit_log_offset"])
    end = alone.latestOffset(alone.initialOffset(), None)
    assert end["version"] == 2
    more = put(log_of(60), one)
    assert given(reader(one, other), end)[1] == places(one=more[50:], other=log_of(30).offsets)
    with pytest.raises(DataLossError, match="other"):  # it has no such record
        given(reader(other, one), end)


def test_a_store_that_is_no_longer_given_is_an_error_or_keeps_its_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stays, goes = tmp_path / "stays", tmp_path / "goes"
    put(log_of(20), stays)
    put(log_of(20), goes)
    end, _ = given(reader(stays, goes))
    more = put(log_of(25), stays)
    with pytest.raises(DataLossError, match=r"store DefaultCluster/DEFAULT_BROKER \(goes\).*no longer reads"):
        given(reader(stays), end)
    with caplog.at_level(logging.WARNING):
        later, rows = given(reader(stays, failOnDataLoss="false"), end)
    assert rows == places(stays=more[20:])
    assert later["stores"][0] == end["stores"][0]
    assert caplog.text.count("its offset is kept") == 1
    back = put(log_of(22), goes)
    assert given(reader(stays, goes), later)[1] == places(goes=back[20:])


def test_a_store_that_cannot_be_read_is_an_error_or_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    first = put(log_of(20), good)
    with pytest.raises(StoreNotFoundError, match=str(bad)):
        given(reader(good, bad))
    with caplog.at_level(logging.WARNING):
        end, rows = given(reader(good, bad, skipUnreadable="true"))
    assert rows == places(good=first)
    assert "is left out" in caplog.text
    late = put(log_of(10), bad)
    end, rows = given(reader(good, bad, skipUnreadable="true"), end)
    assert rows == places(bad=late)
    bad.rename(tmp_path / "away")
    more = put(log_of(30), good)
    assert given(reader(good, bad, skipUnreadable="true"), end)[1] == places(good=more[20:])


def test_the_ends_are_fixed_for_a_run_over_what_is_there(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    first = places(one=put(log_of(20), one), other=put(log_of(30), other))
    stream = reader(one, other)
    stream.prepareForTriggerAvailableNow()
    put(log_of(25), one)
    end, rows = given(stream)
    assert rows == first
    assert stream.reportLatestOffset() is not None
    assert end["version"] == 3


def test_a_source_of_one_store_streams_as_before_unless_it_names_the_store(tmp_path: Path) -> None:
    put(log_of(5), tmp_path / "one")
    source = RocketMQDataSource({"path": str(tmp_path / "one")})
    schema = source.schema()
    assert isinstance(source.streamReader(schema), MessagesStreamReader)
    named = source.streamReader(schema.add("store", "string"))
    assert isinstance(named, SeveralStoresStreamReader)
    columns = {
        row["store"]
        for part in named.partitions(
            {**AT_5, "commit_log_offset": 0}, named.latestOffset({**AT_5, "commit_log_offset": 0}, None)
        )
        for rows in named.read(part)
        for row in rows.to_pylist()
    }
    assert columns == {str(tmp_path / "one")}


def test_a_log_that_was_cut_is_not_read_again_with_messages_of_another_store(tmp_path: Path) -> None:
    cut, grows = tmp_path / "cut", tmp_path / "grows"
    put(log_of(50), cut)
    put(log_of(50), grows)
    end, _ = given(reader(cut, grows))
    other = LogWriter(16 << 10)
    for number in range(50):
        late = 60_000 if number >= 40 else 0
        other.append(NOW + 10 * number + late, b"x" * (number % 300), queue_id=number % 3)
    put(other, cut)
    options = {"failOnLogCut": "false", "failOnDataLoss": "false"}
    end, rows = given(reader(cut, grows, **options), end)
    assert rows == places(cut=other.offsets[40:])
    assert end["stores"][0]["offset"]["read_from"] == other.offsets[40]
    more = put(log_of(60), grows)
    assert given(reader(cut, grows, **options), end)[1] == places(grows=more[50:])
