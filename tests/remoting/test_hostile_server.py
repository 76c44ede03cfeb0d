"""Servers that send anything: rows are right or an error names address and request, soon, and with little memory."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.errors import CorruptLogError, SparkMqError
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.properties import parse_properties
from spark_mq.live import datasource as live
from spark_mq.live import options as live_options
from spark_mq.live.cluster_messages import ClusterMessages
from spark_mq.live.options import parse_live_options, parse_live_stream_options
from spark_mq.remoting import client as client_module
from spark_mq.remoting import pull as pull_module
from spark_mq.remoting import writes as writes_module
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.pull import QueueRange
from spark_mq.remoting.requests import consumer_connections, consumer_offset, find_route
from spark_mq.remoting.writes import consume_message_directly, send_message
from spark_mq.store.config.named_stores import NamedRecord
from tests.support import hostile_cluster as hostile
from tests.support.fake_server import serving
from tests.support.hostile_cluster import COUNT, FIRST_TIME, GROUP, OTHER, QUEUES, TOPIC, HostileCluster
from tests.support.soak import SOAKS

CASES = 2000 if SOAKS else 800
MAX_SECONDS = 60.0
"""What a case takes at most that does not wait for ever: a right one takes less than one second on a quiet machine."""
MAX_MEMORY = 640 << 20
"""Two batches of messages whose bodies are bombs, in several forms; all bombs of a read are twice as much."""
COLUMNS = ["topic", "queue_id", "queue_offset", "unique_key", "body", "_corrupt_record"]

Row = dict[str, Any]
REQUESTS = (
    *(RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_CONFIG),
    *(RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.PULL_MESSAGE),
)
OF_REQUESTS = (
    *(RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE),
    *(RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.SEND_MESSAGE_V2),
)
BY_KEY = (*REQUESTS[:3], RequestCode.QUERY_MESSAGE)
OF_TABLES = (
    *REQUESTS,
    *(RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    RequestCode.GET_ALL_DELAY_OFFSET,
)
MESSAGES: tuple[tuple[dict[str, str], tuple[RequestCode, ...]], ...] = (
    ({"topic": TOPIC}, REQUESTS),
    ({"topic": f"{TOPIC},{OTHER}"}, REQUESTS),
    ({"topicPattern": ".*"}, REQUESTS),
    ({"topic": TOPIC, "tag": "t1"}, REQUESTS),
    ({"topic": TOPIC, "queueId": "1", "startQueueOffset": "5", "endQueueOffset": "15"}, REQUESTS),
    (
        {"topic": TOPIC, "startTimestamp": str(FIRST_TIME + 90), "endTimestamp": str(FIRST_TIME + 300)},
        (*REQUESTS, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ),
    ({"topic": TOPIC, "key": "k1"}, BY_KEY),
    ({"topicPattern": ".*", "key": "k1"}, BY_KEY),
    ({"topic": TOPIC, "uniqueKey": f"{TOPIC}-1-7"}, BY_KEY),
    ({"offsetMessageId": ""}, (REQUESTS[0], RequestCode.VIEW_MESSAGE_BY_ID)),
    ({"topic": TOPIC, "failOnDataLoss": "false"}, REQUESTS),
    ({"topic": TOPIC, "conditions": '[["commit_log_offset", ">", [15000]]]'}, REQUESTS),
    ({"topic": TOPIC, "conditions": '[["unique_key", "in", ["Orders-1-7"]]]'}, BY_KEY),
    ({"topic": TOPIC, "mode": "FAILFAST"}, REQUESTS),
)
LOOK_UPS: tuple[tuple[Callable[[ClusterMessages, int], Iterable[NamedRecord]], tuple[RequestCode, ...]], ...] = (
    (lambda messages, port: messages.of_topic(TOPIC), REQUESTS),
    (lambda messages, port: messages.of_topic(TOPIC, 1, newest_first=True), REQUESTS),
    (lambda messages, port: messages.of_topic(TOPIC, 1, 7), REQUESTS),
    (
        lambda messages, port: messages.of_topic(TOPIC, begin=FIRST_TIME + 90, end=FIRST_TIME + 300),
        (*REQUESTS, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ),
    (lambda messages, port: messages.with_key("k1"), BY_KEY),
    (lambda messages, port: messages.with_key(f"{TOPIC}-1-7", TOPIC, is_unique=True), BY_KEY),
    (lambda messages, port: messages.with_id(id_of(port)), (REQUESTS[0], RequestCode.VIEW_MESSAGE_BY_ID)),
)
"""Look-ups without Spark; the port is the cluster's."""
TABLES = ("queues", "topics", "consumer_offsets", "subscription_groups", "consumer_progress", "route")
DAMAGES = (
    *(hostile.cut_frame, hostile.wrong_length, hostile.changed_frame, hostile.no_frame, hostile.wrong_opaque),
    *(hostile.wrong_code, hostile.wrong_field, hostile.wrong_json, hostile.wrong_json, hostile.wrong_json),
    *(hostile.wrong_records, hostile.wrong_records, hostile.wrong_records, hostile.bomb),
)
SLOW = (hostile.slow_bytes, hostile.endless)


@pytest.fixture(scope="module")
def cluster() -> Iterator[HostileCluster]:
    made = HostileCluster()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # client and server take turns
    with serving(made.answer) as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "_FIRST_PAUSE", 0.0)
        patch.setattr(client_module, "_ATTEMPTS", 2)
        patch.setattr(live_options, "STREAM_PATIENCE", 0.0)
        patch.setattr(writes_module, "_CLIENT_SECONDS", 0)
        patch.setattr(pull_module, "_WAITS", 2)
        patch.setattr(pull_module, "_WAIT_SECONDS", 0.01)
        made.address = address
        yield made
    sys.setswitchinterval(interval)


def id_of(port: int) -> str:
    return encode_offset_message_id(bytes((127, 0, 0, 1)) + port.to_bytes(4, "big"), 15000)


def rows_of(cluster: HostileCluster, options: dict[str, str]) -> list[Row]:
    given = {"path": f"rocketmq://{cluster.address}", "requestTimeout": "0.2"} | options
    if given.get("offsetMessageId") == "":
        given["offsetMessageId"] = id_of(cluster.port)
    schema = live.schema(given)
    reader = live.reader(given, schema)
    rows = []
    for partition in reader.partitions()[:50]:
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
            for row in rows[-batch.num_rows :]:
                row["body"] = (row.get("body") or b"")[:1000]
    return rows


def check_messages(rows: list[Row], options: dict[str, str], has_bombs: bool) -> None:
    places = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]
    assert len(set(places)) == len(places)
    for (topic, queue_id, offset), row in zip(places, rows, strict=True):
        name = f"{topic}-{queue_id}-{offset}"
        assert row["unique_key"] == name
        assert has_bombs or row["_corrupt_record"] or row["body"] == name.encode() * 20
        if "topic" in options:
            assert topic in options["topic"].split(",")
        assert "queueId" not in options or (queue_id == 1 and 5 <= offset <= 15)
        assert options.get("key", f"k{offset % 5}") == f"k{offset % 5}"
        assert options.get("tag", f"t{offset % 2}") == f"t{offset % 2}"


def in_stream(cluster: HostileCluster) -> None:
    from spark_mq.live.message_stream import LiveMessagesStreamReader

    given = {"path": f"rocketmq://{cluster.address}", "requestTimeout": "0.2", "topic": TOPIC}
    options = parse_live_stream_options(given)
    reader = LiveMessagesStreamReader(options, COLUMNS)
    first = reader.initialOffset()
    last = reader.latestOffset(first)
    rows = [
        row for one in reader.partitions(first, last)[:50] for batch in reader.read(one) for row in batch.to_pylist()
    ]
    check_messages(rows, {"topic": TOPIC}, has_bombs=True)


def in_look_up(cluster: HostileCluster, look_up: Callable[[ClusterMessages, int], Iterable[NamedRecord]]) -> None:
    options = parse_live_options(
        {"path": f"rocketmq://{cluster.address}", "requestTimeout": "0.2", "topicPattern": ".*"}
    )
    with RemotingClient(options.client) as client:
        found = [one.record for one in islice(look_up(ClusterMessages(client, options), cluster.port), 1000)]
    names = [(record.topic.decode(), record.queue_id, record.queue_offset) for record in found]
    assert len(set(names)) == len(names)
    for (topic, queue_id, offset), record in zip(names, found, strict=True):
        assert parse_properties(record.properties)[b"UNIQ_KEY"] == f"{topic}-{queue_id}-{offset}".encode()


def in_requests(cluster: HostileCluster) -> None:
    with RemotingClient(ClientSettings((cluster.address,), 0.2)) as client:
        find_route(client, TOPIC)
        consumer_offset(client, cluster.address, GROUP, TOPIC, 0)
        queue = QueueRange("b", cluster.address, TOPIC, 0, 0, COUNT)
        for part, _ in pull_module.pull_range(client, queue):
            assert part.stop > part.start
        connected = consumer_connections(client, cluster.address, GROUP)
        assert connected is None or all(isinstance(one, str) for one in connected.consumers)
        answer = consume_message_directly(client, cluster.address, GROUP, "a", TOPIC, id_of(cluster.port))
        assert answer.spent_time_millis == 3 or cluster.spoilt == RequestCode.CONSUME_MESSAGE_DIRECTLY
        send_message(client, cluster.address, "b", "producer", TOPIC, 0, b"body", "")


def run(cluster: HostileCluster, choice: random.Random) -> str:
    """One case: what came of it."""
    door = choice.randrange(12)
    if door < 6:
        options, codes = choice.choice(MESSAGES)
    else:
        options, codes = ({"table": choice.choice(TABLES)}, OF_TABLES) if door < 8 else ({}, REQUESTS)
    look_up, codes_of_look_up = choice.choice(LOOK_UPS)
    if door > 9:
        codes = codes_of_look_up
    if door == 9:
        codes = OF_REQUESTS
    cluster.spoilt, cluster.choice = choice.choice(codes), choice
    cluster.spoil = choice.choice(DAMAGES if choice.randrange(40) else SLOW)
    try:
        if door > 9:
            in_look_up(cluster, look_up)
        elif door == 9:
            in_requests(cluster)
        elif door == 8:
            in_stream(cluster)
        else:
            rows = rows_of(cluster, options)
            if door < 6:
                check_messages(rows, options, cluster.spoil is hostile.bomb)
        return "rows"
    except SparkMqError as error:
        failure = error
    text = str(failure)
    assert cluster.address in text, text
    assert isinstance(failure, CorruptLogError) or any(code.name in text for code in RequestCode), text
    assert len(text) < 5000
    return "error"


def test_right_answers_are_all_rows(cluster: HostileCluster) -> None:
    for spoil in (hostile.no_damage, hostile.wrong_opaque):
        cluster.spoil, cluster.spoilt = spoil, RequestCode.PULL_MESSAGE
        assert len(rows_of(cluster, {"topic": f"{TOPIC},{OTHER}"})) == 2 * QUEUES * COUNT
        assert len(rows_of(cluster, {"topic": TOPIC, "key": "k1"})) == QUEUES * COUNT / 5
        assert len(rows_of(cluster, {"offsetMessageId": ""})) == 1
        assert len(rows_of(cluster, MESSAGES[5][0])) == 22
        for look_up, _ in LOOK_UPS:
            in_look_up(cluster, look_up)
        in_requests(cluster)
        for table in TABLES:
            assert rows_of(cluster, {"table": table}) or table == "consumer_progress"


def test_no_answer_leads_to_wrong_rows_other_errors_or_long_waits(cluster: HostileCluster) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    seen = {"rows": 0, "error": 0}
    for seed in range(CASES):
        start = time.monotonic()
        try:
            seen[run(cluster, random.Random(seed))] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {cluster.spoilt!r} by {cluster.spoil.__name__}") from error
        assert time.monotonic() - start < MAX_SECONDS, (seed, cluster.spoilt, cluster.spoil)
    assert min(seen.values()) > CASES / 3, seen
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before < MAX_MEMORY
