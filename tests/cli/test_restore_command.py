"""`spark-mq restore`: wrong arguments, found before Spark starts; and one restore as a user runs it."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.cli.exit_status import FAILED, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from spark_mq.io.location import Location
from spark_mq.job.tasks import ENGINES
from spark_mq.store.store_lock import store_lock
from tests.support.said import Run
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

CRC = RealStore("crc-533", OWN_STORES)


@pytest.fixture
def places(unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Folders that wrong arguments name; Spark must not start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", mock.Mock(side_effect=AssertionError("Spark starts")))
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for folder in ("full", "foreign.restoring"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").touch()
    (tmp_path / "link").symlink_to("empty")
    store = Path(shutil.copytree(unpacked(CRC), tmp_path / "store"))
    crashed = tmp_path / "crashed"
    (crashed / "commitlog").mkdir(parents=True)
    shutil.copy(store / "commitlog" / f"{0:020d}", crashed / "commitlog")
    (crashed / "abort").touch()
    rocksdb = tmp_path / "rocksdb"
    (rocksdb / "consumequeue").mkdir(parents=True)
    shutil.copytree(crashed / "commitlog", rocksdb / "commitlog")
    for name in ("CURRENT", "MANIFEST-000001"):
        (rocksdb / "consumequeue" / name).touch()
    return {"store": str(store), "tmp": str(tmp_path)}


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [
        (NOT_UNDERSTOOD, "nothing new", "nothing does not exist: give a store directory, or the TABLE"),
        (NOT_UNDERSTOOD, "./nothing new", "./nothing does not exist"),
        (NOT_UNDERSTOOD, "./full new", "./full is neither a store (it has no folder commitlog) nor a Delta table"),
        (FAILED, "{store} {store}", "is not empty: give a new folder, or --append"),
        (FAILED, "{store} full", "is not a message store"),
        (FAILED, "{store} hdfs://no-such-node/store", "its filesystem cannot be reached"),
        (NOT_UNDERSTOOD, "{store} s3://no-such-bucket/store --append", "nothing can be appended on S3"),
        (FAILED, "{store} file", "is a file"),
        (FAILED, "{store} link", "is a symbolic link"),
        (FAILED, "{store} file/new", "file is not a folder"),
        (FAILED, "{store} foreign", "foreign.restoring has files that no restore made, such as notes.txt"),
        (NOT_UNDERSTOOD, "{store} {store}/new", "is in the folder of SOURCE"),
        (NOT_UNDERSTOOD, "{store} {store} --append", "SOURCE and STORE are the same folder"),
        (FAILED, "{store} nothing --append", "nothing does not exist"),
        (FAILED, "{store} file --append", "is a file"),
        (FAILED, "{store} empty --append", "has no commitlog folder"),
        (FAILED, "{store} crashed --append", "crashed/abort says that its broker runs or crashed"),
        (FAILED, "{store} rocksdb --append", "is a RocksDB database"),
        (NOT_UNDERSTOOD, "{store} new --topic-map a=b", "add --renumber"),
        (NOT_UNDERSTOOD, "{store} new --renumber --topic-map a=../x", "--topic-map a=../x: the new name has other"),
        (NOT_UNDERSTOOD, "{store} new --renumber --topic-map a=b --topic-map a=c", "topic a has two new names"),
        (
            NOT_UNDERSTOOD,
            "{store} new --store-host localhost:10911",
            "--store-host: 'localhost:10911' is not an address",
        ),
        (NOT_UNDERSTOOD, "{store} new --store-host ::1:10911", "[2001:db8::1]:10911"),
        (NOT_UNDERSTOOD, "{store} new --store-host 10.0.0.1:65536", "port that is not from 0 to 65535"),
        (NOT_UNDERSTOOD, "{store} new --where (topic", "--where '(topic' is not a condition: a ( is not closed"),
        (NOT_UNDERSTOOD, "{store} new --where true)OR(true", "is not a condition: a ) closes nothing"),
        (NOT_UNDERSTOOD, "{store} new --cluster prod", "--cluster has no effect"),
        (NOT_UNDERSTOOD, "{store} new --offset-map map", "--offset-map has no effect"),
        (NOT_UNDERSTOOD, "{store} new --renumber --offset-map new/map", "is in the folder {tmp}/new"),
        (NOT_UNDERSTOOD, "{store} new --renumber --offset-map {store}/map", "is in the folder of SOURCE"),
        (FAILED, "{store} new --renumber --offset-map full", "needs a new folder (--offset-map)"),
        (NOT_UNDERSTOOD, "{store} new --broker-conf no.conf", "--broker-conf"),
        (NOT_UNDERSTOOD, "{store} new --broker-version 3", "broker version '3' is neither 4.9 nor 5"),
        (NOT_UNDERSTOOD, "{store} new --time-zone Nowhere/Land", "--time-zone 'Nowhere/Land'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_one_line_before_spark_starts(
    status: int, words: str, message: str, places: dict[str, str], run: Run
) -> None:
    before = tree_of(Path(places["tmp"]))
    out, errors = run("restore", *words.format(**places).split(), status=status)
    (line,) = errors.splitlines()
    assert line.startswith("spark-mq: ")
    assert message.format(**places) in line
    assert out == ""
    assert tree_of(Path(places["tmp"])) == before


def test_nothing_is_appended_to_a_store_that_is_locked(places: dict[str, str], tmp_path: Path, run: Run) -> None:
    target = Path(shutil.copytree(places["store"], tmp_path / "target"))
    with store_lock(Location.resolve(str(target)), or_else=None):
        said = run("restore", places["store"], target, "--append", status=FAILED)
    assert "a broker runs on this store" in said.err


def test_the_help_explains_each_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["restore", "--help"])
    text = capsys.readouterr().out
    assert "exit status: 0 done" in text
    assert "STORE.restoring" in text


@pytest.mark.parametrize("engine", ENGINES)
def test_the_command_restores_and_reports(
    engine: str,
    request: pytest.FixtureRequest,
    unpacked: Unpack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    if engine == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: nullcontext(spark))
    source, store = unpacked(CRC), tmp_path / "new"
    command = ["restore", str(source), str(store), "--quiet", "--broker-conf", str(CRC.broker_conf)]
    if engine == "spark":
        assert "--where \"topik = 'a'\": " in run(*command, "--where", "topik = 'a'", status=NOT_UNDERSTOOD).err
    else:
        said = run(*command, "--where", "topic = 'a'", "--engine", "local", status=NOT_UNDERSTOOD)
        assert "--where needs Spark" in said.err
    report = run(*command, "--json", "--engine", engine).report
    found = report["engine"], report["mode"], report["messages"]
    assert found == (engine, "faithful", len(CRC.facts("msg")))
    assert report["segments"] == len(list((source / "commitlog").iterdir()))
    for tree in ("commitlog", "consumequeue", "index"):
        assert tree_of(store / tree) == tree_of(source / tree)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_damage_of_the_source_names_the_way_that_leaves_it_out(places: dict[str, str], run: Run) -> None:
    log = Path(places["store"], "commitlog", f"{0:020d}")
    with log.open("r+b") as file:
        file.seek(4)  # the magic number of the first record
        file.write(bytes(4))
    error = run("restore", places["store"], "new", status=FAILED).err
    assert "commit log offset" in error
    assert "PERMISSIVE" not in error
    assert "`spark-mq restore TABLE NEW --where '_corrupt_record IS NULL'`" in error
    assert not Path("new").exists()
