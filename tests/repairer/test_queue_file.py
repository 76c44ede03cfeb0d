"""The units of a repaired file: a check of them finds nothing, whatever was in the file before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Units, pre_blank
from spark_mq.repairer.new_files import sound_units
from spark_mq.store.log.log_range import LogRange
from spark_mq.verifier.codes import CODES, Severity
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, queue_file_findings

CAPACITY = 10
BOUNDS = LogBounds(1000, 9000, True)


def units(*values: tuple[int, int, int]) -> Units:
    return np.array(list(values), UNIT_DTYPE)


def of_messages(first: int, count: int) -> Units:
    return units(*((1000 + 100 * number, 90, number) for number in range(first, first + count)))


def expected(number: int = 0, low: int | None = 3, high: int | None = 8) -> ExpectedFile:
    file = ExpectedFile("orders", 0, number, CAPACITY, low, high, 0)
    if low is not None and high is not None:
        start, stop = max(low, file.start), min(high, file.start + CAPACITY)
        if start < stop:
            file.put(start, of_messages(start, stop - start))
    return file


def codes(file: ExpectedFile, content: Units) -> list[str]:
    found = [batch["code"][0].as_py() for batch in queue_file_findings(file, content, BOUNDS)]
    return [code for code in found if CODES[code].severity != Severity.NOTE]


def test_a_new_file_has_pre_blank_units_messages_and_zeros() -> None:
    content = sound_units(expected(), units(), BOUNDS)
    assert content.tobytes() == pre_blank(3).tobytes() + of_messages(3, 5).tobytes() + bytes(2 * UNIT_SIZE)


def test_units_of_expired_messages_stay_if_they_are_in_order() -> None:
    existing = np.concatenate([units((100, 90, 1), (300, 90, 2), (200, 90, 3)), of_messages(3, 5)])
    content = sound_units(expected(), existing, BOUNDS)
    assert content[:3].tolist() in ([(100, 90, 1), (300, 90, 2), (0, 0x7FFFFFFF, 0)],)
    assert content[3:8].tobytes() == of_messages(3, 5).tobytes()


def test_a_queue_without_messages_keeps_its_expired_units_and_ends_after_them() -> None:
    existing = units((100, 90, 1), (0, 0, 0), (300, 90, 2), (5000, 90, 3), (9500, 90, 4))
    content = sound_units(expected(low=None, high=None), existing, BOUNDS)
    assert content[:3].tolist() == [(100, 90, 1), (0, 0x7FFFFFFF, 0), (300, 90, 2)]
    assert not content[3:].tobytes().strip(b"\0")


def test_units_of_a_damaged_part_of_the_log_stay() -> None:
    file = ExpectedFile("orders", 0, 0, CAPACITY, 0, 3, 0)
    file.put(0, of_messages(0, 1))
    file.put(2, of_messages(2, 1))
    content = sound_units(file, of_messages(0, 3), LogBounds(1000, 9000, True, (LogRange(1100, 1200),)))
    assert content[:3].tobytes() == of_messages(0, 3).tobytes()


def test_the_later_one_of_two_messages_stays_if_the_queue_has_it() -> None:
    file = expected(low=0, high=3)
    later = units((8000, 70, 5))
    file.put(1, later)
    existing = np.concatenate([of_messages(0, 1), later, units((7, 7, 7))])
    assert sound_units(file, existing, BOUNDS)[:3].tobytes() == (
        of_messages(0, 1).tobytes() + later.tobytes() + of_messages(2, 1).tobytes()
    )


offsets = st.one_of(st.integers(-5, 10_000), st.integers(-(1 << 63), (1 << 63) - 1))
any_units = st.lists(
    st.one_of(
        st.tuples(offsets, st.sampled_from([0, 90, -1, 0x7FFFFFFF]), st.integers(-3, 9)),
        st.sampled_from([(0, 0, 0), (0, 0x7FFFFFFF, 0)]),
    ),
    max_size=CAPACITY + 2,
)


@given(any_units, st.sampled_from([(0, 3, 8), (0, 0, 10), (0, 4, 25), (1, 3, 18), (0, 12, 15), (0, None, None)]))
def test_nothing_is_wrong_with_a_repaired_file(values: list[tuple[int, int, int]], case: tuple[int, ...]) -> None:
    file = expected(*case)
    content = sound_units(file, units(*values), BOUNDS)
    assert content.size == CAPACITY
    written = -(-len(content.tobytes().rstrip(b"\0")) // UNIT_SIZE)
    assert codes(expected(*case), content[:written]) == []
    assert sound_units(expected(*case), content, BOUNDS).tobytes() == content.tobytes()
