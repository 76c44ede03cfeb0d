"""Which files of `commitlog/` are segments: gaps of any length, and files whose names are not offsets of the log."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq import MessageStore, RocketMQDataSource
from spark_mq.errors import CorruptLogError, DataLossError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.indexer.report import raise_or_report
from spark_mq.io.location import Location
from spark_mq.source.explain import explain
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import STRAY, list_segment_files
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.readers import by_hopping, by_splits, offsets_of
from tests.support.stores import STORES, WORKLOAD, RealStore, Unpack, segment_files

DELETED = STORES["deleted-533"]
SIZE = 4096
NAMES = ["commit_log_offset", "store_size", "topic", "_corrupt_record"]
MAX_STORE_SIZE = (1 << 31) - 1
LAST_BASE = ((1 << 63) - 1) // SIZE * SIZE - SIZE


def rows_of(store: Path, **options: str) -> list[dict[str, object]]:
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in NAMES])
    reader = RocketMQDataSource({"path": str(store), **options}).reader(from_arrow_schema(schema))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return list(pa.Table.from_batches(batches, schema).to_pylist())


def stream_of(store: Path, **options: str) -> MessagesStreamReader:
    return MessagesStreamReader(parse_stream_options({"path": str(store), **options}), NAMES)


def streamed(stream: MessagesStreamReader) -> list[dict[str, object]]:
    """The rows that a stream gives until nothing is new, batch by batch."""
    start, rows = stream.initialOffset(), []
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        batches = [part for partition in stream.partitions(start, end) for part in stream.read(partition)]
        rows += [row for batch in batches for row in batch.to_pylist()]
        start = end
    return rows


def log_of(first_segment: int, count: int = 30) -> LogWriter:
    writer = LogWriter(SIZE, first_segment)
    for number in range(count):
        writer.append(1_700_000_000_000 + number, bytes(200))
    return writer


def write_far(folder: Path, base: int) -> tuple[list[int], int, int]:
    """A log, and more of it from `base` on; returns the messages' offsets, and where the gap begins and ends."""
    near, far = log_of(0), log_of(base)
    near.roll()
    near.segments.pop(near.next_offset)
    near.write(folder)
    far.write(folder / "far")
    for file in segment_files(folder / "far"):
        file.rename(folder / "commitlog" / file.name)
    return near.offsets + far.offsets, len(near.segments) * SIZE, base


far_bases = st.integers(4, LAST_BASE // SIZE - 4).map(lambda number: number * SIZE)


@settings(max_examples=examples(40))
@given(far_bases)
@example((1 << 31) + 8 * SIZE)
@example(1 << 50)
@example(1 << 62)
def test_a_gap_is_one_row_however_long_it_is(base: int) -> None:
    """Its length is in `store_size`, or, if that cannot hold it, in the text."""
    with tempfile.TemporaryDirectory() as name:
        offsets, start, stop = write_far(Path(name) / "store", base)
        rows = rows_of(Path(name) / "store")
        gap_rows = [row for row in rows if row["topic"] is None]
        assert [row["commit_log_offset"] for row in rows if row["topic"] is not None] == offsets
        if start == stop:
            assert gap_rows == []
            return
        (row,) = gap_rows
        said = str(row["_corrupt_record"])
        assert row["commit_log_offset"] == start
        assert row["store_size"] == (stop - start if stop - start <= MAX_STORE_SIZE else None)
        assert said.startswith("MISSING: no segment contains these bytes")
        assert (f"{stop - start} bytes, up to commit log offset {stop}" in said) == (row["store_size"] is None)
        assert rows_of(Path(name) / "store", mode="DROPMALFORMED") == [row for row in rows if row["topic"] is not None]
        with pytest.raises(CorruptLogError, match=f"{stop - start} bytes from commit log offset {start}"):
            rows_of(Path(name) / "store", mode="FAILFAST")


@settings(max_examples=examples(15))
@given(far_bases.filter(lambda base: base > 4 * SIZE))
@example(1 << 50)
@example(1 << 62)
def test_a_stream_steps_over_a_gap_of_any_length_at_once(base: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        offsets, start, stop = write_far(store, base)
        with pytest.raises(DataLossError, match=f"{stop - start} bytes from commit log offset {start}"):
            streamed(stream_of(store))
        for options in ({}, {"maxBytesPerTrigger": "1000"}, {"maxMessagesPerTrigger": "7"}):
            rows = streamed(stream_of(store, failOnDataLoss="false", **options))
            assert sorted(int(str(row["commit_log_offset"])) for row in rows if row["topic"] is not None) == offsets
            assert [row["commit_log_offset"] for row in rows if row["topic"] is None] == [start]


@settings(max_examples=examples(30))
@given(far_bases, st.sampled_from([1000, 4096, 1 << 20]))
@example(1 << 62, 1000)
def test_the_union_of_the_splits_is_the_log_whatever_the_gap(base: int, split_size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        offsets, start, stop = write_far(Path(name) / "store", base)
        log = CommitLog.open(Location.resolve(f"{name}/store"))
        assert log.stray == ()
        gaps = [(gap.commit_log_offset, gap.length) for gap in log.gaps]
        assert gaps == ([(start, stop - start)] if stop > start else [])
        assert by_splits(log, split_size) == by_hopping(log)
        assert offsets_of(by_hopping(log)) == offsets


def check_stray(store: Path, stray: Path, rows: list[dict[str, object]], live_end: int) -> None:
    """Every door gives the messages as without the file, and says that it is there."""
    assert [row for row in rows_of(store) if not str(row["_corrupt_record"]).startswith(STRAY)] == rows
    (row,) = [row for row in rows_of(store) if str(row["_corrupt_record"]).startswith(STRAY)]
    assert (row["commit_log_offset"], row["store_size"], row["topic"]) == (None, None, None)
    assert f"{stray}: the file is not a segment" in str(row["_corrupt_record"])
    assert rows_of(store, mode="DROPMALFORMED", splitSize="20k") == [row for row in rows if row["topic"] is not None]
    with pytest.raises(CorruptLogError, match=f"{stray.name}: the file is not a segment"):
        rows_of(store, mode="FAILFAST")
    assert f"note   {stray}: the file is not a segment" in explain(str(store))
    location = Location.resolve(str(store))
    assert LiveEndFinder(location).find_now() == live_end
    log = CommitLog.open(location)
    with pytest.raises(CorruptLogError, match="--mode permissive"):
        raise_or_report(log.stray, is_permissive=False)
    with MessageStore(str(store)) as opened:
        assert (opened.get_min_phy_offset(), opened.get_max_phy_offset()) == (log.segments[0].base, live_end)


def stray_names(store: RealStore) -> list[int]:
    """Names far away, before the log, inside a segment, and a step too far; multiples of the size and others."""
    (fact,) = store.facts("store")
    size, end = fact["mappedFileSizeCommitLog"], fact["maxPhyOffset"]
    last = (end - 1) // size * size
    far = [1 << 50, (1 << 62) // size * size, (1 << 63) - 1 - size, (1 << 50) + 17]
    return [*far, last + 5 * size, last + 5 * size + 1, fact["minPhyOffset"] + 123, last - 77, 99999999999999999999]


@pytest.mark.parametrize("content", ["copy of a segment", "no records"])
@pytest.mark.parametrize("number", range(9))
def test_a_name_that_no_segment_explains_is_a_finding(
    number: int, content: str, unpacked: Unpack, tmp_path: Path
) -> None:
    for one in (WORKLOAD, DELETED):
        store = tmp_path / one.name
        shutil.copytree(unpacked(one), store)
        (fact,) = one.facts("store")
        rows = rows_of(store)
        name = stray_names(one)[number]
        stray = store / "commitlog" / f"{name:020d}"
        data = b"\xa5\x5a" * (fact["mappedFileSizeCommitLog"] // 2)
        stray.write_bytes(segment_files(store)[1].read_bytes() if content == "copy of a segment" else data)
        check_stray(store, stray, rows, fact["maxPhyOffset"])


def test_a_copy_says_where_it_belongs(unpacked: Unpack, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(unpacked(WORKLOAD), store)
    shutil.copy(segment_files(store)[1], store / "commitlog" / f"{1 << 50:020d}")
    (stray,) = list_segment_files(Location.resolve(str(store))).stray
    first = min(fact["offset"] for fact in WORKLOAD.facts("msg") if fact["offset"] >= int(segment_files(store)[1].name))
    assert f"(its first record is of commit log offset {first})" in stray.reason
    with MessageStore(str(store)) as opened:
        assert "is not a segment" in str(opened.why_not((1 << 50) + 5))


def test_a_stream_reads_on_and_warns_once(unpacked: Unpack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = tmp_path / "store"
    shutil.copytree(unpacked(WORKLOAD), store)
    (store / "commitlog" / f"{1 << 50:020d}").write_bytes(b"\xa5" * 131072)
    rows = streamed(stream_of(store, maxBytesPerTrigger="50k"))
    assert sorted(int(str(row["commit_log_offset"])) for row in rows) == sorted(
        fact["offset"] for fact in WORKLOAD.facts("msg")
    )
    assert [record.message.partition(":")[2][:27] for record in caplog.records] == [" the file is not a segment "]
    with pytest.raises(CorruptLogError, match="is not a segment"):
        streamed(stream_of(store, mode="FAILFAST"))


def test_a_segment_after_a_gap_counts_although_its_first_records_are_damaged(tmp_path: Path) -> None:
    """One record that confirms the name is enough, wherever it is."""
    writer = log_of(0, 80)
    writer.write(tmp_path)
    files = segment_files(tmp_path)
    files[1].unlink()
    last_of_third = max(offset for offset in writer.offsets if offset < 3 * SIZE)
    data = files[2].read_bytes()
    files[2].write_bytes(b"\xa5" * (last_of_third - 2 * SIZE) + data[last_of_third - 2 * SIZE :])
    for file in files[3:]:
        file.unlink()
    log = CommitLog.open(Location.resolve(str(tmp_path)))
    assert [segment.base for segment in log.segments] == [0, 2 * SIZE]
    assert offsets_of(by_hopping(log))[-1] == last_of_third


def test_files_of_zeros_after_the_log_are_not_stray(tmp_path: Path) -> None:
    """A broker makes the next files in advance, and a missing file between them loses nothing."""
    log_of(0).write(tmp_path)
    end = len(segment_files(tmp_path)) * SIZE
    (tmp_path / "commitlog" / f"{end + 3 * SIZE:020d}").write_bytes(bytes(SIZE))
    log = CommitLog.open(Location.resolve(str(tmp_path)))
    assert (log.stray, log.gaps) == ((), [])
    (tmp_path / "commitlog" / f"{100:020d}").write_bytes(bytes(SIZE))
    assert [stray.commit_log_offset for stray in CommitLog.open(Location.resolve(str(tmp_path))).stray] == [100]
