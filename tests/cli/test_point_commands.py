"""The commands that answer one question, as a user at a terminal runs them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_mq.testing import LogWriter
from tests.support.said import Run
from tests.support.stores import PROJECT, STORES, WORKLOAD, Unpack, without_full_index_files

pytestmark = pytest.mark.usefixtures("utc")

DELETED = STORES["deleted-533"]


def messages(topic: str) -> list[dict[str, Any]]:
    return sorted(
        (fact for fact in WORKLOAD.facts("msg") if fact["topic"] == topic), key=lambda fact: int(fact["offset"])
    )


def test_a_message_by_id(store: str, run: Run) -> None:
    fact = messages("OrderEvents")[5]
    shown = dict(line.split(":", 1) for line in run("query-by-id", store, fact["msgId"]).lines if ":" in line)
    assert shown["OffsetID"].strip() == fact["msgId"]
    assert shown["Topic"].strip() == "OrderEvents"
    assert shown["Queue Offset"].strip() == str(fact["queueOffset"])
    seconds, millis = divmod(fact["storeTimestamp"], 1000)
    wanted = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f",{millis:03} +0000"
    assert shown["Store Timestamp"].strip() == wanted


def test_a_look_up_by_key_loads_only_what_it_needs(store: str) -> None:
    """Each of these modules would make a cold command longer; with a filter, the first of them is needed."""
    modules = {
        "spark_mq.filters.parser",
        "spark_mq.io.object_store",
        "spark_mq.store.retention",
        "spark_mq.tables.lifecycle",
        "concurrent.futures",
        "pyspark",
        "subprocess",
        "zoneinfo",
    }
    program = f"""import sys
from spark_mq.cli.main import main
status = main(sys.argv[1:])
print(*sorted({modules} & set(sys.modules)), file=sys.stderr)
sys.exit(status)"""

    def loaded(*more: str) -> list[str]:
        command = [sys.executable, "-c", program, "query-by-key", store, fact["topic"], fact["uniqKey"], *more]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert fact["msgId"] in done.stdout
        return done.stderr.split()

    fact = messages("OrderEvents")[5]
    assert loaded() == []
    assert loaded("--filter", "TRUE") == ["spark_mq.filters.parser"]


def test_json_has_the_columns_of_the_table(store: str, run: Run, tmp_path: Path) -> None:
    fact = messages("OrderEvents")[5]
    body = tmp_path / "body"
    (row,) = run("query-by-id", store, fact["msgId"], "--json", "--body-file", body).rows
    assert hashlib.md5(base64.b64decode(row["body"])).hexdigest() == fact["bodyMd5"]
    assert hashlib.md5(body.read_bytes()).hexdigest() == fact["bodyMd5"]
    assert (row["properties"], row["tags"], row["commit_log_offset"]) == (
        fact["properties"],
        fact["tags"],
        fact["offset"],
    )
    assert row["store_timestamp"].endswith("Z")


def test_several_ids_and_one_that_is_not_there(store: str, run: Run) -> None:
    first, second = messages("OrderEvents")[:2]
    missing = "7F00000100002A9F00000000000FFFFF"
    captured = run("query-by-id", store, first["msgId"], missing, second["msgId"], status=3)
    assert first["msgId"] in captured.out
    assert second["msgId"] in captured.out
    assert f"no message {missing}: no segment contains" in captured.err


@pytest.mark.parametrize("command", [["query-by-id"], ["query-by-unique-key", "OrderEvents"]], ids=["id", "key"])
def test_an_id_of_another_broker_is_not_found(command: list[str], store: str, run: Run) -> None:
    """Other brokers' logs have messages at the same offsets."""
    fact = messages("OrderEvents")[5]
    other_id = "0A0000010000AAAA" + fact["msgId"][-16:].lower()
    arguments = [command[0], store, *command[1:], other_id, "--json"]
    captured = run(*arguments, status=3)
    assert captured.out == ""
    assert "an id of broker 10.0.0.1:43690, but the message at commit log offset" in captured.err
    assert "--any-host" in captured.err
    assert [row["offset_message_id"] for row in run(*arguments, "--any-host").rows] == [fact["msgId"]]


def test_an_expired_message_says_so(unpacked: Unpack, run: Run) -> None:
    gone = "7F00000100002A9F0000000000000000"
    assert "expired" in run("query-by-id", unpacked(DELETED), gone, status=3).err


def test_a_message_by_queue_offset(store: str, run: Run) -> None:
    fact = messages("OrderEvents")[7]
    place = ["OrderEvents", str(fact["queueId"]), str(fact["queueOffset"])]
    assert run("query-by-offset", store, *place, "--json").offsets == [fact["offset"]]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (["OrderEvents", "0", "62"], "has offsets 0 to 61"),
        (["OrderEvents", "0", "-1"], "has offsets 0 to 61"),
        (["OrderEvents", "9", "0"], "queues of the topic: 0, 1, 2, 3"),
        (["Orders", "0", "0"], "similar topics: OrderEvents"),
        (["nope", "0", "0"], "lists the topics"),
        (["MovedQueue", "0", "440"], "no message at offset 440"),
    ],
)
def test_no_message_at_a_queue_offset(place: list[str], why: str, store: str, run: Run) -> None:
    captured = run("query-by-offset", store, *place, status=3)
    assert captured.out == ""
    assert why in captured.err


def printed(run: Run, *arguments: str, status: int = 0) -> list[int]:
    return run("print-message", *arguments, "--json", status=status).offsets


def test_messages_of_a_topic_in_the_order_of_the_log(store: str, run: Run) -> None:
    facts = messages("OrderEvents")
    assert printed(run, store, "OrderEvents", "--limit", "0") == [fact["offset"] for fact in facts]
    assert printed(run, store, "OrderEvents", "--limit", "9") == [fact["offset"] for fact in facts[:9]]
    assert printed(run, store, "OrderEvents", "--queue-id", "2", "--limit", "0") == [
        fact["offset"] for fact in facts if fact["queueId"] == 2
    ]
    assert printed(run, store, "No such topic", status=3) == []


@pytest.mark.parametrize("queue", [[], ["--queue-id", "2"]])
def test_damage_in_the_log_is_named(queue: list[str], tmp_path: Path, run: Run) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    fact = [fact for fact in messages("OrderEvents") if fact["queueId"] == 2][4]
    segment = max(file for file in (folder / "commitlog").iterdir() if int(file.name) <= fact["offset"])
    with segment.open("r+b") as file:
        file.seek(fact["offset"] - int(segment.name) + 4)
        file.write(b"\xa5" * 4)
    shown = run("print-message", folder, "OrderEvents", *queue, "--limit", "0", "--json")
    expected = [one["offset"] for one in messages("OrderEvents") if one is not fact]
    if queue:
        expected = [one["offset"] for one in messages("OrderEvents") if one is not fact and one["queueId"] == 2]
    assert shown.offsets == expected
    assert f"skipped: {segment}: {fact['size']} bytes from commit log offset {fact['offset']}" in shown.err
    assert "NO_RECORD" in run("query-by-offset", folder, "OrderEvents", "2", fact["queueOffset"], status=1).out


def test_messages_of_a_time(store: str, run: Run) -> None:
    facts = messages("OrderEvents")
    times = sorted({fact["storeTimestamp"] for fact in facts})
    for begin, end in [(times[3], times[-3]), (times[0] - 1, times[0] - 1), (times[5], times[5]), (times[-1], None)]:
        window = ["--begin", str(begin), *([] if end is None else ["--end", str(end)])]
        wanted = [fact["offset"] for fact in facts if begin <= fact["storeTimestamp"] <= (end or times[-1])]
        assert printed(run, store, "OrderEvents", "--limit", "0", *window, status=0 if wanted else 3) == wanted


def test_a_printed_time_is_taken_as_it_is(store: str, run: Run) -> None:
    fact = messages("OrderEvents")[5]
    expected = [one["offset"] for one in messages("OrderEvents") if one["storeTimestamp"] == fact["storeTimestamp"]]
    shown = dict(line.split(":", 1) for line in run("query-by-id", store, fact["msgId"]).lines if ":" in line)
    (row,) = run("query-by-id", store, fact["msgId"], "--json").rows
    for time_text in (shown["Store Timestamp"].strip(), row["store_timestamp"]):
        assert printed(run, store, "OrderEvents", "--begin", time_text, "--end", time_text) == expected


def test_messages_of_a_tag(store: str, run: Run) -> None:
    facts = messages("OrderEvents")
    wanted = [fact["offset"] for fact in facts if fact["tags"] in ("TagA", "paid")]
    assert wanted
    assert printed(run, store, "OrderEvents", "--limit", "0", "--tag", "TagA||  paid ") == wanted
    assert printed(run, store, "OrderEvents", "--limit", "0", "--tag", "*") == [fact["offset"] for fact in facts]


def test_a_limit_that_was_reached_is_said(store: str, run: Run) -> None:
    captured = run("print-message", store, "OrderEvents", "--limit", "2")
    assert len(captured.out.splitlines()) == 3  # the heading too
    assert "--limit 2" in captured.err


def test_a_terminal_obeys_nothing_that_a_message_says(tmp_path: Path, run: Run) -> None:
    writer = LogWriter(4096)
    writer.append(1000, b"\x1b[2J\x07evil\nline", properties=b"KEYS\1\x1b]0;x\x07\2TAGS\1t\x9b\2")
    writer.append(1001, b"\xff\xfe\x00")
    writer.write(tmp_path)
    for number in range(2):
        out = run("query-by-id", tmp_path, f"7F00000100002A9F{writer.offsets[number]:016X}").out
        assert all(character.isprintable() or character == "\n" for character in out)
    assert "3 bytes: ff fe 00" in out


def test_a_body_that_cannot_be_read_is_said_and_not_written(tmp_path: Path, run: Run) -> None:
    writer = LogWriter(4096)
    message_id = f"7F00000100002A9F{writer.append(1000, b'broken', sys_flag=1):016X}"
    writer.write(tmp_path)
    assert "none: BODY: broken zlib stream" in run("query-by-id", tmp_path, message_id).out
    assert "none: BODY: broken zlib stream" in run("print-message", tmp_path, "T").out
    run("query-by-id", tmp_path, message_id, "--body-file", tmp_path / "body", status=1)
    assert not (tmp_path / "body").exists()


def test_a_reader_that_goes_away_is_no_error(store: str) -> None:
    command = f"{sys.executable} -m spark_mq.cli.main print-message {store} user_activity --limit 0 --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_output_that_cannot_be_written_is_one_error(unbuffered: str, store: str) -> None:
    """Also a help, whose errors `argparse` passes over."""
    for words in (["--help"], ["--version"], ["verify", "--help"], ["queues", store]):
        command = [sys.executable, "-m", "spark_mq.cli.main", *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), (words, done.stderr)
        assert "a disk is full" in done.stderr


def test_no_point_command_imports_numba_pandas_or_spark(store: str, unpacked: Unpack) -> None:
    """One process runs them all, `life` first, which needs no `pyarrow.compute` either."""
    program = """import json, sys
from spark_mq.cli.main import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    heavy = {"numba", "pandas", "pyspark"} | ({"pyarrow.compute"} if words[0] == "life" else set())
    assert (status, heavy & set(sys.modules)) == (0, set()), words"""
    lagging, conf = str(unpacked(STORES["lagging-533"])), ["--broker-conf", str(WORKLOAD.broker_conf)]
    key, *others = (
        next(fact["uniqKey"] for fact in messages(topic) if fact["uniqKey"])
        for topic in ("OrderEvents", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX")
    )
    commands = [
        *(["life", store, other, *conf] for other in others),
        ["query-by-offset", store, "OrderEvents", "0", "3"],
        ["query-by-key", store, "OrderEvents", key, *conf],
        ["lag", store, "--all"],
        ["topics", store, "--json"],
        ["delay-offsets", store],
        ["consumer-progress", store],
        ["begin-offsets", store, "--topic", "OrderEvents"],
        ["allocate", store, "OrderEvents", "--consumers", "3", "--to", "4"],
        ["state", store, "--quick", *conf],
        ["state", lagging, "--quick", "--broker-conf", ""],
        ["print-message", store, "OrderEvents", "--last", "3"],
        ["print-message", store, "OrderEvents", "--queue-id", "1", "--last", "3", "--full", "--body", "hex"],
    ]
    command = [sys.executable, "-c", program, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CONF = ["--broker-conf", str(WORKLOAD.broker_conf)]


def with_key(topic: str, key: str) -> list[int]:
    """Offsets, newest first, by what the Java classes say of each message."""
    facts = [fact for fact in messages(topic) if key in [*(fact["keys"] or "").split(" "), fact["uniqKey"]]]
    return [fact["offset"] for fact in reversed(facts)]


def test_messages_by_key(store: str, run: Run) -> None:
    key = next(fact["keys"] for fact in messages("OrderEvents") if fact["keys"]).split(" ")[0]
    offsets = with_key("OrderEvents", key)
    shown = run("query-by-key", store, "OrderEvents", key, *CONF, "--json")
    assert shown.offsets == offsets
    assert shown.err == ""
    assert run("query-by-key", store, "OrderEvents", key, *CONF, "--max-num", "1", "--json").offsets == offsets[:1]
    newest = next(fact for fact in messages("OrderEvents") if fact["offset"] == offsets[0])["storeTimestamp"]
    said = run("query-by-key", store, "OrderEvents", key, *CONF, "--begin", newest, "--json")
    assert said.offsets[-1:] == offsets[:1]


def test_messages_by_key_and_filter(store: str, run: Run) -> None:
    facts = [fact for fact in messages("OrderEvents") if fact["keys"]]
    counts = Counter(key for fact in facts for key in fact["keys"].split(" "))
    key = next(key for key, _ in counts.most_common())
    with_key = [fact for fact in facts if key in fact["keys"].split(" ")]
    region = with_key[0]["properties"].get("region")
    expression = "region IS NULL" if region is None else f"region = '{region}'"
    expected = [fact["offset"] for fact in with_key if fact["properties"].get("region") == region][::-1]
    words = ["query-by-key", store, "OrderEvents", key, *CONF, "--json", "--filter"]
    assert run(*words, expression).offsets == expected
    assert run(*words, expression, "--max-num", "1").offsets == expected[:1]
    many = f"{len(with_key)} message{' has' if len(with_key) == 1 else 's have'} the key"
    assert many in run(*words, "region = 'nowhere'", status=3).err
    assert "write the whole condition" in run(*words, "region LIKE 'e%'", status=2).err
    assert "index" in run(*words, expression, "--explain").out


def test_messages_of_the_keys_of_a_file(store: str, run: Run, tmp_path: Path) -> None:
    """With empty lines, a key twice, two keys of one message, and keys that no message has."""
    fact = next(fact for fact in messages("OrderEvents") if " " in (fact["keys"] or ""))
    keys = [*fact["keys"].split(" "), fact["uniqKey"], fact["uniqKey"], "", *(f"nope{number}" for number in range(12))]
    file = tmp_path / "keys"
    file.write_text("\n".join(keys))
    offsets = sorted({offset for key in keys if key for offset in with_key("OrderEvents", key)}, reverse=True)
    words = ["query-by-key", store, "OrderEvents", *CONF, "--keys-file", str(file), "--json"]
    shown = run(*words)
    assert shown.offsets == offsets
    there = {key for key in keys if key and with_key("OrderEvents", key)}
    assert f"12 of {len(there) + 12} keys have no message: nope0" in shown.err
    assert run(*words, "--end", fact["storeTimestamp"]).rows[-1]["commit_log_offset"] == offsets[-1]
    file.write_text("nope")
    assert "1 of 1 keys have no message: nope" in run(*words, status=3).err
    for wrong, said in (("key", "give a KEY, or"), ("--as-broker", "for one KEY"), ("--explain", "for one KEY")):
        assert said in run(*words[:3], wrong, *words[3:], status=2).err
    assert "--keys-file /no: No such file" in run(*words[:-3], "--keys-file", "/no", status=2).err


def test_a_key_that_is_not_there_says_why(store: str, run: Run) -> None:
    said = run("query-by-key", store, "OrderEvents", "no such key", *CONF, status=3)
    assert "no message of topic OrderEvents in the log has it: a space separates keys" in said.err
    said = run("query-by-key", store, "OrderEvents", "none", *CONF, status=3)
    assert "no message of topic OrderEvents in the log has it" in said.err
    assert "a space" not in said.err
    assert "there is no queue of topic nope" in run("query-by-key", store, "nope", "k", *CONF, status=3).err


def test_an_index_that_cannot_be_used_is_said(store: str, tmp_path: Path, run: Run) -> None:
    """Its files have other sizes than a broker's default, no settings were given, and no file is full."""
    store = str(without_full_index_files(Path(store), tmp_path))
    key = next(fact["uniqKey"] for fact in messages("OrderEvents") if fact["uniqKey"])
    shown = run("query-by-key", store, "OrderEvents", key, "--json")
    assert shown.offsets == with_key("OrderEvents", key)
    assert "--broker-conf" in shown.err
    assert "the log was read instead" in shown.err


def test_a_message_by_unique_key_or_by_id(store: str, run: Run, tmp_path: Path) -> None:
    fact = next(fact for fact in messages("OrderEvents") if fact["uniqKey"])
    for text in (fact["uniqKey"], fact["msgId"]):
        body = tmp_path / text
        command = ["query-by-unique-key", store, "OrderEvents", text, *CONF, "--check-index", "--body-file", str(body)]
        assert fact["msgId"] in run(*command).out
        assert hashlib.md5(body.read_bytes()).hexdigest() == fact["bodyMd5"]


def test_what_a_look_up_reads(store: str, run: Run) -> None:
    key = next(fact["uniqKey"] for fact in messages("OrderEvents") if fact["uniqKey"])
    said = run("query-by-key", store, "OrderEvents", key, *CONF, "--explain")
    lines = [line.split(maxsplit=1) for line in said.lines]
    assert lines[0] == ["path", "index"]
    assert [text for name, text in lines if text.startswith("1 records of the log")] != []
    said = run("query-by-unique-key", store, "OrderEvents", key, "--explain")
    assert said.out.startswith("path   index")  # full index files show their slots and entries


@pytest.mark.parametrize("command", [["print-message"], ["query-by-key", "k"], ["query-by-unique-key", "k"]], ids=str)
def test_an_unknown_topic_gets_the_names_of_similar_ones(command: list[str], store: str, run: Run) -> None:
    name, *key = command
    conf = CONF if key else []
    said = run(name, store, "orderevent", *key, *conf, status=3)
    assert "there is no queue of topic orderevent; similar topics: OrderEvents" in said.err


def test_relative_times(store: str, run: Run) -> None:
    run("print-message", store, "OrderEvents", "--begin", "-1s", status=3)
    said = run("print-message", store, "OrderEvents", "--begin", "-5000w", "--end", "now", "--limit", "1")
    assert len(said.lines) == 2


def test_a_unique_key_in_small_letters_is_said(store: str, run: Run) -> None:
    key = next(fact["uniqKey"] for fact in messages("OrderEvents") if fact["uniqKey"])
    for words in (["query-by-id"], ["query-by-unique-key"], ["life"]):
        assert f"in capital letters: {key};" in run(*words, store, key.lower(), status=3).err


def test_text_that_the_encoding_lacks_is_escaped(store: str) -> None:
    command = [sys.executable, "-m", "spark_mq", "print-message", store, "OrderEvents"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert r"\xe9" in done.stdout


def test_a_closed_stdout_is_one_line(store: str) -> None:
    command = f"exec {sys.executable} -m spark_mq topics {store} >&-"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, "spark-mq: stdout is closed\n")


@pytest.mark.parametrize("tree", ["consumequeue", "index"])
def test_a_file_instead_of_a_tree_is_no_tree(tree: str, store: str, tmp_path: Path, run: Run) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    shutil.rmtree(copy / tree)
    (copy / tree).touch()
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == "OrderEvents" and fact["keys"])
    queue, offset = str(fact["queueId"]), str(fact["queueOffset"])
    run("query-by-offset", copy, "OrderEvents", queue, offset)
    assert fact["msgId"] in run("query-by-key", copy, "OrderEvents", fact["keys"].split()[0], *CONF).out
