"""The stream reader of `messages` without Spark: ends, limits, starts, and what is said of lost bytes."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq._compat import HAS_READ_LIMITS
from spark_mq.errors import DataLossError, LogCutError, OptionError, SparkMqError
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.source.stream_offset import StreamOffset
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.testing import LogWriter, write_store
from tests.support.readers import by_hopping, offsets_of
from tests.support.stores import RealStore, Unpack, segment_files, usual_stores

NOW = 1_700_000_000_000
SEGMENT_SIZE = 16 << 10
NAMES = ["commit_log_offset", "store_size", "_corrupt_record"]
Offset = Mapping[str, Any]

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark before 4.2 has no read limits")


def reader(store: Path | Location, **options: object) -> MessagesStreamReader:
    texts = {key: str(value) for key, value in options.items()}
    return MessagesStreamReader(parse_stream_options({"path": str(store), **texts}), NAMES)


def batch(stream: MessagesStreamReader, start: Offset, end: Offset) -> list[dict[str, Any]]:
    """The rows of one batch, in the order of the log; offsets and partitions come from other processes' JSON."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    batches = [part for partition in stream.partitions(start, end) for part in stream.read(partition)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return sorted(rows, key=lambda row: row["commit_log_offset"])


def follow(stream: MessagesStreamReader, start: Offset | None = None) -> Iterator[tuple[Offset, list[dict[str, Any]]]]:
    """Batches, each with its end, until nothing is new."""
    start = stream.initialOffset() if start is None else start
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        yield end, batch(stream, start, end)
        start = end


def given(stream: MessagesStreamReader, start: Offset | None = None) -> list[int]:
    return [row["commit_log_offset"] for _, rows in follow(stream, start) for row in rows]


def log_of(count: int, body: int = 300, first_segment: int = 0) -> LogWriter:
    writer = LogWriter(SEGMENT_SIZE, first_segment)
    for number in range(count):
        writer.append(NOW + 10 * number, bytes([1 + number % 255]) * (number % body), queue_id=number % 3)
    return writer


def test_an_offset_is_json_with_a_fixed_order_of_keys(tmp_path: Path) -> None:
    stream = reader(log_of(5).write(tmp_path))
    assert json.dumps(stream.initialOffset()) == '{"version": 1, "commit_log_offset": 0, "lost_bytes": 0}'


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"version": 3, "commit_log_offset": 0, "lost_bytes": 0},
        {"version": 2, "commit_log_offset": 0, "lost_bytes": 0},
        {"version": 2, "commit_log_offset": 0, "lost_bytes": 0, "read_from": "1", "marks": []},
        {"version": 2, "commit_log_offset": 0, "lost_bytes": 0, "read_from": None, "marks": [[0, 100, 5]]},
        {"version": 2, "commit_log_offset": 0, "lost_bytes": 0, "read_from": None, "marks": [[-1, 100, 5, 5]]},
        {"version": 2, "commit_log_offset": 0, "lost_bytes": 0, "read_from": None, "marks": [[0, 1 << 40, 5, 5]]},
        {"version": 1, "commit_log_offset": "0", "lost_bytes": 0},
        {"version": 1, "commit_log_offset": -2, "lost_bytes": 0},
        {"version": 1, "commit_log_offset": 0},
    ],
)
def test_an_offset_of_another_source_or_version_is_refused(offset: Offset, tmp_path: Path) -> None:
    stream = reader(log_of(5).write(tmp_path))
    with pytest.raises(OptionError, match="offset"):
        stream.latestOffset(offset, None)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_every_message_comes_once_whatever_the_limits(store: RealStore, unpacked: Unpack) -> None:
    facts = sorted(int(fact["offset"]) for fact in store.facts("msg"))
    limits: list[dict[str, object]] = [{}, {"splitSize": "1k"}]
    if HAS_READ_LIMITS:
        limits += [{"maxMessagesPerTrigger": max(len(facts) // 7, 1)}, {"maxBytesPerTrigger": "100k"}]
        limits.append({"maxMessagesPerTrigger": 100, "maxBytesPerTrigger": "30k", "splitSize": "20k"})
    for options in limits:
        assert given(reader(unpacked(store), **options)) == facts, options


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_without_queues_the_end_is_the_same(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    (tmp_path / "commitlog").symlink_to(unpacked(store) / "commitlog")
    (fact,) = store.facts("store")
    assert LiveEndFinder(Location.resolve(str(tmp_path))).find_now() == fact["maxPhyOffset"]
    assert reader(tmp_path, startingOffsets="latest").initialOffset()["commit_log_offset"] == fact["maxPhyOffset"]


@needs_limits
@pytest.mark.parametrize("most", [1, 7, 200])
def test_a_batch_has_as_many_messages_as_were_asked_for(most: int, tmp_path: Path) -> None:
    store = log_of(200).write(tmp_path)
    sizes = [len(rows) for _, rows in follow(reader(store, maxMessagesPerTrigger=most))]
    assert sizes[:-1] == [most] * (len(sizes) - 1)
    assert sum(sizes) == 200


@needs_limits
@pytest.mark.parametrize("most", [1, 500, 5000, SEGMENT_SIZE, 20_000])
def test_a_batch_has_the_messages_that_start_in_so_many_bytes(most: int, tmp_path: Path) -> None:
    writer = log_of(200)
    stream = reader(writer.write(tmp_path), maxBytesPerTrigger=most)
    start, found = 0, []
    for end, rows in follow(stream):
        offsets = [row["commit_log_offset"] for row in rows]
        assert offsets == [offset for offset in writer.offsets if start <= offset < start + most]
        start = end["commit_log_offset"]
        found += offsets
    assert found == writer.offsets


def test_a_batch_is_read_again_alike_after_the_log_grew(tmp_path: Path) -> None:
    store = log_of(60).write(tmp_path / "a")
    stream = reader(store)
    start = stream.initialOffset()
    end = stream.latestOffset(start)
    before = batch(stream, start, end)
    for file in segment_files(Path(log_of(90).write(tmp_path / "b").path)):
        (tmp_path / "a" / "commitlog" / file.name).write_bytes(file.read_bytes())
    again = reader(store)
    assert batch(again, start, end) == before
    assert given(again, end) == log_of(90).offsets[60:]


def test_a_log_that_grows_byte_by_byte_gives_each_message_once_and_whole(tmp_path: Path) -> None:
    """Growth as by a broker: zeros become records, from the first byte to the last; a new segment comes beforehand."""
    writer = log_of(40, body=900)
    whole = {base: bytes(data).ljust(SEGMENT_SIZE, b"\0") for base, data in writer.segments.items()}
    store = write_store(tmp_path, {0: bytes(SEGMENT_SIZE)})
    stream = reader(store)
    start: Offset = stream.initialOffset()
    assert start["commit_log_offset"] == -1
    found: list[dict[str, Any]] = []
    end_of_log = writer.offsets[-1] + 1000
    for written in [*range(0, end_of_log, 113), end_of_log]:
        for base, data in whole.items():
            if written >= base - 2000:
                part = data[: max(written - base, 0)].ljust(SEGMENT_SIZE, b"\0")
                (tmp_path / "commitlog" / f"{base:020d}").write_bytes(part)
        end = stream.latestOffset(start, None)
        found += batch(stream, start, end)
        assert all(row["commit_log_offset"] + row["store_size"] <= written for row in found)
        assert len(found) >= sum(offset + 1000 < written for offset in writer.offsets)
        start = end
    assert [row["commit_log_offset"] for row in found] == writer.offsets


def test_segments_that_arrive_one_by_one_are_read_as_they_come(tmp_path: Path) -> None:
    writer = log_of(300)
    arriving = tmp_path / "arriving"
    (arriving / "commitlog").mkdir(parents=True)
    stream = reader(arriving)
    start: Offset = stream.initialOffset()
    found: list[int] = []
    for file in segment_files(Path(writer.write(tmp_path / "whole").path)):
        (arriving / "commitlog" / file.name).write_bytes(file.read_bytes())
        found += given(stream, start)
        start = stream.latestOffset(start)
        assert found == [offset for offset in writer.offsets if offset < int(file.name) + SEGMENT_SIZE]
    assert found == writer.offsets


def test_available_now_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    store = log_of(60).write(tmp_path / "a")
    stream = reader(store)
    stream.prepareForTriggerAvailableNow()
    grown = log_of(90)
    for file in segment_files(Path(grown.write(tmp_path / "b").path)):
        (tmp_path / "a" / "commitlog" / file.name).write_bytes(file.read_bytes())
    assert given(stream) == grown.offsets[:60]
    assert given(reader(store)) == grown.offsets


def test_a_stale_tail_is_never_given(tmp_path: Path) -> None:
    writer = log_of(20)
    live = list(writer.offsets)
    for number in range(20):
        writer.append(NOW - 1000 + number, b"old", queue_id=number % 3, queue_offset=100 + number)
    store = writer.write(tmp_path)
    stream = reader(store)
    assert given(stream) == live
    # The broker goes on, over the tail.
    grown = log_of(30)
    file = segment_files(tmp_path)[0]
    new = bytes(grown.segments[0])
    file.write_bytes(new + file.read_bytes()[len(new) :])
    position = {"version": 1, "commit_log_offset": stream.reportLatestOffset()["commit_log_offset"], "lost_bytes": 0}  # type: ignore[index]
    assert given(stream, position) == grown.offsets[20:]


@pytest.mark.parametrize("place", [0, 1, 17, 18, 199])
def test_a_stream_begins_with_the_first_message_behind_an_offset(place: int, tmp_path: Path) -> None:
    writer = log_of(200)
    store = writer.write(tmp_path)
    offset = writer.offsets[place]
    assert given(reader(store, startingOffsets=offset)) == writer.offsets[place:]
    assert given(reader(store, startingOffsets=offset + 1)) == writer.offsets[place + 1 :]


def test_a_stream_cannot_begin_behind_the_end(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="startingOffsets=99999999 is after the end"):
        reader(log_of(5).write(tmp_path), startingOffsets=99999999).initialOffset()


@pytest.mark.parametrize(("millis", "first"), [(-5, 0), (0, 0), (1, 1), (1000, 100), (1990, 199), (1991, 200)])
def test_a_stream_begins_with_the_first_message_of_a_time(millis: int, first: int, tmp_path: Path) -> None:
    writer = log_of(200)
    stream = reader(writer.write(tmp_path), startingTimestamp=NOW + millis)
    assert given(stream) == writer.offsets[first:]


def test_latest_gives_only_what_comes(tmp_path: Path) -> None:
    stream = reader(log_of(60).write(tmp_path / "a"), startingOffsets="latest")
    start = stream.initialOffset()
    assert list(follow(stream, start)) == []


class TestExpiry:
    """The first segments go away under a stream that has not read them."""

    def start(self, tmp_path: Path, **options: object) -> tuple[MessagesStreamReader, LogWriter, Offset]:
        self.writer = log_of(300)
        stream = reader(self.writer.write(tmp_path), **options)
        self.folder = tmp_path
        return stream, self.writer, stream.initialOffset()

    def expire(self, count: int) -> int:
        for file in segment_files(self.folder)[:count]:
            file.unlink()
        return int(segment_files(self.folder)[0].name)

    def test_true_stops_and_names_the_range(self, tmp_path: Path) -> None:
        stream, _, start = self.start(tmp_path)
        gone = self.expire(2)
        with pytest.raises(DataLossError, match=f"{gone} bytes from commit log offset 0"):
            stream.latestOffset(start)

    def test_true_stops_where_they_expire_after_the_end_was_given(self, tmp_path: Path) -> None:
        stream, _, start = self.start(tmp_path)
        end = stream.latestOffset(start)
        self.expire(1)
        with pytest.raises(DataLossError, match="commit log offset 0"):
            stream.partitions(start, end)

    def test_true_stops_where_they_expire_after_the_batch_was_planned(self, tmp_path: Path) -> None:
        stream, _, start = self.start(tmp_path)
        partitions = stream.partitions(start, stream.latestOffset(start))
        self.expire(1)
        with pytest.raises(DataLossError, match="commit log offset 0"):
            list(stream.read(partitions[0]))

    @pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
    def test_false_goes_on_and_counts(self, mode: str, tmp_path: Path) -> None:
        stream, writer, start = self.start(tmp_path, failOnDataLoss="false", mode=mode)
        gone = self.expire(2)
        end = stream.latestOffset(start)
        assert end["lost_bytes"] == gone
        rows = batch(stream, start, end)
        found = [row["commit_log_offset"] for row in rows if row["_corrupt_record"] is None]
        assert found == [offset for offset in writer.offsets if offset >= gone]
        lost = [(row["commit_log_offset"], row["store_size"]) for row in rows if row["_corrupt_record"] is not None]
        assert lost == ([(0, gone)] if mode == "PERMISSIVE" else [])

    def test_false_counts_what_expired_after_the_end_was_given_with_the_next_batch(self, tmp_path: Path) -> None:
        stream, _, start = self.start(tmp_path, failOnDataLoss="false")
        end = stream.latestOffset(start)
        gone = self.expire(1)
        assert batch(stream, start, end)[0]["_corrupt_record"].startswith("EXPIRED")
        record = Record(b"T", commit_log_offset=end["commit_log_offset"], store_timestamp=NOW + 10**6, queue_offset=200)
        with segment_files(tmp_path)[-1].open("r+b") as file:
            file.seek(end["commit_log_offset"] % SEGMENT_SIZE)
            file.write(record.encode())
        assert stream.latestOffset(end)["lost_bytes"] == gone

    def test_false_goes_on_where_they_expire_after_the_batch_was_planned(self, tmp_path: Path) -> None:
        stream, _, start = self.start(tmp_path, failOnDataLoss="false")
        partitions = stream.partitions(start, stream.latestOffset(start))
        gone = self.expire(1)
        ((row,),) = (part.to_pylist() for part in stream.read(partitions[0]))
        assert (row["commit_log_offset"], row["store_size"]) == (0, gone)

    def test_a_missing_segment_in_the_middle_is_a_loss_too(self, tmp_path: Path) -> None:
        stream, writer, start = self.start(tmp_path)
        file = segment_files(tmp_path)[1]
        file.unlink()
        end = stream.latestOffset(start)
        found = [row["commit_log_offset"] for row in batch(stream, start, end)]
        assert found == [offset for offset in writer.offsets if offset < int(file.name)]
        with pytest.raises(DataLossError, match=f"{SEGMENT_SIZE} bytes from commit log offset {int(file.name)}"):
            stream.latestOffset(end)


class TestCutLog:
    """The broker loses the end of its log, after it was read, and writes on: records of the same sizes, later."""

    COUNT, KEPT = 30, 20

    def write(self, folder: Path, kept: int, written_since: int, later: int = 10_000) -> LogWriter:
        """The log: `kept` messages of the first one, and others of the same sizes."""
        log = LogWriter(SEGMENT_SIZE)
        for number in range(kept + written_since):
            time = NOW + 10 * number + (later if number >= kept else 0)
            log.append(time, bytes([1 + number % 7]) * (number * 37 % 300), queue_id=number % 3)
        shutil.rmtree(folder / "commitlog", ignore_errors=True)
        log.write(folder)
        return log

    def stream(self, folder: Path, fails: bool, **options: object) -> MessagesStreamReader:
        names = [*NAMES, "store_timestamp_millis"]
        texts = {key: str(value) for key, value in options.items()}
        given = {"path": str(folder), "failOnDataLoss": str(fails).lower(), **texts}
        return MessagesStreamReader(parse_stream_options(given), names)

    def read_first(self, folder: Path, **options: object) -> tuple[Offset, set[tuple[int, int]]]:
        self.write(folder, self.COUNT, 0)
        return self.read_on(folder, None, True, **options)

    def read_on(
        self, folder: Path, start: Offset | None, fails: bool, **options: object
    ) -> tuple[Offset, set[tuple[int, int]]]:
        """What a new run gives: the end, and offset and store time of each message, each once."""
        stream = self.stream(folder, fails, **options)
        end, messages = start, []
        for end, rows in follow(stream, start):  # noqa: B007
            messages += [(row["commit_log_offset"], row["store_timestamp_millis"]) for row in rows]
        assert end is not None
        assert len(set(messages)) == len(messages)
        return end, set(messages)

    def messages(self, log: LogWriter, kept: int, later: int = 10_000) -> set[tuple[int, int]]:
        """Those of the log that were not in the first one."""
        numbers = range(kept, len(log.offsets))
        return {(log.offsets[number], NOW + 10 * number + later) for number in numbers}

    @pytest.mark.parametrize("written_since", [0, 1, 9, 10, 11, 60])
    def test_true_stops(self, written_since: int, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        self.write(tmp_path, self.KEPT, written_since)
        with pytest.raises(LogCutError, match=f"was read up to {end['commit_log_offset']}: the broker lost the end"):
            self.stream(tmp_path, True).latestOffset(end)

    @needs_limits
    @pytest.mark.parametrize("written_since", [0, 1, 9, 10, 11, 60])
    @pytest.mark.parametrize("limit", [{}, {"maxMessagesPerTrigger": 7}, {"maxBytesPerTrigger": 900}], ids=str)
    def test_false_gives_what_the_broker_wrote_since(
        self, written_since: int, limit: dict[str, object], tmp_path: Path
    ) -> None:
        end, given = self.read_first(tmp_path, **limit)
        assert len(given) == self.COUNT
        log = self.write(tmp_path, self.KEPT, written_since)
        end, given = self.read_on(tmp_path, end, False, **limit)
        assert given == self.messages(log, self.KEPT)
        # The log grows further; and again it loses its end.
        log = self.write(tmp_path, self.KEPT, 70)
        end, more = self.read_on(tmp_path, end, False, **limit)
        assert given | more == self.messages(log, self.KEPT)
        assert not given & more
        log = self.write(tmp_path, 5, 90, later=20_000)
        assert self.read_on(tmp_path, end, False, **limit)[1] == self.messages(log, 5, 20_000)

    def test_a_log_that_was_emptied(self, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        for segment in segment_files(tmp_path):
            segment.unlink()
        with pytest.raises(LogCutError, match="the log has no message, but was read up to"):
            self.stream(tmp_path, True).latestOffset(end)
        end = self.stream(tmp_path, False).latestOffset(end)
        log = self.write(tmp_path, 0, 20)
        assert self.read_on(tmp_path, end, False)[1] == self.messages(log, 0)

    def test_a_log_of_the_same_length_is_not_the_same_log(self, tmp_path: Path) -> None:
        """Nothing is new by offsets: the stream stands at the end of the log."""
        end, _ = self.read_first(tmp_path)
        log = self.write(tmp_path, self.COUNT - 1, 1)
        assert log.next_offset == end["commit_log_offset"]
        with pytest.raises(LogCutError, match="has another record"):
            self.stream(tmp_path, True).latestOffset(end)
        assert self.read_on(tmp_path, end, False)[1] == self.messages(log, self.COUNT - 1)

    def test_available_now_notices_it_too(self, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        log = self.write(tmp_path, self.KEPT, 30)
        for fails in (True, False):
            stream = self.stream(tmp_path, fails)
            stream.prepareForTriggerAvailableNow()
            if fails:
                with pytest.raises(LogCutError):
                    stream.latestOffset(end)
            else:
                rows = [row for _, rows in follow(stream, end) for row in rows]
                assert {row["commit_log_offset"] for row in rows} == set(log.offsets[self.KEPT :])

    def test_a_first_new_message_that_did_not_fit_is_in_the_next_segment(self, tmp_path: Path) -> None:
        """A blank is written over the lost one, and nothing that is still there is given again."""

        def put(last: int, later: int) -> LogWriter:
            log = LogWriter(SEGMENT_SIZE)
            while len(log.segments[0]) < SEGMENT_SIZE - 800:
                log.append(NOW + len(log.offsets), b"x" * 200)
            log.append(NOW + len(log.offsets) + later, b"x" * last)
            shutil.rmtree(tmp_path / "commitlog", ignore_errors=True)
            log.write(tmp_path)
            return log

        put(1, 0)
        end, _ = self.read_on(tmp_path, None, True)
        log = put(900, 10_000)
        assert log.offsets[-1] == SEGMENT_SIZE
        assert self.read_on(tmp_path, end, False)[1] == {(SEGMENT_SIZE, NOW + len(log.offsets) - 1 + 10_000)}

    def test_where_a_clock_was_set_back_none_is_passed_over(self, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        log = self.write(tmp_path, self.KEPT, 30, later=-5_000)
        assert self.read_on(tmp_path, end, False)[1] >= self.messages(log, self.KEPT, -5_000)

    def test_log_cuts_can_stop_a_stream_that_expiry_does_not(self, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        self.write(tmp_path, self.KEPT, 60)
        with pytest.raises(LogCutError):
            self.stream(tmp_path, False, failOnLogCut="true").latestOffset(end)

    def test_a_batch_that_was_planned_before_gives_only_what_is_still_there(self, tmp_path: Path) -> None:
        """Spark died after it noted the batch's end: the next run reads the batch again, and then goes back."""
        self.write(tmp_path, self.COUNT, 0)
        stream = self.stream(tmp_path, False)
        start = stream.initialOffset()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        log = self.write(tmp_path, self.KEPT, 60)
        with pytest.raises(LogCutError):
            self.stream(tmp_path, True).partitions(start, end)
        again = batch(self.stream(tmp_path, False), start, end)
        assert [row["commit_log_offset"] for row in again] == log.offsets[: self.KEPT]
        assert self.read_on(tmp_path, end, False)[1] == self.messages(log, self.KEPT)

    def test_what_is_lost_before_the_segment_ends_is_noticed_in_the_next_one(self, tmp_path: Path) -> None:
        self.write(tmp_path, 300, 0)
        end, _ = self.read_on(tmp_path, None, True)
        log = self.write(tmp_path, 30, 400)
        assert len(log.segments) > 3
        assert self.read_on(tmp_path, end, False)[1] == self.messages(log, 30)

    def test_a_message_in_the_place_of_a_lost_blank_is_given(self, tmp_path: Path) -> None:
        """The blank that ends a segment is lost with what follows; a smaller message fits there."""
        log = self.write(tmp_path, 10, 0)
        log.roll()
        shutil.rmtree(tmp_path / "commitlog")
        log.write(tmp_path)
        end, given = self.read_on(tmp_path, None, True)
        assert (end["commit_log_offset"], len(given)) == (SEGMENT_SIZE, 10)
        log = self.write(tmp_path, 11, 0)
        assert self.read_on(tmp_path, end, True)[1] == {(log.offsets[10], NOW + 100)}

    def test_expired_messages_are_not_lost_ones(self, tmp_path: Path) -> None:
        self.write(tmp_path, 300, 0)
        end, _ = self.read_on(tmp_path, None, True)
        log = self.write(tmp_path, 900, 0)
        for file in segment_files(tmp_path):
            if int(file.name) + SEGMENT_SIZE <= end["commit_log_offset"]:
                file.unlink()
        assert self.read_on(tmp_path, end, True)[1] == self.messages(log, 300, later=0)

    def test_offsets_of_the_version_before_are_read_and_get_marks_with_the_next_batch(self, tmp_path: Path) -> None:
        end, _ = self.read_first(tmp_path)
        older = {"version": 1, "commit_log_offset": end["commit_log_offset"], "lost_bytes": 7}
        stream = self.stream(tmp_path, True)
        assert json.dumps(stream.latestOffset(older, None)) == json.dumps(older)
        self.write(tmp_path, self.COUNT + 5, 0)
        new = stream.latestOffset(older, None)
        assert (new["version"], new["lost_bytes"], len(new["marks"])) == (2, 7, 1)
        self.write(tmp_path, self.KEPT, 0)
        with pytest.raises(LogCutError):
            stream.latestOffset(older, None)
        # From here on it gives what comes.
        end, given = self.read_on(tmp_path, older, False)
        assert given == set()
        log = self.write(tmp_path, self.KEPT, 30)
        assert self.read_on(tmp_path, end, False)[1] == self.messages(log, self.KEPT)

    @pytest.mark.parametrize("start", ["latest", "NUMBER", "TIME"])
    def test_a_stream_that_has_given_nothing_yet_notices_it(self, start: str, tmp_path: Path) -> None:
        log = self.write(tmp_path, self.COUNT, 0)
        option = {"startingOffsets": start.replace("NUMBER", str(log.offsets[25]))}
        if start == "TIME":
            option = {"startingTimestamp": str(NOW + 250)}
        begin = self.stream(tmp_path, True, **option).initialOffset()
        log = self.write(tmp_path, self.KEPT, 30)
        with pytest.raises(LogCutError):
            self.stream(tmp_path, True).latestOffset(begin)
        assert self.read_on(tmp_path, begin, False)[1] == self.messages(log, self.KEPT)


def test_an_offset_with_marks_is_json_with_a_fixed_order_of_keys(tmp_path: Path) -> None:
    log = log_of(5)
    stream = reader(log.write(tmp_path))
    end = stream.latestOffset(stream.initialOffset())
    assert list(end) == ["version", "commit_log_offset", "lost_bytes", "read_from", "marks"]
    at, content = log.offsets[4], bytes(log.segments[0])[log.offsets[4] :]
    assert end["marks"] == [[at, len(content), NOW + 40, zlib.crc32(content)]]
    assert StreamOffset.of_json(json.loads(json.dumps(end))).to_json() == end


@needs_limits
def test_marks_stay_few_and_lead_back_to_the_beginning(tmp_path: Path) -> None:
    log = log_of(2000)
    ends = [end for end, _ in follow(reader(log.write(tmp_path), maxMessagesPerTrigger=3))]
    assert len(ends) > 600
    assert max(len(end["marks"]) for end in ends) <= 24
    places = [mark[0] for mark in ends[-1]["marks"]]
    assert places[0] == log.offsets[-1]
    assert places == sorted(places, reverse=True)
    assert places[-1] < 2000
    distances = [log.next_offset - place for place in places]
    assert all(further <= 16 * nearer for nearer, further in pairwise(distances))


@pytest.mark.parametrize("victims", [(5,), (5, 6, 7), (5, 60, 130), (29, 30)])
def test_damage_is_given_once_in_whatever_batches(victims: tuple[int, ...], tmp_path: Path) -> None:
    writer = log_of(150)
    for victim in victims:
        offset = writer.offsets[victim]
        base = offset // SEGMENT_SIZE * SEGMENT_SIZE
        writer.segments[base][offset - base + 4] ^= 0xFF
    store = writer.write(tmp_path)
    expected = [(part[1], part[2]) for part in by_hopping(CommitLog.open(store))]
    assert len(offsets_of(by_hopping(CommitLog.open(store)))) == 150 - len(victims)
    options: list[dict[str, object]] = [{}, {"splitSize": "1k"}]
    if HAS_READ_LIMITS:
        sizes: tuple[object, ...] = (100, 1000, 5000)
        options += [{"maxMessagesPerTrigger": 3}, *({"maxBytesPerTrigger": size} for size in sizes)]
    for option in options:
        rows = [row for _, rows in follow(reader(store, **option)) for row in rows]
        assert [(row["commit_log_offset"], row["store_size"]) for row in rows] == expected, option


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startTimestamp": "5"}, "startTimestamp has no effect on a stream"),
        ({"table": "queues"}, "table queues cannot be streamed"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingOffsets": "-5"}, "startingOffsets"),
        ({"startingOffsets": "5", "startingTimestamp": "5"}, "give one"),
        ({"startingTimestamp": "1795248093"}, "give 1795248093000"),
        ({"maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(SparkMqError, match=message):
        parse_stream_options({"path": "/s", **options})
