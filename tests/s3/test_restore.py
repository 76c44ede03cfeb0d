"""A restore whose store is on S3: the bytes of a restore on the local disk."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_mq.errors import OptionError, OutputExistsError, StorageError, UnfinishedRestoreError
from spark_mq.io import publish
from spark_mq.io.location import Location
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.store.config.store_paths import COMMIT_LOG, RESTORE_UNFINISHED
from spark_mq.store.message_store import MessageStore
from spark_mq.store.store_lock import LOCK
from tests.s3.proxy import ERRORS, Fault, Proxy, every_20th
from tests.support.both_places import Place
from tests.support.restored import restore_here
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, tree_of
from tests.support.verified import check

pytestmark = pytest.mark.s3

CRC = RealStore("crc-533", OWN_STORES)


def files_of(store: Path) -> dict[str, bytes]:
    """The files of a store, without the lock, which is for a local disk."""
    return {name: content for name, content in tree_of(store).items() if name != LOCK}


@pytest.mark.parametrize(
    ("store", "options"), [(WORKLOAD, {}), (CRC, {}), (WORKLOAD, {"renumber": True})], ids=["all", "crc", "compact"]
)
def test_a_store_on_s3_is_that_of_the_local_disk(
    store: RealStore, options: dict[str, Any], on_s3: Place, bucket: Path, tmp_path: Path
) -> None:
    here, there = on_s3(store)
    expected = restore_here(here, tmp_path / "x", store.broker_conf, **options)
    report = restore_here(there, "s3://made/a/x", store.broker_conf, **options)
    assert files_of(bucket / "a" / "x") == files_of(tmp_path / "x")
    assert report.messages == expected.messages > 0
    assert report.store == "s3://made/a/x"
    changes = (tmp_path / "x_offsets").exists()
    assert changes == bool(options)
    assert {file.name for file in (bucket / "a").iterdir()} == ({"x", "x_offsets"} if changes else {"x"})
    if changes:
        assert tree_of(bucket / "a" / "x_offsets") == tree_of(tmp_path / "x_offsets")


def test_a_server_that_fails_now_and_then_changes_no_byte(
    on_s3: Place, bucket: Path, s3: Proxy, tmp_path: Path
) -> None:
    here, there = on_s3(CRC)
    restore_here(here, tmp_path / "x", CRC.broker_conf, renumber=True)
    s3.fault_of = every_20th(*ERRORS, Fault.CUT_BODY)
    with mock.patch.object(publish, "_MAX_IN_MEMORY", 1000):  # most files are assembled in a temporary file
        restore_here(there, "s3://made/x", CRC.broker_conf, renumber=True)
    assert files_of(bucket / "x") == files_of(tmp_path / "x")
    assert s3.faults > 5


def fail_at_third_copy(error: BaseException) -> Any:
    """Make the third copy of a file fail."""
    copies = count(1)
    copy = Location.copy_to

    def fail(source: Location, target: Location) -> None:
        if next(copies) == 3:
            raise error
        copy(source, target)

    return mock.patch.object(Location, "copy_to", fail)


def test_a_killed_restore_leaves_no_store_and_the_next_begins_again(on_s3: Place, bucket: Path, tmp_path: Path) -> None:
    here, there = on_s3(CRC)
    restore_here(here, tmp_path / "x", CRC.broker_conf)
    with fail_at_third_copy(KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        restore_here(there, "s3://made/x", CRC.broker_conf)
    left = files_of(bucket / "x")
    assert f"{COMMIT_LOG}/{RESTORE_UNFINISHED}" in left
    assert len(left) > 1
    with pytest.raises(UnfinishedRestoreError, match=r"s3://made/x/commitlog/restore-unfinished: .* run it again"):
        MessageStore("s3://made/x")
    with pytest.raises(UnfinishedRestoreError):
        check("s3://made/x", None)
    (bucket / "x" / "of another source").write_bytes(b"1")
    restore_here(there, "s3://made/x", CRC.broker_conf)
    assert files_of(bucket / "x") == files_of(tmp_path / "x")


def test_a_restore_that_fails_leaves_nothing(on_s3: Place, bucket: Path) -> None:
    with fail_at_third_copy(StorageError("no")), pytest.raises(StorageError, match="no"):
        restore_here(on_s3(CRC)[1], "s3://made/x", CRC.broker_conf)
    assert tree_of(bucket) == {}


def test_what_s3_cannot_do_is_refused(on_s3: Place, bucket: Path) -> None:
    _, there = on_s3(CRC)
    choices: list[dict[str, Any]] = [{"append": True}, {"replace": True}]
    for options in choices:
        with pytest.raises(OptionError, match="on S3, which has no rename"):
            RestoreRequest.of(there, **options)
    with pytest.raises(OutputExistsError, match="is not empty: give a new folder"):
        RestoreRequest.of(there)
    with pytest.raises(OptionError, match="is in the folder of SOURCE"):
        RestoreRequest.of(f"{there}/new").check_source(there)
