from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.format.message_id import (
    decode_offset_message_id,
    encode_offset_message_id,
    has_plausible_port,
    is_offset_message_id,
    normalize_offset_message_id,
    unique_key_time,
)
from spark_mq.format.record import HOST_V4_SIZE, HOST_V6_SIZE
from tests.support.stores import RealStore, usual_stores

stored_hosts = st.sampled_from((HOST_V4_SIZE, HOST_V6_SIZE)).flatmap(
    lambda size: st.binary(min_size=size, max_size=size)
)


def test_the_id_of_a_loopback_broker_s_first_message() -> None:
    host = bytes((127, 0, 0, 1)) + (10911).to_bytes(4)
    assert encode_offset_message_id(host, 0) == "7F00000100002A9F0000000000000000"


@given(stored_hosts, st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_id_is_decoded_to_what_it_was_made_of(host: bytes, offset: int) -> None:
    assert decode_offset_message_id(encode_offset_message_id(host, offset)) == (host, offset)


@given(stored_hosts, st.integers(0, (1 << 63) - 1))
def test_lower_case_is_read_too(host: bytes, offset: int) -> None:
    text = encode_offset_message_id(host, offset)
    assert decode_offset_message_id(text.lower()) == (host, offset)
    assert normalize_offset_message_id(text.lower()) == normalize_offset_message_id(text) == text


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_ids_are_the_brokers(store: RealStore) -> None:
    for fact in store.facts("msg"):
        host, offset = decode_offset_message_id(fact["msgId"])
        assert offset == fact["offset"]
        assert encode_offset_message_id(host, offset) == fact["msgId"]


@pytest.mark.parametrize(
    "text",
    ["", "7F", "7F00000100002A9F000000000000000", "7F00000100002A9F000000000000000G", "é" * 32, "0" * 34, "0" * 58],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not an offset message id"):
        decode_offset_message_id(text)


def test_spaces_in_an_id_are_refused() -> None:
    with pytest.raises(OptionError, match="is not an offset message id"):
        decode_offset_message_id("7F000001 00002A9F 00000000 00000000")


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_unique_key_is_told_from_an_id(store: RealStore) -> None:
    for fact in store.facts("msg"):
        assert has_plausible_port(fact["msgId"])
        assert unique_key_time(fact["msgId"]) is None
        key = fact["uniqKey"] or ""
        if is_offset_message_id(key):
            assert not has_plausible_port(key)


def test_a_unique_key_contains_the_time_of_its_month() -> None:
    facts = [fact for store in usual_stores() for fact in store.facts("msg") if fact["topic"] == "OrderEvents"]
    keys = [fact for fact in facts if is_offset_message_id(fact["uniqKey"] or "")]
    assert keys
    for fact in keys:
        time = unique_key_time(fact["uniqKey"])
        assert time is not None
        month = datetime.fromtimestamp(fact["bornTimestamp"] / 1000, UTC) - time
        # the beginning of a month, in a time zone that the key does not contain
        assert (month - month.replace(minute=month.minute // 15 * 15, second=0, microsecond=0)).seconds < 10
        assert (month + timedelta(hours=14)).day in (1, 2) or (month - timedelta(hours=14)).day == 1
