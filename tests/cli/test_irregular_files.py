"""Named pipes, devices, sockets, folders and broken links in the place of files: no door waits, fails, or is silent."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.format.broker_version import BrokerVersion
from spark_mq.io.location import Location
from spark_mq.store.boot_obstacles import BootObstacles
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.queue.folders import queue_folders
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS, cases
from tests.support.stores import WORKLOAD
from tests.support.verified import check

SECONDS = 20


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/file")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


KINDS = (a_pipe, a_device, a_socket, a_folder, a_link_to_nothing, a_link_to_itself)
FILES = ("first segment", "last segment", "queue file", "index file", "checkpoint", "lock", "abort", "config")
USUAL = [
    (file, kind)
    for number, file in enumerate(FILES)
    for kind in (KINDS if file == "config" else KINDS[number % 2 :: 2])
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WORKLOAD.unpack(tmp_path_factory.mktemp("irregular"))


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """An error in a door that waits for ever."""

    def stop(*_: object) -> None:
        raise AssertionError(f"a door took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def places(store: Path, file: str, kind: int) -> list[Path]:
    """Those of a file; of the config files, in a usual run, one in six for each kind."""
    segments, queue_files = sorted((store / "commitlog").iterdir()), sorted((store / "consumequeue").rglob("0" * 20))
    if file == "config":
        files = [path for path in sorted((store / "config").iterdir()) if path.suffix != ".bak"]
        return files if SOAKS else files[kind :: len(KINDS)]
    found = {
        "first segment": segments[0],
        "last segment": segments[-1],
        "queue file": queue_files[0],
        "index file": sorted((store / "index").iterdir())[0],
    }
    return [found.get(file, store / file)]


def doors(path: str) -> Iterator[list[str]]:
    conf = ["--broker-conf", str(WORKLOAD.broker_conf)]
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["topic"] == "OrderEvents")
    topic, key = fact["topic"], fact["uniqKey"]
    yield ["state", path, *conf]
    yield ["recover", path, "--as", "5.3.3", *conf]
    yield ["verify", path, "--quick", *conf]
    yield ["retention", path, *conf]
    yield ["expire", path, "--min-offset", "1"]
    yield ["query-by-id", path, fact["msgId"]]
    yield ["query-by-key", path, topic, key]
    yield ["query-by-offset", path, topic, str(fact["queueId"]), str(fact["queueOffset"])]
    yield ["print-message", path, topic]
    yield ["life", path, key]
    for table in ("segments", "queues", "topics", "lag", "consumer-filters", "delay-offsets", "checkpoint", "delayed"):
        yield [table, path]


@pytest.mark.parametrize(
    ("file", "kind"),
    cases(USUAL, list(product(FILES, KINDS))),
    ids=lambda one: one if isinstance(one, str) else str(one.__name__),
)
def test_no_door_waits_or_fails_and_two_of_them_name_the_place(
    packed: Path, tmp_path: Path, file: str, kind: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, original in enumerate(places(packed, file, KINDS.index(kind))):
        store = tmp_path / str(number)
        shutil.copytree(packed, store)
        place = store / original.relative_to(packed)
        place.unlink(missing_ok=True)
        kind(place)
        for words in doors(str(store)):
            signal.alarm(SECONDS)
            status = main(words)
            out, err = capsys.readouterr()
            assert status in (0, 1, 2, 3, 4), words
            assert (out + err).strip(), words
            skipped = kind is a_folder and words[0] == "recover"  # 5.3.3 skips a folder among mapped files
            if words[0] in ("state", "recover", "verify") and not skipped:
                assert place.name in out + err, words
        shutil.rmtree(store)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_checks_and_repairs_name_the_place(packed: Path, tmp_path: Path, kind: Callable[[Path], None]) -> None:
    store = tmp_path / "store"
    shutil.copytree(packed, store)
    place = store / "config" / "consumerFilter.json"
    place.unlink()
    kind(place)
    signal.alarm(60)
    _, findings = check(store, WORKLOAD.broker_conf)
    assert [finding.file for finding in findings if finding.code == "NOT_A_FILE"] == ["config/consumerFilter.json"]
    assert "NOT_A_FILE" in {one.code for one in repair_here(store, WORKLOAD.broker_conf).left}


@pytest.mark.parametrize(
    ("name", "is_folder", "starts"), [("notes.txt", False, ()), ("backup", True, ("5.1.0", "5.3.3"))]
)
def test_what_is_beside_no_queue_files_keeps_brokers_from_starting(
    packed: Path, tmp_path: Path, name: str, is_folder: bool, starts: tuple[str, ...]
) -> None:
    """`MappedFileQueue.doLoad` is called for each queue folder; from 5.1.0 on it skips folders."""
    store = tmp_path / "store"
    shutil.copytree(packed, store)
    place = store / "consumequeue" / "Lonely" / "0" / name
    place.parent.mkdir(parents=True)
    if is_folder:
        place.mkdir()
    else:
        place.write_text("text")
    path, conf = f"consumequeue/Lonely/0/{name}", BrokerConf.of(str(WORKLOAD.broker_conf))
    location = Location.resolve(str(store))
    folders, obstacles = list(queue_folders(location / "consumequeue")), BootObstacles(location, conf)
    for version in ("4.9.7", "5.0.0", "5.1.0", "5.3.3"):
        found = obstacles.of(folders, BrokerVersion.parse(version))
        assert [one.split(" ")[0] for one in found] == ([] if version in starts else [path]), version
    code = "FOLDER_SUBFOLDER" if is_folder else "FOLDER_STRAY_FILE"
    assert path in [finding.file for finding in check(store, WORKLOAD.broker_conf)[1] if finding.code == code]
