from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_mq import MessageStore
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.derived_facts import index_facts, queue_facts
from tests.support.stores import RealStore, usual_stores


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_facts_of_queues_and_index_files(store: RealStore, described: Callable[[RealStore], MessageStore]) -> None:
    opened = described(store)
    queues = queue_facts(opened)
    assert queues is not None
    assert json.loads(json.dumps(queues)) == queues
    assert queues["file_size"] == store.facts("store")[0]["mappedFileSizeConsumeQueue"]
    names = ("topic", "queue_id", "min_offset", "max_offset")
    found = {tuple(queue[name] for name in names) for queue in queues["queues"]}
    said = {(fact["topic"], fact["queueId"], fact["min"], fact["max"]) for fact in store.facts("queue") if fact["max"]}
    if store.broker_version == "5":
        assert said <= found
    else:  # its first offsets are by another rule
        assert {(topic, queue_id, end) for topic, queue_id, _, end in said} <= {(*one[:2], one[3]) for one in found}
    index = index_facts(opened.location)
    assert index is not None
    settings = BrokerConf.of(str(store.broker_conf)).index_layout
    assert settings is not None
    assert (index["hash_slot_num"], index["index_num"]) in ((settings.hash_slot_num, settings.index_num), (None, None))
    assert [file["name"] for file in index["files"]] == sorted(file["name"] for file in index["files"])
    assert all(file["begin_commit_log_offset"] <= file["end_commit_log_offset"] for file in index["files"])
