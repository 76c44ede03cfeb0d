"""One queue file: what the small stores do not have."""

from __future__ import annotations

import numpy as np

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, Units
from spark_mq.store.log.log_range import LogRange, joined
from spark_mq.verifier.finding import Finding, rows
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, queue_file_findings

CAPACITY = 10


def units(*offsets: int, tags_code: int = 5) -> Units:
    """Units of messages of 100 bytes."""
    made = np.zeros(len(offsets), UNIT_DTYPE)
    made["commit_log_offset"], made["store_size"], made["tags_code"] = offsets, 100, tags_code
    return made


def found(expected: ExpectedFile, existing: Units, bounds: LogBounds, has_extensions: bool = False) -> list[Finding]:
    return list(rows(queue_file_findings(expected, existing, bounds, has_extensions)))


def file(queue_max: int, stop: int = CAPACITY, number: int = 0) -> ExpectedFile:
    return ExpectedFile("orders", 0, number, CAPACITY, 0, queue_max, stop)


def test_a_queue_offset_of_two_messages_belongs_to_the_first() -> None:
    expected = file(2)
    expected.put(0, units(100, 200))
    expected.put(1, units(300))
    (finding,) = found(expected, units(100, 200), LogBounds(0, 400, True))
    assert (finding.code, finding.position, finding.commit_log_offset) == ("QUEUE_OFFSET_TWICE", 20, 300)


def test_a_queue_that_was_created_again_is_not_wrong() -> None:
    """The log still has the messages of its earlier life: more of them than the queue has now."""
    expected = file(3)
    expected.put(0, units(100, 200, 300))
    expected.put(0, units(1100, 1200))
    codes = {finding.code for finding in found(expected, units(1100, 1200), LogBounds(0, 2000, True))}
    assert codes == {"QUEUE_OFFSET_TWICE", "QUEUE_DELETED"}


def test_a_file_that_ends_early_lags_unless_a_later_file_has_units() -> None:
    for stop, code in ((CAPACITY, "QUEUE_LAGS_CLEAN"), (3 * CAPACITY, "QUEUE_UNIT_MISSING")):
        expected = file(2, stop)
        expected.put(0, units(100, 200))
        (finding,) = found(expected, units(100), LogBounds(0, 300, True))
        assert (finding.code, finding.position) == (code, 20)


def test_addresses_of_extensions_are_no_tags_codes() -> None:
    expected = file(1)
    expected.put(0, units(100))
    address = units(100, tags_code=-(1 << 63) + 40)
    bounds = LogBounds(0, 200, True)
    assert [one.code for one in found(expected, address, bounds, has_extensions=True)] == ["QUEUE_EXT_MISSING"]
    assert [finding.code for finding in found(expected, address, bounds)] == ["QUEUE_UNIT_WRONG"]


def test_units_of_a_damaged_part_of_the_log_are_not_wrong() -> None:
    expected = file(3)
    expected.put(0, units(100))
    expected.put(2, units(300))
    bounds = LogBounds(0, 400, True, (LogRange(200, 300),))
    assert [finding.code for finding in found(expected, units(100, 200, 300), bounds)] == ["QUEUE_NO_MESSAGE"]


def test_a_message_that_a_restore_left_out_is_noted() -> None:
    """Its unit has an offset after the log's start; a pre-blank one is that of a lost message."""
    expected = file(3)
    expected.put(0, units(1100))
    expected.put(2, units(1300))
    have = units(1100, 1000, 1300)
    have["store_size"][1], have["tags_code"][1] = PRE_BLANK_SIZE, 0
    for offset, code in ((1000, "QUEUE_LEFT_OUT"), (900, "QUEUE_NO_MESSAGE"), (0, "QUEUE_NO_MESSAGE")):
        have["commit_log_offset"][1] = offset
        assert [finding.code for finding in found(expected, have, LogBounds(900, 1400, True))] == [code]


def test_a_queue_without_a_message_keeps_units_that_expired() -> None:
    expected = ExpectedFile("orders", 0, 0, CAPACITY, None, None, CAPACITY)
    bounds = LogBounds(1000, 2000, True)
    assert found(expected, units(100, 200), bounds) == []
    codes = [finding.code for finding in found(expected, units(100, 1500, 2000), bounds)]
    assert codes == ["QUEUE_UNIT_STALE", "QUEUE_UNIT_EXTRA"]


def test_every_wrong_unit_is_a_row() -> None:
    expected = ExpectedFile("orders", 0, 0, 100_000, 0, 100_000, 100_000)
    expected.put(0, units(*range(0, 10_000_000, 100)))
    (batch,) = queue_file_findings(
        expected, units(*range(0, 10_000_000, 100), tags_code=6), LogBounds(0, 1 << 40, True)
    )
    assert batch.num_rows == 100_000
    assert batch["position"].to_pylist() == list(range(0, 2_000_000, 20))


def test_holes_are_merged_and_limited() -> None:
    ranges = [LogRange(*bounds) for bounds in ((5, 9), (0, 3), (8, 12), (20, 30), (40, 50))]
    assert joined(ranges, most=2) == [LogRange(0, 3), LogRange(5, 50)]
    bounds = LogBounds(0, 100, True, (LogRange(0, 3), LogRange(5, 12)))
    assert bounds.is_lost(np.array([0, 2, 3, 5, 11, 12])).tolist() == [True, True, False, True, True, False]


def test_a_queue_of_a_topic_that_is_not_configured_is_deleted_if_it_has_no_file() -> None:
    for has_file, code in ((False, "QUEUE_DELETED"), (True, "QUEUE_MISSING")):
        expected = file(1, stop=0)
        expected.is_configured, expected.has_file = False, has_file
        expected.put(0, units(100))
        (finding,) = found(expected, units(), LogBounds(0, 200, True))
        assert finding.code == code
