from __future__ import annotations

from typing import Any

import pytest

from spark_mq.errors import OptionError
from spark_mq.restorer.encoding_rules import EncodingRules


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"now": 0}, "now=0 is not a time"),
        ({"store_host": "broker:10911"}, "store host 'broker:10911' is not an address and a port"),
        ({"topics": {"a": "b.c"}}, "topic map 'a' to 'b.c': the new name has other characters than"),
        ({"topics": {"a": ""}}, "the new name is empty"),
        ({"topics": {"a": "b"}, "is_faithful": True}, "restore them with new offsets"),
    ],
)
def test_rules_that_cannot_be_followed_are_errors(values: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"is_faithful": False, "now": 1}
    EncodingRules(**usual)
    with pytest.raises(OptionError, match=said):
        EncodingRules(**{**usual, **values})
