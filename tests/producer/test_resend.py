"""Which stored messages are sent again, to which topic, and what is kept of them; and the journal of what was sent.

`tests/broker/test_resend.py` sends dead letters to a real broker, also after kills.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, OutputInUseError, StorageError
from spark_mq.format.message_id import encode_offset_message_id, has_plausible_port, unique_key_time
from spark_mq.format.properties import encode_properties, parse_properties
from spark_mq.format.record import Record
from spark_mq.producer.resend import Resend, new_unique_key, resend_of
from spark_mq.producer.resend_journal import Begun, Journal

ORIGIN = "7F00000100002A9F0000000000001000"
OF_BROKERS = {
    **{"DELAY": "3", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "TIMER_DELIVER_MS": "99", "TIMER_ROLL_TIMES": "1"},
    **{"TRAN_MSG": "true", "PGROUP": "p", "__transactionId__": "t", "TRANSACTION_CHECK_TIMES": "2"},
    **{"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": ORIGIN, "RECONSUME_TIME": "3", "1ST_POP_TIME": "5", "POP_CK": "c"},
    **{"CLUSTER": "c", "MSG_REGION": "r", "TRACE_ON": "true", "WAIT": "false", "__CRC32#": "0000000001"},
    **{"INNER_MULTI_QUEUE_OFFSET": "4", "MIN_OFFSET": "0", "__RMQ.TRANSIENT.X": "1", "UNIQ_KEY": "old"},
    **{"TRANS_OFFSET": "1", "ORIGIN_GROUP": "g", "E_T": "R", "TIMER_ROLL_LABEL": "x"},
}
OF_PRODUCER = {"TAGS": "paid", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "price": "3", "Größe": "ü", "traceparent": "00-1"}
OF_PRODUCER |= {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "x", "_SYS_MSG_PRIORITY_": "3", "__LITE_TOPIC": "l"}


def record(topic: str, properties: dict[str, str] | None = None, **fields: object) -> Record:
    named = {name.encode(): value.encode() for name, value in (properties or {}).items()}
    return replace(Record(topic.encode(), properties=encode_properties(named)), **fields)  # type: ignore[arg-type]


def sent(message: Record, to_topic: str | None = None) -> Resend:
    found = resend_of(message, to_topic)
    assert isinstance(found, Resend), found
    return found


def test_what_the_producer_chose_is_kept_and_nothing_of_brokers() -> None:
    message = record("%DLQ%g", {**OF_BROKERS, **OF_PRODUCER}, flag=7, commit_log_offset=4096, reconsume_times=16)
    resend = sent(message)
    own_id = encode_offset_message_id(message.store_host, 4096)
    assert (resend.topic, resend.from_topic, resend.flag, resend.sharding_key) == ("orders", "%DLQ%g", 7, "s")
    text = resend.properties_text("new")
    assert {name.decode(): value.decode() for name, value in parse_properties(text.encode()).items()} == {
        **OF_PRODUCER,
        "RESENT_FROM_TOPIC": "%DLQ%g",
        "RESENT_FROM_MESSAGE_ID": own_id,
        "RESENT_FROM_UNIQUE_KEY": "old",
        "UNIQ_KEY": "new",
    }


def test_a_compressed_body_is_sent_as_it_is_stored() -> None:
    assert sent(record("orders", sys_flag=0x201 | 0x8 | 0x10, body=b"zstd")).sys_flag == 0x201
    assert sent(record("orders", sys_flag=0x200, body=b"plain")).sys_flag == 0
    assert sent(record("orders", body=b"zstd")).body == b"zstd"


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%a_b_orders_eu"}, "orders_eu"),  # popped by group a_b
        ({"RETRY_TOPIC": "%RETRY%a_b+orders_eu"}, "orders_eu"),
        ({}, None),
        ({"RETRY_TOPIC": "%RETRY%a_b"}, None),
        ({"RETRY_TOPIC": "SCHEDULE_TOPIC_XXXX"}, None),
    ],
)
def test_a_dead_letter_goes_to_the_topic_from_which_it_came(properties: dict[str, str], topic: str | None) -> None:
    dead = record("%DLQ%a_b", properties)
    found = resend_of(dead)
    assert (found.topic if isinstance(found, Resend) else None) == topic
    assert sent(dead, "elsewhere").topic == "elsewhere"


def test_copies_of_a_dead_letter_are_one_message_and_others_are_not() -> None:
    first, second = (
        record(
            "%DLQ%g", {"ORIGIN_MESSAGE_ID": ORIGIN.lower(), "UNIQ_KEY": "u", "RETRY_TOPIC": "t"}, commit_log_offset=at
        )
        for at in (100, 200)
    )
    assert sent(first).identity == sent(second).identity == f"%DLQ%g {ORIGIN}"
    assert sent(replace(second, topic=b"%DLQ%h")).identity != sent(first).identity
    key = "7F0000010B5F18B4AAC28F1B3B6D0000"  # the messages of a batch share it
    for origin in (key, ORIGIN):
        alike = {
            sent(
                record(
                    "%DLQ%g",
                    {"ORIGIN_MESSAGE_ID": origin, "UNIQ_KEY": origin, "RETRY_TOPIC": "t"},
                    commit_log_offset=at,
                )
            ).identity
            for at in (100, 200)
        }
        assert len(alike) == 2


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (record("SCHEDULE_TOPIC_XXXX"), "the broker's own"),
        (record("rmq_sys_wheel_timer"), "the broker's own"),
        (record("RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=4), "the broker's own"),
        (record("%RETRY%g"), "its group gets it again"),
        (record("orders", sys_flag=4), "half message"),
        (record("orders", sys_flag=12), "rolled back"),
        (record("orders", sys_flag=0x80), "batch"),
        (record("orders", body=b"x", body_crc=1), "CRC"),
        (record("orders", body_crc=1), "CRC"),  # a body that is lost
    ],
)
def test_what_is_not_a_message_of_a_producer_is_refused(message: Record, reason: str) -> None:
    found = resend_of(message, "elsewhere")
    assert isinstance(found, str)
    assert reason in found


def test_unique_keys_are_those_of_clients() -> None:
    keys = {new_unique_key() for _ in range(1000)}
    assert len(keys) == 1000
    for key in keys:
        assert re.fullmatch("[0-9A-F]{32}", key)
        assert not has_plausible_port(key)
        assert unique_key_time(key) is not None


HEAD = {"source": "/s", "cluster": "rocketmq://a", "to_topic": None}


def journal_with(path: Path, *ends: str) -> None:
    with Journal.writing(str(path), HEAD) as journal:
        for number, end in enumerate(ends):
            journal.begin(f"m{number}", Begun("orders", f"u{number}"))
            if end == "sent":
                journal.note_sent(f"m{number}")
            elif end == "refused":
                journal.note_refused(f"m{number}", "no permission")


def test_a_journal_knows_what_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal_with(path, "sent", "refused", "", "sent")
    for _ in range(2):
        found = Journal.read(str(path), HEAD)
        assert found.sent == {"m0", "m3"}
        assert found.uncertain == {"m2": Begun("orders", "u2")}
        assert found.unique_keys == {"u0", "u1", "u2", "u3"}
        with Journal.writing(str(path), HEAD) as again:
            assert (again.sent, again.uncertain) == (found.sent, found.uncertain)
    with Journal.writing(str(path), HEAD) as journal:
        journal.begin("m2", Begun("orders", "u9"))
        journal.note_sent("m2")
    assert Journal.read(str(path), HEAD).uncertain == {}


def test_a_journal_that_is_cut_anywhere_forgets_no_message_that_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal_with(path, "sent", "", "sent")
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with Journal.writing(str(path), HEAD) as journal:
            journal.begin("new", Begun("orders", "u"))
            journal.note_sent("new")
        whole = [json.loads(line) for line in content[:size].splitlines(keepends=True) if line.endswith(b"\n")]
        found = Journal.read(str(path), HEAD)
        assert found.sent == {one["sent"] for one in whole if "sent" in one} | {"new"}
        assert found.sent | set(found.uncertain) == {one["begin"] for one in whole if "begin" in one} | {"new"}
    assert len(lines) == 6


def test_a_journal_of_another_resend_or_of_something_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal_with(path, "sent")
    for other in ({"to_topic": "t"}, {"cluster": "rocketmq://b"}, {"source": "/other"}):
        with pytest.raises(OptionError, match=rf"its {next(iter(other))} is "):
            Journal.read(str(path), HEAD | other)
    content = path.read_bytes()
    for damaged in (
        b"hello",
        b"hello\n",
        b"[]\n",
        b"{}\n",
        content + b"{\n",
        content + b"{}\n",
        content + b'{"begin": "x"}\n',
    ):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match="journal"), Journal.writing(str(path), HEAD):
            pass
        assert path.read_bytes() == damaged
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match="named pipe"):
        Journal.read(str(path), HEAD)


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    with Journal.writing(path, HEAD), pytest.raises(OutputInUseError, match="another run"), Journal.writing(path, HEAD):
        pass
    with Journal.writing(path, HEAD):
        pass
