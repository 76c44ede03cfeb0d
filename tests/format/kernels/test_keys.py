from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.dispatch import record_keys
from spark_mq.format.kernels.batches import message_keys
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.index_keys import AskedKeys, hash_keys
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, Record
from spark_mq.testing.plain_index import key_hashes
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


def encoded(items: list[Record]) -> bytes:
    data = b""
    for item in items:
        data += replace(item, commit_log_offset=len(data)).encode()
    return data


def rows_of(items: list[Record], requested: frozenset[str] | None = None) -> list[tuple[int, str, str]]:
    data = encoded(items)
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


def is_text(stored: bytes) -> bool:
    return stored.decode("utf-8", "replace").encode() == stored


SAME_HASH = ["Aa", "BB"]
whole_properties = st.sampled_from(
    [b"KEYS\1Aa ab\2", b"KEYS\1a BB a\2", b"UNIQ_KEY\1BB\2", b"UNIQ_KEY\1b\2", b"TAGS\1b\2"]
)


@settings(max_examples=examples(300))
@given(
    items=st.lists(
        st.builds(
            Record,
            topic=st.sampled_from([b"T", b"U", b"\xff"]),
            properties=st.lists(whole_properties | pieces, max_size=15).map(b"".join),
            sys_flag=st.sampled_from([0, 4, 8, 12]),
        ),
        max_size=5,
    ),
    times=st.integers(1, 2),
)
def test_the_messages_of_asked_keys_where_an_index_says_that_they_have_the_hashes(
    items: list[Record], times: int
) -> None:
    """Of each message and hash: what is found is what the message has, and a doubt is where it is not text."""
    pairs = list(product(["T", "U", "\ufffd"], ["a", "b", "ab", "\u00e9", "\ufffd", *SAME_HASH]))
    pairs.remove(("T", "BB"))  # a message that has it has the hash, and no pair
    pairs *= times
    names, keys = (pa.array([pair[part] for pair in pairs], pa.string()) for part in (0, 1))
    hashes = hash_keys(names, keys)
    order = np.argsort(hashes, kind="stable")
    distinct, firsts = np.unique(hashes[order], return_index=True)
    assert distinct.size < len(pairs) / times  # two keys have one hash
    asked = AskedKeys(names.take(order), keys.take(order), distinct, np.append(firsts, order.size))
    data, numbers = encoded(items), np.arange(len(items) * distinct.size)
    places = np.divmod(np.repeat(numbers, 2), distinct.size)  # an index can have an entry twice
    message, pair, is_unique, is_right = asked.of_messages(array(data), frames_of(data), *places)
    found = zip(message.tolist(), order[pair].tolist(), is_unique.tolist(), strict=True)
    expected, right = [], []
    for number, item in enumerate(items):
        kinds = record_keys(item)
        properties = parse_properties(item.properties)
        used = [item.topic, properties.get(b"UNIQ_KEY", b""), properties.get(b"KEYS", b"")]
        is_indexed = all(map(is_text, used)) and item.transaction_type != TRANSACTION_ROLLBACK_TYPE
        for at in range(len(pairs)):
            if is_indexed and pairs[at][0].encode() == item.topic and pairs[at][1] in kinds:
                expected.append((number, at, kinds[pairs[at][1]] == "UNIQ_KEY"))
        right += [is_indexed and one in key_hashes(item, True) for one in distinct.tolist() for _ in range(2)]
    assert sorted(found) == expected
    assert is_right.tolist() == right
