"""The lock of a store directory, against processes that take it as a broker does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from spark_mq.errors import StorageError, StoreLockedError
from spark_mq.io.location import Location
from spark_mq.store.store_lock import is_locked, store_lock

HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused")
    sys.exit()
print("held", flush=True)
sys.stdin.read(1)
"""
LANGUAGES = {
    "python": [sys.executable, "-c", HOLD_LOCK],
    "java": ["java", str(Path(__file__).with_name("HoldLock.java"))],
}

Hold = Callable[[Path], AbstractContextManager[str]]


@pytest.fixture(params=sorted(LANGUAGES))
def hold(request: pytest.FixtureRequest) -> Hold:
    """Gives a context in which another process tries to lock a file, and keeps the lock; and what it said."""
    command = LANGUAGES[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip("there is no java to lock as a broker does")

    @contextmanager
    def other_process(lock: Path) -> Iterator[str]:
        process = subprocess.Popen([*command, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()

    return other_process


def test_a_store_on_which_a_broker_runs_is_refused(hold: Hold, tmp_path: Path) -> None:
    with hold(tmp_path / "lock") as said:
        assert said == "held"
        with pytest.raises(StoreLockedError, match="/lock is locked: a broker runs"), store_lock(location(tmp_path)):
            pytest.fail("the lock was taken twice")
    with store_lock(location(tmp_path)):
        pass


def test_a_broker_does_not_start_while_a_job_writes(hold: Hold, tmp_path: Path) -> None:
    with store_lock(location(tmp_path)):
        assert (tmp_path / "lock").read_bytes() == b"lock"
        with hold(tmp_path / "lock") as said:
            assert said == "refused"
    with hold(tmp_path / "lock") as said:
        assert said == "held"


def test_the_lock_of_this_process_is_noticed_and_not_lost(tmp_path: Path) -> None:
    """Plain POSIX locks do not keep a process from itself, and closing any descriptor of the file ends them."""
    with store_lock(location(tmp_path)):
        with pytest.raises(StoreLockedError, match="is locked"), store_lock(location(tmp_path)):
            pytest.fail("the lock was taken twice")
        done = subprocess.run(
            [*LANGUAGES["python"], str(tmp_path / "lock")], capture_output=True, text=True, check=True, input=""
        )
        assert done.stdout == "refused\n"
    with store_lock(location(tmp_path)):
        pass


def test_what_a_broker_wrote_into_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock, and more")
    with store_lock(location(tmp_path)):
        assert (tmp_path / "lock").read_bytes() == b"lock, and more"


def test_a_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    refused = pytest.raises(StorageError, match=r"cannot be opened: .* is a folder, not a file.*; give --output")
    with refused, store_lock(location(tmp_path)):
        pytest.fail("a folder was locked")


def location(folder: Path) -> Location:
    return Location.resolve(str(folder))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a lock without taking it")
def test_whether_a_broker_runs_is_known_without_taking_the_lock(hold: Hold, tmp_path: Path) -> None:
    assert is_locked(location(tmp_path)) is False
    assert not (tmp_path / "lock").exists()
    with hold(tmp_path / "lock") as said:
        assert (said, is_locked(location(tmp_path))) == ("held", True)
    assert is_locked(location(tmp_path)) is False
