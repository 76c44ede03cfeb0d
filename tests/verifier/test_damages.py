"""A catalogue of damages, each done to bytes that a broker wrote, and beside it a near miss that must stay silent.

Each damage gives the place at which it must be found: code, file and position. `also` are codes of its consequences.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_mq.verifier.codes import all_codes
from tests.support.stores import OWN_STORES, RealStore
from tests.support.verified import Bench, check, grave

Unpack = Callable[[RealStore], Path]
Place = tuple[str, int | None]
Change = Callable[[Bench], Place]


@dataclass(frozen=True)
class Damage:
    """One entry of the catalogue."""

    code: str
    name: str
    do: Change
    near_miss: Callable[[Bench], object]
    store: str = "workload-533"
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.code}-{self.name}"


DAMAGES: list[Damage] = []


def damage(
    code: str, near_miss: Callable[[Bench], object], *also: str, store: str = "workload-533"
) -> Callable[[Change], Change]:
    def add(do: Change) -> Change:
        DAMAGES.append(Damage(code, do.__name__, do, near_miss, store, also))
        return do

    return add


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


def nothing(bench: Bench) -> None:
    """The store has the near miss already."""


# records


def a_body_with_its_new_crc(bench: Bench) -> None:
    offset = ordinary(bench)
    flip(bench, offset, body_at(bench, offset))
    crc = zlib.crc32(bench.record(offset).body) & 0x7FFFFFFF
    change(bench, offset, 8, struct.pack(">i", crc))


def any_crc_without_a_body(bench: Bench) -> None:
    offset = next(fact["offset"] for fact in bench.messages if fact["bodyLenRaw"] == 0)
    change(bench, offset, 8, b"\1\2\3\4")


@damage("RECORD_BODY_CRC", a_body_with_its_new_crc)
def a_bit_of_a_body(bench: Bench) -> Place:
    offset = ordinary(bench)
    return flip(bench, offset, body_at(bench, offset) + 3)


@damage("RECORD_BODY_CRC", any_crc_without_a_body)
def a_bit_of_a_body_crc(bench: Bench) -> Place:
    return flip(bench, ordinary(bench), 9)


def zeros_after_the_filler(bench: Bench) -> None:
    """4.9.0 leaves bytes of an earlier message after the eight bytes of a filler."""
    blank = bench.packed.facts("blank")[0]
    file, position = bench.segment(blank["offset"])
    bench.write(file, position + 8, b"\xda\xa3\x20\xa7"[: blank["size"] - 8])


LOST_MESSAGE = ("QUEUE_NO_MESSAGE", "INDEX_NO_MESSAGE")


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def a_bit_of_a_magic(bench: Bench) -> Place:
    return flip(bench, ordinary(bench), 4)


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def a_size_that_is_one_too_large(bench: Bench) -> Place:
    offset = ordinary(bench)
    return change(bench, offset, 0, struct.pack(">i", bench.record(offset).size + 1))


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def another_own_offset(bench: Bench) -> Place:
    offset = ordinary(bench)
    return change(bench, offset, 28, struct.pack(">q", offset + 131072))


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def a_topic_length(bench: Bench) -> Place:
    offset = ordinary(bench)
    return flip(bench, offset, body_at(bench, offset) + len(bench.record(offset).body), 3)


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def a_properties_length(bench: Bench) -> Place:
    offset = ordinary(bench)
    return flip(bench, offset, properties_at(bench, offset) - 1, 2)


@damage("LOG_CORRUPT", nothing, *LOST_MESSAGE)
def a_record_of_zeros(bench: Bench) -> Place:
    offset = ordinary(bench)
    return change(bench, offset, 0, bytes(bench.record(offset).size))


def another_flag(bench: Bench) -> None:
    change(bench, ordinary(bench), 16, b"\0\0\0\x63")


@damage("RECORD_PROPERTIES", nothing, *LOST_MESSAGE)
def a_property_without_a_separator(bench: Bench) -> Place:
    offset = ordinary(bench)
    at = bench.record(offset).properties.index(b"WAIT\1") + len("WAIT")
    return change(bench, offset, properties_at(bench, offset) + at, b" ")


def the_multi_tags_flag(bench: Bench) -> None:
    offset = ordinary(bench)
    change(bench, offset, 36, struct.pack(">i", bench.record(offset).sys_flag | 2))


@damage("RECORD_SYS_FLAG", the_multi_tags_flag)
def an_unknown_flag(bench: Bench) -> Place:
    return flip(bench, ordinary(bench), 38, 4)


@damage("RECORD_COMPRESSION", nothing)
def a_body_that_is_not_compressed(bench: Bench) -> Place:
    return flip(bench, ordinary(bench), 39, 0)


@damage("RECORD_QUEUE_OFFSET", another_flag, "QUEUE_NO_MESSAGE")
def a_negative_queue_offset(bench: Bench) -> Place:
    return change(bench, ordinary(bench), 20, struct.pack(">q", -1))


def a_clock_that_was_set_back(bench: Bench) -> None:
    """A message without keys, stored a second late: the next one is earlier, which is only a note."""
    offset = next(f["offset"] for f in bench.messages if f["topic"].startswith("RMQ_SYS_TRANS_OP") and not f["keys"])
    record = bench.record(offset)
    assert b"UNIQ_KEY" not in record.properties
    change(bench, offset, 48 + len(record.born_host), struct.pack(">q", record.store_timestamp + 1000))


@damage("RECORD_TIME_FAR_BACK", a_clock_that_was_set_back, "INDEX_TIME", "INDEX_HEADER")
def a_store_time_of_tomorrow(bench: Bench) -> Place:
    offset = ordinary(bench)
    record = bench.record(offset)
    change(bench, offset, 48 + len(record.born_host), struct.pack(">q", record.store_timestamp + 86_400_000))
    return bench.segment(offset + record.size)


@damage("RECORD_CRC", nothing, store="crc-533")
def a_bit_of_a_property(bench: Bench) -> Place:
    offset = next(fact["offset"] for fact in bench.messages if b"WAIT\1" in bench.record(fact["offset"]).properties)
    at = bench.record(offset).properties.index(b"WAIT\1")
    return flip(bench, offset, properties_at(bench, offset) + at)


@damage("QUEUE_NO_MESSAGE", nothing, "TOPIC_NAME", "INDEX_ENTRY_WRONG", "INDEX_CHAIN", "INDEX_SLOT")
def a_topic_with_a_slash(bench: Bench) -> Place:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SequenceDemo" and fact["queueOffset"] == 3)
    offset = fact["offset"]
    record = bench.record(offset)
    change(bench, offset, body_at(bench, offset) + len(record.body) + 1, b"/")
    return bench.unit("SequenceDemo", fact["queueId"], 3)


# segments


@damage("SEGMENT_FILLER", zeros_after_the_filler)
def a_filler_of_zeros(bench: Bench) -> Place:
    file, position = bench.segment(bench.packed.facts("blank")[1]["offset"])
    bench.write(file, position, bytes(8))
    return file, position


@damage("SEGMENT_FILLER", nothing)
def a_filler_of_another_size(bench: Bench) -> Place:
    file, position = bench.segment(bench.packed.facts("blank")[1]["offset"])
    bench.flip(file, position + 3)
    return file, position


def a_segment_in_advance(bench: Bench) -> None:
    size = bench.setting("mappedFileSizeCommitLog")
    with (bench.path / f"commitlog/{5 * size:020d}").open("wb") as file:
        file.truncate(size)


@damage("SEGMENT_SIZE", a_segment_in_advance, "SEGMENT_GAP", "LOG_CORRUPT", "SEGMENT_FILLER", *LOST_MESSAGE)
def a_segment_that_is_cut(bench: Bench) -> Place:
    file, _ = bench.segment(140_000)
    os.truncate(bench.path / file, 100_000)
    return file, None


@damage("SEGMENT_EMPTY", a_segment_in_advance)
def an_empty_segment(bench: Bench) -> Place:
    file, _ = bench.segment(5 * 131072)
    (bench.path / file).touch()
    return file, None


def expired_segments(bench: Bench) -> None:
    (bench.path / "commitlog" / f"{0:020d}").unlink()


@damage("SEGMENT_GAP", expired_segments, *LOST_MESSAGE)
def a_lost_segment(bench: Bench) -> Place:
    file, _ = bench.segment(140_000)
    (bench.path / file).unlink()
    return file, None


@damage("SEGMENT_STRAY", nothing)
def a_copy_under_another_name(bench: Bench) -> Place:
    shutil.copy(bench.path / bench.segment(0)[0], bench.path / f"commitlog/{40 * 131072:020d}")
    return f"commitlog/{40 * 131072:020d}", None


@damage("FOLDER_STRAY_FILE", nothing)
def a_note_beside_segments(bench: Bench) -> Place:
    (bench.path / "commitlog/notes.txt").write_text("do not delete")
    return "commitlog/notes.txt", None


@damage("FOLDER_SUBFOLDER", nothing)
def a_backup_beside_segments(bench: Bench) -> Place:
    (bench.path / "commitlog/backup").mkdir()
    return "commitlog/backup", None


def live_end(bench: Bench) -> int:
    (fact,) = bench.packed.facts("store")
    return int(fact["maxPhyOffset"])


def an_unfinished_record(bench: Bench) -> None:
    end = live_end(bench)
    first = bench.record(0)
    change(bench, end, 0, bench.read(bench.segment(0)[0], 0, first.size // 2))


@damage("LOG_STALE_TAIL", an_unfinished_record)
def old_records_after_the_live_end(bench: Bench) -> Place:
    end = live_end(bench)
    old = ordinary(bench)
    data = bytearray(bench.read(*bench.segment(old), bench.record(old).size))
    data[28:36] = struct.pack(">q", end + 40)
    change(bench, end, 40, bytes(data))
    return bench.segment(end)


@damage("QUEUE_UNIT_STALE", nothing, "INDEX_ENTRY_STALE", "CHECKPOINT_AHEAD", "INDEX_HEADER", "OFFSET_PAST_END")
def the_last_record(bench: Bench) -> Place:
    fact = max(bench.messages, key=lambda fact: fact["offset"])
    flip(bench, fact["offset"], 5)
    return bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])


# consume queues

QUEUE = ("SequenceDemo", 0)


@damage("QUEUE_UNIT_WRONG", nothing)
def a_bit_of_a_unit_s_offset(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    bench.flip(file, position + 6)
    return file, position


@damage("QUEUE_UNIT_WRONG", nothing)
def a_bit_of_a_unit_s_size(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    bench.flip(file, position + 11)
    return file, position


@damage("QUEUE_UNIT_WRONG", nothing)
def a_bit_of_a_tags_code(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    bench.flip(file, position + 19)
    return file, position


@damage("QUEUE_UNIT_MISSING", nothing)
def a_unit_of_zeros(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    bench.write(file, position, bytes(20))
    return file, position


@damage("QUEUE_UNIT_MISSING", nothing)
def a_pre_blank_unit_instead_of_a_message(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    bench.write(file, position, struct.pack(">qiq", 0, 0x7FFFFFFF, 0))
    return file, position


def last_unit(bench: Bench) -> Place:
    fact = next(f for f in bench.packed.facts("queue") if (f["topic"], f["queueId"]) == QUEUE)
    return bench.unit(*QUEUE, fact["max"] - 1)


@damage("QUEUE_LAGS_CLEAN", nothing)
def the_last_unit(bench: Bench) -> Place:
    file, position = last_unit(bench)
    assert position is not None
    bench.write(file, position, bytes(20))
    return file, position


@damage("QUEUE_LAGS", lambda bench: (bench.path / "abort").touch())
def the_last_unit_of_a_killed_broker(bench: Bench) -> Place:
    (bench.path / "abort").touch()
    return the_last_unit(bench)


@damage("QUEUE_UNIT_MISPLACED", nothing)
def two_units_that_are_swapped(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    data = bench.read(file, position, 40)
    bench.write(file, position, data[20:] + data[:20])
    return file, position


@damage("QUEUE_UNIT_MISPLACED", nothing, "QUEUE_LAGS_CLEAN", "QUEUE_UNIT_WRONG", "QUEUE_UNIT_MISSING")
def units_that_are_shifted(bench: Bench) -> Place:
    file, position = bench.unit(*QUEUE, 7)
    data = bench.read(file, position, 2000)
    bench.write(file, position, data[20:] + bytes(20))
    return file, position


@damage("QUEUE_UNIT_EXTRA", nothing)
def a_unit_that_is_doubled_at_the_end(bench: Bench) -> Place:
    file, position = last_unit(bench)
    assert position is not None
    assert position < 1980
    bench.write(file, position + 20, bench.read(file, position, 20))
    return file, position + 20


@damage("QUEUE_UNIT_STALE", nothing)
def a_unit_after_the_live_end(bench: Bench) -> Place:
    file, position = last_unit(bench)
    assert position is not None
    bench.write(file, position + 20, struct.pack(">qiq", live_end(bench), 200, 0))
    return file, position + 20


@damage("QUEUE_PRE_BLANK", nothing)
def a_pre_blank_unit_of_zeros(bench: Bench) -> Place:
    file, position = bench.unit("MovedQueue", 0, 430)
    assert bench.read(file, position, 20) == struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    bench.write(file, position, bytes(20))
    return file, position


@damage("QUEUE_FILE_SIZE", nothing)
def a_queue_file_that_is_cut(bench: Bench) -> Place:
    file, _ = bench.unit(*QUEUE, 7)
    os.truncate(bench.path / file, 1000)
    return file, None


@damage("QUEUE_FILE_NAME", nothing, "QUEUE_LAGS_CLEAN", "QUEUE_MISSING", "QUEUE_FILE_MISSING")
def a_queue_file_under_another_name(bench: Bench) -> Place:
    file, _ = bench.unit(*QUEUE, 7)
    renamed = f"{file[:-1]}7"
    (bench.path / file).rename(bench.path / renamed)
    return renamed, None


@damage("QUEUE_FILE_MISSING", nothing)
def a_lost_queue_file(bench: Bench) -> Place:
    file, _ = bench.unit(*QUEUE, 7)
    (bench.path / file).unlink()
    return file, None


def a_folder_that_is_not_a_queue(bench: Bench) -> None:
    (bench.path / "consumequeue/SequenceDemo/old").mkdir()


def a_deleted_topic(bench: Bench) -> None:
    """Its messages stay in the log."""
    shutil.rmtree(bench.path / "consumequeue/PaymentLog")
    for name in ("topics.json", "topics.json.bak"):
        file = bench.path / "config" / name
        content = json.loads(file.read_text())
        content["topicConfigTable"].pop("PaymentLog", None)
        file.write_text(json.dumps(content))
    offsets = bench.path / "config/consumerOffset.json"
    assert "PaymentLog@" not in offsets.read_text()


@damage("QUEUE_FILE_MISSING", a_deleted_topic)
def a_lost_first_file(bench: Bench) -> Place:
    file, _ = bench.unit("SequenceDemo", 1, 0)
    (bench.path / file).unlink()
    return file, None


@damage("QUEUE_MISSING", a_folder_that_is_not_a_queue)
def a_lost_queue(bench: Bench) -> Place:
    shutil.rmtree(bench.path / "consumequeue/SequenceDemo/0")
    return "consumequeue/SequenceDemo/0/00000000000000000000", 0


@damage("QUEUE_DUE_TIME", nothing)
def a_due_time(bench: Bench) -> Place:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SCHEDULE_TOPIC_XXXX")
    file, position = bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])
    bench.flip(file, position + 19)
    return file, position


@damage("FOLDER_STRAY_FILE", nothing)
def a_note_beside_queue_files(bench: Bench) -> Place:
    (bench.path / "consumequeue/SequenceDemo/0/notes.txt").write_text("do not delete")
    return "consumequeue/SequenceDemo/0/notes.txt", None


@damage("QUEUE_EXPIRED_ORDER", nothing, store="deleted-533")
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


@damage("INDEX_HEADER", nothing, "INDEX_TIME")
def a_begin_time(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, 6)
    return file, 0


@damage("INDEX_HEADER", nothing, "INDEX_TIME", "CHECKPOINT_AHEAD")
def an_end_time(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, 13)
    return file, 8


@damage("INDEX_HEADER", nothing)
def a_begin_offset(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, 22)
    return file, 16


@damage("INDEX_HEADER", nothing)
def an_end_offset(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, 30)
    return file, 24


def slots_counted_as_by_old_brokers(bench: Bench) -> None:
    """Up to 4.7.0, every entry counts."""
    file = bench.index_file(1)
    bench.write(file, 32, struct.pack(">i", len(bench.entries(file))))


@damage("INDEX_HEADER", slots_counted_as_by_old_brokers)
def a_slot_count(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, 35)
    return file, 32


@damage("INDEX_COUNT", nothing)
def an_index_count_that_is_too_small(bench: Bench) -> Place:
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    bench.write(file, 36, struct.pack(">i", count - 30))
    return file, 36


@damage("INDEX_COUNT", nothing)
def an_index_count_that_is_too_large(bench: Bench) -> Place:
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    bench.write(file, 36, struct.pack(">i", count + 30))
    return file, 36


@damage("INDEX_COUNT", nothing)
def a_negative_index_count(bench: Bench) -> Place:
    file = bench.index_file(2)
    bench.write(file, 36, b"\xff")
    return file, 36


def used_slot(bench: Bench, file: str) -> int:
    hashed = bench.entries(file)[9][0]
    return 40 + 4 * (hashed % bench.setting("maxHashSlotNum"))


@damage("INDEX_SLOT", nothing)
def a_slot_of_zeros(bench: Bench) -> Place:
    file = bench.index_file(1)
    at = used_slot(bench, file)
    bench.write(file, at, bytes(4))
    return file, at


@damage("INDEX_SLOT", nothing)
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


@damage("INDEX_CHAIN", nothing)
def a_pointer_that_became_zero(bench: Bench) -> Place:
    file = bench.index_file(1)
    at = bench.entry(chained(bench, file))
    bench.write(file, at + 16, bytes(4))
    return file, at


@damage("INDEX_CHAIN", nothing)
def a_pointer_that_skips_an_entry(bench: Bench) -> Place:
    file = bench.index_file(1)
    number = chained(bench, file)
    entries = bench.entries(file)
    bench.write(file, bench.entry(number) + 16, struct.pack(">i", entries[entries[number - 1][3] - 1][3]))
    return file, bench.entry(number)


@damage("INDEX_ENTRY_WRONG", nothing)
def a_key_hash(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, bench.entry(20) + 2)
    return file, bench.entry(20)


@damage("INDEX_ENTRY_WRONG", nothing)
def an_entry_s_offset(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, bench.entry(20) + 10)
    return file, bench.entry(20)


@damage("INDEX_ENTRY_WRONG", nothing, "INDEX_TIME", "INDEX_CHAIN")
def an_entry_of_zeros(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.write(file, bench.entry(20), bytes(20))
    return file, bench.entry(20)


@damage("INDEX_TIME", nothing)
def an_entry_s_time(bench: Bench) -> Place:
    file = bench.index_file(1)
    bench.flip(file, bench.entry(20) + 14)
    return file, bench.entry(20)


def the_first_file_of_an_expired_log(bench: Bench) -> None:
    """A broker deletes an index file if all its messages have expired."""
    (end,) = struct.unpack(">q", bench.read(bench.index_file(0), 24, 8))
    for path in sorted((bench.path / "commitlog").iterdir())[: end // 131072 + 1]:
        path.unlink()
    (bench.path / bench.index_file(0)).unlink()


@damage("INDEX_ENTRY_MISSING", the_first_file_of_an_expired_log, "INDEX_TIME")
def a_lost_index_file(bench: Bench) -> Place:
    (bench.path / bench.index_file(2)).unlink()
    file = bench.index_file(2)
    return file, bench.entry(1)


@damage("INDEX_LAGS", nothing, "CHECKPOINT_AHEAD")
def the_last_index_file(bench: Bench) -> Place:
    (bench.path / bench.index_file(-1)).unlink()
    return bench.index_file(-1), None


@damage("INDEX_MISSING", nothing)
def the_whole_index(bench: Bench) -> Place:
    shutil.rmtree(bench.path / "index")
    return "index", None


@damage("INDEX_ORDER", nothing, "CHECKPOINT_AHEAD")
def two_index_files_with_swapped_names(bench: Bench) -> Place:
    one, other = bench.index_file(1), bench.index_file(2)
    shutil.move(bench.path / one, bench.path / "index/kept")
    shutil.move(bench.path / other, bench.path / one)
    shutil.move(bench.path / "index/kept", bench.path / other)
    return one, None


@damage("INDEX_FILE_SIZE", nothing, "INDEX_ENTRY_MISSING", "INDEX_TIME")
def an_index_file_that_is_cut(bench: Bench) -> Place:
    file = bench.index_file(1)
    os.truncate(bench.path / file, 5000)
    return file, None


def an_entry_that_is_not_counted(bench: Bench) -> None:
    """A broker that is killed has written an entry and its slot, and not yet counted the entry."""
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    key_hash = 12345
    slot = 40 + 4 * (key_hash % bench.setting("maxHashSlotNum"))
    (before,) = struct.unpack(">i", bench.read(file, slot, 4))
    bench.write(file, bench.entry(count), struct.pack(">iqii", key_hash, live_end(bench), 7, before))
    bench.write(file, slot, struct.pack(">i", count))


@damage("INDEX_AFTER_END", an_entry_that_is_not_counted)
def bytes_after_the_last_entry(bench: Bench) -> Place:
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    bench.write(file, bench.entry(count + 3), b"\1\2\3\4\5")
    return file, bench.entry(count)


# the rest


def no_checkpoint(bench: Bench) -> None:
    (bench.path / "checkpoint").unlink()


@damage("CHECKPOINT_SIZE", no_checkpoint)
def a_checkpoint_that_is_cut(bench: Bench) -> Place:
    os.truncate(bench.path / "checkpoint", 100)
    return "checkpoint", None


def a_checkpoint_of_earlier_times(bench: Bench) -> None:
    bench.write("checkpoint", 0, bytes(24))


@damage("CHECKPOINT_AHEAD", a_checkpoint_of_earlier_times)
def a_time_in_the_checkpoint(bench: Bench) -> Place:
    bench.flip("checkpoint", 3, 4)
    return "checkpoint", 0


def a_file_without_backup(bench: Bench) -> None:
    (bench.path / "config/topics.json.bak").unlink()


@damage("CONFIG_FROM_BACKUP", a_file_without_backup)
def topics_that_are_cut(bench: Bench) -> Place:
    os.truncate(bench.path / "config/topics.json", 300)
    return "config/topics.json", None


@damage("CONFIG_BROKEN", nothing)
def offsets_that_are_cut_with_their_backup(bench: Bench) -> Place:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (bench.path / "config" / name).write_text('{"offsetTable":{"a@b":{0:')
    return "config/consumerOffset.json", None


def an_offset_at_the_end(bench: Bench) -> None:
    fact = next(f for f in bench.packed.facts("queue") if (f["topic"], f["queueId"]) == QUEUE)
    write_offset(bench, fact["max"])


def write_offset(bench: Bench, offset: int) -> None:
    (bench.path / "config/consumerOffset.json").write_text(
        json.dumps({"offsetTable": {"SequenceDemo@readers": {"0": offset}}}).replace('"0"', "0")
    )


@damage("OFFSET_PAST_END", an_offset_at_the_end)
def an_offset_past_the_end(bench: Bench) -> Place:
    write_offset(bench, 10_000)
    return "config/consumerOffset.json", None


@damage("DELAY_OFFSET_PAST_END", nothing)
def a_delay_offset_past_the_end(bench: Bench) -> Place:
    (bench.path / "config/delayOffset.json").write_text('{"offsetTable":{1:5000}}')
    return "config/delayOffset.json", None


@pytest.fixture(params=DAMAGES, ids=str)
def case(request: pytest.FixtureRequest) -> Damage:
    entry: Damage = request.param
    return entry


def test_a_damage_is_named_with_code_and_place(case: Damage, unpacked: Unpack, tmp_path: Path) -> None:
    bench = Bench.of(unpacked(RealStore(case.store, OWN_STORES)), case.store, tmp_path)
    file, position = case.do(bench)
    _, findings = check(bench.path, bench.packed.broker_conf)
    found = {(finding.code, finding.file, finding.position) for finding in grave(findings)}
    assert (case.code, file, position) in found, sorted(found, key=str)
    assert {code for code, _, _ in found} <= {case.code, *case.also}


EXPIRED = [expired_segments, the_first_file_of_an_expired_log]
OTHERS = sorted({entry.near_miss for entry in DAMAGES} - {*EXPIRED, nothing}, key=lambda change: change.__name__)


@pytest.mark.parametrize("near_misses", [OTHERS, *([one] for one in EXPIRED)], ids=["most", "segments", "index"])
def test_near_misses_are_silent(near_misses: list[Callable[[Bench], object]], unpacked: Unpack, tmp_path: Path) -> None:
    bench = Bench.of(unpacked(RealStore("workload-533", OWN_STORES)), "workload-533", tmp_path)
    for near_miss in near_misses:
        near_miss(bench)
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []


def test_the_catalogue_has_every_code_from_warning_up() -> None:
    elsewhere = {"INDEX_ENTRY_STALE", "INDEX_NO_MESSAGE", "QUEUE_OFFSET_TWICE", "TOPIC_NAME"}
    grave_codes = {code.name for code in all_codes() if code.severity != "note"}
    assert grave_codes - {entry.code for entry in DAMAGES} == elsewhere
    assert len(DAMAGES) >= 50
