"""Lite topics of a 5.5.0 broker, whose queues are in RocksDB beside the files of others: judged by what it said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq.cli.exit_status import FAILED
from spark_mq.cli.main import main
from spark_mq.errors import UnsupportedStoreError
from spark_mq.indexer import queue_runs
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.why_not_consumed import NotConsumed, why_not_consumed
from spark_mq.repairer.changes import undo_repair
from spark_mq.store.message_store import MessageStore
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.rocksdb import key_of, opened, records
from tests.support.store_history import cut_log, record_ends
from tests.support.stores import OWN_STORES, RealStore, Unpack, files_of
from tests.support.verified import check, grave

STORE = RealStore("fLite550", OWN_STORES / "forms")
ENDS = {fact["topic"]: fact["max"] for fact in STORE.facts("lite")}
AGAIN, GONE, SEVERAL = "%LMQ%$Short$again", "%LMQ%$Short$gone", "%LMQ%$Sensors$d"


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


def ends(path: Path) -> dict[str, int]:
    with MessageStore(str(path)) as store:
        return {topic: store.get_max_offset_in_queue(topic, 0) for topic, _ in store.queues if "%LMQ%" in topic}


def test_ends_and_messages_of_lite_topics_are_the_brokers(store: Path) -> None:
    assert ends(store) == {topic: end for topic, end in ENDS.items() if end}
    with MessageStore(str(store)) as opened:
        assert opened.queue_ids(AGAIN) == [0]
        newer = [fact for fact in STORE.facts("msg") if fact["topic"] == "Short"][-3:]
        found = opened.get_message_result(AGAIN, 0, 0).messages["commit_log_offset"]
        assert found.to_pylist() == [fact["offset"] for fact in newer]


def test_the_lag_of_a_group_is_the_brokers(store: Path) -> None:
    with MessageStore(str(store)) as opened:
        for fact in STORE.facts("liteLag"):
            (row,) = consumer_progress_rows(opened, topic=fact["topic"]).to_pylist()
            assert (row["consumer_group"], row["lag"]) == (fact["group"], fact["lag"])


def test_the_life_of_a_message_names_the_groups_of_its_lite_topic(store: Path) -> None:
    offsets = {fact["topic"]: fact["offset"] for fact in STORE.facts("liteLag")}
    with MessageStore(str(store)) as opened:
        for fact in STORE.facts("msg")[::7]:
            topic, offset = fact["properties"]["INNER_MULTI_DISPATCH"], fact["properties"]["INNER_MULTI_QUEUE_OFFSET"]
            (found,) = life(opened, fact["msgId"]).lives
            states = [(one.topic, one.queue_offset, one.state == "PAST") for one in found.consumers]
            assert states == [(topic, int(offset), int(offset) < offsets.get(topic, 0))] * (topic in offsets)
        first = next(fact for fact in STORE.facts("msg") if fact["properties"]["__LITE_TOPIC"] == "a")
        why = why_not_consumed(opened, "readers", "Sensors", first["queueId"], first["queueOffset"])
    assert why.reason is NotConsumed.NO_OFFSET
    assert why.evidence == ("it is at offset 0 of %LMQ%$Sensors$a/0, too: the group has offset 9 there",)


@pytest.mark.parametrize("conf", [STORE.broker_conf, None])
def test_expired_lite_topics_are_no_damage(store: Path, conf: Path | None) -> None:
    report, findings = check(store, conf)
    assert grave(findings) == []
    assert {(one.code, one.topic) for one in findings} == {("QUEUE_DELETED", AGAIN), ("QUEUE_DELETED", GONE)}
    assert report.units == len(STORE.facts("msg")) + sum(ENDS.values()) + 1  # the message of the expired topic


def test_a_lite_queue_that_is_not_that_of_the_log_is_found(store: Path) -> None:
    for segment in (store / "commitlog").iterdir():
        segment.write_bytes(segment.read_bytes().replace(SEVERAL.encode(), SEVERAL[:-1].encode() + b"e"))
    found = grave(check(store, STORE.broker_conf)[1])
    assert {(one.code, one.topic) for one in found} == {("QUEUE_UNIT_EXTRA", SEVERAL)}
    assert len(found) == ENDS[SEVERAL]


@pytest.mark.parametrize("most_runs", [100_000, 0])
def test_a_lite_topic_that_was_used_again_has_its_newer_messages(
    store: Path, most_runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AbstractLiteLifecycleManager.deleteLmq`@5.5.0: its queue begins with offset 0 again."""
    monkeypatch.setattr(queue_runs, "_MAX_RUNS_IN_DRIVER", most_runs)
    settings = [line for line in STORE.broker_conf.read_text().splitlines() if "rocksdb" not in line.lower()]
    (tmp_path / "broker.conf").write_text("\n".join(settings))
    restore_here(store, tmp_path / "files", tmp_path / "broker.conf")
    assert ends(tmp_path / "files") == {**ENDS, GONE: 1}
    assert grave(check(tmp_path / "files", None)[1]) == []
    rebuild_here(tmp_path / "files", tmp_path / "again", only="consumequeue", split_size=5_000)
    made = sorted(path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("0*") if path.is_file())
    assert len(made) == 4 + len(ENDS)
    for path in made:
        assert (tmp_path / "again" / path).read_bytes() == (tmp_path / "files" / path).read_bytes(), path


def test_a_rebuild_makes_the_database_and_the_files_of_the_broker(store: Path, tmp_path: Path) -> None:
    """The messages of an expired lite topic are in its queue again; entries `min` are those a broker was asked for."""
    rebuilt, gone = tmp_path / "out/consumequeue", GONE.encode()
    report = rebuild_here(store, tmp_path / "out", broker_conf=str(STORE.broker_conf), only="consumequeue")
    assert (report.lost_queues, report.notes) == ([], [])
    for family in ("default", "offset"):
        made, wanted = (
            {
                key: value
                for key, value in records(folder, family).items()
                if gone not in key and (family == "default" or b"\1min\1" not in key)
            }
            for folder in (rebuilt, store / "consumequeue")
        )
        assert made == wanted
    assert report.units == len(records(rebuilt, "default")) == len(records(store / "consumequeue", "default")) + 1
    files = [path.relative_to(rebuilt) for path in rebuilt.rglob("0000000000*")]
    assert {str(path.parent) for path in files} == {"Sensors/0", "Sensors/1", "Short/0", "Short/1"}
    for path in files:
        assert (rebuilt / path).read_bytes() == (store / "consumequeue" / path).read_bytes()
    shutil.rmtree(store / "consumequeue")
    shutil.move(rebuilt, store / "consumequeue")
    assert grave(check(store, STORE.broker_conf)[1]) == []


@pytest.mark.parametrize("options", [{"queue_store": "files"}, {"topic": "Sensors"}, {"resume": True}], ids=str)
def test_a_rebuild_of_files_alone_says_that_lite_topics_are_in_a_database(
    options: dict[str, Any], store: Path, tmp_path: Path
) -> None:
    out, conf = tmp_path / "out", str(STORE.broker_conf)
    rebuild_here(store, out, broker_conf=conf, only="consumequeue", queue_store="files")
    report = rebuild_here(store, out, broker_conf=conf, replace="resume" not in options, **options)
    assert any("combineCQUseRocksdbForLmq" in note for note in report.notes)
    assert report.lost_queues == []
    assert not list((out / "consumequeue").glob("%LMQ%*"))
    assert not (out / "consumequeue/CURRENT").exists()


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_database_is_where_the_broker_looks_for_it(is_apart: bool, store: Path, tmp_path: Path) -> None:
    """`useSeparateStorePathForRocksdbCQ` (`RocksDBConsumeQueueStore`@5.5.0); files that a killed job left are gone."""
    conf, out = tmp_path / "broker.conf", tmp_path / "out"
    conf.write_text(f"{STORE.broker_conf.read_text()}useSeparateStorePathForRocksdbCQ={str(is_apart).lower()}\n")
    (out / ".spark_mq/consumequeue").mkdir(parents=True)
    (out / ".spark_mq/consumequeue/000099.sst").touch()
    rebuild_here(store, out, broker_conf=str(conf), only="consumequeue", resume=True)
    folders = [path.parent.name for path in out.rglob("CURRENT")]
    assert folders == ["consumequeue_rocksdb" if is_apart else "consumequeue"]
    assert not list(out.rglob("000099.sst"))
    assert (out / "consumequeue/Sensors/0").is_dir()


def test_a_lost_database_is_found_and_no_boot_of_it_is_predicted(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker of 5.5.0 makes the units again of messages that its start dispatches: all but the one at offset 0."""
    for path in (store / "consumequeue").iterdir():
        if path.is_file():
            path.unlink()
    (found,) = grave(check(store, STORE.broker_conf)[1])
    assert (found.code, found.file, found.found) == ("QUEUE_DATABASE", "consumequeue", "no database")
    assert grave(check(store, None)[1]) == []  # without the settings, the lite topics can have expired
    words = ["recover", str(store), "--as", "5.5.0", "--broker-conf", str(STORE.broker_conf)]
    assert main(words) == FAILED
    said = capsys.readouterr().err
    assert "has no RocksDB database, in which its broker has light" in said
    assert f"spark-mq repair {store} --apply --broker-conf" in said
    main(["state", *words[1:2], *words[4:]])
    assert "loses nothing" not in capsys.readouterr().out


def test_messages_are_appended_without_the_database_which_a_repair_makes(store: Path, tmp_path: Path) -> None:
    """A broker that starts puts no unit of the first message after those of the database: so an append is refused."""
    end = record_ends(STORE)[59]
    head, wanted = cut_log(store, tmp_path / "head", end), records(store / "consumequeue", "default")
    rebuild_here(head, broker_conf=str(STORE.broker_conf))

    def append() -> int:
        return restore_here(store, head, STORE.broker_conf, records_from(end), append=True).messages

    with pytest.raises(UnsupportedStoreError, match="move its files"):
        append()
    lose_database(head / "consumequeue")
    assert append() == len(STORE.facts("msg")) - 60
    repair_here(head, STORE.broker_conf, apply=True)
    made = records(head / "consumequeue", "default")
    assert {key: value for key, value in made.items() if GONE.encode() not in key} == wanted
    assert grave(check(head, STORE.broker_conf)[1]) == []


def records_from(start: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.filter(pc.greater_equal(batch["commit_log_offset"], start))


def lose_database(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()


def lose_unit(folder: Path) -> None:
    with opened(folder) as database:
        del database[key_of(SEVERAL, 0, 1)]


@pytest.mark.parametrize(
    ("damage", "does_not_open"),
    [
        (lose_unit, False),
        (lose_database, False),
        (lambda folder: (folder / "CURRENT").write_text("-"), True),
        (lambda folder: (folder / "CURRENT").unlink(), False),
    ],
    ids=["unit", "database", "no name of the list", "lost name of the list"],
)
def test_a_repair_makes_the_database_of_lite_topics(
    damage: Callable[[Path], object], does_not_open: bool, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The units are those of the broker; queue files keep their bytes."""
    folder, wanted = store / "consumequeue", records(store / "consumequeue", "default")
    files = {path: path.read_bytes() for path in folder.rglob("0000000000*")}
    damage(folder)
    damaged = files_of(store)
    main(["state", str(store)])
    assert ("A broker may not start" in capsys.readouterr().out) == does_not_open
    words = ["repair", str(store), "--broker-conf", str(STORE.broker_conf)]
    assert main(words) == 0
    assert "a plan for 1 file" in capsys.readouterr().out
    assert main([*words, "--apply"]) == 0
    made = records(folder, "default")
    assert {key: value for key, value in made.items() if GONE.encode() not in key} == wanted
    assert len(made) == len(wanted) + 1  # the message of the expired topic
    assert {path: path.read_bytes() for path in folder.rglob("0000000000*")} == files
    assert grave(check(store, STORE.broker_conf)[1]) == []
    undo_repair(str(store))
    assert files_of(store) == damaged


def test_a_repair_makes_the_database_where_the_broker_looks_for_it(store: Path, tmp_path: Path) -> None:
    """With `useSeparateStorePathForRocksdbCQ`, the database has a folder of its own."""
    conf, folder = tmp_path / "broker.conf", store / "consumequeue_rocksdb"
    conf.write_text(f"{STORE.broker_conf.read_text()}useSeparateStorePathForRocksdbCQ=true\n")
    folder.mkdir()
    for path in [path for path in (store / "consumequeue").iterdir() if path.is_file()]:
        path.rename(folder / path.name)
    wanted = records(folder, "default")
    lose_unit(folder)
    repair_here(store, str(conf), apply=True)
    assert wanted.items() <= records(folder, "default").items()
    assert not (store / "consumequeue/CURRENT").exists()
    assert grave(check(store, conf)[1]) == []
