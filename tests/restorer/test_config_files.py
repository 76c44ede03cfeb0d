from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import ConfigError
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.restorer.config_files import FILE_RULES, CopyType, rule_of, topics_json
from spark_mq.restorer.finish import restored_checkpoint
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.config_file import parse_fastjson
from spark_mq.store.config.offset_files import consumer_offsets_json, delay_offsets_json, fastjson_text
from tests.support.stores import RealStore, Unpack, usual_stores

V4_9, V5 = BrokerVersions.parse("4.9"), BrokerVersions.parse("5")
PRETTY = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
OF_THE_JOB = {"commitlog", "consumequeue", "index", "checkpoint", "abort"}


def same(topic: str, queue_id: int, offset: int) -> int:
    return offset


def with_numbers(value: object) -> object:
    """A parsed file whose integer keys are integers again."""
    if not isinstance(value, dict):
        return value
    return {int(key) if key.isdigit() else key: with_numbers(item) for key, item in value.items()}


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_files_of_real_brokers_stay_as_they_are(store: RealStore, unpacked: Unpack) -> None:
    config = unpacked(store) / "config"
    files = {name: (config / name).read_bytes() for name in PRETTY if (config / name).is_file()}
    for data in files.values():
        assert fastjson_text(with_numbers(parse_fastjson(data.decode()))).encode() == data
    queues: dict[str, int] = {}
    for fact in store.facts("queue"):
        queues[fact["topic"]] = max(queues.get(fact["topic"], 0), fact["queueId"] + 1)
    version = BrokerVersions.parse(store.broker_version)
    configured = parse_fastjson(files["topics.json"].decode())["topicConfigTable"]  # type: ignore[index]
    known = {topic: count for topic, count in queues.items() if topic in configured}
    assert topics_json(files["topics.json"], known, {}, version) is files["topics.json"]
    assert known
    for name, translate in (("consumerOffset.json", consumer_offsets_json), ("delayOffset.json", delay_offsets_json)):
        if name in files:
            content, dropped = translate(files[name], same)
            assert content is files[name]
            assert dropped == 0


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_each_file_of_a_store_has_a_rule(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    for file in (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".bak"):
        path = str(file.relative_to(folder))
        if path.split("/")[0] not in OF_THE_JOB:
            assert rule_of(path) is not None, path


def test_rules_differ_by_situation() -> None:
    assert len({rule.path for rule in FILE_RULES}) == len(FILE_RULES)
    of_types = [{rule.path for rule in FILE_RULES if copy_type in rule.copies} for copy_type in CopyType]
    assert of_types[0] > of_types[1] > of_types[2]
    for path in ("config/timercheck", "timerlog/00000000000000000000", "config/timermetrics"):
        rule = rule_of(path)
        assert rule is not None
        assert rule.copies == (CopyType.WHOLE,)
    assert all(rule_of(f"config/{name}/CURRENT") is not None for name in ("rdb", "users", "acls"))
    assert rule_of("config/own.json") is None


FILE_5 = """{
	"dataVersion":{
		"counter":13,
		"stateVersion":0,
		"timestamp":5
	},
	"topicConfigTable":{
		"orders":{
			"attributes":{
				"message.type":"FIFO"
			},
			"order":false,
			"perm":4,
			"readQueueNums":2,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"orders",
			"topicSysFlag":1,
			"writeQueueNums":2
		}
	}
}"""


def test_topics_get_their_new_names_and_missing_ones_are_added() -> None:
    queues = {"sold": 4, "%RETRY%g": 1, "many": 9, "few": 1, "SCHEDULE_TOPIC_XXXX": 18, "rmq_sys_wheel_timer": 1}
    made = topics_json(FILE_5.encode(), queues, {"orders": "sold"}, V5).decode()
    assert made.startswith(FILE_5.replace("orders", "sold").replace('s":2,', 's":4,', 1).replace("13", "14")[:-5])
    table: dict[str, Any] = parse_fastjson(made)["topicConfigTable"]  # type: ignore[index]
    assert list(table) == ["sold", "%RETRY%g", "many", "few"]
    assert {name: entry["writeQueueNums"] for name, entry in table.items()} == {
        "sold": 2,
        "%RETRY%g": 1,
        "many": 9,
        "few": 8,
    }
    assert [entry["perm"] for entry in table.values()] == [4, 6, 6, 6]
    as_4_9 = parse_fastjson(topics_json(None, queues, {}, V4_9, timestamp=7).decode())
    assert as_4_9["dataVersion"] == {"counter": 0, "timestamp": 7}  # type: ignore[index]
    table = as_4_9["topicConfigTable"]  # type: ignore[index]
    assert "rmq_sys_wheel_timer" in table
    assert "attributes" not in table["many"]


def test_a_file_of_another_line_shows_the_new_line() -> None:
    as_4_9 = topics_json(FILE_5.encode(), {}, {}, V4_9).decode()
    assert "stateVersion" not in as_4_9
    assert topics_json(as_4_9.encode(), {}, {}, V5).decode() == FILE_5


def test_two_topics_that_become_one_have_the_entry_of_the_one_with_the_name() -> None:
    both = topics_json(None, {"a": 1, "b": 9}, {}, V5)
    table = parse_fastjson(topics_json(both, {"b": 9}, {"a": "b"}, V5).decode())["topicConfigTable"]  # type: ignore[index]
    assert list(table) == ["b"]


FILE_OF_OFFSETS = """{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1
	},
	"groupTopicMap":{
		"g":["gone","b","a"],
		"h":["gone"]
	},
	"offsetTable":{
		"a@g":{0:5,1:7
		},
		"b@g":{0:2
		},
		"gone@g":{0:1
		},
		"gone@h":{3:1
		}
	}
}"""


def test_offsets_of_consumers_are_translated() -> None:
    def translate(topic: str, queue_id: int, offset: int) -> int | None:
        return None if topic == "gone" or queue_id == 1 else 10 * offset

    content, dropped = consumer_offsets_json(FILE_OF_OFFSETS.encode(), translate, {"a": "c"})
    assert dropped == 3
    assert content.decode() == FILE_OF_OFFSETS.replace('"gone","b","a"', '"b","c"').replace(
        ',\n\t\t"h":["gone"]', ""
    ).replace('"a@g":{0:5,1:7', '"c@g":{0:50').replace("{0:2", "{0:20").replace(
        ',\n\t\t"gone@g":{0:1\n\t\t},\n\t\t"gone@h":{3:1\n\t\t}', ""
    )


def test_a_group_of_two_topics_that_become_one_misses_no_message() -> None:
    existing = FILE_OF_OFFSETS.replace('"b@g":{0:2', '"b@g":{0:2,1:9')
    content, _ = consumer_offsets_json(existing.encode(), same, {"a": "b"})
    assert b'"b@g":{0:2,1:7\n' in content


def test_offsets_of_delay_levels_are_translated() -> None:
    queues = []

    def translate(topic: str, queue_id: int, offset: int) -> int | None:
        queues.append((topic, queue_id))
        return None if queue_id == 17 else offset - 1

    existing = b'{\n\t"offsetTable":{1:14,2:4,18:9\n\t}\n}'
    assert delay_offsets_json(existing, translate) == (b'{\n\t"offsetTable":{1:13,2:3\n\t}\n}', 1)
    assert queues == [("SCHEDULE_TOPIC_XXXX", 0), ("SCHEDULE_TOPIC_XXXX", 1), ("SCHEDULE_TOPIC_XXXX", 17)]
    assert delay_offsets_json(existing, lambda *_: None)[0] == b'{\n\t"offsetTable":{}\n}'


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"offsetTable":[1]}',
        b'{"offsetTable":{"a@b":3}}',
        b'{"offsetTable":{"a@b":{0:"x"}}}',
        b'{"offsetTable":{"a@b":{"x":1}}}',
        b'{"offsetTable":{"a@b":{0:1.5}}}',
        b'{"offsetTable":{"a@b":{0:99999999999999999999}}}',
        b"[" * 100_000,
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^config/consumerOffset\.json: "):
        consumer_offsets_json(data, same)


names = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n\x00\x7f\u2028@{}:,/'), max_size=8)


@given(st.dictionaries(names, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**62)), max_size=4), names)
def test_any_name_is_read_back(table: dict[str, dict[int, int]], topic: str) -> None:
    text = fastjson_text({"offsetTable": table})
    assert with_numbers_of_table(parse_fastjson(text)) == table
    made = topics_json(None, {topic: 3}, {}, V4_9)
    entries: dict[str, Any] = parse_fastjson(made.decode())["topicConfigTable"]  # type: ignore[index]
    assert [entry["topicName"] for entry in entries.values()] == list(entries)


def with_numbers_of_table(content: Any) -> dict[str, dict[int, int]]:
    return {name: {int(key): item for key, item in entry.items()} for name, entry in content["offsetTable"].items()}


def test_the_offsets_of_a_checkpoint_are_those_of_the_new_log() -> None:
    existing, rebuilt = Checkpoint(1, 2, 3, 4000, 5000, 99), Checkpoint(70, 70, 60, 0, 0, 880, 9000)
    assert restored_checkpoint(rebuilt, existing, 9000, False) == Checkpoint(70, 70, 60, 4000, 5000, 880, 9000)
    assert restored_checkpoint(rebuilt, existing, 4500, False) == Checkpoint(70, 70, 60, 4000, 4500, 880, 9000)
    assert restored_checkpoint(rebuilt, existing, 900, True) == Checkpoint(70, 70, 60, 0, 900, 880, 9000)
    assert restored_checkpoint(rebuilt, Checkpoint(), 900, True) == rebuilt
