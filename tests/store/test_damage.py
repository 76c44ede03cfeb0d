"""Damage to bytes that brokers wrote: what is read around it is what a plain model of the log expects."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.record import decode_record
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.testing.plain_log import Place, expected_places, framing_fields, with_value, wrong_values
from tests.support.kernels import WITHOUT_JIT, examples
from tests.support.readers import Part, by_hopping, by_splits, limited_reads, split_sizes
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, RealStore, Unpack, segment_files, stores_in

OWN = {store.name: store for store in stores_in(OWN_STORES)}
STORES = [OWN[name] for name in ("crc-533",) if WITHOUT_JIT] or list(OWN.values())
SOME_STORES = [store for store in STORES if store.name in ("workload-533", "workload-49x", "crc-533", "stale-533")]
WORKLOAD, CRC = OWN["crc-533" if WITHOUT_JIT else "workload-533"], OWN["crc-533"]
Make = Callable[[RealStore], "Log"]


class Log:
    """A copy of a broker's commit log, which can be damaged."""

    def __init__(self, store: RealStore, commit_log: Path) -> None:
        self.commit_log = commit_log
        (fact,) = store.facts("store")
        self.live_end: int | None = fact["maxPhyOffset"] if store.name.startswith("stale-") else None
        self.segment_size: int = fact["mappedFileSizeCommitLog"]
        self.messages = sorted((fact["offset"], fact["size"]) for fact in store.facts("msg"))

    @property
    def files(self) -> list[Path]:
        """The segments; those behind the live end hold nothing and are left out."""
        return [file for file in segment_files(self.commit_log.parent) if int(file.name) <= self.messages[-1][0]]

    def stored(self, offset: int, size: int) -> bytes:
        """Bytes of the log."""
        base = offset // self.segment_size * self.segment_size
        with (self.commit_log / f"{base:020d}").open("rb") as file:
            file.seek(offset - base)
            return file.read(size)

    def write(self, offset: int, data: bytes) -> None:
        """Write into the log."""
        base = offset // self.segment_size * self.segment_size
        with (self.commit_log / f"{base:020d}").open("r+b") as file:
            file.seek(offset - base)
            file.write(data)

    @contextmanager
    def damaged(self, patches: dict[int, bytes]) -> Iterator[None]:
        """The log with these bytes at these offsets, for a while."""
        before = {offset: self.stored(offset, len(data)) for offset, data in patches.items()}
        for offset, data in patches.items():
            self.write(offset, data)
        try:
            yield
        finally:
            for offset, data in before.items():
                self.write(offset, data)

    def chosen(self) -> list[tuple[int, int]]:
        """The first, a middle and the last message of the first, a middle and the last segment."""
        bases = [int(file.name) for file in self.files]
        messages = []
        for base in sorted({bases[0], bases[len(bases) // 2], bases[-1]}):
            inside = [message for message in self.messages if base <= message[0] < base + self.segment_size]
            messages += [inside[0], inside[len(inside) // 2], inside[-1]]
        return messages

    def open(self) -> CommitLog:
        return CommitLog.open(Location.resolve(str(self.commit_log.parent)))

    def check(self, split_size: int | None = None) -> list[Place]:
        """Read the log, in one go or by splits; it must be what the model expects, and is returned."""
        log = self.open()
        with limited_reads():
            parts = by_hopping(log) if split_size is None else by_splits(log, split_size)
        found = [place(part) for part in parts] + [place_of(gap) for gap in log.gaps]
        found.sort(key=lambda place: place[1])
        assert found == expected_places(self.commit_log, self.live_end)
        return found


def place(part: Part) -> Place:
    return part[:3]


def place_of(corrupt: CorruptRange) -> Place:
    return corrupt.code, corrupt.commit_log_offset, corrupt.length


@pytest.fixture
def make(unpacked: Unpack, tmp_path: Path) -> Make:
    def make_log(store: RealStore) -> Log:
        shutil.copytree(unpacked(store) / "commitlog", tmp_path / str(store) / "commitlog")
        return Log(store, tmp_path / str(store) / "commitlog")

    return make_log


@pytest.mark.parametrize("store", STORES, ids=str)
def test_the_model_expects_of_a_sound_log_what_the_broker_says(store: RealStore, make: Make) -> None:
    log = make(store)
    assert log.check() == [("RECORD", offset, size) for offset, size in log.messages]


def field_damages(log: Log, messages: list[tuple[int, int]]) -> Iterator[dict[int, bytes]]:
    """One framing field of all these messages with a wrong value, field by field and value by value."""
    stored = {offset: log.stored(offset, size) for offset, size in messages}
    for number in range(len(framing_fields(next(iter(stored.values()))))):
        values = {}
        for offset, record in stored.items():
            field = framing_fields(record)[number]
            room = log.segment_size - offset % log.segment_size
            values[offset] = [
                (offset + field.at, with_value(field, value)) for value in wrong_values(record, field, room)
            ]
        for index in range(max(map(len, values.values()))):
            yield dict(of_message[index] for of_message in values.values() if index < len(of_message))


@pytest.mark.parametrize("store", cases([WORKLOAD, OWN["stale-533"]], list(OWN.values())), ids=str)
def test_wrong_framing_at_both_ends_and_in_the_middle_of_segments(store: RealStore, make: Make) -> None:
    log = make(store)
    sizes = split_sizes(log.open())
    codes = set()
    for number, patches in enumerate(field_damages(log, log.chosen())):
        with log.damaged(patches):
            codes |= {place[0] for place in log.check()}
            log.check(sizes[number % len(sizes)])
    assert number >= 40
    assert codes == {"RECORD", "BAD_SIZE", "BAD_MAGIC", "BAD_OFFSET", "BAD_LENGTHS"}


def test_wrong_framing_of_one_message(make: Make) -> None:
    log = make(WORKLOAD)
    for message in cases(log.chosen()[::4], log.chosen()):
        count = 0
        for patches in field_damages(log, [message]):
            with log.damaged(patches):
                log.check()
                count += 1
        assert count >= 40


def test_zeroed_and_overwritten_messages(make: Make) -> None:
    log = make(WORKLOAD)
    for offset, size in log.chosen():
        for start, length in ((0, 8), (0, size), (4, size - 4), (size // 2, size // 2), (0, size + 100)):
            length = min(length, log.segment_size - (offset + start) % log.segment_size)
            for content in (bytes(length), log.stored(log.messages[3][0], length)):
                with log.damaged({offset + start: content}):
                    log.check()


def cut(log: Log, which: int, keep: int) -> None:
    """Keep only so many bytes of a segment; a negative number: up to so far before its last message's end."""
    file = log.files[which]
    base = int(file.name)
    inside = [message for message in log.messages if base <= message[0] < base + log.segment_size]
    size = keep if keep >= 0 else sum(inside[-1]) + keep - base
    file.write_bytes(file.read_bytes()[:size])


def remove(log: Log, *which: int) -> None:
    for file in [log.files[index] for index in which]:
        file.unlink()


def zero(log: Log, which: int) -> None:
    log.files[which].write_bytes(bytes(log.segment_size))


def lengthen(log: Log, which: int, content: bytes) -> None:
    with log.files[which].open("ab") as file:
        file.write(content)


def copy(log: Log, source: int, target: int) -> None:
    shutil.copyfile(log.files[source], log.files[target])


def add(log: Log, name: str) -> None:
    (log.commit_log / name).write_bytes(b"\1" * 5000)


def add_folder(log: Log) -> None:
    (log.commit_log / f"{int(log.files[-1].name) + log.segment_size:020d}").mkdir()


def preallocate(log: Log, count: int) -> None:
    base = int(log.files[-1].name)
    for number in range(1, count + 1):
        (log.commit_log / f"{base + number * log.segment_size:020d}").write_bytes(bytes(log.segment_size))


OTHER_NAMES = ("x", "123", "0" * 19, "0" * 21, "0" * 19 + "x", "0" * 20 + ".bak", "9" * 20, ".0", "\u0660" * 20)
SHAPES: dict[str, tuple[Callable[..., None], *tuple[object, ...]]] = {
    **{f"segment {which} has {keep} bytes": (cut, which, keep) for which in (0, 1, -1) for keep in (1, 7, 8, 50, 9000)},
    **{
        f"segment {which} is cut {-keep} before": (cut, which, keep) for which in (0, 1, -1) for keep in (-1, -30, -200)
    },
    **{f"segment {which} is empty": (cut, which, 0) for which in (0, 1, -1)},
    **{f"segment {which} is missing": (remove, which) for which in (0, 1, -1)},
    "both segments in the middle are missing": (remove, 1, 2),
    **{f"segment {which} is zeros": (zero, which) for which in (0, 1, -1)},
    **{f"segment {which} is longer": (lengthen, which, b"\x55" * 3000) for which in (0, 1, -1)},
    **{f"segment {which} is longer by zeros": (lengthen, which, bytes(3000)) for which in (0, 1, -1)},
    "a segment is a copy of the first": (copy, 0, 1),
    "the last segment is a copy of the first": (copy, 0, -1),
    "the first segment is a copy of the last": (copy, -1, 0),
    **{f"there is {name}": (add, name) for name in OTHER_NAMES},
    "there is a folder": (add_folder,),
    **{f"{count} segments were made beforehand": (preallocate, count) for count in (1, 2)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_segments_of_other_shapes(shape: str, make: Make) -> None:
    log = make(OWN["workload-49x"])
    change, *arguments = SHAPES[shape]
    change(log, *arguments)
    whole = log.check()
    assert whole
    for size in split_sizes(log.open(), 4 << 10):
        assert log.check(size) == whole


@pytest.mark.parametrize("store", [OWN["stale-533"], OWN["stale-49x"]], ids=str)
def test_damage_before_a_stale_tail(store: RealStore, make: Make) -> None:
    log = make(store)
    last_base = int(log.files[-1].name)
    for offset, size in [message for message in log.messages if message[0] >= last_base][-12:]:
        for content in (bytes(size), b"\x55" * 8, log.stored(offset, 4) + bytes(4)):
            with log.damaged({offset: content}):
                log.check()
                log.check(1000)


def without_stale_tail(stores: list[RealStore]) -> list[RealStore]:
    return [store for store in stores if not store.name.startswith("stale-")]


@pytest.mark.parametrize("gap", [0, 1, 100])
@pytest.mark.parametrize("store", cases(*map(without_stale_tail, (SOME_STORES, STORES))), ids=str)
def test_older_messages_behind_the_end(store: RealStore, gap: int, make: Make) -> None:
    """Messages of the same broker, from the segment's beginning, as they would lie behind a log that was cut."""
    log = make(store)
    last_base = int(log.files[-1].name)
    older = [message for message in log.messages if message[0] >= last_base][:8]
    place = log.live_end = sum(log.messages[-1])
    tail = b"\x55" * gap
    for offset, size in older:
        record = bytearray(log.stored(offset, size))
        struct.pack_into(">q", record, 28, place + len(tail))
        assert decode_record(bytes(record), 0, place + len(tail)).queue_offset >= 0
        tail += record
    log.write(place, tail)
    expected = [("RECORD", offset, size) for offset, size in log.messages]
    assert log.check() == expected
    assert log.check(3000) == expected


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Log]:
    """The last two segments of each broker's log: less to read for each flip."""
    logs = {}
    for store in FLIPPED:
        log = logs[store.name] = Log(store, store.unpack(tmp_path_factory.mktemp("flipped")) / "commitlog")
        for file in log.files[:-2]:
            file.unlink()
        first = int(log.files[0].name)
        log.messages = [message for message in log.messages if message[0] >= first]
    return logs


FLIPPED = [WORKLOAD, CRC, OWN["killed-533"], OWN["stale-533"]]
bits_of_a_segment = st.integers(0, (1 << 63) - 1)
one_flip = st.tuples(st.just(-1), st.lists(bits_of_a_segment, min_size=1, max_size=1))
some_flips = st.tuples(st.just(0), st.lists(bits_of_a_segment, min_size=1, max_size=20))


@settings(max_examples=examples(1000))
@given(st.sampled_from(FLIPPED), st.one_of(one_flip, some_flips), st.sampled_from([None, 1 << 10, 10_000, 1 << 20]))
def test_flipped_bits(
    flipped: dict[str, Log], store: RealStore, flips: tuple[int, list[int]], split_size: int | None
) -> None:
    """Any in a segment before the last; one in the live part of the last, where times and queue offsets decide."""
    log = flipped[store.name]
    which, bits = flips
    base = int(log.files[which].name)
    size = log.segment_size if which == 0 else sum(log.messages[-1]) - base
    patches: dict[int, bytes] = {}
    for bit in bits:
        offset = base + bit // 8 % size
        (byte,) = patches.get(offset, log.stored(offset, 1))
        patches[offset] = bytes((byte ^ 1 << bit % 8,))
    with log.damaged(patches):
        log.check(split_size)


@pytest.mark.parametrize("store", [WORKLOAD, CRC], ids=str)
def test_a_flipped_bit_in_each_byte_of_the_last_message(flipped: dict[str, Log], store: RealStore) -> None:
    log = flipped[store.name]
    offset, size = log.messages[-1]
    counts = set()
    for index in range(size):
        (byte,) = log.stored(offset + index, 1)
        with log.damaged({offset + index: bytes((byte ^ 1 << index % 8,))}):
            counts.add(len(log.check()))
    assert counts == {len(log.messages) - 1, len(log.messages)}
