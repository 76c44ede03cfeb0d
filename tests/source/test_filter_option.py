"""Option `filter`: the messages for which a SQL92 expression of RocketMQ is TRUE, on every access path.

The expectation is made from the properties in the facts, which RocketMQ's classes wrote.
"""

from __future__ import annotations

import pytest

from spark_mq.errors import FilterError, OptionError
from spark_mq.source.options import parse_options, parse_stream_options
from tests.support.in_process import read_rows
from tests.support.stores import WORKLOAD, Fact

FILTER = "price BETWEEN 100 AND 800 AND region = 'eu' OR TAGS = 'paid' AND NOT (region IS NULL)"


def expected(fact: Fact) -> bool:
    properties = fact["properties"]
    price, region = properties.get("price"), properties.get("region")
    is_cheap = price is not None and 100 <= int(price) <= 800
    return (is_cheap and region == "eu") or (properties.get("TAGS") == "paid" and region is not None)


def test_rows(store: str) -> None:
    facts = [fact for fact in WORKLOAD.facts("msg") if expected(fact)]
    assert len({fact["topic"] for fact in facts}) > 1

    def offsets(table: str = "messages", **options: str) -> list[int]:
        rows = read_rows(path=store, table=table, splitSize="64k", filter=FILTER, **options)
        return sorted({row["commit_log_offset"] for row in rows})

    assert offsets() == sorted(fact["offset"] for fact in facts)
    topic = facts[0]["topic"]
    of_topic = [fact for fact in facts if fact["topic"] == topic]
    assert offsets(topic=topic) == sorted(fact["offset"] for fact in of_topic)
    assert offsets("messages_by_key", topic=topic) == sorted(
        fact["offset"] for fact in of_topic if fact["keys"] or fact["uniqKey"]
    )
    key = of_topic[0]["uniqKey"]
    assert offsets(topic=topic, key=key) == [of_topic[0]["offset"]]
    other = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == topic and not expected(fact))
    assert offsets(topic=topic, key=other["uniqKey"]) == []
    in_queue = [fact["offset"] for fact in of_topic if fact["queueId"] == 1 and fact["queueOffset"] < 40]
    assert offsets(topic=topic, queueId="1", startQueueOffset="0", endQueueOffset="39") == sorted(in_queue)


def test_refusals() -> None:
    with pytest.raises(FilterError, match="column 4: the end of the text"):
        parse_options({"path": "/s", "filter": "a ="})
    with pytest.raises(OptionError, match="ignores \"LIKE 'x'\""):
        parse_stream_options({"path": "/s", "filter": "a LIKE 'x'"})
    with pytest.raises(OptionError, match="filter has no effect on table queues"):
        parse_options({"path": "/s", "table": "queues", "filter": "a = 1"})
