from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.dispatch import record_keys
from spark_mq.format.kernels.batches import message_keys
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.record import Record
from tests.support.kernels import array, examples, frames_of

pieces = st.sampled_from(
    [b"KEYS\1", b"UNIQ_KEY\1", b"\1", b"\2", b"a", b"b", b" ", b"  ", b"\xc3\xa9", b"\xed\xa0\x80", b"\xff"]
)
records = st.lists(
    st.builds(
        Record,
        topic=st.just(b"T"),
        properties=st.lists(pieces, max_size=15).map(b"".join),
        sys_flag=st.sampled_from([0, 4, 8, 12]),
    ),
    max_size=5,
)


def rows_of(items: list[Record], requested: frozenset[str] | None = None) -> list[tuple[int, str, str]]:
    data = b""
    for item in items:
        stored = Record(
            item.topic, properties=item.properties, sys_flag=item.sys_flag, commit_log_offset=len(data)
        ).encode()
        data += stored
    keys = message_keys(MessageColumns(array(data), frames_of(data)), requested)
    return list(zip(keys.message.tolist(), keys.key.to_pylist(), keys.key_type.to_pylist(), strict=True))


@settings(max_examples=examples(300))
@given(records, st.none() | st.frozensets(st.sampled_from(["a", "b", "ab", "é", "\ufffd"])))
def test_the_keys_of_many_messages_are_those_of_each(items: list[Record], requested: frozenset[str] | None) -> None:
    expected = [
        (number, key, str(kind))
        for number, item in enumerate(items)
        for key, kind in record_keys(item).items()
        if requested is None or key in requested
    ]
    assert rows_of(items, requested) == expected


def test_a_unique_key_that_is_in_keys_is_returned_once() -> None:
    assert rows_of([Record(b"T", properties=b"KEYS\1b a b\2UNIQ_KEY\1a\2")]) == [(0, "a", "UNIQ_KEY"), (0, "b", "KEYS")]
