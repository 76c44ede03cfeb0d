from __future__ import annotations

import pytest

from spark_mq.errors import UnsafeNameError
from spark_mq.store.config.topic_name import check_topic_name
from tests.support.stores import RealStore, all_stores


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/", "../../etc", "a\\b", "a\0b", "\0", "x" * 256, "ü" * 128])
def test_a_topic_that_cannot_be_a_folder_is_refused(topic: str) -> None:
    with pytest.raises(UnsafeNameError, match="cannot be a folder"):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", ["T", "%RETRY%group", "...", ".hidden", "a b", "ü", "x" * 255, "\ufffd", "CON", "~"])
def test_any_other_topic_is_given_back(topic: str) -> None:
    assert check_topic_name(topic) == topic


@pytest.mark.parametrize("store", all_stores(), ids=str)
def test_topics_of_real_stores_are_names(store: RealStore) -> None:
    for topic in {fact["topic"] for fact in store.facts("msg")}:
        assert check_topic_name(topic) == topic
