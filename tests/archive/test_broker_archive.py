"""An archive of a running broker, which is a server in this process: each message once, whatever happens meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_mq import restore
from spark_mq.archive.broker_archive import archive_broker
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.sql import sql
from spark_mq.archive.streams import BrokerFilesReader
from spark_mq.cli.main import main
from spark_mq.datasource import register
from spark_mq.errors import DataLossError, LogCutError, OptionError
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.command import RemotingCommand
from tests.support.delta_rows import delta_rows
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import COUNT, OTHER, QUEUES, TOPIC, HostileCluster

pytestmark = pytest.mark.archive


class Broker:
    """A broker whose queues have the offsets from `start` to `stop`, and its archive."""

    def __init__(self, spark: SparkSession, table: Path) -> None:
        self.start, self.stop = 0, 0
        self.cluster = HostileCluster()
        self.spark, self.table = spark, table

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        offsets = {RequestCode.GET_MIN_OFFSET: self.start, RequestCode.GET_MAX_OFFSET: self.stop}
        if request.code in offsets:
            yield response(request, fields={"offset": str(offsets[RequestCode(request.code)])})
        else:
            yield from self.cluster.answer(request)

    def archive(self, **how: Any) -> ArchiveReport:
        address = f"rocketmq://{self.cluster.address}"
        return archive_broker(self.spark, address, str(self.table), cluster="c", broker="b", **how)

    def check(self, *ranges: tuple[int, int]) -> None:
        """Check that the archive has these queue offsets of every queue, each once, with the keys."""
        offsets = [offset for start, stop in ranges for offset in range(start, stop)]
        expected = sorted(
            (topic, queue_id, offset) for topic in (TOPIC, OTHER) for queue_id in range(QUEUES) for offset in offsets
        )
        rows = delta_rows(self.table)
        assert sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in rows) == expected
        for row in rows:
            assert row["unique_key"] == f"{row['topic']}-{row['queue_id']}-{row['queue_offset']}"
            assert row["body"] == row["unique_key"].encode() * 20
            assert (row["cluster"], row["broker"]) == ("c", "b")
        keys = delta_rows(Path(f"{self.table}_keys"))
        assert sorted(row["key"] for row in keys if row["key_type"] == "UNIQ_KEY") == sorted(
            row["unique_key"] for row in rows
        )
        assert len(keys) == 2 * len(rows)


@contextmanager
def running(spark: SparkSession, table: Path) -> Iterator[Broker]:
    broker = Broker(spark, table)
    with serving(broker.answer) as address:
        broker.cluster.address = address
        yield broker


def test_each_message_is_archived_once(delta: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "messages"
    with running(delta, table) as broker:
        broker.stop = 7
        report = broker.archive()
        assert (report.rows, report.keys) == (28, 56)
        assert "28 with 56 keys" in report.to_text()
        assert "log  " not in report.to_text()
        broker.check((0, 7))
        broker.stop = 12
        batches: list[str] = []
        on_batch = lambda batch: batches.append(str(batch))  # noqa: E731
        report = broker.archive(follow_seconds=0.5, stop=lambda: bool(batches), on_batch=on_batch)
        assert (report.rows, batches[0].partition(" in ")[0]) == (20, "20 messages")
        broker.check((0, 12))
        # The checkpoint is lost: the table shows where its queues end.
        shutil.rmtree(tmp_path / "messages_checkpoints")
        broker.stop = 13
        assert broker.archive().rows == 4
        broker.check((0, 13))
        # Messages expired before they were archived.
        broker.start, broker.stop = 15, 17
        with pytest.raises(DataLossError, match=r"8 messages expired .* --data-loss continue"):
            broker.archive()
        report = broker.archive(fail_on_data_loss=False)
        assert (report.rows, report.expired_messages) == (8, 8)
        broker.check((0, 13), (15, 17))
        # The broker lost the end of its log.
        broker.stop = 16
        with pytest.raises(LogCutError, match=r"archived up to queue offset 17, and ends at 16"):
            broker.archive(fail_on_data_loss=False)
        broker.stop = 17
        with pytest.raises(OptionError, match=r"in .*messages already, as --cluster c --broker b --store-name 127"):
            broker.archive(store_name="another")
        names = {"cluster": "c", "broker": "b", "store_name": broker.cluster.address}
        for given in ({}, names):
            with pytest.raises(OptionError, match="those of a running cluster are not a whole log"):
                restore(delta, str(table), str(tmp_path / "new"), **given)  # type: ignore[arg-type]
    assert delta_rows(Path(f"{table}_segments")) == []


def test_history_has_each_message_of_the_archive_and_its_cluster_once(
    delta: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register(delta)
    with running(delta, tmp_path / "messages") as broker:

        def history(columns: str, condition: str = "true") -> DataFrame:
            given: dict[str, dict[str, str]] = {
                "stores": {"prod": f"rocketmq://{broker.cluster.address}"},
                "archives": {"old": str(broker.table)},
            }
            return sql(delta, f"SELECT {columns} FROM history WHERE {condition} ORDER BY ALL", **given)

        def places(rows: DataFrame) -> list[tuple[object, ...]]:
            return [tuple(row) for row in rows.collect()]

        def expected(*ranges: range) -> list[tuple[str, int, int]]:
            offsets = [offset for one in ranges for offset in one]
            return [
                (topic, queue_id, offset)
                for topic in (TOPIC, OTHER)
                for queue_id in range(QUEUES)
                for offset in offsets
            ]

        broker.stop = 5
        broker.archive(store_name="by this name")
        broker.stop = 9
        before = history("topic, queue_id, queue_offset")
        assert places(before) == sorted(expected(range(9)))
        names = {("c", "b", "by this name")}
        assert set(places(history("DISTINCT cluster, broker, store"))) == names
        of_queue = f"topic = '{TOPIC}' AND queue_id = 1 AND queue_offset >= 3"
        assert places(history("queue_offset, body", of_queue)) == [
            (offset, f"{TOPIC}-1-{offset}".encode() * 20) for offset in range(3, 9)
        ]
        # Each message is there once also if another run archives meanwhile, and if the broker's index finds it.
        broker.archive(store_name="by this name")
        assert places(before) == sorted(expected(range(9)))
        for offset in (2, 7, 8):
            found = history("topic, queue_id, queue_offset", f"unique_key = '{OTHER}-0-{offset}'")
            assert places(found) == [(OTHER, 0, offset)]
        # What expired before it was archived is missing, with a warning.
        broker.start, broker.stop = 12, 14
        assert not [record for record in caplog.records if record.name.startswith("spark_mq")]
        assert places(history("topic, queue_id, queue_offset")) == sorted(expected(range(9), range(12, 14)))
        assert "has queue Orders/1 of broker b up to queue offset 8, and it begins at 12" in caplog.text
        broker.start, broker.stop = 0, 8
        with pytest.raises(
            LogCutError, match=r"has queue \w+/\d of broker b up to queue offset 8, and the broker does not"
        ):
            history("count(*)")


REFUSED = [
    (["--rename"], "--rename has no effect on a running cluster"),
    (["--broker", "x"], "has no broker with these names; it has --cluster c --broker b"),
    (["--follow", "1"], "--follow archives one broker"),
    (["--store-name", "a#lost-b"], "has a meaning of its own"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED, ids=[words[0] for words, _ in REFUSED])
def test_arguments_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    cluster = HostileCluster()
    with serving(cluster.answer) as cluster.address:
        cluster.others = {"z": {0: cluster.address}}
        assert main(["archive", f"rocketmq://{cluster.address}", str(tmp_path / "messages"), *words]) == 2
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_queue_that_became_shorter_is_an_error_of_the_stream_too() -> None:
    """With `failOnDataLoss=false`, other streams read such a queue from its first message on."""
    cluster = HostileCluster()
    with serving(cluster.answer) as cluster.address:
        options = {"path": f"rocketmq://{cluster.address}", "topicPattern": ".*", "failOnDataLoss": "false"}
        reader = BrokerFilesReader("messages", "keys", "c", "b", cluster.address, starts={}, options=options)
        first = reader.initialOffset()
        assert reader.latestOffset(first)["queues"]["b"][TOPIC] == {"0": COUNT, "1": COUNT}
        first["queues"]["b"][TOPIC]["1"] = COUNT + 1
        with pytest.raises(LogCutError, match="queue Orders/1 of broker b was archived up to 21, and ends at 20"):
            reader.latestOffset(first)
        other = BrokerFilesReader("messages", "keys", "c", "z", cluster.address, starts={}, options=options)
        assert other.initialOffset()["queues"] == {}
