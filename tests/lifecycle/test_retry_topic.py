"""The groups that retry topics belong to."""

from __future__ import annotations

import pytest

from spark_mq.lifecycle.retry_topic import ConsumerGroups, parse_retry_topic

GROUPS = ConsumerGroups(frozenset({"billing", "a", "a_b", "G_x"}), are_all=True)


@pytest.mark.parametrize(
    ("name", "group", "origin"),
    [
        ("%RETRY%billing", "billing", None),
        ("%RETRY%billing_orders", "billing", "orders"),  # KeyBuilder.buildPopRetryTopicV1
        ("%RETRY%billing_my_orders", "billing", "my_orders"),
        ("%RETRY%billing+my_orders", "billing", "my_orders"),  # KeyBuilder.buildPopRetryTopicV2
        ("%RETRY%G_x", "G_x", None),  # a group that is named so
        ("%RETRY%G_x_orders", "G_x", "orders"),
        ("%RETRY%new_group", "new_group", None),  # no part of it is a group
        ("%RETRY%_orders", "_orders", None),
        ("%RETRY%billing_", "billing_", None),
    ],
)
def test_the_group_of_a_retry_topic(name: str, group: str, origin: str | None) -> None:
    found = parse_retry_topic(name, GROUPS)
    assert found is not None
    assert (found.consumer_group, found.origin_topic, found.reason) == (group, origin, None)


def test_other_topics_have_no_group() -> None:
    assert parse_retry_topic("orders", GROUPS) is None
    assert parse_retry_topic("%DLQ%billing", GROUPS) is None


def test_topics_decide_where_a_name_is_divided() -> None:
    found = parse_retry_topic("%RETRY%a_b_c", GROUPS)
    assert found is not None
    assert found.consumer_group is None
    assert found.reason == "the topic can be that of group a and topic b_c or group a_b and topic c"
    found = parse_retry_topic("%RETRY%a_b_c", GROUPS, {"c"})
    assert found is not None
    assert (found.consumer_group, found.origin_topic) == ("a_b", "c")


def test_without_all_groups_a_name_with_an_underscore_is_not_certain() -> None:
    some = ConsumerGroups(frozenset({"billing"}), are_all=False)
    for name in ("%RETRY%billing_orders", "%RETRY%other_orders"):
        found = parse_retry_topic(name, some)
        assert found is not None
        assert found.consumer_group is None
        assert "subscriptionGroup.json" in (found.reason or "")
    found = parse_retry_topic("%RETRY%unknown", some)
    assert found is not None
    assert found.consumer_group == "unknown"
