"""Matching index entries with those that the log has: what the small stores do not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spark_mq.indexer.staged_files import StagedEntriesWriter
from spark_mq.io.location import Location
from spark_mq.verifier.entry_match import NONE, EntryMatch, ExpectedEntries, match_entries
from spark_mq.verifier.log_bounds import LogBounds
from tests.support.index_stores import staged_entries
from tests.support.verified import Bench, check, grave

HASHES = np.arange(1000, 1040, dtype=np.int32)
OFFSETS = np.arange(40, dtype=np.int64) // 2 * 100  # two keys of each message
TIMES = 5_000_000 + OFFSETS
BOUNDS = LogBounds(0, 2000, True)


@pytest.fixture
def expected(tmp_path: Path) -> ExpectedEntries:
    """40 entries in two splits, whose list was written and read again."""
    folder = Location.resolve(str(tmp_path))
    splits = []
    for part in (slice(0, 16), slice(16, 40)):
        with StagedEntriesWriter(folder) as writer:
            writer.add(staged_entries(HASHES[part], OFFSETS[part], TIMES[part]))
        splits.append(writer.staged)
    ExpectedEntries(tuple(splits), (0, 800)).save(folder / "entries.json")
    return ExpectedEntries.load(folder / "entries.json", folder)


def match(expected: ExpectedEntries, numbers: list[int], next_number: int | None) -> EntryMatch:
    """The match of found entries that are the expected ones with these numbers."""
    at = np.array(numbers)
    return match_entries(HASHES[at], OFFSETS[at], expected, next_number, BOUNDS)


def test_entries_are_read_across_splits(expected: ExpectedEntries) -> None:
    batch = expected.read(10, 30)
    assert batch.key_hashes.tolist() == HASHES[10:30].tolist()
    assert [expected.position_of(offset) for offset in (0, 100, 799, 800, 1900, 5000)] == [0, 2, 16, 16, 38, 40]


def test_equal_entries_follow_each_other(expected: ExpectedEntries) -> None:
    found = match(expected, list(range(5, 30)), 5)
    assert found.number.tolist() == list(range(5, 30))
    assert (found.next_number, found.missing.size) == (30, 0)
    assert not found.is_double.any()
    assert found.store_timestamps.tolist() == TIMES[5:30].tolist()


def test_missing_entries_are_counted_from_the_expected_one_on(expected: ExpectedEntries) -> None:
    found = match(expected, [*range(6, 12), *range(20, 25)], 4)
    assert found.missing.tolist() == [4, 5, *range(12, 20)]
    assert found.next_number == 25


def test_entries_of_a_message_that_come_again_are_doubled(expected: ExpectedEntries) -> None:
    found = match(expected, [4, 5, 4, 5, 6, 7], 4)
    assert found.is_double.tolist() == [False, False, True, True, False, False]
    assert found.missing.size == 0


def test_entries_that_an_earlier_file_has_are_doubled(expected: ExpectedEntries) -> None:
    found = match(expected, [2, 3, 4, 5], 4)
    assert found.is_double.tolist() == [True, True, False, False]
    assert found.next_number == 6


def test_a_damaged_entry_takes_the_place_between_its_neighbours(expected: ExpectedEntries) -> None:
    hashes, offsets = HASHES[4:10].copy(), OFFSETS[4:10].copy()
    hashes[2], offsets[3] = 7, 123_456
    found = match_entries(hashes, offsets, expected, 4, BOUNDS)
    assert found.number.tolist() == list(range(4, 10))
    assert found.is_same.tolist() == [True, True, False, False, True, True]
    assert found.key_hashes.tolist() == HASHES[4:10].tolist()
    assert found.missing.size == 0


def test_entries_after_the_log_are_nobody_s(expected: ExpectedEntries) -> None:
    hashes = np.concatenate((HASHES[38:], np.array([1, 2], np.int32)))
    offsets = np.concatenate((OFFSETS[38:], np.array([2000, 2100])))
    found = match_entries(hashes, offsets, expected, 38, BOUNDS)
    assert found.number.tolist() == [38, 39, NONE, NONE]


def test_entries_before_the_log_are_nobody_s(expected: ExpectedEntries) -> None:
    bounds = LogBounds(800, 2000, True)
    found = match_entries(HASHES[10:20], OFFSETS[10:20], ExpectedEntries(expected.splits[1:], (800,)), 0, bounds)
    assert found.number.tolist() == [NONE] * 6 + [0, 1, 2, 3]
    assert found.missing.size == 0


@pytest.mark.parametrize("number", range(7))
def test_entries_of_a_lost_message_at_the_end_of_a_file_take_no_place_of_the_next_file(
    number: int, bench: Bench
) -> None:
    offset = bench.entries(bench.index_file(number))[-1][1]
    file, position = bench.segment(offset)
    bench.flip(file, position + 4)
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert {finding.code for finding in grave(findings)} == {"LOG_CORRUPT", "QUEUE_NO_MESSAGE", "INDEX_NO_MESSAGE"}
