"""Trees that are rebuilt on HDFS are byte for byte those on the local disk, also if jobs are killed. No Spark here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import MissingPackageError, OutputExistsError, StorageError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from tests.hdfs.cluster import HdfsCluster
from tests.support.both_places import Place, Trees, rebuilt_trees
from tests.support.rebuilt import rebuild_here, rebuild_process
from tests.support.stores import OWN_STORES, RealStore

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.hdfs

KILLED = RealStore("killed-49x", OWN_STORES)
FILTERED = RealStore("filtered-533", OWN_STORES)
_BACKUP = "backup-"
_numbers = count()


@pytest.fixture(scope="module")
def expected(on_hdfs: Place, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """The files of a rebuild on the local disk."""
    return rebuilt_trees(on_hdfs, tmp_path_factory)


@pytest.fixture
def path() -> str:
    """A path that does not exist."""
    return f"/rebuilt/{next(_numbers)}"


def rebuild(on_hdfs: Place, store: RealStore, output: str, **options: Any) -> Any:
    return rebuild_here(on_hdfs(store)[1], output, broker_conf=str(store.broker_conf), **options)


def test_trees_are_those_of_the_local_disk(on_hdfs: Place, expected: Trees, hdfs: HdfsCluster, path: str) -> None:
    report = rebuild(on_hdfs, FILTERED, f"{hdfs.address}{path}/b c")
    assert hdfs.files(f"{path}/b c") == expected(FILTERED)
    assert report.output == f"{hdfs.address}{path}/b c"


def test_nothing_has_its_final_name_before_the_end(
    on_hdfs: Place, expected: Trees, hdfs: HdfsCluster, path: str
) -> None:
    """A job that is killed at its end is continued, whatever is missing or strange in its folder."""
    output = f"{hdfs.address}{path}"
    with mock.patch.object(OutputCommitter, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        rebuild(on_hdfs, KILLED, output)
    assert all(name.startswith(f"{WORK_FOLDER}/") for name in hdfs.files(path))
    queue_files = [name for name in hdfs.files(path) if name.startswith(f"{WORK_FOLDER}/consumequeue/")]
    hdfs.client.delete(f"{path}/{queue_files[0]}")
    hdfs.client.create(f"{path}/{WORK_FOLDER}/consumequeue/Old/0/00000000000000000000").close()
    report = rebuild(on_hdfs, KILLED, output, resume=True)
    assert report.segments_staged_before > 0
    assert hdfs.files(path) == expected(KILLED)


def test_a_process_that_is_killed_while_it_writes_is_continued(
    on_hdfs: Place, expected: Trees, hdfs: HdfsCluster, path: str
) -> None:
    store, output, conf = on_hdfs(KILLED)[1], f"{hdfs.address}{path}", str(KILLED.broker_conf)
    process = subprocess.Popen(rebuild_process(store, output, broker_conf=conf))
    growing = Location.resolve(output) / WORK_FOLDER / "consumequeue"
    while process.poll() is None and not growing.is_directory:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (Location.resolve(output) / "consumequeue").is_directory
    rebuild(on_hdfs, KILLED, output, resume=True)
    assert hdfs.files(path) == expected(KILLED)


def test_a_tree_is_replaced_and_kept_as_a_backup_and_continued(
    on_hdfs: Place, expected: Trees, hdfs: HdfsCluster, path: str
) -> None:
    output = f"{hdfs.address}{path}"
    with hdfs.client.create(f"{path}/index/20260101000000000") as file:
        file.write(b"old")
    with pytest.raises(OutputExistsError, match="index exists: give another --output, or --replace"):
        rebuild(on_hdfs, KILLED, output)
    report = rebuild(on_hdfs, KILLED, output, replace=True)
    files = hdfs.files(path)
    kept = {name: data for name, data in files.items() if name.startswith(_BACKUP)}
    assert {name: data for name, data in files.items() if name not in kept} == expected(KILLED)
    assert list(kept.values()) == [b"old"]
    assert f"{output}/{next(iter(kept)).split('/')[0]}" in report.to_text()
    lost = next(name for name in files if name.startswith("consumequeue/"))
    hdfs.client.delete(f"{path}/{lost}")
    rebuild(on_hdfs, KILLED, output, resume=True)
    assert hdfs.files(path) == files


def test_an_error_while_a_file_is_written_leaves_the_old_file(hdfs: HdfsCluster, path: str) -> None:
    file = Location.resolve(f"{hdfs.address}{path}/file")
    publish(file, b"old", 3)
    with mock.patch("spark_mq.io.publish.rename", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        publish(file, b"new", 3)
    assert hdfs.files(path) == {"file": b"old"}
    publish(file, b"new", 3)
    assert hdfs.files(path) == {"file": b"new"}


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch, hdfs: HdfsCluster, on_hdfs: Place) -> str:
    """An address at which this process is another user: its connection is not that of the other tests.

    The user has no right to read the folder `/secret`, and to write to the root.
    """
    assert Location.resolve(on_hdfs(KILLED)[1]).is_directory
    hdfs.client.mkdirs("/secret/commitlog", 0o755, True)
    hdfs.client.set_permission("/secret", 0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    return hdfs.address.replace("127.0.0.1", "localhost")


def test_a_user_without_rights_is_told_so(
    stranger: str, on_hdfs: Place, hdfs: HdfsCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    store = on_hdfs(KILLED)[1]
    with pytest.raises(StorageError, match=r"no-rights/\.spark_mq cannot be created: Permission denied: user=stranger"):
        rebuild_here(store, f"{stranger}/no-rights")
    assert main(["topics", f"{stranger}/secret"]) == 1
    said = capsys.readouterr().err
    assert "denies the access: Permission denied: user=stranger" in said
    assert "HADOOP_USER_NAME" in said
    assert len(said.splitlines()) == 1, said


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("hdfs://127.0.0.1:1/store", "Connection refused"),
        ("hdfs://no-such-namenode.invalid:8020/store", "no-such-namenode.invalid"),
        ("hdfs://me@127.0.0.1:1/store", "HADOOP_USER_NAME"),
        ("hdfs://127.0.0.1:1/store?replication=1", "HADOOP_CONF_DIR"),
        ("hdfs://127.0.0.1:port/store", "127.0.0.1:port"),
        ("hdfs:///store", "fs.defaultFS"),
        ("{hdfs}/no-such-store", "no-such-store does not exist"),
        ("{hdfs}/stores/tests-killed-49x/commitlog", "is itself a folder of segments"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    address: str,
    reason: str,
    on_hdfs: Place,
    hdfs: HdfsCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_mq.io.storage._WAITS", (0.0,))
    on_hdfs(KILLED)
    assert main(["topics", address.format(hdfs=hdfs.address)]) in (1, 2)
    said = capsys.readouterr().err
    assert reason in said
    assert len(said.splitlines()) == 1, said


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(MissingPackageError, match="pip install hdfs-native"):
        Location.resolve("hdfs://127.0.0.1:1/store")


def test_what_changes_a_store_is_for_the_local_disk(
    on_hdfs: Place, hdfs: HdfsCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, remote = on_hdfs(KILLED)
    before = hdfs.files(remote.removeprefix(hdfs.address))
    assert main(["expire", remote, "--reserved-hours", "1"]) != 0
    assert "local" in capsys.readouterr().err
    assert hdfs.files(remote.removeprefix(hdfs.address)) == before
