"""A queue file whose messages are all in a lost part of the log: its units can only be held against each other."""

from __future__ import annotations

import struct

import pytest

from tests.support.verified import Bench, check

QUEUE = ("user_activity", 0)
UNITS = 100
"""Units of a queue file."""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """A store in which every message of the second file of a queue is damaged."""
    offsets = [fact["offset"] for fact in bench.messages if (fact["topic"], fact["queueId"]) == QUEUE]
    for offset in sorted(offsets)[UNITS : 2 * UNITS]:
        file, position = bench.segment(offset)
        bench.flip(file, position + 4)  # the magic
    return bench


def found(bench: Bench) -> dict[int | None, str]:
    """The codes of findings about the queue file, by position."""
    file, _ = bench.unit(*QUEUE, UNITS)
    _, findings = check(bench.path, bench.packed.broker_conf)
    chosen = [finding for finding in findings if finding.file == file]
    codes = {finding.position: finding.code for finding in chosen}
    assert len(codes) == len(chosen)
    return codes


def test_each_unit_leads_to_a_lost_message(bench: Bench) -> None:
    assert found(bench) == {20 * number: "QUEUE_NO_MESSAGE" for number in range(UNITS)}


def test_units_are_in_order_and_lead_into_the_lost_part(bench: Bench) -> None:
    file, _ = bench.unit(*QUEUE, UNITS)
    units = bench.read(file, 0, 20 * UNITS)
    bench.write(file, 20 * 7, units[20 * 8 : 20 * 9] + units[20 * 7 : 20 * 8])  # swapped
    bench.write(file, 20 * 20, bytes(20))
    bench.write(file, 20 * 30, struct.pack(">qiq", 0, 0x7FFFFFFF, 0))
    bench.write(file, 20 * 40, struct.pack(">qiq", 1000, 200, 0))  # of a message that is there
    bench.write(file, 20 * 50 + 8, struct.pack(">i", 1 << 30))
    bench.write(file, 20 * 60, struct.pack(">q", -1))
    expected = {20 * number: "QUEUE_NO_MESSAGE" for number in range(UNITS)}
    expected |= {20 * 8: "QUEUE_UNIT_MISPLACED", 20 * 20: "QUEUE_UNIT_MISSING", 20 * 30: "QUEUE_UNIT_MISSING"}
    expected |= {20 * 40: "QUEUE_UNIT_WRONG", 20 * 50: "QUEUE_UNIT_WRONG", 20 * 60: "QUEUE_UNIT_MISSING"}
    assert found(bench) == expected


def test_a_lost_file_of_lost_messages_is_missing(bench: Bench) -> None:
    file, _ = bench.unit(*QUEUE, UNITS)
    (bench.path / file).unlink()
    assert found(bench) == {None: "QUEUE_FILE_MISSING"}
