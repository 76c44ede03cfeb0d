"""What the next boot does to a store, against what real brokers did.

The packed trees `.recovered` are those of a real boot. `SEEN` is what brokers of 5.3.3 and 4.9.7 did with copies of
the packed stores, when this file was written: each was booted and stopped once, and its queue files and index files
compared with those before. 5.3.1 is in the form of a rule only: it dispatches nothing after a clean stop.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from spark_mq.errors import OptionError
from spark_mq.format.broker_version import ALL_VERSIONS, BrokerVersions
from spark_mq.format.record import MAGIC_V1, MAGIC_V2
from spark_mq.io.location import Location
from spark_mq.store.boot import Boot, BootFacts, SegmentHead, next_boot
from spark_mq.store.boot_conditions import BootSettings, boot_groups
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.lacking_messages import LackingMessage
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import StoreState, store_state
from tests.support.boots import CLEAN, RECOVERED, entries_of, rows, units_of
from tests.support.index_stores import index_files
from tests.support.stores import OWN_STORES, STORES, RealStore, Unpack

GROUPS = V4_9, V5_0, V5_1, V5_3_2, V5_4, V5_5 = boot_groups(ALL_VERSIONS)
OF_5 = [V5_0, V5_1, V5_3_2, V5_4, V5_5]


def state_of(store: RealStore, folder: Path, version: str | None = None) -> StoreState:
    return store_state(str(folder), version, str(store.broker_conf))


@pytest.mark.parametrize("store", RECOVERED, ids=str)
def test_a_recovery_did_what_is_said_before_it(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    folder, recovered = unpacked(store), store.unpack(tmp_path, "recovered")
    before, after = units_of(folder), units_of(recovered)
    entries = Counter(entries_of(store, folder)), Counter(entries_of(store, recovered))
    names = [{file.name for file in index_files(tree)} for tree in (folder, recovered)]
    state = state_of(store, folder)
    assert not state.last_stop.is_clean
    assert [boot.rules for boot in state.boots] == [V4_9] if store.broker_version == "4.9" else OF_5
    for boot in state.boots:
        gains = {(one.topic, one.queue_id): one.completed for one in boot.queues}
        assert gains == {queue: after[queue] - before[queue] for queue in after if after[queue] != before[queue]}
        assert gains == {(row["topic"], row["queue_id"]): row["count"] for row in rows(boot, "complete")}
        assert (boot.lost, boot.shifted, boot.unindexed) == (0, 0, None)
        assert set(boot.deleted_index_files) == names[0] - names[1]
        deleted = {row["file"].removeprefix("index/") for row in rows(boot, "delete", "index file")}
        assert deleted == names[0] - names[1]
        for row in rows(boot, "double", "index"):
            assert entries[1][row["commit_log_offset"]] - entries[0][row["commit_log_offset"]] == row["count"]
        # Entries of messages that were whole in the index before can only be there twice.
        assert state.index is not None
        again = {at: count - entries[0][at] for at, count in entries[1].items() if at < state.index.covered_to}
        assert boot.doubled_entries == sum(again.values())


NOTHING = (0, 0, 0, None)
"""Completed, shifted and lost messages; the commit log offset of the first lost one."""
SEEN = [
    ("lagging-533", "5.3.3", False, (0, 2, 1, 42715), 3, None),
    ("lagging-533", "5.3.3", True, (3, 0, 0, None), 1, None),
    ("lagging-533", "4.9.7", False, (3, 0, 0, None), 3, None),
    ("lagging-533", "5.3.1", False, (0, 0, 3, 42715), 0, None),
    ("workload-533", "5.3.3", False, NOTHING, 0, None),
    ("workload-533", "5.3.3", True, NOTHING, 0, (468363, 524288)),
    ("workload-49x", "4.9.7", False, NOTHING, 0, None),
    ("workload-49x", "4.9.7", True, NOTHING, 1, None),
]


@pytest.mark.parametrize(("name", "version", "is_forced", "outcome", "doubled", "unindexed"), SEEN)
def test_a_broker_did_what_is_said(
    name: str,
    version: str,
    is_forced: bool,
    outcome: tuple[int, int, int, int | None],
    doubled: int,
    unindexed: tuple[int, int] | None,
    unpacked: Unpack,
) -> None:
    state = state_of(STORES[name], unpacked(STORES[name]), version)
    (boot,) = state.forced_boots if is_forced else state.boots
    first_lost = [one.first_lost_offset for one in boot.queues if one.lost]
    assert (boot.completed, boot.shifted, boot.lost, *(first_lost or [None])) == outcome
    assert boot.doubled_entries == doubled
    assert boot.unindexed == (None if unindexed is None else LogRange(*unindexed))
    assert len(boot.deleted_index_files) == is_forced  # the last one, which is not full
    assert boot.loses_nothing is (outcome[1:3] == (0, 0) and unindexed is None)


@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_nothing_happens_to_a_store_that_was_stopped_cleanly(store: RealStore, unpacked: Unpack) -> None:
    state = state_of(store, unpacked(store))
    assert state.last_stop.is_clean
    assert state.obstacles == ()
    assert state.log.stale_tail is None
    assert state.log.end == store.facts("store")[0]["maxPhyOffset"]
    for boot in state.boots:
        if boot.cut_messages:
            assert boot.rules == V5_0
            assert any(fact["magic"] == MAGIC_V2 for fact in store.facts("msg"))
            continue
        assert boot.is_full
        assert boot.loses_nothing
        assert (boot.dispatched, boot.doubled_entries, boot.deleted_index_files, boot.queues) == ((), 0, (), ())


def facts(**changes: object) -> BootFacts:
    """A log of five segments of 1000 bytes, the last of which was created in advance; queue T/0 lacks two messages."""
    lacking = LackingMessage("T", 0, 7, 3200), LackingMessage("T", 0, 8, 3300)
    plain = BootFacts(True, 0, 3400, (0, 1000, 2000, 3000, 4000), (), Checkpoint(), 3200, 3200, lacking, {("T", 0): 7})
    return replace(plain, **changes)  # type: ignore[arg-type]


def outcome(boot: Boot) -> tuple[int, int, int]:
    return boot.completed, boot.shifted, boot.lost


def test_a_clean_boot_begins_as_its_version_does() -> None:
    heads = tuple(SegmentHead(base, MAGIC_V1, 50, base) for base in (3000, 2000, 1000, 0))
    newest = (SegmentHead(4000, 0, 0), *heads)
    begins = [next_boot(rules, facts(heads=newest)).recovers_from for rules in GROUPS]
    assert begins == [2000, 2000, 2000, 3000, 3000, 3000]
    most = BootSettings(commit_log_recover_max_num=2)
    assert next_boot(V5_4, facts(heads=newest, queue_end=0)).recovers_from == 0
    assert next_boot(V5_4, facts(heads=newest, queue_end=0, settings=most)).recovers_from == 3000
    assert next_boot(V5_3_2, facts(heads=newest, queue_end=0, settings=most)).recovers_from == 0
    damaged = (newest[0], replace(newest[1], is_whole=False), *newest[2:])
    assert next_boot(V5_5, facts(heads=damaged)).recovers_from == 2000
    assert next_boot(V5_3_2, facts(queue_end=999)).recovers_from == 0
    assert next_boot(V4_9, facts(segments=(3000,))).recovers_from == 3000


def test_each_version_does_something_else_with_a_queue_that_lags() -> None:
    assert [outcome(next_boot(rules, facts())) for rules in GROUPS] == [
        (2, 0, 0),
        (0, 0, 2),
        (0, 0, 2),
        (0, 1, 1),
        (0, 1, 1),
        (0, 1, 1),
    ]
    boot = next_boot(V5_3_2, facts())
    assert (boot.queues[0].first_lost_offset, boot.dispatched) == (3200, (LogRange(3201, 3400),))


def test_a_message_that_does_not_begin_at_the_queues_end_is_not_skipped() -> None:
    """A blank, or a message that has no unit, is between the end of the queues and the first lacking message."""
    assert outcome(next_boot(V5_3_2, facts(queue_end=3190))) == (2, 0, 0)


def test_a_setting_lets_5_dispatch_as_4_9() -> None:
    checking = BootSettings(recheck_reput_offset_from_cq=True)
    assert outcome(next_boot(V5_0, facts(settings=checking))) == (2, 0, 0)
    # 5.3.2 has appended the second message by then, so the first one is before the end of the queues.
    assert outcome(next_boot(V5_3_2, facts(settings=checking))) == (0, 1, 1)
    one = facts().lacking[:1]
    assert outcome(next_boot(V5_3_2, facts(lacking=one, log_end=3300))) == (0, 0, 1)
    assert outcome(next_boot(V5_3_2, facts(lacking=one, log_end=3300, settings=checking))) == (1, 0, 0)


def test_without_queues_all_are_built_except_by_5_0() -> None:
    nothing = facts(queue_end=-1, live_queue_end=-1, next_queue_offsets={})
    all_built = dict.fromkeys(GROUPS, (2, 0, 0)) | {V5_0: (0, 0, 2), V5_1: (0, 0, 2)}
    assert {rules: outcome(next_boot(rules, nothing)) for rules in GROUPS} == all_built
    assert next_boot(V4_9, nothing).dispatched == next_boot(V5_3_2, nothing).dispatched == (LogRange(0, 3400),)


def test_units_after_the_end_of_the_log_do_not_count_for_4_9() -> None:
    assert outcome(next_boot(V4_9, facts(queue_end=3900, live_queue_end=3200))) == (2, 0, 0)
    assert outcome(next_boot(V5_3_2, facts(queue_end=3900, live_queue_end=3200))) == (0, 0, 2)


def test_messages_before_the_part_that_is_dispatched_stay_lost() -> None:
    """Another queue is ahead. The later message of this queue is appended at the place of the lost one."""
    early = (LackingMessage("T", 0, 7, 1500), LackingMessage("T", 0, 8, 3300))
    some_shifted = dict.fromkeys(GROUPS, (0, 1, 1)) | {V5_0: (0, 0, 2), V5_1: (0, 0, 2)}
    assert {rules: outcome(next_boot(rules, facts(lacking=early))) for rules in GROUPS} == some_shifted
    heads = (SegmentHead(3000, MAGIC_V1, 50),)
    crashed = facts(lacking=early, is_clean=False, heads=heads, checkpoint=Checkpoint(9000, 9000))
    assert outcome(next_boot(V5_3_2, crashed)) == (0, 1, 1)


@pytest.mark.parametrize(
    ("checkpoint", "settings", "begins"),
    [
        (Checkpoint(), BootSettings(), 0),
        (Checkpoint(9000, 8000), BootSettings(), 3000),
        (Checkpoint(9000, 7999), BootSettings(), 2000),
        (Checkpoint(9000, 9000, 4000), BootSettings(message_index_safe=True), 1000),
        (Checkpoint(9000, 9000, 4000), BootSettings(message_index_enable=False, message_index_safe=True), 3000),
        (Checkpoint(-1, -1, -1), BootSettings(), 0),
    ],
)
def test_a_recovery_begins_where_the_checkpoint_says(
    checkpoint: Checkpoint, settings: BootSettings, begins: int
) -> None:
    """Three seconds before the older one of two times; a segment of zeros, or without a time, is never accepted."""
    heads = [SegmentHead(4000, 0, 0), SegmentHead(3000, MAGIC_V1, 5000), SegmentHead(2000, MAGIC_V1, 4500)]
    heads += [SegmentHead(1000, MAGIC_V1, 4000), SegmentHead(0, MAGIC_V1, 3000)]
    crashed = facts(is_clean=False, heads=tuple(heads), checkpoint=checkpoint, settings=settings)
    for rules in [V4_9, V5_0, V5_1, V5_3_2, V5_4]:
        boot = next_boot(rules, crashed)
        assert (boot.recovers_from, boot.dispatched) == (begins, (LogRange(begins, 3400),))


def test_5_5_begins_where_the_queues_were_flushed() -> None:
    """`ConsumeQueueStore.isMappedFileMatchedRecover`@5.5.0: an offset; without one, the time of the queues."""
    heads = tuple(SegmentHead(base, MAGIC_V1, base, base) for base in (3000, 2000, 1000, 0))
    crashed = facts(is_clean=False, heads=heads)

    def begins(checkpoint: Checkpoint, settings: BootSettings | None = None) -> int | None:
        changed = replace(crashed, checkpoint=checkpoint, settings=settings or BootSettings())
        return next_boot(V5_5, changed).recovers_from

    assert begins(Checkpoint(9000, 9000, logics_physical_offset=2999)) == 2000
    assert begins(Checkpoint(9000, 9000, logics_physical_offset=3000)) == 3000
    assert begins(Checkpoint(0, 2500)) == 2000
    assert begins(Checkpoint(9000, 9000, 1500, 0, 0, 3000), BootSettings(message_index_safe=True)) == 1000
    assert begins(Checkpoint(9000, 100, logics_physical_offset=1), BootSettings(commit_log_recover_max_num=3)) == 1000


def test_4_9_begins_at_no_record_of_the_newer_format() -> None:
    crashed = facts(is_clean=False, heads=(SegmentHead(3000, MAGIC_V2, 50),), checkpoint=Checkpoint(9000, 9000))
    assert [next_boot(rules, crashed).recovers_from for rules in GROUPS] == [0, 0, 3000, 3000, 3000, 3000]


def test_without_segments_a_boot_deletes_the_queues() -> None:
    for rules in GROUPS:
        boot = next_boot(rules, BootFacts(True, -1, -1, ()))
        assert (boot.deletes_queues, boot.recovers_from, boot.loses_nothing) == (True, None, False)


@pytest.mark.parametrize(
    ("version", "rules"),
    [
        ("4.9", [V4_9]),
        ("4.9.8", [V4_9]),
        ("5", OF_5),
        ("5.0", [V5_0]),
        ("5.0.0", [V5_0]),
        ("5.1", [V5_1]),
        ("5.1.0", [V5_1]),
        ("5.2", [V5_1]),
        ("5.3", [V5_1, V5_3_2]),
        ("5.3.1", [V5_1]),
        ("5.3.2", [V5_3_2]),
        ("5.3.3", [V5_3_2]),
        ("5.4.0", [V5_4]),
        ("5.5.1", [V5_5]),
        ("5.10.0", [V5_5]),
    ],
)
def test_a_version_has_rules(version: str, rules: list[BrokerVersions], tmp_path: Path) -> None:
    found = boot_groups(find_broker_versions(Location.resolve(str(tmp_path)), version))
    assert len(found) == len(rules)
    assert all(one.first <= group.first <= group.last <= one.last for group, one in zip(found, rules, strict=True))
    assert ("its rules are assumed" in found[0].evidence) == (version == "5.10.0")


@pytest.mark.parametrize("version", ["", "4.8", "6", "5.x", "5.3.3.1", "5.", "5.3.²"])
def test_another_version_is_an_error(version: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="version"):
        find_broker_versions(Location.resolve(str(tmp_path)), version)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_the_tags_of_the_last_message_in_a_5_5_index_are_counted(version: str, tmp_path: Path) -> None:
    """After a crash, the checkpoint keeps the index files up to one whose last message has tags."""
    store = RealStore("workload-550", OWN_STORES / "versions")
    folder = store.unpack(tmp_path)
    (folder / "abort").touch()
    entries = Counter(entries_of(store, folder))
    keys = {fact["offset"]: 1 + len((fact["keys"] or "").split()) for fact in store.facts("msg") if fact["tags"]}
    ends = [struct.unpack_from(">qqqq", file.read_bytes()) for file in sorted((folder / "index").iterdir())]
    flushed, end = next((time, offset) for _, time, _, offset in ends if keys.get(offset, 0) + 1 == entries[offset])
    (folder / "checkpoint").write_bytes(Checkpoint(index_msg_timestamp=flushed).encode())
    for file, (_, timestamp, _, _) in zip(sorted((folder / "index").iterdir()), ends, strict=True):
        if timestamp > flushed:
            file.unlink()
    kept = sum(offset == end for offset in entries_of(store, folder))
    expected = min(kept, keys[end] + (version == "5.5.0"))
    recovery = next_recovery(str(folder), version, str(store.broker_conf))
    assert [row["count"] for row in recovery.rows.to_pylist() if row["action"] == "double"] == [expected]
    assert recovery.doubled_entries == expected
