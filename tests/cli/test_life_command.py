"""`spark-mq life`, and what one record means in `query-...` and `print-message`, as a person sees them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.cli.output.terminal import Node, tree_lines
from spark_mq.testing import LogWriter
from tests.support.said import Run
from tests.support.stores import STORES, WORKLOAD, Fact, Unpack

pytestmark = pytest.mark.usefixtures("utc")

HALF, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
NO_CONF = ["--broker-conf", ""]


def copies(topic: str, *also: str) -> list[Fact]:
    """The copies of the first message that has one in each of these topics, in the order of the log."""
    by_key: dict[str, list[Fact]] = {}
    for fact in sorted(WORKLOAD.facts("msg"), key=lambda fact: int(fact["offset"])):
        by_key.setdefault(fact["uniqKey"], []).append(fact)
    return next(facts for key, facts in by_key.items() if key and {topic, *also} <= {one["topic"] for one in facts})


def moment(fact: Fact) -> str:
    seconds, millis = divmod(fact["storeTimestamp"], 1000)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f",{millis:03} +0000"


def place(fact: Fact) -> str:
    return f"{fact['topic']}/{fact['queueId']} offset {fact['queueOffset']}"


def test_the_tree_of_a_message_that_died(store: str, run: Run) -> None:
    """Lines, their order and their depth, out of the facts; the middle of a line is left out here."""
    first, *retries, dead = copies("%DLQ%GID_failing")
    heading, *lines = run("life", store, first["uniqKey"], *NO_CONF).lines
    assert heading.startswith(f"message {first['uniqKey']} of RetryDemo, queue 0")
    assert heading.endswith(": STORED")
    waited, got, waited_again, got_again = retries
    wanted = [
        ("├─ ", first, "sent by ", place(first)),
        ("├─ group GID_failing: past it: its offset in RetryDemo/0 is 5", None, "", ""),
        ("│  ├─ ", waited, "retry 1 of 16 of group GID_failing, delayed (level 1, 1 s), due ", place(waited)),
        ("│  │  └─ ", got, f"delivered to {place(got)}", "; the group is past it (offset 10)"),
        ("│  ├─ ", waited_again, "retry 2 of 16 of group GID_failing, delayed (level 1, 1 s)", place(waited_again)),
        ("│  │  └─ ", got_again, f"delivered to {place(got_again)}", "; the group is past it (offset 10)"),
        ("│  └─ ", dead, "dead letter of group GID_failing after 3 failed deliveries: ", place(dead)),
        *(
            (f"├─ next: segment {base:020d} expires at ", None, "", "hours, the default; nothing in the store tells)")
            for base in sorted({int(fact["offset"]) // 131072 * 131072 for fact in (first, *retries, dead)} - {524288})
        ),
        ("└─ next: segment 00000000000000524288 is the newest one, which does not expire", None, "", ""),
    ]
    assert len(lines) == len(wanted)
    for line, (start, fact, text, end) in zip(lines, wanted, strict=True):
        assert line.startswith(f"{start}{moment(fact)}  {text}" if fact else start)
        assert line.endswith(end)


@pytest.mark.parametrize("asked", ["2026-11-01T00:00:00Z", "2027-03-01T10:00:00Z"])
def test_a_segment_is_deleted_after_the_question(asked: str, store: str, run: Run) -> None:
    """An expired segment of a stopped broker stays until a broker runs in an hour of `deleteWhen`."""
    first = copies("RetryDemo")[0]
    said = run("life", store, first["uniqKey"], *NO_CONF, "--json", "--at", asked)
    expiry = said.report["messages"][0]["expiries"][0]
    assert expiry["delete_timestamp"] >= max(asked, expiry["expire_timestamp"])
    assert "T04:00:00" in expiry["delete_timestamp"]


def test_checks_of_a_transaction_are_not_nested(store: str, run: Run) -> None:
    half, *checks, discarded = copies("TRANS_CHECK_MAX_TIME_TOPIC")
    heading, *lines = run("life", store, discarded["msgId"], *NO_CONF).lines
    assert heading.endswith(": DISCARDED")
    marks = ["├─ ", *["│  ├─ "] * len(checks), "│  └─ "]
    assert [line[: line.index("2026")] for line in lines[:-1]] == marks
    assert [line.split("+0000  ")[0].split("─ ")[1].strip() for line in lines[:-1]] == [
        moment(fact).split(" +")[0] for fact in (half, *checks, discarded)
    ]


def test_json_has_the_same(store: str, run: Run) -> None:
    facts = copies(HALF, "TransactionDemo")
    report = run("life", store, facts[0]["uniqKey"], "--json", *NO_CONF).report
    (told,) = report["messages"]
    assert (told["state"], told["topic"], report["more"]) == ("COMMITTED", "TransactionDemo", 0)
    kinds = [event["kind"] for event in told["events"]]
    assert kinds == ["HALF", *["CHECKED"] * (len(facts) - 2), "COMMITTED", "DECIDED"]
    assert told["events"][0]["timestamp"].endswith("Z")
    assert [event["commit_log_offset"] for event in told["events"][:-1]] == [fact["offset"] for fact in facts]


def test_more_messages_than_the_limit_are_counted(store: str, run: Run) -> None:
    key = "shared"
    messages = [fact for fact in WORKLOAD.facts("msg") if key in (fact["keys"] or "").split(" ")]
    indexed = [fact for fact in messages if fact["sysFlag"] & 0xC != 0xC]  # no index has those of type ROLLBACK
    number = len({fact["uniqKey"] or fact["offset"] for fact in indexed})
    assert len(messages) > len(indexed) > 10
    captured = run("life", store, key, "--limit", "2", *NO_CONF)
    assert captured.out.count("\nmessage ") == 1
    assert f"{number - 2} more messages with this key" in captured.err


def test_nothing_found_says_why(store: str, run: Run) -> None:
    for arguments in (["no key"], ["no key", "--topic", "OrderEvents"], ["no key", "--topic", "OrderEvent"]):
        captured = run("life", store, *arguments, *NO_CONF, status=3)
        assert captured.out == ""
        assert "no message no key: " in captured.err
    assert "OrderEvents" in captured.err
    run("life", store, "", *NO_CONF, status=2)
    run("life", "/no/such/store", "key", *NO_CONF, status=1)


def test_several_stores_name_their_events(store: str, unpacked: Unpack, run: Run) -> None:
    other = str(unpacked(STORES["workload-49x"]))
    lines = run("life", store, other, "unique0", *NO_CONF).lines
    assert {path for path in (store, other) for line in lines if f"[{path}] sent by" in line} == {store, other}


def test_a_terminal_obeys_no_key_group_or_topic(tmp_path: Path, run: Run) -> None:
    writer = LogWriter(8192)
    evil = b"\x1b[2J\x07"
    for topic in (b"orders", b"%RETRY%" + evil, b"%DLQ%" + evil, HALF.encode()):
        writer.append(1000, evil, topic, properties=b"UNIQ_KEY\1U1\2REAL_TOPIC\1" + evil + b"\2KEYS\1" + evil)
    writer.write(tmp_path)
    out = run("life", tmp_path, "U1").out
    assert all(character.isprintable() or character == "\n" for character in out)
    assert r"\x1b[2J" in out


def test_queries_show_the_real_topic_and_what_a_record_means(store: str, run: Run) -> None:
    first, waited, *_ = copies("%DLQ%GID_failing")
    shown = dict(line.split(":", 1) for line in run("query-by-id", store, waited["msgId"]).lines if ":" in line)
    assert shown["Topic"].strip() == SCHEDULE
    assert (shown["Real Topic"].strip(), shown["Real Queue ID"].strip()) == ("%RETRY%GID_failing", "0")
    assert shown["Situation"].strip().startswith("retry 1 of 16 of group GID_failing, delayed (level 1, 1 s), due ")
    assert "Situation" not in run("query-by-id", store, first["msgId"]).out  # of an ordinary message
    row = run("query-by-unique-key", store, SCHEDULE, first["uniqKey"], "--json").rows[-1]
    assert (row["topic"], row["real_topic"], row["real_queue_id"]) == (SCHEDULE, "%RETRY%GID_failing", 0)
    assert (row["kind"], row["situation"]) == ("DELAYED", shown["Situation"].strip())
    (row,) = run("query-by-offset", store, "RetryDemo", "0", "0", "--json").rows
    assert (row["kind"], row["situation"], row["real_topic"]) == ("NORMAL", None, "RetryDemo")


def test_a_table_of_a_broker_s_own_topic_has_the_real_topics(store: str, run: Run) -> None:
    heading, line = run("print-message", store, HALF, "--limit", "1").lines
    assert heading.split()[:6] == [
        "store_timestamp",
        "queue_id",
        "queue_offset",
        "real_topic",
        "real_queue_id",
        "situation",
    ]
    assert "half message" in line
    assert "situation" not in run("print-message", store, "OrderEvents", "--limit", "1").out
    said = run("print-message", store, "OrderEvents", "--limit", "1", "--columns", "kind,real_queue_id")
    assert said.lines[1].split()[0] == "NORMAL"


@pytest.fixture
def bodies(tmp_path: Path) -> str:
    writer = LogWriter(1 << 16)
    for number, body in enumerate((b'{"id":1.50,"items":[]}', bytes(range(256)) * 4, b"text\n\x1b[2Jmore", b"17", b"")):
        writer.append(1000 + number, body, b"orders")
    writer.write(tmp_path)
    return str(tmp_path)


def test_a_body_is_shown_in_the_form_that_fits_it(bodies: str, run: Run) -> None:
    shown = []
    for number in range(5):
        shown.append(run("query-by-offset", bodies, "orders", "0", number).out.split("Message Body:")[1].strip(" "))
    assert shown[0] == '\n{\n  "id": 1.50,\n  "items": []\n}\n'
    dump = shown[1].splitlines()
    assert dump[0] == "1024 bytes"
    assert dump[1] == "00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  |................|"
    assert dump[3] == "00000020  20 21 22 23 24 25 26 27  28 29 2a 2b 2c 2d 2e 2f  | !\"#$%&'()*+,-./|"
    assert len(dump) == 1 + 32 + 1
    assert dump[-1] == "… (512 more bytes; --body hex prints all 1024)"
    assert shown[2:] == ["text\n\\x1b[2Jmore\n", "17\n", "\n"]
    assert (bytes(range(256)) * 4).hex() in run("query-by-offset", bodies, "orders", "0", "1", "--body", "hex").out


def test_raw_bodies_are_written_unchanged_and_alone(bodies: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["print-message", bodies, "orders", "--body", "raw"]) == 0
    wanted = [b'{"id":1.50,"items":[]}', bytes(range(256)) * 4, b"text\n\x1b[2Jmore", b"17", b""]
    assert capfdbinary.readouterr().out == b"".join(body + b"\n" for body in wanted)
    for option in (["--json"], ["--columns", "body"], ["--full"]):
        assert main(["print-message", bodies, "orders", "--body", "raw", *option]) == 2


def test_raw_bodies_never_steer_a_terminal(bodies: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_mq.cli.output.message_printer.is_terminal", lambda: True)
    assert "\x1b" not in run("query-by-offset", bodies, "orders", "0", "2", "--body", "raw", status=2).out


def test_long_lines_of_a_tree_continue_below_their_beginning() -> None:
    root = Node("top", [Node("one two three four five six seven eight", [Node("below")]), Node("last " * 12)])
    assert list(tree_lines(root, 44)) == [
        "top",
        "├─ one two three four five six seven eight",
        "│  └─ below",
        "└─ last last last last last last last last",
        "   last last last last",
    ]
