"""Stores of other forms at every door: an answer of the log, a note, or one clear error; never a wrong answer."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FAILED
from spark_mq.cli.main import main
from spark_mq.errors import UnsupportedStoreError
from spark_mq.indexer.report import RebuildReport
from spark_mq.lifecycle.why_not_consumed import why_not_consumed
from spark_mq.repairer.repair import RepairReport
from spark_mq.restorer.store_job import RestoreReport
from spark_mq.store.config.store_kind import FORMS, Door
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from tests.support.in_process import read_rows
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here, restored_plain
from tests.support.rocksdb import write_database
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, SAME, SHARED_STORES, WORKLOAD, Fact, RealStore

FOLDER = SHARED_STORES / "forms"
OWN_FORMS = OWN_STORES / "forms"
NAMES = sorted(
    {
        path.name.removesuffix(".tar.gz")
        for folder in ((FOLDER, OWN_FORMS) if SOAKS else (OWN_FORMS,))
        for path in folder.glob("f*.tar.gz")
    }
)
OFFSETS_BY_TIME = (("offsetByTime", "LOWER"), ("offsetByTimeUpper", "UPPER"))
TABLES = (
    *("segments", "queues", "topics", "lag", "subscription-groups", "consumer-filters", "delay-offsets", "checkpoint"),
    *("transactions", "delayed", "retries", "dead-letters", "traces", "consumer-progress", "duplicates", "retention"),
)
TOPIC = "OrderEvents"


@pytest.fixture(scope="module", params=NAMES, ids=str)
def form(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealStore, Path]]:
    """A real store of another form, unpacked."""
    own = (OWN_FORMS / f"{request.param}.tar.gz").is_file()
    store = RealStore(request.param, OWN_FORMS if own else FOLDER)
    folder = tmp_path_factory.mktemp(store.name)
    yield store, store.unpack(folder)
    shutil.rmtree(folder)


def facts(store: RealStore, kind: str) -> list[Fact]:
    return store.facts(kind) if (store.folder / f"{store.name}.facts.jsonl.gz").is_file() else []


def a_message(store: RealStore) -> Fact:
    messages = [one for one in facts(store, "msg") if one["topic"] in ("b1bcq", "b1comp", "b1_Main") and one["uniqKey"]]
    special = [one for one in messages if one["topic"] != "b1_Main"]
    messages = messages or [one for one in facts(store, "msg") if one["uniqKey"]]
    nothing = {"topic": "b1_Main", "queueId": 0, "queueOffset": 0, "uniqKey": "0" * 32, "msgId": "0" * 32}
    return (special or messages or [nothing])[0]


def doors(path: str, message: Fact) -> Iterator[list[str]]:
    topic, queue_id, offset = message["topic"], str(message["queueId"]), str(message["queueOffset"])
    yield ["state", path]
    yield ["recover", path, "--as", "5.3.3"]
    yield ["verify", path, "--quick"]
    yield ["expire", path, "--min-offset", "0"]
    yield ["query-by-id", path, message["msgId"]]
    yield ["query-by-key", path, topic, message["uniqKey"]]
    yield ["query-by-unique-key", path, topic, message["uniqKey"]]
    yield ["query-by-offset", path, topic, queue_id, offset]
    yield ["print-message", path, topic]
    yield ["life", path, message["uniqKey"]]
    yield ["why-not-consumed", path, "b1_grp", topic, queue_id, offset]
    yield ["allocate", path, topic, "--consumers", "2"]
    yield from ([table, path] for table in TABLES)


def test_each_command_answers_or_says_why_not(form: tuple[RealStore, Path], capsys: pytest.CaptureFixture[str]) -> None:
    store, path = form
    message = a_message(store)
    for words in doors(str(path), message):
        status = main(words)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2, 3, 4), (words, err)
        if status in (1, 2):
            assert len(err.strip().splitlines()) == 1, (words, err)
            assert any(one.setting in err for one in FORMS) or "RocksDB" in err, (words, err)
        else:
            assert out or err, words
    if store.name == "fDledger533":  # it has no facts
        return
    assert main(["query-by-id", str(path), message["msgId"]]) == 0
    assert message["uniqKey"] in capsys.readouterr().out
    assert main(["query-by-key", str(path), message["topic"], message["uniqKey"]]) == 0
    assert message["msgId"] in capsys.readouterr().out


def test_answers_by_queue_offset_are_the_brokers_or_are_refused_or_have_a_note(form: tuple[RealStore, Path]) -> None:
    store, path = form
    refused = {"b1bcq"}
    with MessageStore(str(path), broker_conf=str(store.broker_conf)) as opened:
        for read_log in (False, True):
            for fact in facts(store, "queue"):
                queue = fact["topic"], fact["queueId"]
                if fact["topic"] in refused and read_log:
                    with pytest.raises(UnsupportedStoreError, match="batch consume queues"):
                        opened.get_max_offset_in_queue(*queue, read_log=read_log)
                    continue
                ends = (
                    opened.get_min_offset_in_queue(*queue, read_log),
                    opened.get_max_offset_in_queue(*queue, read_log),
                )
                assert ends == (fact["min"], fact["max"]), queue
                if read_log:
                    continue
                for kind, boundary in OFFSETS_BY_TIME:
                    for time, offset in fact[kind] or []:
                        assert opened.get_offset_in_queue_by_time(*queue, time, boundary) == offset, (queue, time)
            for fact in facts(store, "get"):
                if fact["topic"] in refused and read_log:
                    with pytest.raises(UnsupportedStoreError, match="batch consume queues"):
                        opened.get_message(fact["topic"], fact["queueId"], 0, read_log=read_log)
                    continue
                got = opened.get_message_result(
                    fact["topic"], fact["queueId"], fact["offset"], fact["maxNum"], read_log
                )
                found = [*dict.fromkeys(got.messages["commit_log_offset"].to_pylist())][: len(fact["offsets"])]
                assert (got.min_offset, got.max_offset) == (fact["minOffset"], fact["maxOffset"]) or got.notes, fact
                is_same = (got.status, found) == (fact["status"], fact["offsets"])
                assert is_same or any("COMPACTION" in note for note in got.notes), fact


def test_all_messages_of_the_log_are_read(form: tuple[RealStore, Path]) -> None:
    store, path = form
    if store.name == "fDledger533":  # it has no facts: `tests/store/log/test_dledger_log.py`
        return
    rows = {row["commit_log_offset"]: row for row in read_rows(path=str(path), brokerConf=str(store.broker_conf))}
    assert sorted(rows) == sorted(fact["offset"] for fact in facts(store, "msg"))
    for fact in facts(store, "msg"):
        row = rows[fact["offset"]]
        assert {ours: row[ours] for ours in SAME} == {ours: fact[theirs] for ours, theirs in SAME.items()}
    asked = {"topic": "b1comp", "queueId": "0", "startQueueOffset": "1", "endQueueOffset": "2"}
    wanted = [fact for fact in facts(store, "msg") if (fact["topic"], fact["queueId"]) == ("b1comp", 0)]
    found = [row["queue_offset"] for row in read_rows(path=str(path), brokerConf=str(store.broker_conf), **asked)]
    assert found == [fact["queueOffset"] for fact in wanted if fact["queueOffset"] in (1, 2)]


def test_what_makes_queue_files_does_so_as_a_broker_or_refuses(form: tuple[RealStore, Path], tmp_path: Path) -> None:
    store, path = form
    conf = str(store.broker_conf)
    makers: dict[str, Callable[[], RepairReport | RebuildReport | RestoreReport]] = {
        "repair": lambda: repair_here(path, conf, tmp_path / "repaired"),
        "rebuild": lambda: rebuild_here(path, tmp_path / "rebuilt", broker_conf=conf),
        "restore": lambda: restored_plain(path, tmp_path / "restored", store.broker_conf),
    }
    for name, make in makers.items():
        report = make()
        if isinstance(report, RepairReport):
            assert not [code for code in codes_of(report) if not code.startswith("INDEX_")]
            continue
        named = [*report.notes, *(report.trees if isinstance(report, RebuildReport) else ())]
        assert all(any(text.startswith(path) for text in named) for path in NOTED.get(store.name, ())), name
    made = {file: file.read_bytes() for file in sorted((tmp_path / "rebuilt" / "consumequeue").glob("*/*/*"))}
    light = {fact["topic"] for fact in facts(store, "queue") if fact["topic"].startswith("%LMQ%")}
    assert light <= {file.parent.parent.name for file in made}
    for file, content in made.items():
        original = path / "consumequeue" / file.relative_to(tmp_path / "rebuilt" / "consumequeue")
        if original.is_file():
            assert original.read_bytes() == content, file


NOTED = {
    "fCompact533": ("compaction",),
    "fAllRocks550": ("rocksdbstore",),
    "fIdxRocks550": ("rocksdbstore",),
    "fTimerRocks550": ("rocksdbstore",),
}
"""What the reports of a rebuild and of a restore must name, as a note or as a tree that was made."""


def codes_of(report: RepairReport) -> set[str]:
    return {code for action in report.actions for code, _ in action.codes}


@pytest.fixture
def batched(tmp_path: Path) -> Path:
    """A small store in which `OrderEvents` has batch consume queues."""
    store = WORKLOAD.unpack(tmp_path)
    topics = json.loads((store / "config" / "topics.json").read_bytes())
    topics["topicConfigTable"][TOPIC]["attributes"] = {"queue.type": "BatchCQ"}
    (store / "config" / "topics.json").write_text(json.dumps(topics))
    return store


def test_queue_files_of_a_topic_with_batch_queues_answer_nothing_about_it(batched: Path, tmp_path: Path) -> None:
    path = str(batched)
    with MessageStore(path) as store:
        closed: list[Callable[[], object]] = [
            lambda: store.get_message(TOPIC, 0, 0),
            lambda: store.get_min_offset_in_queue(TOPIC, 0, read_log=True),
            lambda: store.get_offset_in_queue_by_time(TOPIC, 0, 0),
            lambda: why_not_consumed(store, "group", TOPIC, 0, 0),
            lambda: restore_here(path, tmp_path / "restored", WORKLOAD.broker_conf),
        ]
        for door in closed:
            with pytest.raises(UnsupportedStoreError, match=f"batch consume queues of topic {TOPIC}"):
                door()
        others = [fact for fact in WORKLOAD.facts("queue") if fact["topic"] != TOPIC and fact["max"] > 0]
        for fact in others:
            assert store.get_max_offset_in_queue(fact["topic"], fact["queueId"]) == fact["max"]
        (fact, *_) = [fact for fact in WORKLOAD.facts("msg") if fact["topic"] == TOPIC]
        assert store.look_message_by_id(fact["msgId"]).num_rows == 1
    (*_, obstacle) = next_recovery(path, "5.3.3").obstacles
    assert f"consumequeue/{TOPIC}/3 is a consume queue, but config/topics.json says queue.type=BatchCQ" in obstacle
    assert main(["state", path]) == FAILED


def test_answers_beside_compacted_copies_have_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = WORKLOAD.unpack(tmp_path)
    for place in ("compaction/compactionLog", "compaction/compactionCq"):
        (path / place / TOPIC / "0").mkdir(parents=True)
        (path / place / TOPIC / "0" / ("0" * 20)).write_bytes(bytes(100))
    with MessageStore(str(path)) as store:
        with pytest.warns(UserWarning, match=f"compacted copies of topic {TOPIC}"):
            assert store.get_message(TOPIC, 0, 0).num_rows
        assert store.get_message_result(TOPIC, 0, 0).notes
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            other = next(fact["topic"] for fact in WORKLOAD.facts("queue") if fact["topic"] != TOPIC)
            store.get_message(other, 0, 0)
    assert main(["query-by-offset", str(path), TOPIC, "0", "0"]) == 0
    assert "compacted copies" in capsys.readouterr().err


def test_the_files_of_double_written_queues_are_read(tmp_path: Path) -> None:
    path = WORKLOAD.unpack(tmp_path)
    write_database(path / "consumequeue", {"default": {}})
    with MessageStore(str(path)) as store:
        ends = {queue: store.get_max_offset_in_queue(*queue) for queue in store.queues}
    assert ends == {(fact["topic"], fact["queueId"]): fact["max"] for fact in WORKLOAD.facts("queue")}
    assert main(["verify", str(path), "--quick"]) == 0
    assert not codes_of(repair_here(path, str(WORKLOAD.broker_conf)))


def test_each_form_is_refused_or_noted_somewhere() -> None:
    assert all(form.refused or form.noted for form in FORMS)
    assert all(not set(form.refused) & set(form.noted) for form in FORMS)
    assert {door for form in FORMS for door in (*form.refused, *form.noted)} == set(Door)
