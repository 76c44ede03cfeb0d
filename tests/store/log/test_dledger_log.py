"""A DLedger log: rows, units and index entries are those of the broker; its end, and what is before it."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_mq._compat import HAS_READ_LIMITS
from spark_mq.format.dledger import HEAD, HEAD_SIZE
from spark_mq.io.location import Location
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.store.log import dledger_log
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import SegmentFile
from spark_mq.store.message_store import MessageStore
from tests.support.in_process import read_rows
from tests.support.rebuilt import rebuild_here
from tests.support.restored import restored_plain
from tests.support.stores import OWN_STORES, RealStore

STORE = RealStore("fDledger533", OWN_STORES / "forms")
SEGMENT = 300_140
END = 403_297
"""The end of the last entry: the broker's own index says it (`test_the_units_of_dledgers_index_are_the_entries`)."""
Row = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STORE.unpack(tmp_path_factory.mktemp("dledger"))


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """A copy without DLedger's index, which is large."""
    return Path(shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("timerwheel", "index")))


def segment(store: Path, base: int) -> Path:
    return store / "dledger-n0" / "data" / f"{base:020d}"


def index_units(store: Path) -> list[tuple[int, ...]]:
    """Magic number, position, size, index and term of the units that the broker wrote."""
    with (store / "dledger-n0" / "index" / ("0" * 20)).open("rb") as file:
        units = list(struct.iter_unpack(">iqiqq", file.read(32 * 400)))
    return [unit for unit in units if unit[0]]


def change(store: Path, offset: int, content: bytes) -> None:
    with segment(store, offset // SEGMENT * SEGMENT).open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(content)


def test_each_entry_of_the_brokers_index_is_a_message(store: Path) -> None:
    units, rows = index_units(store), read_rows(path=str(store))
    assert len(units) == 327
    assert [(row["commit_log_offset"], row["store_size"]) for row in rows] == [
        (position + HEAD_SIZE, size - HEAD_SIZE) for _, position, size, _, _ in units
    ]
    assert units[-1][1] + units[-1][2] == END
    with MessageStore(str(store)) as opened:
        assert opened.get_max_phy_offset() == END
        for row in rows[::20]:
            (found,) = opened.look_message_by_offset(row["commit_log_offset"]).to_pylist()
            assert found["unique_key"] == row["unique_key"]


def test_rebuilt_queues_and_index_are_the_brokers(store: Path, tmp_path: Path) -> None:
    rebuild_here(store, tmp_path / "new", broker_conf=str(STORE.broker_conf))
    files = [path for path in (store / "consumequeue").rglob("*") if path.is_file()]
    assert len(files) == 13
    for file in files:
        assert (tmp_path / "new" / file.relative_to(store)).read_bytes() == file.read_bytes(), file
    (index,), (made,) = (list((folder / "index").iterdir()) for folder in (store, tmp_path / "new"))
    assert made.read_bytes() == index.read_bytes()  # its name is the moment at which the broker made it


@pytest.mark.parametrize("topic", ["b1_Main", "b1timer"])
def test_a_read_by_topic_gives_its_messages(topic: str, store: Path) -> None:
    wanted = [row for row in read_rows(path=str(store)) if row["topic"] == topic]
    assert read_rows(path=str(store), topic=topic) == wanted


def damaged_at_random(copy: Path, store: Path, seed: int) -> None:
    for base in (0, SEGMENT):
        shutil.copy(segment(store, base), segment(copy, base))
    chance = random.Random(seed)
    for _ in range(chance.choice([1, 1, 2, 4])):
        offset = chance.randrange(END)
        length = min(chance.choice([1, 4, 48, 300, 2000]), SEGMENT - offset % SEGMENT)
        change(copy, offset, bytes([chance.randrange(256)]) * length)


def test_the_rows_of_a_damaged_log_do_not_depend_on_splits(copy: Path, store: Path) -> None:
    for seed in range(20):
        damaged_at_random(copy, store, seed)
        whole = sorted(map(framing, read_rows(path=str(copy))))
        for size in random.Random(seed).sample([1024, 1713, 4096, 9999, 50_000], 2):
            assert sorted(map(framing, read_rows(path=str(copy), splitSize=str(size)))) == whole, (seed, size)


def framing(row: Row) -> tuple[int, int, str]:
    return row["commit_log_offset"], row["store_size"], row["_corrupt_record"] or ""


Change = Callable[[Path, list[tuple[int, ...]]], None]


def with_lower_term(copy: Path, units: list[tuple[int, ...]]) -> None:
    change(copy, units[300][1] + 16, struct.pack(">q", -1))


def with_other_index(copy: Path, units: list[tuple[int, ...]]) -> None:
    change(copy, units[300][1] + 8, struct.pack(">q", 400))


def without_its_head(copy: Path, units: list[tuple[int, ...]]) -> None:
    change(copy, units[300][1], bytes(HEAD_SIZE))


def after_an_empty_entry(copy: Path, units: list[tuple[int, ...]]) -> None:
    """Three entries without a body (`DLedgerEntryType.NOOP`) take the place of the last message."""
    position = units[-1][1]
    noops = [HEAD.pack(2, HEAD_SIZE, 326 + at, 0, position + HEAD_SIZE * at, 0, 0, 0, 0) for at in range(3)]
    change(copy, position, b"".join(noops).ljust(units[-1][2], b"\0"))


@pytest.mark.parametrize(
    ("damage", "count", "end"),
    [
        (with_lower_term, 300, 300),  # entries of another leader, which were cut off
        (with_other_index, 300, 300),
        (without_its_head, 327, 327),  # the record is there, and the entries after it go on
        (after_an_empty_entry, 326, 326),
    ],
)
def test_the_log_ends_before_an_entry_that_does_not_follow(
    damage: Change, count: int, end: int, copy: Path, store: Path
) -> None:
    units = index_units(store)
    damage(copy, units)
    rows = [row for row in read_rows(path=str(copy)) if row["_corrupt_record"] is None]
    assert len(rows) == count
    log = CommitLog.open(Location.resolve(str(copy)))
    at = units[-1][1] + 3 * HEAD_SIZE if damage is after_an_empty_entry else (units[end][1] if end < 327 else END)
    assert log.segments[-1].base + log.segments[-1].data_end == at
    with MessageStore(str(copy)) as opened:  # the index leads to records after that
        assert opened.get_max_phy_offset() == at


def test_the_plain_log_from_before_is_read_up_to_dledgers_first_file(store: Path, tmp_path: Path) -> None:
    """A plain file of the same size is put before an entry log that starts at its second file."""
    plain = restored_plain(store, tmp_path / "plain", STORE.broker_conf)
    mixed = Path(shutil.copytree(tmp_path / "plain", tmp_path / "mixed"))
    (mixed / "dledger-n0" / "data").mkdir(parents=True)
    shutil.copy(segment(store, SEGMENT), segment(mixed, SEGMENT))
    older = [row for row in read_rows(path=str(tmp_path / "plain")) if row["commit_log_offset"] < SEGMENT]
    newer = [row for row in read_rows(path=str(store)) if row["commit_log_offset"] >= SEGMENT]
    assert plain.messages == 327
    assert len(list((mixed / "commitlog").iterdir())) == 2  # the second one is not served
    assert read_rows(path=str(mixed)) == [*older, *newer]


def test_a_plain_store_has_all_messages_with_their_queue_offsets(store: Path, tmp_path: Path) -> None:
    report = restored_plain(store, tmp_path / "new", STORE.broker_conf)
    before, after = read_rows(path=str(store)), read_rows(path=str(tmp_path / "new"))
    new = ("commit_log_offset", "offset_message_id")
    assert [{**row, **dict.fromkeys(new)} for row in after] == [{**row, **dict.fromkeys(new)} for row in before]
    assert (report.messages, len(after)) == (327, 327)
    assert any("is a DLedger log" in note for note in report.notes)


def test_a_restore_of_a_damaged_log_says_what_is_lost(copy: Path, store: Path, tmp_path: Path) -> None:
    units = index_units(store)
    change(copy, units[310][1] + HEAD_SIZE, bytes(100))
    change(copy, units[326][1], bytes(units[326][2]))
    (copy / "dledger-n0" / "index").mkdir()
    report = restored_plain(copy, tmp_path / "new", STORE.broker_conf)
    assert report.messages == 325
    lost = [note for note in report.notes if "lost" in note]
    assert len(lost) == 2
    assert any(f"from commit log offset {units[310][1] + HEAD_SIZE}" in note for note in lost)
    assert any("entries 326 to 326 are lost" in note for note in lost)


def streamed(path: Path, start: dict[str, Any] | None = None, **options: str) -> tuple[dict[str, Any], list[int]]:
    """The end of a stream of all that is there, and the commit log offsets of its rows."""
    stream = MessagesStreamReader(parse_stream_options({"path": str(path), **options}), ["commit_log_offset"])
    start, found = stream.initialOffset() if start is None else start, list[int]()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        for partition in stream.partitions(start, end):
            for batch in stream.read(partition):
                found += batch["commit_log_offset"].to_pylist()
        start = end
    return dict(start), found


LIMITS = ({"maxMessagesPerTrigger": "40"},) if HAS_READ_LIMITS else ()


@pytest.mark.parametrize("options", [{}, {"splitSize": "1k"}, *LIMITS], ids=str)
def test_a_stream_of_a_node_that_grows_has_each_message_once(options: dict[str, str], copy: Path, store: Path) -> None:
    units, found = index_units(store), list[int]()
    end: dict[str, Any] | None = None
    whole = segment(store, SEGMENT).read_bytes()
    for index in (240, 300, 327):
        written = units[index][1] - SEGMENT if index < len(units) else len(whole)
        segment(copy, SEGMENT).write_bytes(whole[:written].ljust(SEGMENT, b"\0"))
        end, new = streamed(copy, end, **options)
        found += new
    assert sorted(found) == [position + HEAD_SIZE for _, position, *_ in units]


def test_the_end_is_searched_from_the_committed_entry(store: Path, tmp_path: Path) -> None:
    """What the checkpoint names must be in index and log; a wrong number changes no end."""
    folder = Path(shutil.copytree(store / "dledger-n0", tmp_path / "store" / "dledger-n0"))
    units, location = index_units(store), Location.resolve(str(tmp_path / "store"))
    change(tmp_path / "store", units[300][1] + 16, struct.pack(">q", -1))  # a term that would end the log
    ends = []
    for committed in (326, 310, 299, 327, 10**18, -1):
        (folder / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={max(committed, 326)}\n")
        log = CommitLog.open(location)
        ends.append(log.segments[-1].base + log.segments[-1].data_end)
    assert ends == [END, END, units[300][1], units[300][1], units[300][1], units[300][1]]


def test_a_read_searches_for_the_end_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a checkpoint, a search reads the last segment from its start."""
    ends, find = list[int](), dledger_log.find_entries_end

    def counted(segments: Sequence[SegmentFile]) -> int:
        ends.append(find(segments))
        return ends[-1]

    monkeypatch.setattr(dledger_log, "find_entries_end", counted)
    assert len(read_rows(path=str(copy), startTimestamp="0")) == 327
    assert ends == [END]
