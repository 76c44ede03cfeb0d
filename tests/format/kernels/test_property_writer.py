"""Values that are put into properties: the others stay as they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.kernels.properties import places_of
from spark_mq.format.kernels.property_writer import put_values
from spark_mq.format.pieces import Pieces, pieces_of_bytes
from spark_mq.format.properties import parse_properties

PROPERTIES = st.lists(st.sampled_from([b"a\1b\2", b"name\1old\2", b"name\1\2", b"na\1me\2", b"name\1x\1y\2", b"\2"]))


@given(st.lists(st.tuples(PROPERTIES, st.none() | st.binary(min_size=1).filter(lambda one: b"\2" not in one))))
def test_a_value_takes_the_place_of_the_old_one_or_is_first(rows: list[tuple[list[bytes], bytes | None]]) -> None:
    stored = [b"".join(parts).removesuffix(b"\2" * (len(parts) % 2)) for parts, _ in rows]
    values = pieces_of_bytes([value or b"" for _, value in rows])
    given_lengths = np.array([-1 if value is None else len(value) for _, value in rows], np.int32)
    changed = put_values(pieces_of_bytes(stored), b"name", Pieces(values.buffer, values.starts, given_lengths))
    starts, lengths = places_of(changed, b"name")
    for number, (before, (_, value)) in enumerate(zip(stored, rows, strict=True)):
        after = changed.piece(number)
        if value is None:
            assert after == before
            continue
        wanted = parse_properties(before)
        if b"name" not in wanted:
            assert after == b"name\1" + value + b"\2" + before
        assert parse_properties(after) == wanted | {b"name": value}
        assert changed.buffer[starts[number] :][: lengths[number]].tobytes() == value
        size = len(b"name\1\2") if b"name" not in wanted else -len(wanted[b"name"])
        assert len(after) == len(before) + len(value) + size
