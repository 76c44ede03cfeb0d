"""A stream of a running broker, which starts again, while the query is killed and queues appear: each message once.

`make soak` kills the query 20 times.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_mq.cli.main import main
from spark_mq.errors import DataLossError
from spark_mq.live import datasource as live
from spark_mq.live.message_stream import LiveOffset
from spark_mq.producer.writer import parse_topic_write_options, topic_writer
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import RequestCode
from tests.broker import harness
from tests.support.soak import SOAKS, cases

pytestmark = pytest.mark.broker
KILLS = 20 if SOAKS else 1
TOPIC = "SequenceDemo"
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "6000", "timerWheelEnable": "false"}
PATIENCE = 240.0
"""Seconds until a query has done its part, on a machine that is busy."""


class Stream:
    """A query in a process of its own, and its rows."""

    def __init__(self, broker: harness.Broker, folder: Path, **options: str) -> None:
        self.out = folder / "out"
        words = [f"rocketmq://{broker.name_server}", str(folder / "checkpoint"), str(self.out)]
        words += [f"{name}={value}" for name, value in options.items()]
        self._log = (folder / "log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.live_stream", *words],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def wait_for_start(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n", Path(self._log.name).read_text()[-3000:]

    def kill(self) -> None:
        """`kill -9` for all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


@contextmanager
def streaming(broker: harness.Broker, folder: Path, **options: str) -> Iterator[Stream]:
    stream = Stream(broker, folder, **options)
    try:
        yield stream
    finally:
        stream.kill()


def written(folder: Path) -> list[tuple[int, int]]:
    """Queue id and queue offset of each row of the files that the sink's log has, sorted."""
    log = folder / "out" / "_spark_metadata"
    files: set[str] = set()
    for one in log.iterdir() if log.exists() else ():
        if not one.name.startswith("."):
            files |= set(map(str.strip, one.read_text().split('"path":"')[1:]))
    names = {Path(text.partition('"')[0].removeprefix("file:")) for text in files}
    rows: list[tuple[int, int]] = []
    for name in names:
        table = pq.read_table(name, columns=["queue_id", "queue_offset"])
        rows += zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True)
    return sorted(rows)


def wait_for(folder: Path, count: int, stream: Stream) -> list[tuple[int, int]]:
    end = time.monotonic() + PATIENCE
    while len(rows := written(folder)) < count:
        assert stream.process.poll() is None, (folder / "log").read_text()[-5000:]
        assert time.monotonic() < end, f"{len(rows)} of {count} rows: {(folder / 'log').read_text()[-3000:]}"
        time.sleep(0.5)
    return rows


def stream_reader(broker: harness.Broker, **options: str) -> Any:
    """The reader of a stream of the topic, without Spark."""
    given = {"path": f"rocketmq://{broker.name_server}", "topic": TOPIC} | options
    return live.stream_reader(given, live.schema(given))


def rows_of(reader: Any, start: object, end: object) -> list[dict[str, Any]]:
    """The rows of a batch."""
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


def expected(count: int) -> list[tuple[int, int]]:
    """The places of `count` messages, whose number decides the queue."""
    return sorted((number % 3, number // 3) for number in range(count))


def set_queues(broker: harness.Broker, count: int) -> None:
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": count,
        "writeQueueNums": count,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    with RemotingClient(ClientSettings((broker.name_server,))) as client:
        client.request(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def test_each_message_once_while_the_query_is_killed_and_the_broker_starts_again(tmp_path: Path) -> None:
    sent = 0
    with harness.Broker("5.3.3", tmp_path / "store", SETTINGS, keeps_ports=True) as broker:
        for round_number in range(KILLS):
            with streaming(broker, tmp_path, topic=TOPIC, maxMessagesPerTrigger="70") as stream:
                stream.wait_for_start()
                sent += harness.send(broker, "sequence", round_number, 300, first=sent)
                wait_for(tmp_path, sent - 150, stream)
                assert stream.process.poll() is None
        with streaming(broker, tmp_path, topic=TOPIC) as stream:
            wait_for(tmp_path, sent, stream)
            broker.kill()
            time.sleep(2)
            assert stream.process.poll() is None
            broker.start()
            sent += harness.send(broker, "sequence", 99, 300, first=sent)
            assert wait_for(tmp_path, sent, stream) == expected(sent)


def test_queues_that_appear_later_are_read_from_their_start(tmp_path: Path) -> None:
    with harness.Broker("5.3.3", tmp_path / "store", SETTINGS) as broker:
        reader = stream_reader(broker, startingOffsets="latest")
        start = reader.initialOffset()
        assert LiveOffset.of_json(start).queues == {}
        sent = harness.send(broker, "sequence", 1, 30)
        end = reader.latestOffset(start, None)
        assert places(rows_of(reader, start, end)) == expected(sent)
        assert reader.latestOffset(end, None) == end
        set_queues(broker, 5)
        later = reader.latestOffset(end, None)
        assert set(LiveOffset.of_json(later).queues) == {("broker", TOPIC, number) for number in range(5)}
        assert list(reader.partitions(end, later)) == []
        assert reader.latestOffset(later, None) == later
        rows = pa.record_batch({"topic": [TOPIC] * 5, "body": ["new"] * 5, "queue_id": pa.array(range(5), pa.int32())})
        given = {"path": f"rocketmq://{broker.name_server}"}
        topic_writer(parse_topic_write_options(given), rows.schema.names, overwrite=False).write(iter([rows]))
        for begin in (later, end):  # also if the first messages of a new queue are there when it is first seen
            last = stream_reader(broker).latestOffset(begin, None)
            assert places(rows_of(reader, begin, last)) == [*((number, 10) for number in range(3)), (3, 0), (4, 0)]


@pytest.mark.parametrize("version", cases(("5.3.3",), ("5.3.3", "4.9.7", "5.5.0")))
def test_messages_that_are_gone_stop_the_stream_or_are_left_out(tmp_path: Path, version: str) -> None:
    """A topic has fewer queues, is deleted, and is made again, with other messages at the offsets that were read."""
    settings = SETTINGS | {"timerWheelEnable": "true"}  # a broker without timers cannot delete a topic
    with harness.Broker(version, tmp_path / "store", settings) as broker:
        sent = harness.send(broker, "sequence", 1, 90)
        reader, lenient = stream_reader(broker), stream_reader(broker, failOnDataLoss="false")
        start = reader.initialOffset()
        end = reader.latestOffset(start, None)
        harness.send(broker, "sequence", 1, 30, first=sent)
        planned = reader.latestOffset(end, None)
        set_queues(broker, 2)
        with pytest.raises(DataLossError, match=rf"queueId\[2\] is illegal.* {TOPIC}/2 of .* offset 30 on is gone"):
            rows_of(reader, end, planned)
        assert {row["queue_id"] for row in rows_of(lenient, end, planned)} == {0, 1}
        set_queues(broker, 3)
        assert len(rows_of(reader, end, planned)) == 30
        with RemotingClient(ClientSettings((broker.name_server,))) as client:
            client.request(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        with pytest.raises(DataLossError, match=rf"(?s)TOPIC_NOT_EXIST.* {TOPIC}/0 of .* offset 30 on is gone"):
            rows_of(reader, end, planned)
        with pytest.raises(DataLossError, match=f"topic {TOPIC} was deleted in broker broker"):
            reader.latestOffset(end, None)
        for options in ({}, {"filter": "a = 1"}):
            assert rows_of(stream_reader(broker, failOnDataLoss="false", **options), end, planned) == []
        stream_reader(broker, commitOffsets="TOOLS_CONSUMER").commit(end)  # although the topic is gone
        without = lenient.latestOffset(end, None)
        assert LiveOffset.of_json(without).queues == {}
        harness.send(broker, "sequence", 2, 30)
        with pytest.raises(DataLossError, match=rf"queue {TOPIC}/0 .* read up to 30, and has now 0 to 9: the topic"):
            reader.latestOffset(end, None)
        for begin in (end, without):
            last = lenient.latestOffset(begin, None)
            assert places(rows_of(lenient, begin, last)) == expected(30)


def test_a_batch_has_about_so_many_messages_and_bytes(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    with harness.Broker("5.3.3", tmp_path / "store", SETTINGS) as broker:
        harness.send(broker, "sequence", 1, 300, body=1000)
        for options, most in (({"maxMessagesPerTrigger": "30"}, 30), ({"maxBytesPerTrigger": "20k"}, 20)):
            reader = stream_reader(broker, **options)
            start = reader.initialOffset()
            count, sizes = 0, []
            while (end := reader.latestOffset(start, ReadMaxRows(1))) != start:
                sizes.append(len(rows_of(reader, start, end)))
                count, start = count + sizes[-1], end
            assert count == 300
            assert max(sizes) <= most
            assert len(sizes) >= 10


def test_offsets_are_reset_after_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with harness.Broker("5.3.3", tmp_path / "store", SETTINGS) as broker:
        harness.send(broker, "sequence", 1, 30)
        time.sleep(0.05)
        middle = int(time.time() * 1000)
        harness.send(broker, "sequence", 2, 30, first=30)
        harness.consume(broker, "GID_seen", TOPIC, 60)
        words = ["reset-offset", f"rocketmq://{broker.name_server}", "GID_seen", TOPIC, "--json", "--to"]

        def run(*more: str) -> list[tuple[int, int, int]]:
            assert main([*words, *more]) == 0
            (report,) = map(json.loads, capsys.readouterr().out.splitlines())
            return [(one["consumer_offset"], one["reset_offset"], one["skipped"]) for one in report["queues"]]

        assert run(str(middle)) == [(20, 10, -10)] * 3
        assert run(str(middle)) == [(20, 10, -10)] * 3  # nothing was changed
        assert run(str(middle), "--apply") == [(20, 10, -10)] * 3
        assert run("last") == [(10, 20, 10)] * 3
        assert run("first", "--apply") == [(10, 0, -10)] * 3
        assert len(harness.consume(broker, "GID_seen", TOPIC, 60)) == 60
        assert main([*words[:2], "GID_nobody", TOPIC, "--to", "first", "--apply"]) == 1
        assert main([*words[:3], "NoSuchTopic", "--to", "first"]) == 3


def test_a_stream_starts_at_a_time_or_with_a_group_and_commits(tmp_path: Path) -> None:
    with harness.Broker("5.3.3", tmp_path / "store", SETTINGS) as broker:
        harness.send(broker, "sequence", 1, 30)
        time.sleep(0.05)
        middle = int(time.time() * 1000)
        harness.send(broker, "sequence", 2, 30, first=30)
        reader = stream_reader(broker, startingTimestamp=str(middle))
        assert set(LiveOffset.of_json(reader.initialOffset()).queues.values()) == {10}
        harness.consume(broker, "GID_seen", TOPIC, 60)  # makes the group
        harness.send(broker, "sequence", 3, 30, first=60)
        reader = stream_reader(broker, startingOffsets="committed", consumerGroup="GID_seen", commitOffsets="GID_seen")
        start = reader.initialOffset()
        assert set(LiveOffset.of_json(start).queues.values()) == {20}
        reader.commit(reader.latestOffset(start, None))
        address = f"rocketmq://{broker.name_server}"
        table = {"path": address, "table": "consumer_offsets", "consumerGroup": "GID_seen", "topic": TOPIC}
        offsets: Any = live.reader(table, live.schema(table))
        rows = [row for part in offsets.partitions() for batch in offsets.read(part) for row in batch.to_pylist()]
        assert {(row["queue_id"], row["consumer_offset"], row["lag"]) for row in rows} == {
            (number, 30, 0) for number in range(3)
        }
