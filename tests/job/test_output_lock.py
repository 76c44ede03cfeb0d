"""One job at a time writes into an output folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import OutputInUseError, StorageError
from spark_mq.io.location import Location
from spark_mq.job.output_committer import output_lock

HOLD = """
import sys
from spark_mq.io.location import Location
from spark_mq.job.output_committer import output_lock
with output_lock(Location.resolve(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def location(folder: Path) -> Location:
    return Location.resolve(str(folder))


def test_the_second_job_is_refused_until_the_first_one_is_gone(tmp_path: Path) -> None:
    """Also if the first one is killed. The lock leaves no file."""
    output = tmp_path / "new" / "out"
    job = subprocess.Popen([sys.executable, "-c", HOLD, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdin is not None
    assert job.stdout.readline() == b"held\n"
    refused = pytest.raises(OutputInUseError, match=f"^{output}: another job writes into this folder")
    with refused, output_lock(location(output)):
        pytest.fail("two jobs have the lock")
    job.kill()
    job.communicate()
    with output_lock(location(output)):
        assert list(output.iterdir()) == []
        with output_lock(location(tmp_path / "other")):  # another folder has another lock
            pass
        with refused, output_lock(location(output)):
            pytest.fail("two jobs of one process have the lock")


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match="cannot be created: Not a directory"),
        output_lock(location(tmp_path / "file" / "out")),
    ):
        pytest.fail("a file was locked")


def test_a_filesystem_that_cannot_lock_folders(tmp_path: Path) -> None:
    with mock.patch("fcntl.flock", side_effect=OSError(9, "Bad file descriptor")), output_lock(location(tmp_path)):
        pass
