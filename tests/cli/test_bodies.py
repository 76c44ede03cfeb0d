"""The forms of bodies."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.cli.output.message_printer import beginning, body_text, body_value, is_json, pretty_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_json_keeps_its_value_in_every_layout(value: object, escapes: bool) -> None:
    body = json.dumps(value, ensure_ascii=escapes).encode("utf-8", "surrogatepass")
    if not is_json(body):  # a lone surrogate
        return
    assert json.loads(pretty_json(body.decode())) == value
    assert pretty_json(body.decode()) == json.dumps(value, ensure_ascii=escapes, indent=2)
    assert json.loads(body_text(body, "json", one_line=True)) == value
    assert body_value(body, "json") == value


def test_numbers_and_repeated_names_stay_as_they_are() -> None:
    assert body_text(b'{"a": 1.50, "a":1e5}', "json", one_line=True) == '{"a":1.50,"a":1e5}'


@pytest.mark.parametrize("body", [b"", b"[1", b"NaN", b"[1e999]", b"\xff", b"[" * 100_000])
def test_anything_else_is_shown_as_text(body: bytes) -> None:
    assert not is_json(body)
    assert body_text(body, "json", one_line=False) == body_text(body, "text", one_line=False)


def test_a_body_in_a_json_line() -> None:
    assert body_value(b"caf\xc3\xa9", "text") == "café"
    assert body_value(b"\xff", "text") == body_value(b"\xff", "json") == {"base64": base64.b64encode(b"\xff").decode()}
    assert body_value(b"\xff\x00", "hex") == "ff00"
    assert body_value(b"\xff", "base64") == b"\xff"  # as without --body


def test_the_beginning_of_a_long_body() -> None:
    assert beginning("订单".encode(), 6) == "订单"
    assert beginning("订单号".encode(), 7) == "订单…"
    assert beginning(b"\xff\xfe\xfd", 2) == "3 bytes: ff fe…"
