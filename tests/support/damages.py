"""A catalogue of damages, each done to bytes that a broker wrote.

Each damage gives the place at which it must be found: code, file and position. `also` are codes of its consequences.
`tests/verifier/test_near_misses.py` has a near miss for each of them, which must stay silent.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spark_mq.format.record import Record
from tests.support.verified import Bench

Place = tuple[str, int | None]
Change = Callable[[Bench], Place]
Where = Callable[[Bench], tuple[str, int]]
"""A file of a store, and a position in it."""


@dataclass(frozen=True)
class Damage:
    """One entry of the catalogue."""

    code: str
    name: str
    do: Change
    store: str = "workload-533"
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.code}-{self.name}"


DAMAGES: list[Damage] = []


def damage(code: str, *also: str, store: str = "workload-533") -> Callable[[Change], Change]:
    def add(do: Change) -> Change:
        DAMAGES.append(Damage(code, do.__name__, do, store, also))
        return do

    return add


def add_all(changes: dict[tuple[str, ...], Change]) -> None:
    """Add changes to the catalogue, by their names and codes."""
    for (name, code, *others), do in changes.items():
        DAMAGES.append(Damage(code, name, do, also=tuple(others)))


def body_at(bench: Bench, offset: int) -> int:
    """The position of a record's body, counted from the record's start."""
    record = bench.record(offset)
    return 48 + len(record.born_host) + 8 + len(record.store_host) + 16


def properties_at(bench: Bench, offset: int) -> int:
    record = bench.record(offset)
    return body_at(bench, offset) + len(record.body) + (2 if record.magic == -626843477 else 1) + len(record.topic) + 2


def ordinary(bench: Bench, number: int = 40) -> int:
    """The offset of a message with a body, tags, a unique key and keys, in the middle of a segment."""
    facts = [fact for fact in bench.messages if fact["topic"] == "SequenceDemo" and fact["bodyLenRaw"] > 20]
    return int(facts[number]["offset"])


def of_topic(bench: Bench, topic: str) -> int:
    return next(int(fact["offset"]) for fact in bench.messages if fact["topic"] == topic)


def change(bench: Bench, offset: int, at: int, data: bytes) -> Place:
    """Write into a record; the place of the record."""
    file, position = bench.segment(offset)
    bench.write(file, position + at, data)
    return file, position


def flip(bench: Bench, offset: int, at: int, bit: int = 0) -> Place:
    file, position = bench.segment(offset)
    bench.flip(file, position + at, bit)
    return file, position


def of_place(where: Where, at: int, data: bytes | None = None, bit: int = 0) -> Change:
    """A bit changes, or bytes, `at` bytes after a place."""

    def do(bench: Bench) -> Place:
        file, position = where(bench)
        bench.flip(file, position + at, bit) if data is None else bench.write(file, position + at, data)
        return file, position

    return do


def of_file(where: Where | str, do: Callable[[Path], object]) -> Change:
    """A whole file is changed, or is new."""

    def done(bench: Bench) -> Place:
        file = where if isinstance(where, str) else where(bench)[0]
        do(bench.path / file)
        return file, None

    return done


def cut(size: int) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, size)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


NOTE = text("do not delete")


# records


def in_properties(found: bytes) -> Callable[[Bench, int], int]:
    """The position after a text in the properties of a record, counted from the record's start."""
    return lambda bench, offset: (
        properties_at(bench, offset) + bench.record(offset).properties.index(found) + len(found)
    )


def of_record(
    at: int | Callable[[Bench, int], int], bit: int = 0, data: Callable[[Record], bytes] | None = None
) -> Change:
    """A bit of an ordinary record changes, or bytes."""

    def do(bench: Bench) -> Place:
        offset = ordinary(bench)
        place = at if isinstance(at, int) else at(bench, offset)
        if data is None:
            return flip(bench, offset, place, bit)
        return change(bench, offset, place, data(bench.record(offset)))

    return do


LOST_MESSAGE = ("QUEUE_NO_MESSAGE", "INDEX_NO_MESSAGE")
add_all(
    {
        ("a_bit_of_a_body", "RECORD_BODY_CRC"): of_record(lambda bench, offset: body_at(bench, offset) + 3),
        ("a_bit_of_a_body_crc", "RECORD_BODY_CRC"): of_record(9),
        ("a_bit_of_a_magic", "LOG_CORRUPT", *LOST_MESSAGE): of_record(4),
        ("a_topic_length", "LOG_CORRUPT", *LOST_MESSAGE): of_record(
            lambda bench, offset: body_at(bench, offset) + len(bench.record(offset).body), 3
        ),
        ("a_properties_length", "LOG_CORRUPT", *LOST_MESSAGE): of_record(
            lambda bench, offset: properties_at(bench, offset) - 1, 2
        ),
        ("an_unknown_flag", "RECORD_SYS_FLAG"): of_record(38, 4),
        ("a_body_that_is_not_compressed", "RECORD_COMPRESSION"): of_record(39),
        ("a_size_that_is_one_too_large", "LOG_CORRUPT", *LOST_MESSAGE): of_record(
            0, data=lambda record: struct.pack(">i", record.size + 1)
        ),
        ("another_own_offset", "LOG_CORRUPT", *LOST_MESSAGE): of_record(
            28, data=lambda record: struct.pack(">q", record.commit_log_offset + 131072)
        ),
        ("a_record_of_zeros", "LOG_CORRUPT", *LOST_MESSAGE): of_record(0, data=lambda record: bytes(record.size)),
        ("a_property_without_a_separator", "RECORD_PROPERTIES", *LOST_MESSAGE): of_record(
            in_properties(b"WAIT"), data=lambda record: b" "
        ),
        ("a_property_that_is_not_utf8", "RECORD_PROPERTIES"): of_record(
            in_properties(b"WAIT\1t"), data=lambda record: b"\xf2"
        ),
        ("a_negative_queue_offset", "RECORD_QUEUE_OFFSET", "QUEUE_NO_MESSAGE"): of_record(
            20, data=lambda record: struct.pack(">q", -1)
        ),
    }
)


@damage("RECORD_TIME_FAR_BACK", "INDEX_TIME", "INDEX_HEADER")
def a_store_time_of_tomorrow(bench: Bench) -> Place:
    offset = ordinary(bench)
    record = bench.record(offset)
    change(bench, offset, 48 + len(record.born_host), struct.pack(">q", record.store_timestamp + 86_400_000))
    return bench.segment(offset + record.size)


@damage("RECORD_CRC", store="crc-533")
def a_bit_of_a_property(bench: Bench) -> Place:
    offset = next(fact["offset"] for fact in bench.messages if b"WAIT\1" in bench.record(fact["offset"]).properties)
    at = bench.record(offset).properties.index(b"WAIT\1")
    return flip(bench, offset, properties_at(bench, offset) + at)


@damage("QUEUE_NO_MESSAGE", "TOPIC_NAME", "INDEX_ENTRY_WRONG", "INDEX_CHAIN", "INDEX_SLOT")
def a_topic_with_a_slash(bench: Bench) -> Place:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SequenceDemo" and fact["queueOffset"] == 3)
    offset = fact["offset"]
    record = bench.record(offset)
    change(bench, offset, body_at(bench, offset) + len(record.body) + 1, b"/")
    return bench.unit("SequenceDemo", fact["queueId"], 3)


# segments


def segment(offset: int) -> Where:
    return lambda bench: bench.segment(offset)


def filler(bench: Bench) -> tuple[str, int]:
    return bench.segment(bench.packed.facts("blank")[1]["offset"])


add_all(
    {
        ("a_filler_of_zeros", "SEGMENT_FILLER"): of_place(filler, 0, bytes(8)),
        ("a_filler_of_another_size", "SEGMENT_FILLER"): of_place(filler, 3),
        ("a_segment_that_is_cut", "SEGMENT_SIZE", "SEGMENT_GAP", "LOG_CORRUPT", "SEGMENT_FILLER", *LOST_MESSAGE): (
            of_file(segment(140_000), cut(100_000))
        ),
        ("an_empty_segment", "SEGMENT_EMPTY"): of_file(segment(5 * 131072), Path.touch),
        ("a_lost_segment", "SEGMENT_GAP", *LOST_MESSAGE): of_file(segment(140_000), Path.unlink),
        ("a_note_beside_segments", "FOLDER_STRAY_FILE"): of_file("commitlog/notes.txt", NOTE),
        ("a_backup_beside_segments", "FOLDER_SUBFOLDER"): of_file("commitlog/backup", Path.mkdir),
    }
)


@damage("SEGMENT_STRAY")
def a_copy_under_another_name(bench: Bench) -> Place:
    shutil.copy(bench.path / bench.segment(0)[0], bench.path / f"commitlog/{40 * 131072:020d}")
    return f"commitlog/{40 * 131072:020d}", None


def live_end(bench: Bench) -> int:
    (fact,) = bench.packed.facts("store")
    return int(fact["maxPhyOffset"])


@damage("LOG_STALE_TAIL")
def old_records_after_the_live_end(bench: Bench) -> Place:
    end = live_end(bench)
    old = ordinary(bench)
    data = bytearray(bench.read(*bench.segment(old), bench.record(old).size))
    data[28:36] = struct.pack(">q", end + 40)
    change(bench, end, 40, bytes(data))
    return bench.segment(end)


@damage("QUEUE_UNIT_STALE", "INDEX_ENTRY_STALE", "CHECKPOINT_AHEAD", "INDEX_HEADER", "OFFSET_PAST_END")
def the_last_record(bench: Bench) -> Place:
    fact = max(bench.messages, key=lambda fact: fact["offset"])
    flip(bench, fact["offset"], 5)
    return bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])


# consume queues

QUEUE = ("SequenceDemo", 0)


def unit(bench: Bench) -> tuple[str, int]:
    return bench.unit(*QUEUE, 7)


def last_unit(bench: Bench) -> tuple[str, int]:
    fact = next(f for f in bench.packed.facts("queue") if (f["topic"], f["queueId"]) == QUEUE)
    return bench.unit(*QUEUE, fact["max"] - 1)


def delayed_unit(bench: Bench) -> tuple[str, int]:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SCHEDULE_TOPIC_XXXX")
    return bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])


the_last_unit = of_place(last_unit, 0, bytes(20))
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
add_all(
    {
        ("a_bit_of_a_unit_s_offset", "QUEUE_UNIT_WRONG"): of_place(unit, 6),
        ("a_bit_of_a_unit_s_size", "QUEUE_UNIT_WRONG"): of_place(unit, 11),
        ("a_bit_of_a_tags_code", "QUEUE_UNIT_WRONG"): of_place(unit, 19),
        ("a_unit_of_zeros", "QUEUE_UNIT_MISSING"): of_place(unit, 0, bytes(20)),
        ("a_pre_blank_unit_instead_of_a_message", "QUEUE_UNIT_MISSING"): of_place(unit, 0, PRE_BLANK),
        ("the_last_unit", "QUEUE_LAGS_CLEAN"): the_last_unit,
        ("a_due_time", "QUEUE_DUE_TIME"): of_place(delayed_unit, 19),
        ("a_queue_file_that_is_cut", "QUEUE_FILE_SIZE"): of_file(unit, cut(1000)),
        ("a_last_queue_file_of_no_bytes", "QUEUE_FILE_SIZE", "QUEUE_LAGS_CLEAN"): of_file(last_unit, cut(0)),
        ("a_lost_queue_file", "QUEUE_FILE_MISSING"): of_file(unit, Path.unlink),
        ("a_lost_first_file", "QUEUE_FILE_MISSING"): of_file(
            lambda bench: bench.unit("SequenceDemo", 1, 0), Path.unlink
        ),
        ("a_note_beside_queue_files", "FOLDER_STRAY_FILE"): of_file("consumequeue/SequenceDemo/0/notes.txt", NOTE),
    }
)


@damage("QUEUE_LAGS")
def the_last_unit_of_a_killed_broker(bench: Bench) -> Place:
    (bench.path / "abort").touch()
    return the_last_unit(bench)


@damage("QUEUE_UNIT_MISPLACED")
def two_units_that_are_swapped(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    data = bench.read(file, position, 40)
    bench.write(file, position, data[20:] + data[:20])
    return file, position


@damage("QUEUE_UNIT_MISPLACED", "QUEUE_LAGS_CLEAN", "QUEUE_UNIT_WRONG", "QUEUE_UNIT_MISSING")
def units_that_are_shifted(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    data = bench.read(file, position, 2000)
    bench.write(file, position, data[20:] + bytes(20))
    return file, position


@damage("QUEUE_UNIT_EXTRA")
def a_unit_that_is_doubled_at_the_end(bench: Bench) -> Place:
    file, position = last_unit(bench)
    assert position < 1980
    bench.write(file, position + 20, bench.read(file, position, 20))
    return file, position + 20


@damage("QUEUE_UNIT_STALE")
def a_unit_after_the_live_end(bench: Bench) -> Place:
    file, position = last_unit(bench)
    bench.write(file, position + 20, struct.pack(">qiq", live_end(bench), 200, 0))
    return file, position + 20


@damage("QUEUE_PRE_BLANK")
def a_pre_blank_unit_of_zeros(bench: Bench) -> Place:
    file, position = bench.unit("MovedQueue", 0, 430)
    assert bench.read(file, position, 20) == PRE_BLANK
    bench.write(file, position, bytes(20))
    return file, position


@damage("QUEUE_MISSING", "QUEUE_FILE_SIZE")
def an_only_queue_file_of_no_bytes(bench: Bench) -> Place:
    """Of a topic that is not configured: its queue is not deleted, because it has a file."""
    file, position = bench.unit("DirectTopic", 0, 0)
    os.truncate(bench.path / file, 0)
    return file, position


@damage("QUEUE_FILE_NAME", "QUEUE_LAGS_CLEAN", "QUEUE_MISSING", "QUEUE_FILE_MISSING")
def a_queue_file_under_another_name(bench: Bench) -> Place:
    file, _ = bench.unit(*QUEUE, 7)
    renamed = f"{file[:-1]}7"
    (bench.path / file).rename(bench.path / renamed)
    return renamed, None


@damage("QUEUE_MISSING")
def a_lost_queue(bench: Bench) -> Place:
    shutil.rmtree(bench.path / "consumequeue/SequenceDemo/0")
    return "consumequeue/SequenceDemo/0/00000000000000000000", 0


@damage("FOLDER_STRAY_FILE")
def a_note_beside_no_queue_files(bench: Bench) -> Place:
    """Brokers load a queue folder also if it has no queue file."""
    (bench.path / "consumequeue/SequenceDemo/9").mkdir()
    (bench.path / "consumequeue/SequenceDemo/9/notes.txt").write_text("do not delete")
    return "consumequeue/SequenceDemo/9/notes.txt", None


@damage("NOT_A_FILE")
def a_named_pipe(bench: Bench) -> Place:
    (bench.path / "config/consumerFilter.json").unlink()
    os.mkfifo(bench.path / "config/consumerFilter.json")
    return "config/consumerFilter.json", None


@damage("QUEUE_EXPIRED_ORDER", store="deleted-533")
def expired_units_that_are_swapped(bench: Bench) -> Place:
    """A file whose first two units are of expired messages."""
    (fact,) = bench.packed.facts("store")
    for path in sorted((bench.path / "consumequeue").glob("*/*/*")):
        units = list(struct.iter_unpack(">qiq", path.read_bytes()[:40]))
        if all(0 < offset < fact["minPhyOffset"] and size != 0x7FFFFFFF for offset, size, _ in units):
            file = str(path.relative_to(bench.path))
            data = bench.read(file, 0, 40)
            bench.write(file, 0, data[20:] + data[:20])
            return file, 20
    raise AssertionError("no file with expired units")


# the index


def of_index(at: int, place: int, entry: int = 0, data: bytes | None = None) -> Change:
    """A bit of an index file, or of an entry, changes; or bytes."""
    return of_place(lambda bench: (bench.index_file(1), (bench.entry(entry) if entry else 0) + place), at - place, data)


def of_index_count(more: int) -> Change:
    def do(bench: Bench) -> Place:
        file = bench.index_file(-1)
        (count,) = struct.unpack(">i", bench.read(file, 36, 4))
        bench.write(file, 36, struct.pack(">i", count + more))
        return file, 36

    return do


add_all(
    {
        ("a_begin_time", "INDEX_HEADER", "INDEX_TIME"): of_index(6, 0),
        ("an_end_time", "INDEX_HEADER", "INDEX_TIME", "CHECKPOINT_AHEAD"): of_index(13, 8),
        ("a_begin_offset", "INDEX_HEADER"): of_index(22, 16),
        ("an_end_offset", "INDEX_HEADER"): of_index(30, 24),
        ("a_slot_count", "INDEX_HEADER"): of_index(35, 32),
        ("a_key_hash", "INDEX_ENTRY_WRONG"): of_index(2, 0, 20),
        ("an_entry_s_offset", "INDEX_ENTRY_WRONG"): of_index(10, 0, 20),
        ("an_entry_of_zeros", "INDEX_ENTRY_WRONG", "INDEX_TIME", "INDEX_CHAIN"): of_index(0, 0, 20, bytes(20)),
        ("an_entry_s_time", "INDEX_TIME"): of_index(14, 0, 20),
        ("an_index_count_that_is_too_small", "INDEX_COUNT"): of_index_count(-30),
        ("an_index_count_that_is_too_large", "INDEX_COUNT"): of_index_count(30),
        ("a_negative_index_count", "INDEX_COUNT"): of_place(lambda bench: (bench.index_file(2), 36), 0, b"\xff"),
        ("an_index_file_that_is_cut", "INDEX_FILE_SIZE", "INDEX_ENTRY_MISSING", "INDEX_TIME"): of_file(
            lambda bench: (bench.index_file(1), 0), cut(5000)
        ),
    }
)


def used_slot(bench: Bench, file: str) -> int:
    hashed = bench.entries(file)[9][0]
    return 40 + 4 * (hashed % bench.setting("maxHashSlotNum"))


@damage("INDEX_SLOT")
def a_slot_of_zeros(bench: Bench) -> Place:
    file = bench.index_file(1)
    at = used_slot(bench, file)
    bench.write(file, at, bytes(4))
    return file, at


@damage("INDEX_SLOT")
def a_slot_that_skips_entries(bench: Bench) -> Place:
    file = bench.index_file(1)
    at = used_slot(bench, file)
    (newest,) = struct.unpack(">i", bench.read(file, at, 4))
    bench.write(file, at, bench.read(file, bench.entry(newest) + 16, 4))
    return file, at


def chained(bench: Bench, file: str) -> int:
    """The number of an entry that has two entries before it in its chain."""
    entries = bench.entries(file)
    return next(n for n, e in enumerate(entries, 1) if e[3] > 0 and entries[e[3] - 1][3] > 0)


@damage("INDEX_CHAIN")
def a_pointer_that_became_zero(bench: Bench) -> Place:
    file = bench.index_file(1)
    at = bench.entry(chained(bench, file))
    bench.write(file, at + 16, bytes(4))
    return file, at


@damage("INDEX_CHAIN")
def a_pointer_that_skips_an_entry(bench: Bench) -> Place:
    file = bench.index_file(1)
    number = chained(bench, file)
    entries = bench.entries(file)
    bench.write(file, bench.entry(number) + 16, struct.pack(">i", entries[entries[number - 1][3] - 1][3]))
    return file, bench.entry(number)


@damage("INDEX_ENTRY_MISSING", "INDEX_TIME")
def a_lost_index_file(bench: Bench) -> Place:
    (bench.path / bench.index_file(2)).unlink()
    file = bench.index_file(2)
    return file, bench.entry(1)


@damage("INDEX_LAGS", "CHECKPOINT_AHEAD")
def the_last_index_file(bench: Bench) -> Place:
    (bench.path / bench.index_file(-1)).unlink()
    return bench.index_file(-1), None


@damage("INDEX_MISSING")
def the_whole_index(bench: Bench) -> Place:
    shutil.rmtree(bench.path / "index")
    return "index", None


@damage("INDEX_ORDER", "CHECKPOINT_AHEAD")
def two_index_files_with_swapped_names(bench: Bench) -> Place:
    one, other = bench.index_file(1), bench.index_file(2)
    shutil.move(bench.path / one, bench.path / "index/kept")
    shutil.move(bench.path / other, bench.path / one)
    shutil.move(bench.path / "index/kept", bench.path / other)
    return one, None


@damage("INDEX_AFTER_END")
def bytes_after_the_last_entry(bench: Bench) -> Place:
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    bench.write(file, bench.entry(count + 3), b"\1\2\3\4\5")
    return file, bench.entry(count)


# the rest

add_all(
    {
        ("a_checkpoint_that_is_cut", "CHECKPOINT_SIZE"): of_file("checkpoint", cut(100)),
        ("a_time_in_the_checkpoint", "CHECKPOINT_AHEAD"): of_place(lambda bench: ("checkpoint", 0), 3, bit=4),
        ("an_epoch_after_the_end", "EPOCHS"): of_file("epochFileCheckpoint", text("2\n0\n1-0\n2-90000000\n")),
        ("epochs_that_are_cut", "EPOCHS"): of_file("epochFileCheckpoint", text("2\n0\n1-0\n")),
        ("topics_that_are_cut", "CONFIG_FROM_BACKUP"): of_file("config/topics.json", cut(300)),
        ("a_delay_offset_past_the_end", "DELAY_OFFSET_PAST_END"): of_file(
            "config/delayOffset.json", text('{"offsetTable":{1:5000}}')
        ),
    }
)


@damage("CONFIG_BROKEN")
def offsets_that_are_cut_with_their_backup(bench: Bench) -> Place:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (bench.path / "config" / name).write_text('{"offsetTable":{"a@b":{0:')
    return "config/consumerOffset.json", None


@damage("TIMER_LOG_CUT")
def a_lost_timer_log(bench: Bench) -> Place:
    shutil.rmtree(bench.path / "timerlog")
    return "timerlog", None


def write_offset(bench: Bench, offset: int) -> None:
    (bench.path / "config/consumerOffset.json").write_text(
        json.dumps({"offsetTable": {"SequenceDemo@readers": {"0": offset}}}).replace('"0"', "0")
    )


@damage("OFFSET_PAST_END")
def an_offset_past_the_end(bench: Bench) -> Place:
    write_offset(bench, 10_000)
    return "config/consumerOffset.json", None
