"""An index that is continued where it ends, wherever that is, against the broker's own steps. No Spark here."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_mq.indexer.index_files as written_files
import spark_mq.indexer.staged_files as entries_file
from spark_mq.errors import CorruptIndexError
from spark_mq.format.array_types import Bytes
from spark_mq.format.broker_version import ALL_VERSIONS
from spark_mq.format.index_file import HEADER, IndexLayout
from spark_mq.indexer.index_files import IndexWriter, pending_entries, plan_index_files
from spark_mq.indexer.staged_files import EntryRange, SplitRow, StagedEntries, StagedEntriesWriter
from spark_mq.io.location import Location
from spark_mq.store.index.folder import index_end, index_files
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing.plain_index import PlainIndexFile, PlainIndexService, PlainMessage
from tests.support.index_stores import staged_entries
from tests.support.stores import tree_of

MESSAGE_SIZE = 100
FIRST_NAME = "20200101000000000"


def write_index(files: Sequence[PlainIndexFile], store: Path) -> None:
    (store / "index").mkdir(parents=True)
    for number, file in enumerate(files):
        (store / "index" / f"{int(FIRST_NAME) + number}").write_bytes(file.encode())


def entries_of(rows: Sequence[tuple[int, int, int]]) -> Bytes:
    """Staged entries out of key hash, commit log offset and store timestamp of each."""
    hashes, offsets, timestamps = zip(*rows, strict=True)
    return staged_entries(np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64))


def split_rows(messages: Sequence[PlainMessage], splits: Sequence[int], blobs: Location) -> list[SplitRow]:
    """The manifest rows of a log of these messages, in splits that begin at these messages, entries staged."""
    rows = []
    for first, stop in pairwise([*splits, len(messages)]):
        part = messages[first:stop]
        entries = [(key, message.offset, message.store_timestamp) for message in part for key in message.key_hashes]
        with StagedEntriesWriter(blobs) as blob:
            for one in entries:
                blob.add(entries_of([one]))
        with_keys = [number for number, message in enumerate(part) if message.key_hashes]
        start, end = part[0].offset, part[-1].offset + MESSAGE_SIZE
        rows.append(
            SplitRow(
                segment=messages[0].offset,
                split_start=start - messages[0].offset,
                split_stop=end - messages[0].offset,
                first_position=start,
                end_position=end,
                messages=len(part),
                first_store_timestamp=part[0].store_timestamp,
                last_store_timestamp=part[-1].store_timestamp,
                newest_store_timestamp=max(message.store_timestamp for message in part),
                entries_file=blob.staged.location.name,
                index_entries=len(entries),
                trailing_messages=len(part) - 1 - with_keys[-1] if with_keys else len(part),
            )
        )
    return rows


def resume(store: Path, rows: Sequence[SplitRow], layout: IndexLayout) -> tuple[list[CorruptRange], list[bool]]:
    """Continue the index of a store in place; returns contradictions, and which of the planned files were new."""
    location = Location.resolve(str(store))
    end = index_end(index_files(location), layout)
    pending = pending_entries(rows, location / "blobs", end)
    plans = plan_index_files(pending, layout, end, UTC, 1)
    writer = IndexWriter(location / "growing", layout, ALL_VERSIONS)
    are_new = [writer.finish(plan).is_new for plan in plans]
    assert [writer.finish(plan).is_new for plan in plans] == [not plan.ranges for plan in plans]
    (store / "index").mkdir(exist_ok=True)
    for name, data in tree_of(store / "growing").items() if (store / "growing").exists() else ():
        (store / "index" / name).write_bytes(data)
    return list(pending.contradictions), are_new


@st.composite
def logs(draw: st.DrawFn) -> list[PlainMessage]:
    """Messages with up to four keys each, which repeat; times that may step back."""
    messages = []
    first = draw(st.sampled_from([0, 4096]))
    for number in range(draw(st.integers(1, 12))):
        keys = draw(st.lists(st.integers(0, 3), max_size=4))
        time = 1_795_000_000_000 + draw(st.integers(0, 5000))
        messages.append(PlainMessage(first + number * MESSAGE_SIZE, time, keys))
    return messages


layouts = st.builds(IndexLayout, st.integers(1, 5), st.integers(2, 9))


def built(messages: Sequence[PlainMessage], layout: IndexLayout, puts: int | None = None) -> PlainIndexService:
    """What a broker makes of the messages, until it is killed after so many puts."""
    service = PlainIndexService(layout)
    put_key = PlainIndexFile.put_key

    def limited(file: PlainIndexFile, *entry: int) -> bool:
        nonlocal puts
        if puts == 0 and not file.is_write_full():
            raise KeyboardInterrupt
        if not put_key(file, *entry):
            return False
        puts = None if puts is None else puts - 1
        return True

    try:
        with mock.patch.object(PlainIndexFile, "put_key", limited):
            for message in messages:
                service.build_index(message)
    except KeyboardInterrupt:
        pass
    return service


def torn(file: PlainIndexFile, entry: tuple[int, int, int]) -> bytes:
    """The file with an entry, and its slot, that a killed broker did not count any more."""
    counted = HEADER.pack(*HEADER.unpack(file.encode()[: HEADER.size]))
    file.put_key(*entry)
    return counted + file.encode()[HEADER.size :]


def draw_splits(data: st.DataObject, messages: Sequence[PlainMessage]) -> list[int]:
    return [0, *sorted(data.draw(st.sets(st.integers(1, len(messages)), max_size=3)) - {len(messages)})]


@given(logs(), layouts, st.data())
def test_an_index_cut_after_any_entry_becomes_the_whole_one(
    messages: list[PlainMessage], layout: IndexLayout, data: st.DataObject
) -> None:
    """A broker that is killed can end between two keys of a message, or within an entry."""
    whole = built(messages, layout)
    entries = [(key, one.offset, one.store_timestamp) for one in messages for key in one.key_hashes]
    puts = data.draw(st.integers(0, len(entries)))
    left = built(messages, layout, puts)
    contents = [file.encode() for file in left.files]
    if puts < len(entries) and left.files and not left.files[-1].is_write_full() and data.draw(st.booleans()):
        contents[-1] = torn(left.files[-1], entries[puts])
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(written_files, "_BLOCK_ENTRIES", 3):
        store = Path(folder)
        (store / "blobs").mkdir()
        (store / "index").mkdir()
        for number, content in enumerate(contents):
            (store / "index" / f"{int(FIRST_NAME) + number}").write_bytes(content)
        rows = split_rows(messages, draw_splits(data, messages), Location.resolve(str(store / "blobs")))
        contradictions, _ = resume(store, rows, layout)
        assert contradictions == []
        files = list(tree_of(store / "index").items())
    assert [content for _, content in sorted(files)] == [file.encode() for file in whole.files]


@given(logs(), layouts, st.data())
def test_keys_that_a_recovery_put_again_are_not_put_a_third_time(
    messages: list[PlainMessage], layout: IndexLayout, data: st.DataObject
) -> None:
    entries = sum(len(one.key_hashes) for one in messages)
    left = built(messages, layout, data.draw(st.integers(0, entries)))
    end = left.files[-1].end_offset if left.files and any(file.entries for file in left.files) else -1
    for _ in range(data.draw(st.integers(1, 2))):
        for message in messages:
            if message.offset == end:
                left.build_index(message)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        (store / "blobs").mkdir()
        write_index(left.files, store)
        rows = split_rows(messages, draw_splits(data, messages), Location.resolve(str(store / "blobs")))
        contradictions, _ = resume(store, rows, layout)
        files = [content for _, content in sorted(tree_of(store / "index").items())]
    for message in messages:
        if message.offset > end:
            left.build_index(message)
    assert contradictions == []
    assert files == [file.encode() for file in left.files]


@given(logs(), layouts, st.data())
def test_an_index_of_messages_that_expired_goes_on(
    messages: list[PlainMessage], layout: IndexLayout, data: st.DataObject
) -> None:
    whole = built(messages, layout)
    expired = data.draw(st.integers(0, len(messages) - 1))
    left = built(messages[: data.draw(st.integers(expired, len(messages)))], layout)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        (store / "blobs").mkdir()
        write_index(left.files, store)
        rest = messages[expired:]
        resume(store, split_rows(rest, draw_splits(data, rest), Location.resolve(str(store / "blobs"))), layout)
        files = [content for _, content in sorted(tree_of(store / "index").items())]
    assert files == [file.encode() for file in whole.files]


def test_a_file_that_a_killed_job_wrote_of_another_log_is_written_again(tmp_path: Path) -> None:
    """As long, and with the same end: a damaged segment can have been replaced since by a sound one."""
    layout = IndexLayout(3, 9)
    messages = [PlainMessage(number * MESSAGE_SIZE, 1_795_000_000_000, [number]) for number in range(5)]
    (tmp_path / "blobs").mkdir()
    rows = split_rows(messages, [0, 2], Location.resolve(str(tmp_path / "blobs")))
    pending = pending_entries(rows, Location.resolve(str(tmp_path / "blobs")), None)
    (plan,) = plan_index_files(pending, layout, None, UTC, 1)
    growing = tmp_path / "growing"
    growing.mkdir()
    other = built([*messages[:2], PlainMessage(2 * MESSAGE_SIZE, 1_795_000_000_000, [8]), *messages[3:]], layout)
    (growing / plan.name).write_bytes(other.files[0].encode())
    assert IndexWriter(Location.resolve(str(growing)), layout, ALL_VERSIONS).finish(plan).is_new
    assert (growing / plan.name).read_bytes() == built(messages, layout).files[0].encode()


class TestHostileIndexes:
    """An index that is not that of the log is said to be none, with the file's name and what to do."""

    LAYOUT = IndexLayout(3, 5)
    MESSAGES = tuple(PlainMessage(number * MESSAGE_SIZE, 1_795_000_000_000, [number, 7]) for number in range(5))

    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        (tmp_path / "blobs").mkdir()
        write_index(built(self.MESSAGES[:3], self.LAYOUT).files, tmp_path)
        return tmp_path

    def resume(self, store: Path, messages: Sequence[PlainMessage]) -> list[CorruptRange]:
        rows = split_rows(messages, [0], Location.resolve(str(store / "blobs")))
        return resume(store, rows, self.LAYOUT)[0]

    def newest(self, store: Path) -> Path:
        return max((store / "index").iterdir())

    @pytest.mark.parametrize(
        ("messages", "reason"),
        [
            ([PlainMessage(one.offset, one.store_timestamp, [9]) for one in MESSAGES], "such keys"),
            ([PlainMessage(one.offset // 2, 1, one.key_hashes) for one in MESSAGES], "such keys"),
            (MESSAGES[:2], "the log ends before it"),
        ],
    )
    def test_another_log(self, store: Path, messages: Sequence[PlainMessage], reason: str) -> None:
        (wrong,) = self.resume(store, messages)
        assert (wrong.code, wrong.commit_log_offset, wrong.file) == ("CONTRADICTED_INDEX", 200, str(self.newest(store)))
        assert f"{reason}; --replace" in wrong.describe()

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda data: data[:24] + struct.pack(">q", 100) + data[32:], r"the header ends at .*--replace"),
            (lambda data: data[:50], "50 bytes"),
            (lambda data: b"\xff" * len(data), "--replace"),
        ],
    )
    def test_a_damaged_file(self, store: Path, change: Callable[[bytes], bytes], reason: str) -> None:
        file = self.newest(store)
        file.write_bytes(change(file.read_bytes()))
        with pytest.raises(CorruptIndexError, match=f"{file.name}.*{reason}"):
            self.resume(store, self.MESSAGES)

    def test_a_file_that_is_not_full_before_the_last(self, store: Path) -> None:
        (store / "index" / f"{int(FIRST_NAME) + 9}").write_bytes(PlainIndexFile.after(self.LAYOUT, 0, 0).encode())
        with pytest.raises(CorruptIndexError, match=r"it is not full.*--replace"):
            self.resume(store, self.MESSAGES)

    @pytest.mark.parametrize("name", ["3", "999"])
    def test_a_name_behind_which_nothing_comes(self, store: Path, name: str) -> None:
        self.newest(store).rename(store / "index" / name)
        with pytest.raises(CorruptIndexError, match=r"its name is not a time.*--replace"):
            self.resume(store, self.MESSAGES)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 7), st.data())
def test_a_blob_gives_any_range_of_what_was_put_into_it(steps: list[int], chunk: int, data: st.DataObject) -> None:
    offsets = [sum(steps[: number + 1]) for number in range(len(steps))]
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(entries_file, "BATCH_ENTRIES", chunk):
        with StagedEntriesWriter(Location.resolve(folder)) as writer:
            rest = [(number, at, -at) for number, at in enumerate(offsets)]
            while rest:
                count = data.draw(st.integers(1, len(rest)))
                writer.add(entries_of(rest[:count]))
                rest = rest[count:]
        blob: StagedEntries = writer.staged
        start = data.draw(st.integers(0, len(offsets)))
        stop = data.draw(st.integers(start, len(offsets)))
        read = [
            entry
            for part in EntryRange(blob, start, stop - start).read()
            for entry in zip(part.key_hashes, part.commit_log_offsets, part.store_timestamps, strict=True)
        ]
        assert read == [(number, offsets[number], -offsets[number]) for number in range(start, stop)]
        assert [blob.count_before(at) for at in range(30)] == [sum(one < at for one in offsets) for at in range(30)]
        assert blob.count == len(offsets)
