from __future__ import annotations

import pytest

from spark_mq.errors import UnsafeNameError
from spark_mq.store.config.config_file import check_topic_name, new_topic_fault


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/", "../../etc", "a\\b", "a\0b", "\0", "x" * 256, "ü" * 128])
def test_a_topic_that_cannot_be_a_folder_is_refused(topic: str) -> None:
    with pytest.raises(UnsafeNameError, match="cannot be a folder"):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", ["T", "%RETRY%group", "...", ".hidden", "a b", "ü", "x" * 255, "\ufffd", "CON", "~"])
def test_any_other_topic_is_given_back(topic: str) -> None:
    assert check_topic_name(topic) == topic


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("", "is empty"),
        ("a.b", "has other characters"),
        ("a b", "has other characters"),
        ("T\n", "has other characters"),
        ("schlüssel", "has other characters"),
        ("\u0661", "has other characters"),
        ("t" * 128, "has more than 127 characters"),
        ("%RETRY%" + "g" * 249, "has more than 255 characters"),
    ],
)
def test_a_topic_that_a_broker_refuses_has_a_fault(topic: str, fault: str) -> None:
    assert fault in (new_topic_fault(topic) or "")


@pytest.mark.parametrize(
    "topic", ["T", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "-_|%"]
)
def test_a_broker_takes_any_other_topic_and_its_own(topic: str) -> None:
    assert new_topic_fault(topic) is None
    assert check_topic_name(topic) == topic
