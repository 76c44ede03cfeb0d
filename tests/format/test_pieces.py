from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.pieces import Pieces, no_pieces, pieces_of_array, pieces_of_bytes

VALUES = st.lists(st.text(max_size=20) | st.none(), max_size=8)
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]


def values_of(pieces: Pieces) -> list[str | None]:
    given = pieces.is_given().tolist()
    return [pieces.piece(index).decode() if given[index] else None for index in range(pieces.size)]


@pytest.mark.parametrize("kind", [*KINDS, pa.large_binary(), pa.binary_view()], ids=str)
@given(values=VALUES, start=st.integers(0, 4))
def test_pieces_are_the_values_of_an_array_and_of_a_slice(
    kind: pa.DataType, values: list[str | None], start: int
) -> None:
    array = pa.array(values, pa.string())
    array = array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind)
    assert values_of(pieces_of_array(array)) == values
    part = pieces_of_array(array.slice(start, 3))
    assert values_of(part) == values[start : start + 3]
    assert part.total() == sum(len((value or "").encode()) for value in values[start : start + 3])


def test_values_of_one_size_and_no_values() -> None:
    assert values_of(pieces_of_array(pa.array([b"ab", None], pa.binary(2)))) == ["ab", None]
    assert values_of(pieces_of_array(pa.nulls(2))) == values_of(no_pieces(2)) == [None, None]


@given(st.lists(st.binary(max_size=5), max_size=5))
def test_pieces_of_bytes_lie_one_after_the_other(values: list[bytes]) -> None:
    pieces = pieces_of_bytes(values)
    assert [pieces.piece(index) for index in range(pieces.size)] == values
    assert pieces.buffer.tobytes() == b"".join(values)
