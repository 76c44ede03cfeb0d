"""Options of a live cluster: what they mean, and errors for those without an effect."""

from __future__ import annotations

import pytest

from spark_mq.errors import OptionError
from spark_mq.live.options import COMMITTED, parse_live_options, parse_live_stream_options, parse_live_table
from spark_mq.remoting.pull import ALL_MESSAGES, Subscription
from spark_mq.source.options import names_cluster
from spark_mq.source.predicate import IntegerSet

PATH = {"path": "rocketmq://a,b:1"}


def test_a_path_of_a_store_is_not_live() -> None:
    assert names_cluster({"PATH": "rocketmq://a"})
    assert not names_cluster({"path": "/data/rocketmq://a"})
    assert not names_cluster({})


def test_defaults() -> None:
    options = parse_live_options(PATH | {"topic": "T"})
    assert options.client.name_servers == ("a:9876", "b:1")
    assert options.client.credentials is None
    assert options.client.tls is None
    assert options.client.pull_group == "TOOLS_CONSUMER"
    assert parse_live_options(PATH | {"table": "queues", "pullGroup": "GID_read"}).client.pull_group == "GID_read"
    assert (options.from_slave, options.pulls_at_once, options.fail_on_data_loss) == (False, 8, True)
    assert options.subscription("T") == ALL_MESSAGES


def test_several_topics_are_named() -> None:
    options = parse_live_options(PATH | {"topic": "a, b,a", "queueStarts": '{"a": {"0": 7, "1": 9}, "b": {}}'})
    assert options.queue_starts == {("a", 0): 7, ("a", 1): 9}
    assert options.topics == ("a", "b")
    assert options.read.predicate.topics == frozenset(("a", "b"))
    assert [options.selects(topic) for topic in ("a", "b", "c")] == [True, True, False]


def test_a_pattern_matches_whole_names_but_no_topic_of_the_system() -> None:
    options = parse_live_options(PATH | {"topicPattern": "orders.*|.*TOPIC.*"})
    names = ("orders-eu", "my-orders", "RMQ_SYS_TRANS_HALF_TOPIC", "a-TOPIC")
    assert [options.selects(name) for name in names] == [True, False, False, True]


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"tag": "b||a"}, Subscription("a || b")),
        ({"filter": "x > 1"}, Subscription("x > 1", "SQL92")),
        ({"filter": "x > 1", "tag": "a"}, Subscription("a")),
    ],
)
def test_tags_and_filters_go_to_the_broker(given: dict[str, str], subscription: Subscription) -> None:
    assert parse_live_options(PATH | {"topic": "T"} | given).subscription("T") == subscription


def test_tags_are_not_looked_for_where_tags_codes_are_times() -> None:
    options = parse_live_options(PATH | {"topic": "SCHEDULE_TOPIC_XXXX", "tag": "a"})
    assert options.subscription("SCHEDULE_TOPIC_XXXX") == ALL_MESSAGES


def test_times_and_offsets_are_conditions() -> None:
    given = {"topic": "T", "startTimestamp": "1700000000000", "endQueueOffset": "9"}
    predicate = parse_live_options(PATH | given).read.predicate
    assert predicate.store_timestamp == IntegerSet(first=1_700_000_000_000)
    assert predicate.queue_offset == IntegerSet(last=9)


def test_secrets_are_not_shown() -> None:
    options = parse_live_options(PATH | {"topic": "T", "accessKey": "ak", "secretKey": "hush", "securityToken": "tok"})
    assert "hush" not in repr(options)
    assert "tok'" not in repr(options)
    assert options.client.credentials is not None
    assert options.client.credentials.secret_key == "hush"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "by topic"),
        ({"topic": " , "}, "names no topic"),
        ({"topic": "a", "topicPattern": "b"}, "both select topics"),
        ({"topicPattern": "["}, "not a regular expression"),
        ({"topic": "a", "splitBy": "queue"}, "splitBy has no effect"),
        ({"topic": "a", "brokerConf": "x"}, "brokerConf has no effect"),
        ({"topic": "a", "topicPatern": "x"}, "similar: topicPattern"),
        ({"topic": "a", "table": "segments"}, "not one of"),
        ({"topic": "a", "pullsAtOnce": "0"}, "at least 1"),
        *(({"topic": "a", "queueStarts": text}, "is not JSON as in") for text in ("7", "{", '{"a": {"x": 7}}')),
        ({"topic": "a", "queueStarts": '{"a": {"0": 7.5}}'}, "is not JSON as in"),
        ({"topic": "a", "readFrom": "any"}, "master, slave"),
        ({"topic": "a", "requestTimeout": "0"}, "number of seconds"),
        ({"topic": "a", "pullGroup": ""}, "pullGroup is empty"),
        ({"topic": "a", "accessKey": "x"}, "belong together"),
        ({"topic": "a", "tlsCa": "x"}, "without tls=true"),
        ({"topic": "a", "tls": "true", "tlsKey": "x"}, "tlsCertificate"),
        ({"topic": "a", "path": "rocketmq://"}, "no name server"),
        ({"table": "queues", "queueId": "1"}, "queueId has no effect on table queues"),
    ],
)
def test_options_that_contradict_or_have_no_effect(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_live_options(PATH | given)


def test_a_message_id_needs_no_topic() -> None:
    options = parse_live_options(PATH | {"offsetMessageId": "7F00000100002A9F0000000000001000"})
    assert options.topics is None
    assert options.selects("anything")


def test_options_of_streams() -> None:
    given = {"topic": "T", "startingOffsets": "committed", "consumerGroup": "G", "maxBytesPerTrigger": "1m"}
    options = parse_live_stream_options(PATH | given)
    assert (options.starting_offsets, options.consumer_group, options.max_bytes) == (COMMITTED, "G", 1 << 20)
    assert options.read.client.patience > 10
    assert parse_live_table(PATH | given) == "messages"
    assert parse_live_table(PATH | {"table": "consumer_offsets", "consumerGroup": "G"}) == "consumer_offsets"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic": "T", "startingOffsets": "17"}, "not one of earliest, latest, committed"),
        ({"topic": "T", "startingOffsets": "committed"}, "belong together"),
        ({"topic": "T", "consumerGroup": "G"}, "belong together"),
        ({"topic": "T", "startingOffsets": "latest", "startingTimestamp": "1700000000000"}, "give one"),
        ({"topic": "T", "key": "k"}, "key has no effect"),
        ({"table": "queues"}, "cannot be streamed"),
    ],
)
def test_options_of_streams_that_contradict_or_have_no_effect(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_live_stream_options(PATH | given)
