"""New queue offsets in inner batches, against the plain twin of a record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.inner_batches import put_bases
from spark_mq.format.record import INNER_BATCH_FLAG, Record
from tests.support.kernels import array, examples

_OFFSETS = st.integers(0, 1 << 58)


def record_of(base: int | None, before: bytes, after: bytes) -> Record:
    """A record that is an inner batch with INNER_BASE, or another one whose INNER_BASE is not the broker's."""
    text = b"" if base is None else b"INNER_BASE\1%d\2" % base
    flag = 0 if base is None else INNER_BATCH_FLAG
    return Record(b"T", body=before, properties=before + text + after, sys_flag=flag, queue_offset=base or 0)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(st.none() | _OFFSETS, _OFFSETS, st.sampled_from([b"", b"a\1b\2", b"INNER_NUM\0013\2"])), max_size=9
    )
)
def test_a_batch_names_its_new_offset(rows: list[tuple[int | None, int, bytes]]) -> None:
    old = [record_of(base, pieces, b"INNER_BASE\1x\2" if base is None else pieces) for base, _, pieces in rows]
    new = [
        record if base is None else replace(record_of(offset, pieces, pieces), queue_offset=base)
        for record, (base, offset, pieces) in zip(old, rows, strict=True)
    ]
    sizes = [record.size for record in old]
    starts, offsets = np.cumsum([0, *sizes], dtype=np.int64), np.array([offset for _, offset, _ in rows], np.int64)
    data, new_sizes = put_bases(array(b"".join(map(Record.encode, old))), starts, offsets)
    assert data.tobytes() == b"".join(map(Record.encode, new))
    assert new_sizes.tolist() == [record.size for record in new]
