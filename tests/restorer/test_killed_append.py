"""An append to a real store that is killed, and run again: the same bytes as one that was not killed. No Spark here."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from spark_mq.errors import StoreLockedError
from tests.support.appended import append_here, segments_of
from tests.support.paused_process import paused
from tests.support.rebuilt import rebuild_here
from tests.support.store_history import cut_log, record_ends, settings_of
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

CRC = RealStore("crc-533", OWN_STORES)
LOG_END = record_ends(CRC)[-1]
MOMENTS = {
    "a queue file is made": ("spark_mq.io.publish:publish:3:/.spark_mq/append/consumequeue/", False),
    "files are put in place": ("os:replace:5:/store/consumequeue/", True),
}
"""By what happens: a call before which the process is killed, and whether the append is decided then."""


def files_of(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(store).items() if not name.startswith((".spark_mq", "lock"))}


@pytest.fixture(scope="module")
def begun(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store as it was after 200 messages."""
    store = cut_log(unpacked(CRC), tmp_path_factory.mktemp("begun") / "store", record_ends(CRC)[200])
    for file in (store / "config").glob("consumerOffset.json*"):
        file.unlink()
    rebuild_here(store, **settings_of(CRC))
    return store


@pytest.fixture(scope="module")
def not_killed(begun: Path, unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the store after an append that nobody killed."""
    store = Path(shutil.copytree(begun, tmp_path_factory.mktemp("whole") / "store"))
    append_here(store, segments_of(unpacked(CRC)), LOG_END, CRC.broker_conf, b"{}")
    return files_of(store)


@pytest.mark.parametrize(("call", "is_decided"), MOMENTS.values(), ids=list(MOMENTS))
def test_killed_and_run_again(
    call: str, is_decided: bool, begun: Path, not_killed: dict[str, bytes], unpacked: Unpack, tmp_path: Path
) -> None:
    store, segments = Path(shutil.copytree(begun, tmp_path / "store")), segments_of(unpacked(CRC))
    before = files_of(store)
    arguments = [str(store), str(unpacked(CRC)), str(LOG_END), str(CRC.broker_conf)]
    with paused([sys.executable, "-m", "tests.support.appended", *arguments], call, tmp_path) as process:
        with pytest.raises(StoreLockedError):
            append_here(store, segments, LOG_END, CRC.broker_conf, b"{}")
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    left = files_of(store)
    if is_decided:
        assert left.pop("commitlog/append-unfinished")
        assert all(data in (before.get(name), not_killed.get(name)) for name, data in left.items())
        assert left not in (before, not_killed)
    else:
        assert left == before
    again = append_here(store, segments, LOG_END, CRC.broker_conf, b"{}")
    assert (again is None) == is_decided
    assert files_of(store) == not_killed
    assert not (store / ".spark_mq").exists()
