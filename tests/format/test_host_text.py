from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.message_id import V4_MAPPED, parse_host
from spark_mq.format.message_row import host_text


@given(st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20))
def test_the_text_of_a_stored_host_leads_back_to_its_bytes(host: bytes) -> None:
    expected = host.removeprefix(V4_MAPPED) if len(host) == 20 else host
    assert parse_host(host_text(host), any_port=True) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3:1", "1.2.3.256:1", "::1:5", "[::1]", "[::1%eth0]:5"),
        *(
            "[1.2.3.4]:5",
            "host:1",
            "1.2.3.4:65536",
            "1.2.3.4:-1",
            "1.2.3.4:1\n",
            "[x]:1",
            " 1.2.3.4:1",
            "1.2.3.4:\u0661",
        ),
    ],
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address and a port|has a port that is not from 0 to 65535"):
        parse_host(text)


def test_short_and_long_forms_of_an_address_are_the_same() -> None:
    assert parse_host("[2001:DB8::a]:1") == parse_host("[2001:db8:0:0:0:0:0:a]:1")
    assert len(parse_host("[::ffff:1.2.3.4]:1")) == 20
