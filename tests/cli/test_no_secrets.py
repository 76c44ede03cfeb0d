"""Secrets of addresses, options and files are in nothing that people get: output, errors, log lines and written files.

Other tests look for them in Spark's plans and errors with a real server (`tests/s3`), and with real brokers
(`tests/broker/test_remoting.py`).
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import LocalStore

from spark_mq.cli.main import main, parser
from spark_mq.io.object_store import ObjectStore
from spark_mq.remoting.command import RemotingCommand
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import TOPIC, HostileCluster
from tests.support.stores import STORES, Unpack

STORE = STORES["workload-533"]
SECRETS = ("KEYHIDDEN", "secrethidden", "tokenhidden")
ADDRESS = "s3://KEYHIDDEN:secrethidden@bucket/{}?session_token=tokenhidden&region=eu"
PARSERS = next(action.choices for action in parser()._actions if isinstance(action.choices, dict))
EXAMPLES = {name: shlex.split(parser.example)[2:] for name, parser in PARSERS.items()}
OF_STORES = {name: words for name, words in EXAMPLES.items() if words[:1] in (["/data/store"], ["/data/master"])}
WITH_SPARK = ("archive", "sql", "resend")
"""Commands that start Spark, or need a cluster as well."""
MORE = {
    "report": ["--history", "/data/history"],
    "verify": ["--since-last", "/data/journal", "--metrics", "/data/metrics", "--engine", "local"],
    "rebuild": ["--engine", "local"],
    "repair": ["--output", "/data/repaired", "--engine", "local"],
    "query-by-key": ["--explain"],
}


@pytest.fixture
def leaks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[[], list[str]]:
    """A function that gives the secrets in what a command printed, logged, and wrote into `tmp_path/out`."""
    caplog.set_level(logging.DEBUG)
    (tmp_path / "out").mkdir()

    def found() -> list[str]:
        printed = capfd.readouterr()
        files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        texts = [printed.out, printed.err, caplog.text, *map(str, files)]
        texts += [file.read_bytes().decode("latin-1") for file in files]
        return [secret for secret in SECRETS if any(secret in text for text in texts)]

    return found


@pytest.mark.parametrize("name", [name for name in OF_STORES if name not in WITH_SPARK])
def test_a_command_on_a_store_of_s3_shows_no_secret(
    name: str, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: Callable[[], list[str]]
) -> None:
    """Of a store that is there, and of one that is absent; the one that is there has no tiered storage."""
    folder = unpacked(STORE)
    monkeypatch.setattr(ObjectStore, "_client", property(lambda bucket: LocalStore(folder.parent)))
    (fact, *_) = [fact for fact in STORE.facts("msg") if fact["topic"] == "OrderEvents" and fact["keys"]]
    here = {
        "orders": fact["topic"],
        "order-42": fact["keys"].split()[0],
        "7F00000100002A9F00000000000343EF": fact["msgId"],
        "7F0000010B5F18B4AAC28F1B3B6D0000": fact["uniqKey"],
    }
    for there in (folder.name, "absent"):
        words = [here.get(word, word) for word in [*EXAMPLES[name], *MORE.get(name, [])]]
        for store in ("/data/store", "/data/master", "/data/slave"):
            words = [ADDRESS.format(there) if word == store else word for word in words]
        words = [word.replace("/data/", f"{tmp_path}/out/") for word in words]
        words = [f"{tmp_path}/out/{word}" if word in ("store.html", "findings.parquet") else word for word in words]
        statuses = (0, 1, 3) if there == folder.name and not name.startswith("tiered-") else (1, 2)
        assert main([name, *words]) in statuses
        assert leaks() == []


def test_a_list_of_stores_shows_no_secret(
    unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: Callable[[], list[str]]
) -> None:
    folder = unpacked(STORE)
    monkeypatch.setattr(ObjectStore, "_client", property(lambda bucket: LocalStore(folder.parent)))
    stores = tmp_path / "stores.json"
    for there, status in ((folder.name, 0), ("absent", 1)):
        entry = {"cluster": "c", "broker": "b", "name": "n", "path": ADDRESS.format(there)}
        stores.write_text(json.dumps([entry]))
        for words in (["topics"], ["query-by-key", "OrderEvents", "ORD-20"]):
            assert main([words[0], "--stores", str(stores), *words[1:]]) == status
            assert leaks() == []


CLUSTER = [["topics"], ["queues"], ["lag"], ["print-message", TOPIC], ["query-by-key", TOPIC, "k1"]]


@pytest.mark.parametrize("words", CLUSTER, ids=lambda words: words[0])
def test_a_command_on_a_cluster_shows_no_secret(
    words: list[str], tmp_path: Path, leaks: Callable[[], list[str]]
) -> None:
    """Of a cluster that answers, and of one that refuses. Both get the access key and the token in each request."""
    conf = tmp_path / "client.conf"
    conf.write_text("accessKey=KEYHIDDEN\nsecretKey=secrethidden\nsecurityToken=tokenhidden\n")
    cluster = HostileCluster()
    sent: list[str] = []

    def refused(request: RemotingCommand) -> Iterator[bytes]:
        sent.append(str(request.ext_fields))
        yield response(request, 16, remark="No permission")

    for answer, status in ((cluster.answer, 0), (refused, 1)):
        with serving(answer) as address:
            cluster.address = address
            assert main([words[0], f"rocketmq://{address}", *words[1:], "--client-conf", str(conf)]) == status
        assert leaks() == []
    assert all("KEYHIDDEN" in fields and "tokenhidden" in fields for fields in sent)
    assert "secrethidden" not in str(sent)


NO_PAIRS = [["--spark-conf", "spark.hadoop.fs.s3a.secret.key:secrethidden"], ["--store", ADDRESS.partition("?")[0]]]


@pytest.mark.parametrize("words", NO_PAIRS, ids=lambda words: words[0])
def test_an_option_that_is_not_understood_is_not_shown(words: list[str], leaks: Callable[[], list[str]]) -> None:
    with pytest.raises(SystemExit):
        main(["sql", "SELECT 1", *words])
    assert leaks() == []


def test_settings_of_spark_are_in_no_plan(unpacked: Unpack, leaks: Callable[[], list[str]]) -> None:
    store = unpacked(STORE)
    words = ["--store", f"prod={store}", "--spark-conf", "spark.hadoop.fs.s3a.secret.key=secrethidden"]
    assert main(["sql", "--explain", "SELECT * FROM prod.messages WHERE topic = 'OrderEvents'", *words]) == 0
    assert leaks() == []
