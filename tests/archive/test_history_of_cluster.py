"""Which store of an archive each broker of a cluster has, and where the rest of its messages begins. No Spark here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from pyspark.sql import Row

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import compared_values
from spark_mq.archive.history import ArchivedEnd, Rest, rests_of_cluster
from spark_mq.errors import LogCutError, OptionError, SparkMqError
from spark_mq.format.record import decode_record
from spark_mq.remoting import client as client_module
from spark_mq.remoting.codes import RequestCode
from tests.support import hostile_cluster as hostile
from tests.support.fake_server import serving
from tests.support.hostile_cluster import COUNT, OTHER, QUEUES, TOPIC, HostileCluster

TABLES = ArchiveTables.of("/lake/messages", "")
REQUESTS = (
    *(RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.PULL_MESSAGE, RequestCode.GET_BROKER_RUNTIME_INFO),
    RequestCode.VIEW_MESSAGE_BY_ID,
)
DAMAGES = (
    *(hostile.cut_frame, hostile.wrong_length, hostile.changed_frame, hostile.no_frame, hostile.wrong_opaque),
    *(hostile.wrong_code, hostile.wrong_field, hostile.wrong_json, hostile.wrong_records),
)


@contextmanager
def two_brokers() -> Iterator[tuple[HostileCluster, HostileCluster]]:
    """Two brokers, b and z, each with messages of its own."""
    first, second = HostileCluster(), HostileCluster()
    with serving(first.answer) as first.address, serving(second.answer) as second.address:
        first.others = {"z": {0: second.address}}
        yield first, second


def end_of(cluster: HostileCluster, store: str, queue_offset: int) -> ArchivedEnd:
    """The end of an archive that has the messages of a broker up to a queue offset."""
    places = [(topic, queue_id) for topic in (TOPIC, OTHER) for queue_id in range(QUEUES)]
    records = [decode_record(cluster.record(*place, queue_offset)) for place in places]
    rows = sorted((Row(**compared_values(one)) for one in records), key=lambda row: -row.commit_log_offset)
    stop = rows[0].commit_log_offset + rows[0].store_size
    return ArchivedEnd(StoreIdentity("c", "DEFAULT_BROKER", store), rows[0].commit_log_offset, stop, None, tuple(rows))


def changed(row: Row, **values: object) -> Row:
    return Row(**(row.asDict() | values))


def rests(cluster: HostileCluster, *ends: ArchivedEnd, **options: str) -> list[Rest]:
    given = {"path": f"rocketmq://{cluster.address}", "requestTimeout": "0.5", "conditions": "[]"}
    return rests_of_cluster(given | options, TABLES, ends)


def test_each_broker_goes_on_where_its_own_store_ends(caplog: pytest.LogCaptureFixture) -> None:
    with two_brokers() as (first, second):
        of_first, of_second = end_of(first, "s1", 5), end_of(second, "s2", 9)
        found = rests(first, of_second, of_first, replace(of_first, identity=StoreIdentity("x", "x", "x"), newest=()))
        assert [(one.identity.store, one.last) for one in found] == [("s1", of_first.last), ("s2", of_second.last)]
        names = [{one.column: one.values for one in rest.conditions} for rest in found]
        brokers = ("b", first.address), ("z", second.address)
        assert names == [{"cluster": ("c",), "broker": (name,), "store": (address,)} for name, address in brokers]
        assert not caplog.text
        (known, new) = rests(first, of_first)
        assert (known.identity.store, new) == ("s1", Rest(StoreIdentity("c", "z", second.address), -1, new.conditions))
        assert f"broker c/z/{second.address} is not in the archive /lake/messages" in caplog.text


def test_a_topic_that_was_made_again_does_not_hide_the_store() -> None:
    with two_brokers() as (first, _):
        end = end_of(first, "s", 5)
        before = [changed(row, queue_offset=COUNT + 7) for row in end.newest if row.topic == TOPIC]
        newest = [row for row in end.newest if row.topic == OTHER]
        assert rests(first, replace(end, newest=(*newest, *before)))[0].last == end.last
        other = replace(end, newest=tuple(changed(row, store_host="1.1.1.1:1") for row in before))
        with pytest.raises(
            OptionError, match=r"no store of a broker of .* has c/DEFAULT_BROKER/s, and the brokers are"
        ):
            rests(first, other)


def test_a_slave_may_lag_and_a_master_may_not() -> None:
    with two_brokers() as (first, second):
        first.log_end = second.log_end = 9_000
        end = end_of(first, "s", 5)
        with pytest.raises(LogCutError, match=f"c/DEFAULT_BROKER/s up to commit log offset {end.stop}"):
            rests(first, end)
        first.others = {"b": {0: "127.0.0.1:9", 3: first.address}}
        (rest,) = rests(first, end, readFrom="slave")
        assert (rest.identity, rest.last) == (end.identity, end.last)


def test_two_brokers_with_the_same_log_are_refused() -> None:
    with two_brokers() as (first, _):
        first.others = {"z": {0: first.address}}
        with pytest.raises(OptionError, match=r"several brokers of .* have the same messages"):
            rests(first, end_of(first, "s", 5))


@pytest.mark.parametrize("code", REQUESTS)
def test_no_answer_leads_to_another_rest(code: RequestCode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(client_module, "_ATTEMPTS", 2)
    monkeypatch.setattr("spark_mq.remoting.requests.sleep", lambda seconds: None)
    with two_brokers() as (first, second):
        ends = end_of(first, "s1", 5), end_of(second, "s2", 9)
        right = rests(first, *ends)
        refused = 0
        for seed in range(5 * len(DAMAGES)):
            first.choice, first.spoil, first.spoilt = random.Random(seed), DAMAGES[seed % len(DAMAGES)], code
            try:
                found = rests(first, *ends, requestTimeout="0.2")
            except SparkMqError:
                refused += 1
                continue
            # A broker that has another name is another broker.
            assert found == right or code == RequestCode.GET_BROKER_CLUSTER_INFO
        assert refused
