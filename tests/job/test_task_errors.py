"""Errors of this package, and of storage, in the text of Spark's errors, and what is said of them. No Spark here."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.indexer.forecast import no_room_error, room_needed
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.io.location import Location
from spark_mq.job.task_errors import is_full, parse_task_error, reraise_task_errors, storage_problem
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.testing import LogWriter

TRACEBACK = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark_mq/store/segment_source.py", line 70, in read
    raise CorruptLogError(
spark_mq.errors.CorruptLogError: /data/store/commitlog/0: the file ended at 7
 SQLSTATE: 38000
"""


def test_an_error_of_a_task_is_found_in_its_traceback() -> None:
    error = parse_task_error(TRACEBACK)
    assert type(error) is CorruptLogError
    assert str(error) == "/data/store/commitlog/0: the file ended at 7"


@pytest.mark.parametrize(
    "text",
    [
        "java.io.IOException: No space left on device",
        TRACEBACK.replace("CorruptLogError:", "annotations:"),
        TRACEBACK.replace("CorruptLogError:", "Unheard:"),
    ],
)
def test_any_other_text_has_none(text: str) -> None:
    assert parse_task_error(text) is None


def test_the_last_error_of_a_chain_is_the_one_that_the_task_raised() -> None:
    chain = (
        "spark_mq.errors.CorruptLogError: the cause\n\nThe above exception was the direct cause of the following "
        "exception:\n\nspark_mq.errors.StoreChangedError: the file went away\n"
    )
    error = parse_task_error(chain)
    assert (type(error), str(error)) == (StoreChangedError, "the file went away")


def test_an_error_of_a_task_is_raised_under_its_own_name() -> None:
    with pytest.raises(CorruptLogError, match="the file ended at 7"), reraise_task_errors():
        raise PySparkException(TRACEBACK)


def test_an_error_of_spark_stays_unchanged() -> None:
    with pytest.raises(PySparkException, match="no space"), reraise_task_errors():
        raise PySparkException("no space left")


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
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (RuntimeError(FULL_IN_A_TASK), True),
        (RuntimeError("Caused by: java.io.IOException: No space left on device\n\tat java.base/"), True),
        (OSError(errno.EROFS, "Read-only file system"), False),
        (RuntimeError(NO_S3A), False),
    ],
)
def test_a_full_disk(error: Exception, full: bool) -> None:
    assert is_full(error) == full


def test_a_filesystem_that_spark_does_not_have() -> None:
    said = storage_problem(RuntimeError(NO_S3A)) or ""
    assert "S3AFileSystem not found" in said
    assert "org.apache.hadoop:hadoop-aws" in said
    assert "abfss" in (storage_problem(RuntimeError('No FileSystem for scheme "abfss"')) or "")


def test_an_error_of_the_system_in_a_task() -> None:
    text = FULL_IN_A_TASK.replace("OSError: [Errno 28] No space", "PermissionError: [Errno 13] Permission denied: '/x")
    assert (storage_problem(RuntimeError(text)) or "").startswith("[Errno 13] Permission denied: '/x")
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
        (PermissionError(13, "Permission denied", "/store/x"), "'/store/x': run this as the broker's"),
        (OSError(13, "Cannot list directory '/store'. Detail: [errno 13] Permission denied"), "run this as the"),
        (OSError(5, "Input/output error", "/store/x"), "Input/output error: '/store/x'"),
    ],
)
def test_an_error_of_the_disk_says_what_to_do(error: OSError, said: str) -> None:
    problem = storage_problem(error) or ""
    assert problem.startswith(str(error))
    assert said in problem
    assert storage_problem(OSError(problem)) == problem, "an error that has passed here is passed on"
