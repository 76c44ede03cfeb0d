"""What is said of a full disk and of filesystems that are not there. No Spark here."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest

from spark_mq.indexer.forecast import no_room_error, room_needed
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.io.location import Location
from spark_mq.job.task_errors import is_full, storage_problem
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.testing import LogWriter

FULL_IN_A_TASK = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark_mq/store/publish.py", line 60, in _publish_local
    raise
OSError: [Errno 28] No space left on device
 SQLSTATE: 38000
"""
NO_S3A = """\
An error occurred while calling o123.parquet.
: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2740)
"""


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError(FULL_IN_A_TASK),
        RuntimeError("Caused by: java.io.IOException: No space left on device\n\tat java.base/"),
    ],
)
def test_a_full_disk(error: Exception) -> None:
    assert is_full(error)


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), RuntimeError(NO_S3A)])
def test_another_error(error: Exception) -> None:
    assert not is_full(error)


def test_a_filesystem_that_spark_does_not_have() -> None:
    said = storage_problem(RuntimeError(NO_S3A))
    assert said is not None
    assert "S3AFileSystem not found" in said
    assert "org.apache.hadoop:hadoop-aws" in said
    said = storage_problem(RuntimeError('No FileSystem for scheme "abfss"'))
    assert said is not None
    assert "abfss" in said


def test_an_error_of_the_system_in_a_task() -> None:
    text = FULL_IN_A_TASK.replace("OSError: [Errno 28] No space", "PermissionError: [Errno 13] Permission denied: '/x")
    said = storage_problem(RuntimeError(text))
    assert said is not None
    assert said.startswith("[Errno 13] Permission denied: '/x")
    assert storage_problem(RuntimeError("an error of Spark")) is None


@pytest.mark.parametrize("messages", [200, 2000])
def test_the_room_grows_with_messages_and_keys(messages: int, tmp_path: Path) -> None:
    log = LogWriter(segment_size=64 << 10)
    for number in range(messages):
        log.append(1000 + number, body=bytes(50), properties=b"KEYS\1a b\2")
    store, conf = log.write(tmp_path / "store"), tmp_path / "broker.conf"
    opened = CommitLog.open(store)
    conf.write_text("maxHashSlotNum=100\nmaxIndexNum=1000\n")
    request = partial(RebuildRequest.of, str(store), broker_conf=str(conf), split_size=1 << 30)
    queues = room_needed(request(only="consumequeue"), opened)
    both = room_needed(request(), opened)
    assert queues is not None
    assert both is not None
    splits = len(opened.segments) * (32 << 10)
    assert queues - splits == pytest.approx(messages * 20 * 2, rel=0.15)
    files = -(-messages * 2 // 999)
    assert both - queues == pytest.approx(messages * 2 * 20 * 2 + files * 400, rel=0.15)


def test_what_is_said_of_a_full_disk(tmp_path: Path) -> None:
    output = Location.resolve(str(tmp_path / "not" / "there"))
    said = str(no_room_error(output, 1 << 60, ["/scratch"]))
    assert said.startswith(f"the disk of {tmp_path}/not/there is full, ")
    assert "the job needs about 1.0 EiB there in all" in said
    assert "--resume" in said
    assert "/scratch" in str(no_room_error(output, 1, ["/scratch"]))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"), "make room for"),
        (
            PermissionError(13, "Permission denied", "/store/commitlog/0"),
            "'/store/commitlog/0': run this as the broker's",
        ),
        (
            OSError(13, "Cannot list directory '/store'. Detail: [errno 13] Permission denied"),
            "run this as the broker's",
        ),
        (OSError(5, "Input/output error", "/store/x"), "Input/output error: '/store/x'"),
    ],
)
def test_an_error_of_the_disk_says_what_to_do(error: OSError, said: str) -> None:
    problem = storage_problem(error)
    assert problem is not None
    assert problem.startswith(str(error))
    assert said in problem
