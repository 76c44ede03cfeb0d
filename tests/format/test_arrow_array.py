from __future__ import annotations

import struct
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.arrow_array import array_of, table_of, timestamps

INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
KINDS = [
    (pa.int32(), INT32),
    (pa.int64(), INT64),
    (pa.timestamp("us", "UTC"), INT64),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=5)),
    (pa.list_(pa.field("element", pa.string())), st.lists(TEXT | st.none(), max_size=3)),
    (
        pa.map_(pa.string(), pa.string()),
        st.dictionaries(TEXT, TEXT | st.none(), max_size=3).map(lambda m: [*m.items()]),
    ),
]


@pytest.mark.parametrize(("kind", "one"), KINDS, ids=[str(kind) for kind, _ in KINDS])
@given(data=st.data())
def test_it_is_what_pyarrow_makes(kind: pa.DataType, one: st.SearchStrategy[Any], data: st.DataObject) -> None:
    values = data.draw(st.lists(one | st.none(), max_size=10))
    array = array_of(values, kind)
    array.validate(full=True)
    assert array.equals(pa.array(values, kind))


def test_timestamps_have_milliseconds_also_beside_null() -> None:
    millis = np.array([1_700_000_000_123, 5, -62_135_596_800_001])  # the last is a millisecond before the year 1
    times = [datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)]
    assert timestamps(millis[:2]).to_pylist() == times
    assert timestamps(millis).to_pylist() == [*times, None]
    assert timestamps(millis[:2], np.array([True, False])).to_pylist() == [times[0], None]


def test_a_map_can_be_a_mapping() -> None:
    kind = pa.map_(pa.string(), pa.string())
    assert array_of([{"a": "b"}, None], kind).to_pylist() == [[("a", "b")], None]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(struct.error):
        array_of([1 << 31], pa.int32())
    with pytest.raises(TypeError, match="float"):
        array_of([1.0], pa.float32())


def test_a_table_has_the_columns_of_its_schema() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    table = table_of([{"a": 1}, {"b": "x", "c": 5}], schema)
    assert table.schema.equals(schema)
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_it_imports_no_pandas() -> None:
    code = (
        "import sys, pyarrow as pa; from spark_mq.format.arrow_array import array_of;"
        "assert array_of(['a'], pa.string()).to_pylist() == ['a'];"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
