"""Which parts of a log are missing in an archive, against a plain count of bytes. No Spark here."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_mq.archive.archive_source import Part, add_bytes, missing_between
from spark_mq.errors import CorruptLogError

PART = 1 << 28
SIZES = st.sampled_from([91, 1000, PART // 3, PART - 1, PART, 3 * PART + 7])


def summed(rows: list[tuple[int, int]]) -> dict[int, Part]:
    """The parts as Spark sums them up."""
    parts: dict[int, Part] = {}
    for offset, size in rows:
        part = parts.setdefault(offset // PART, Part(offset, offset + size, 0))
        part.first, part.stop = min(part.first, offset), max(part.stop, offset + size)
        part.bytes += size
    return parts


@given(st.integers(0, 5 * PART), st.lists(st.tuples(SIZES, st.sampled_from(["row", "blank", "missing"])), min_size=1))
@example(0, [(91, "row"), (1000, "blank"), (91, "row")])
@example(0, [(91, "row"), (1000, "missing"), (91, "row")])
@example(0, [(PART - 50, "row"), (91, "missing"), (91, "row")])
@example(0, [(PART - 50, "row"), (3 * PART, "blank"), (91, "row")])
def test_each_missing_row_is_noticed(start: int, layout: list[tuple[int, str]]) -> None:
    found: dict[str, list[tuple[int, int]]] = {"row": [], "blank": [], "missing": []}
    offset = start
    for size, kind in layout:
        found[kind].append((offset, size))
        offset += size
    rows = found["row"]
    if not rows:
        return
    parts = summed(rows)
    first, end = rows[0][0], rows[-1][0] + rows[-1][1]
    add_bytes(parts, [one for one in found["blank"] if first <= one[0] < end])
    missing, unclear = missing_between(parts)
    lost = [one for one in found["missing"] if first <= one[0] < end]
    for offset, size in lost:
        is_between = any(start <= offset and offset + size <= stop for start, stop, _ in missing)
        assert is_between or any(
            part.first <= offset < part.stop for number, part in parts.items() if number in unclear
        )
    if not lost:
        assert (missing, unclear) == ([], [])


def test_rows_that_overlap_are_an_error() -> None:
    with pytest.raises(CorruptLogError, match=f"near commit log offset {PART}"):
        missing_between(summed([(0, PART + 50), (PART, 100)]))
    assert missing_between(summed([(0, 100), (50, 100)])) == ([], [0])
