"""A near miss for each damage of the catalogue: what a broker could have written there, too, and must stay silent.

`TABLE` has the damages, the near miss, and why it is legal (STORE_FORMAT has the rules). A near miss changes a copy of
a store, or asserts that the broker itself wrote it. Most of them share a copy, which is checked once.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.damages import DAMAGES, QUEUE, body_at, change, flip, live_end, ordinary, properties_at, write_offset
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import Bench, check, grave

PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
SEGMENT = 131072


# records


def a_body_with_its_new_crc(bench: Bench) -> None:
    offset = ordinary(bench, 40)
    flip(bench, offset, body_at(bench, offset))
    crc = zlib.crc32(bench.record(offset).body) & 0x7FFFFFFF
    change(bench, offset, 8, struct.pack(">i", crc))


def any_crc_without_a_body(bench: Bench) -> None:
    offset = next(fact["offset"] for fact in bench.messages if fact["bodyLenRaw"] == 0)
    change(bench, offset, 8, b"\1\2\3\4")


def another_magic(bench: Bench) -> None:
    assert {fact["magic"] for fact in bench.messages} == {-626843481, -626843477}


def a_record_in_a_body(bench: Bench) -> None:
    """The head of another record, with its magic, size and offset."""
    fact = next(f for f in bench.messages if f["bodyLenRaw"] > 100 and not f["sysFlag"])
    offset = fact["offset"]
    change(bench, offset, body_at(bench, offset), bench.read(*bench.segment(0), 88))
    crc = zlib.crc32(bench.record(offset).body) & 0x7FFFFFFF
    change(bench, offset, 8, struct.pack(">i", crc))


def another_prepared_offset(bench: Bench) -> None:
    offset = ordinary(bench, 41)
    change(bench, offset, body_at(bench, offset) - 12, struct.pack(">q", offset + SEGMENT))


def a_topic_of_more_than_127_bytes(bench: Bench) -> None:
    assert max(len(fact["topic"]) for fact in bench.messages) > 127


def properties_without_an_end_mark(bench: Bench) -> None:
    """The value of the last property has one character more."""
    fact = next(f for f in bench.messages if f["topic"] == "user_activity" and last_property(bench, f) == b"TRACE_ON")
    record = bench.record(fact["offset"])
    assert record.properties.endswith(b"\2")
    change(bench, fact["offset"], properties_at(bench, fact["offset"]) + len(record.properties) - 1, b"!")


def last_property(bench: Bench, fact: dict[str, object]) -> bytes:
    return bench.record(int(str(fact["offset"]))).properties.rstrip(b"\2").rpartition(b"\2")[2].partition(b"\1")[0]


def a_separator_in_a_value(bench: Bench) -> None:
    offset = ordinary(bench, 42)
    at = bench.record(offset).properties.index(b"WAIT\1true")
    change(bench, offset, properties_at(bench, offset) + at + 6, b"\1")


def a_replacement_character_in_a_value(bench: Bench) -> None:
    offset = ordinary(bench, 51)
    at = bench.record(offset).properties.index(b"WAIT\1true")
    change(bench, offset, properties_at(bench, offset) + at + 6, "\ufffd".encode())


def the_multi_tags_flag(bench: Bench) -> None:
    offset = ordinary(bench, 43)
    change(bench, offset, 36, struct.pack(">i", bench.record(offset).sys_flag | 2))


def a_compression_type_without_compression(bench: Bench) -> None:
    offset = ordinary(bench, 44)
    assert not bench.record(offset).sys_flag & 0x701
    change(bench, offset, 36, struct.pack(">i", bench.record(offset).sys_flag | 0x200))


def messages_without_a_unit(bench: Bench) -> None:
    facts = [fact for fact in bench.messages if fact["sysFlag"] & 0xC in (0x4, 0xC)]
    assert {(fact["sysFlag"] & 0xC, fact["queueOffset"]) for fact in facts} == {(0x4, 0), (0xC, 0)}


def a_clock_that_was_set_back(bench: Bench) -> None:
    """A message without keys, stored a second late: the next one is earlier, which is only a note."""
    offset = next(f["offset"] for f in bench.messages if f["topic"].startswith("RMQ_SYS_TRANS_OP") and not f["keys"])
    record = bench.record(offset)
    assert b"UNIQ_KEY" not in record.properties
    change(bench, offset, 48 + len(record.born_host), struct.pack(">q", record.store_timestamp + 1000))


def a_property_with_its_new_crc(bench: Bench) -> None:
    offset = next(fact["offset"] for fact in bench.messages if b"WAIT\1" in bench.record(fact["offset"]).properties)
    at = bench.record(offset).properties.index(b"WAIT\1")
    flip(bench, offset, properties_at(bench, offset) + at)
    file, position = bench.segment(offset)
    size = bench.record(offset).size
    crc = zlib.crc32(bench.read(file, position, size - 20)) & 0x7FFFFFFF
    change(bench, offset, size - 11, str(crc)[::-1].ljust(10, "0").encode())


def a_topic_with_other_characters(bench: Bench) -> None:
    assert {"%RETRY%GID_failing", "%DLQ%GID_failing"} < {fact["topic"] for fact in bench.messages}


# segments


def old_bytes_after_the_filler(bench: Bench) -> None:
    blank = bench.packed.facts("blank")[0]
    file, position = bench.segment(blank["offset"])
    bench.write(file, position + 8, b"\xda\xa3\x20\xa7"[: blank["size"] - 8])


def a_filler_of_eight_bytes(bench: Bench) -> None:
    assert 8 in {fact["size"] for fact in bench.packed.facts("blank")}


def two_segments_in_advance(bench: Bench) -> None:
    for number in (5, 6):
        with (bench.path / f"commitlog/{number * SEGMENT:020d}").open("wb") as file:
            file.truncate(SEGMENT)


def expired_segments(bench: Bench) -> None:
    (bench.path / "commitlog" / f"{0:020d}").unlink()


def files_beside_the_folders(bench: Bench) -> None:
    (bench.path / "abort.bak").touch()
    (bench.path / "commitlog-2025").mkdir()


def an_unfinished_record(bench: Bench) -> None:
    first = bench.record(0)
    change(bench, live_end(bench), 0, bench.read(bench.segment(0)[0], 0, first.size // 2))


def the_last_message_with_another_flag(bench: Bench) -> None:
    change(bench, max(fact["offset"] for fact in bench.messages), 16, b"\xff\xff\xff\xff")


# consume queues


def another_tag_in_message_and_unit(bench: Bench) -> None:
    fact = next(f for f in bench.messages if f["topic"] == "SequenceDemo" and f["tags"] and f["queueOffset"] == 9)
    offset, tag = fact["offset"], fact["tags"].encode()
    at = bench.record(offset).properties.index(b"TAGS\1" + tag) + 5
    change(bench, offset, properties_at(bench, offset) + at, b"Z")
    code = 0
    for character in b"Z" + tag[1:]:
        code = (31 * code + character) & 0xFFFFFFFF
    file, position = bench.unit("SequenceDemo", fact["queueId"], 9)
    bench.write(file, position + 12, struct.pack(">q", code - (code >> 31 << 32)))


def pre_blank_units(bench: Bench) -> None:
    file, position = bench.unit("MovedQueue", 0, 430)
    assert bench.read(file, position, 20) == PRE_BLANK
    (queue,) = [fact for fact in bench.packed.facts("queue") if fact["topic"] == "MovedQueue"]
    first = bench.unit("MovedQueue", 0, min(f["queueOffset"] for f in bench.messages if f["topic"] == "MovedQueue"))
    assert bench.read(*first, 20) != PRE_BLANK
    assert queue["max"] == 462


def an_abort_file(bench: Bench) -> None:
    (bench.path / "abort").touch()


def a_queue_file_in_advance(bench: Bench) -> None:
    """A broker creates a file before it writes the first unit into it."""
    size = bench.setting("mappedFileSizeConsumeQueue")
    (fact,) = [f for f in bench.packed.facts("queue") if (f["topic"], f["queueId"]) == QUEUE]
    file = bench.path / f"consumequeue/{QUEUE[0]}/{QUEUE[1]}/{(fact['max'] * 20 // size + 1) * size:020d}"
    assert not file.exists()
    file.write_bytes(bytes(size))


def an_empty_queue_folder(bench: Bench) -> None:
    (bench.path / "consumequeue/SequenceDemo/9").mkdir()


def a_link_to_a_file(bench: Bench) -> None:
    file = bench.path / "config/consumerFilter.json"
    file.rename(bench.path.parent / file.name)
    file.symlink_to(bench.path.parent / file.name)


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
    assert "PaymentLog@" not in (bench.path / "config/consumerOffset.json").read_text()


def due_times_instead_of_hashes(bench: Bench) -> None:
    fact = next(fact for fact in bench.messages if fact["topic"] == "SCHEDULE_TOPIC_XXXX")
    file, position = bench.unit(fact["topic"], fact["queueId"], fact["queueOffset"])
    (due,) = struct.unpack(">q", bench.read(file, position + 12, 8))
    assert due > fact["storeTimestamp"]


def units_of_expired_messages(bench: Bench) -> None:
    (fact,) = bench.packed.facts("store")
    units = [path.read_bytes()[:8] for path in (bench.path / "consumequeue").glob("*/*/*")]
    assert any(0 < int.from_bytes(unit) < fact["minPhyOffset"] for unit in units)


# the index


def slots_counted_as_by_old_brokers(bench: Bench) -> None:
    file = bench.index_file(1)
    bench.write(file, 32, struct.pack(">i", len(bench.entries(file))))


def an_entry_that_is_not_counted(bench: Bench) -> None:
    file = bench.index_file(-1)
    (count,) = struct.unpack(">i", bench.read(file, 36, 4))
    key_hash = 12345
    slot = 40 + 4 * (key_hash % bench.setting("maxHashSlotNum"))
    (before,) = struct.unpack(">i", bench.read(file, slot, 4))
    bench.write(file, bench.entry(count), struct.pack(">iqii", key_hash, live_end(bench), 7, before))
    bench.write(file, slot, struct.pack(">i", count))


def first_entries_of_slots(bench: Bench) -> None:
    entries = bench.entries(bench.index_file(1))
    assert {entry[3] == 0 for entry in entries} == {True, False}


def a_key_twice_in_a_message(bench: Bench) -> None:
    assert any(fact["keys"] and fact["keys"].startswith("k0 k0 ") for fact in bench.messages)


def a_first_entry_that_counts_from_the_file_before(bench: Bench) -> None:
    begin, *_ = struct.unpack(">q", bench.read(bench.index_file(1), 0, 8))
    (end,) = struct.unpack(">q", bench.read(bench.index_file(0), 8, 8))
    assert begin >= end
    assert bench.entries(bench.index_file(1))[0][2] == (begin - end) // 1000


def entry_zero(bench: Bench) -> None:
    assert bench.read(bench.index_file(1), bench.entry(0), 20) == bytes(20)


def the_first_file_of_an_expired_log(bench: Bench) -> None:
    (end,) = struct.unpack(">q", bench.read(bench.index_file(0), 24, 8))
    for path in sorted((bench.path / "commitlog").iterdir())[: end // SEGMENT + 1]:
        path.unlink()
    (bench.path / bench.index_file(0)).unlink()


def a_file_without_entries(bench: Bench) -> None:
    """Its header has the end of the file before it, and index count 0 until the first entry."""
    before = bench.path / bench.index_file(-1)
    _, end_time, _, end_offset = struct.unpack(">qqqq", before.read_bytes()[:32])
    header = struct.pack(">qqqqii", end_time, end_time, end_offset, end_offset, 0, 0)
    (before.parent / f"{int(before.name) + 1000:017d}").write_bytes(header.ljust(before.stat().st_size, b"\0"))


def no_index_by_settings(bench: Bench) -> None:
    shutil.rmtree(bench.path / "index")


def a_later_name(bench: Bench) -> None:
    last = bench.path / bench.index_file(-1)
    last.rename(last.with_name(f"{int(last.name) + 5:017d}"))


# the rest


def no_checkpoint(bench: Bench) -> None:
    (bench.path / "checkpoint").unlink()


def a_checkpoint_of_earlier_times(bench: Bench) -> None:
    bench.write("checkpoint", 0, bytes(24))


def a_file_without_backup(bench: Bench) -> None:
    (bench.path / "config/topics.json.bak").unlink()


def no_offsets(bench: Bench) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (bench.path / "config" / name).unlink(missing_ok=True)


def no_timer(bench: Bench) -> None:
    shutil.rmtree(bench.path / "timerlog")
    (bench.path / "config/timercheck").unlink()


def offset_at_the_end(bench: Bench) -> None:
    fact = next(f for f in bench.packed.facts("queue") if (f["topic"], f["queueId"]) == QUEUE)
    write_offset(bench, fact["max"])


def a_delay_offset_at_the_end(bench: Bench) -> None:
    queues = {f["queueId"]: f["max"] for f in bench.packed.facts("queue") if f["topic"] == "SCHEDULE_TOPIC_XXXX"}
    (bench.path / "config/delayOffset.json").write_text(f'{{"offsetTable":{{1:{queues[0]}}}}}')


@dataclass(frozen=True)
class NearMiss:
    """A row of the table: `damages` are names of the catalogue; near misses with the same `copy` share one."""

    damages: str
    do: Callable[[Bench], None]
    why: str
    copy: str = "most"


def an_epoch_at_the_end(bench: Bench) -> None:
    """The files are as `EpochFileCache` of 5.3.3 writes them."""
    (end,) = (fact["maxPhyOffset"] for fact in bench.packed.facts("store"))
    entries = f"1-0\n2-{end}\n"
    (bench.path / "epochFileCheckpoint").write_text(f"2\n{zlib.crc32(entries.encode()) & 0x7FFFFFFF}\n{entries}")
    (bench.path / "epochFileCheckpoint.bak").write_text("1\n0\n1-0\n")


TABLE = [
    # records
    NearMiss("a_bit_of_a_body", a_body_with_its_new_crc, "a body can be anything with its CRC"),
    NearMiss("a_bit_of_a_body_crc", any_crc_without_a_body, "a reader checks the CRC of no body"),
    NearMiss("a_bit_of_a_magic", another_magic, "a topic of more than 127 characters has magic V2"),
    NearMiss("a_size_that_is_one_too_large", a_record_in_a_body, "a body can have bytes like a record's head"),
    NearMiss("another_own_offset", another_prepared_offset, "a commit names the offset of its half message"),
    NearMiss("a_topic_length", a_topic_of_more_than_127_bytes, "magic V2 has a length of two bytes"),
    NearMiss("a_properties_length", properties_without_an_end_mark, "an SDK can leave out the last separator"),
    NearMiss("a_record_of_zeros", two_segments_in_advance, "zeros after the live end are no message"),
    NearMiss("a_property_without_a_separator", a_separator_in_a_value, "from 4.9.1 on, a value can contain 0x01"),
    NearMiss("a_property_that_is_not_utf8", a_replacement_character_in_a_value, "U+FFFD is a character of UTF-8, too"),
    NearMiss("an_unknown_flag", the_multi_tags_flag, "0x2 is a known flag"),
    NearMiss("a_body_that_is_not_compressed", a_compression_type_without_compression, "only flag 0x1 compresses"),
    NearMiss("a_negative_queue_offset", messages_without_a_unit, "types PREPARED and ROLLBACK have offset 0, no unit"),
    NearMiss("a_store_time_of_tomorrow", a_clock_that_was_set_back, "a clock can be set back by a second"),
    NearMiss("a_bit_of_a_property", a_property_with_its_new_crc, "a property can be anything with the CRC", "crc"),
    NearMiss("a_topic_with_a_slash", a_topic_with_other_characters, "% is a legal character of a folder's name"),
    # segments
    NearMiss("a_filler_of_zeros", old_bytes_after_the_filler, "4.9.0 leaves bytes of an earlier message there"),
    NearMiss("a_filler_of_another_size", a_filler_of_eight_bytes, "the smallest filler has only its head"),
    NearMiss("a_segment_that_is_cut an_empty_segment", two_segments_in_advance, "a broker creates segments in advance"),
    NearMiss("a_lost_segment", expired_segments, "the oldest segments expire", "expired"),
    NearMiss("a_copy_under_another_name", two_segments_in_advance, "these names continue the log"),
    NearMiss("a_note_beside_segments a_backup_beside_segments", files_beside_the_folders, "a broker ignores them"),
    NearMiss("old_records_after_the_live_end", an_unfinished_record, "a crash cuts a record: only a note"),
    NearMiss("the_last_record", the_last_message_with_another_flag, "the user's flag can be any number"),
    # consume queues
    NearMiss("a_bit_of_a_tags_code", another_tag_in_message_and_unit, "a unit has the hash of its message's tag"),
    NearMiss("a_bit_of_a_unit_s_offset a_bit_of_a_unit_s_size", expired_segments, "units outlive messages", "expired"),
    NearMiss(
        "a_unit_of_zeros a_pre_blank_unit_instead_of_a_message units_that_are_shifted",
        pre_blank_units,
        "a queue that begins in the middle of a file has pre-blank units before its first one",
    ),
    NearMiss("the_last_unit the_last_unit_of_a_killed_broker", an_abort_file, "a killed broker can be complete"),
    NearMiss("two_units_that_are_swapped", units_of_expired_messages, "expired units are in order", "deleted"),
    NearMiss(
        "a_unit_that_is_doubled_at_the_end a_unit_after_the_live_end a_queue_file_that_is_cut "
        "a_last_queue_file_of_no_bytes an_only_queue_file_of_no_bytes",
        a_queue_file_in_advance,
        "a file is created, with zeros, before its first unit is written",
    ),
    NearMiss("a_pre_blank_unit_of_zeros", expired_segments, "units of expired messages precede others", "expired"),
    NearMiss("a_queue_file_under_another_name", a_queue_file_in_advance, "this name continues the queue"),
    NearMiss("a_lost_queue_file a_lost_first_file", the_first_file_of_an_expired_log, "its messages are gone", "index"),
    NearMiss("a_lost_queue", a_deleted_topic, "the messages of a deleted topic stay in the log"),
    NearMiss("a_due_time", due_times_instead_of_hashes, "units of delayed messages have due times"),
    NearMiss("a_note_beside_queue_files", a_folder_that_is_not_a_queue, "a broker skips names that are no numbers"),
    NearMiss("a_note_beside_no_queue_files", an_empty_queue_folder, "a broker loads a folder without files"),
    NearMiss("a_named_pipe", a_link_to_a_file, "a link to a file is a file"),
    NearMiss("expired_units_that_are_swapped", units_of_expired_messages, "expired units are in order", "deleted"),
    # the index
    NearMiss("a_begin_time a_begin_offset", expired_segments, "a header can name an expired message", "expired"),
    NearMiss("an_end_time an_end_offset", a_file_without_entries, "its header has the end of the file before", "new"),
    NearMiss("a_slot_count", slots_counted_as_by_old_brokers, "up to 4.7.0, every entry counts"),
    NearMiss(
        "an_index_count_that_is_too_small an_index_count_that_is_too_large bytes_after_the_last_entry",
        an_entry_that_is_not_counted,
        "a broker that is killed has written an entry and its slot, and not yet counted the entry",
    ),
    NearMiss("a_negative_index_count", a_file_without_entries, "a new file has index count 0", "new"),
    NearMiss("a_slot_of_zeros a_slot_that_skips_entries", an_entry_that_is_not_counted, "its slot leads to it"),
    NearMiss("a_pointer_that_became_zero a_pointer_that_skips_an_entry", first_entries_of_slots, "no entry is before"),
    NearMiss("a_key_hash", a_key_twice_in_a_message, "each of the keys has an entry"),
    NearMiss("an_entry_s_offset", expired_segments, "entries outlive their messages", "expired"),
    NearMiss("an_entry_of_zeros", entry_zero, "entry 0 is not used"),
    NearMiss("an_entry_s_time", a_first_entry_that_counts_from_the_file_before, "a new file begins with that time"),
    NearMiss("a_lost_index_file", the_first_file_of_an_expired_log, "all its messages have expired", "index"),
    NearMiss("the_last_index_file", a_file_without_entries, "the next message's file exists already", "new"),
    NearMiss("the_whole_index", no_index_by_settings, "messageIndexEnable=false", "no index"),
    NearMiss("", no_index_by_settings, "indexFileWriteEnable=false", "no index files"),
    NearMiss("two_index_files_with_swapped_names", a_later_name, "a name is the time of the file's creation"),
    NearMiss("an_index_file_that_is_cut", a_file_without_entries, "a file has its size from the beginning", "new"),
    # the rest
    NearMiss("a_checkpoint_that_is_cut", no_checkpoint, "without the file, all times are 0", "no index"),
    NearMiss("a_time_in_the_checkpoint", a_checkpoint_of_earlier_times, "a file is flushed now and then"),
    NearMiss(
        "an_epoch_after_the_end epochs_that_are_cut",
        an_epoch_at_the_end,
        "a new master has written nothing yet, and the file has a backup",
    ),
    NearMiss("topics_that_are_cut", a_file_without_backup, "the first content has no backup", "expired"),
    NearMiss("offsets_that_are_cut_with_their_backup", no_offsets, "a broker starts without both", "no index"),
    NearMiss("a_lost_timer_log", no_timer, "timerWheelEnable=false", "no index"),
    NearMiss("an_offset_past_the_end", offset_at_the_end, "a group has consumed everything"),
    NearMiss("a_delay_offset_past_the_end", a_delay_offset_at_the_end, "everything was delivered"),
]
STORES = {"crc": "crc-533", "deleted": "deleted-533"}
SETTINGS = {"no index": "messageIndexEnable=false\n", "no index files": "indexFileWriteEnable=false\n"}


@pytest.mark.parametrize("copy", sorted({row.copy for row in TABLE}))
def test_near_misses_are_silent(copy: str, unpacked: Unpack, tmp_path: Path) -> None:
    store = STORES.get(copy, "workload-533")
    bench = Bench.of(unpacked(RealStore(store, OWN_STORES)), store, tmp_path)
    for near_miss in dict.fromkeys(row.do for row in TABLE if row.copy == copy):
        near_miss(bench)
    conf = tmp_path / "broker.conf"
    given = bench.packed.broker_conf.read_text().replace("messageIndexEnable=true\n", "")
    conf.write_text(given + SETTINGS.get(copy, ""))
    _, findings = check(bench.path, conf)
    assert grave(findings) == []


def test_every_damage_has_a_near_miss() -> None:
    beside = [name for row in TABLE for name in row.damages.split()]
    assert sorted(beside) == sorted(entry.name for entry in DAMAGES)
    assert all(row.why for row in TABLE)
