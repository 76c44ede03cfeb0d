from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from spark_mq.format.message_id import has_plausible_port, is_offset_message_id, parse_host, unique_key_time
from spark_mq.restorer.encode_messages import make_unique_keys

HOST = parse_host("10.0.0.1:10911")


def keys(partition: int = 0, first_row: int = 0, count: int = 1, host: bytes = HOST) -> list[str]:
    born = np.full(count, int(datetime(2026, 2, 3, 4, tzinfo=UTC).timestamp() * 1000), np.int64)
    pieces = make_unique_keys(host, 1_700_000_000_000, partition, first_row, born)
    return [pieces.piece(row).decode() for row in range(count)]


def test_a_key_has_the_form_of_a_clients() -> None:
    for partition in range(200):
        (key,) = keys(partition)
        assert is_offset_message_id(key)
        assert not has_plausible_port(key)
        assert key.startswith("0A000001")
        assert unique_key_time(key) == timedelta(days=2, hours=4)
    assert keys(host=parse_host("[::1]:1"))[0].startswith("7F000001")


def test_keys_differ_beyond_the_range_of_the_counter() -> None:
    assert len(set(keys(count=200_000))) == 200_000
    assert keys(count=200_000)[65_530:65_540] == keys(first_row=65_530, count=10)
