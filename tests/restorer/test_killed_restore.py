"""A restore that is killed: the store is absent or whole, and the next run gives the same bytes. No Spark here."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import OutputExistsError, OutputInUseError
from tests.support.paused_process import killed, paused
from tests.support.restored import delivered, restore_here
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

CRC, WORKLOAD = RealStore("crc-533", OWN_STORES), RealStore("workload-533", OWN_STORES)
MODES: dict[str, dict[str, Any]] = {"faithful": {}, "compact": {"renumber": True}}
MOMENTS = {
    "a chunk is staged": ("spark_mq.restorer.chunk:Chunk.write:1", ".restoring/chunks"),
    "the first segment is written": ("os:replace:1", "/store/commitlog/"),
    "the table of offsets gets a file": ("os:replace:2", "/store_offsets/"),
    "the second segment is written": ("os:replace:2", "/store/commitlog/"),
    "a queue file is written": ("os:replace:3", "/.spark_mq/consumequeue/"),
    "an index file is written": ("os:replace:2", "/.spark_mq/index/"),
    "the queues are put in place": ("os:rename:1", "/.spark_mq/consumequeue"),
    "config is written": ("os:replace:3", "/store/config/"),
    "the checkpoint is written": ("os:replace:2", "/store/checkpoint"),
    "the store gets its name": ("os:rename:1", ".restoring/store"),
    "the table of offsets is complete": ("spark_mq.restorer.new_store:complete_map:1", "/store_offsets"),
    "all is in place": ("spark_mq.restorer.store_job:StoreJob.report:1", "/store"),
}
"""By what happens: a call before which the process is killed, and a text in its arguments."""
IN_PLACE = ("the table of offsets is complete", "all is in place")
"""The moments at which the store is there."""
USUAL = (
    ("faithful", "the second segment is written"),
    ("compact", "a queue file is written"),
    ("compact", "the store gets its name"),
    ("compact", "the table of offsets is complete"),
)
ALL = tuple(
    (mode, moment) for mode in MODES for moment in MOMENTS if mode == "compact" or "table of offsets" not in moment
)


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        f"{tree}/{name}": data
        for tree in ("store", "store_offsets")
        if (folder / tree).exists()
        for name, data in tree_of(folder / tree).items()
    }


@pytest.fixture(scope="module")
def not_killed(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """By mode: the files of a restore that nobody killed."""
    files = {}
    for mode, options in MODES.items():
        folder = tmp_path_factory.mktemp(mode)
        restore_here(unpacked(CRC), folder / "store", CRC.broker_conf, **options)
        files[mode] = files_in(folder)
        assert ("store_offsets/_SUCCESS" in files[mode]) == (mode == "compact")
    return files


@pytest.mark.parametrize(("mode", "moment"), cases(USUAL, ALL))
def test_killed_and_run_again(
    mode: str, moment: str, not_killed: dict[str, dict[str, bytes]], unpacked: Unpack, tmp_path: Path
) -> None:
    source, store, options = unpacked(CRC), tmp_path / "store", MODES[mode]
    command = [sys.executable, "-m", "tests.support.restored", str(source), str(store), str(CRC.broker_conf)]
    call, text = MOMENTS[moment]
    with paused([*command, json.dumps(options)], f"{call}:{text}", tmp_path) as process:
        assert text in (tmp_path / "paused").read_text()
        with pytest.raises((OutputInUseError, OutputExistsError)):
            restore_here(source, store, CRC.broker_conf, **options)
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL

    left, expected = files_in(tmp_path), not_killed[mode]
    assert (tmp_path / "store.restoring").exists()
    if moment in IN_PLACE:
        marked = {} if moment == "all is in place" else {"store_offsets/_SUCCESS": b""}
        assert {**left, **marked} == expected
        with pytest.raises(OutputExistsError, match="is not empty"):
            restore_here(source, store, CRC.broker_conf, **options)
        return
    assert not store.exists()
    assert "store_offsets/_SUCCESS" not in left
    restore_here(source, store, CRC.broker_conf, **options)
    assert files_in(tmp_path) == expected
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted(
        {path.partition("/")[0] for path in expected}
    )


def test_the_table_of_an_append_that_is_killed_is_marked_by_the_next_run(unpacked: Unpack, tmp_path: Path) -> None:
    """The messages are in place, and the table is not marked as complete."""
    source, store = unpacked(CRC), WORKLOAD.unpack(tmp_path / "target")
    before = len(list((store / "commitlog").iterdir()))
    command = [sys.executable, "-m", "tests.support.restored", str(source), str(store), str(WORKLOAD.broker_conf)]
    table = store.with_name(f"{store.name}_offsets")
    call = f"spark_mq.restorer.appended_messages:complete_map:1:{table}"
    told = json.dumps({"append": True, "only_delivered": True})
    killed([*command, told], call, tmp_path)
    left, files = tree_of(store / "commitlog"), tree_of(table)
    assert len(left) > before
    assert files
    assert "_SUCCESS" not in files
    report = restore_here(source, store, WORKLOAD.broker_conf, delivered, append=True, only_delivered=True)
    assert report.offset_map == str(table)
    assert tree_of(store / "commitlog") == left
    assert tree_of(table) == {**files, "_SUCCESS": b""}
    assert not (store / ".spark_mq").exists()
    restore_here(source, store, WORKLOAD.broker_conf, delivered, append=True, only_delivered=True)
    assert tree_of(store / "commitlog") == left  # the same append again adds nothing
