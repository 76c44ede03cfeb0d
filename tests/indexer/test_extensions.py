"""Queues of a broker with `enableConsumeQueueExt`: rebuilt, and continued. No Spark here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spark_mq import MessageStore
from spark_mq.errors import CorruptLogError
from tests.support.filtered_store import FILTERED, TOPIC
from tests.support.rebuilt import rebuild_here
from tests.support.stores import RealStore, tree_of
from tests.support.verified import check, grave


@pytest.fixture
def store(unpacked: Callable[[RealStore], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(FILTERED), tmp_path / "store"))


def test_rebuilt_units_have_the_tags_codes_of_the_extension(store: Path, tmp_path: Path) -> None:
    report = rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(FILTERED.broker_conf))
    assert "consumequeue_ext is not rebuilt" in "".join(report.notes)
    shutil.copytree(store / "commitlog", tmp_path / "rebuilt" / "commitlog")
    with MessageStore(str(store)) as one, MessageStore(str(tmp_path / "rebuilt")) as other:
        assert set(one.queues) == set(other.queues)
        for name, queue in one.queues.items():
            units = queue.units(0, queue.written_end)
            rebuilt = other.queues[name].units(0, queue.written_end)
            codes, is_known = queue.tags_codes(units)
            assert is_known.all()
            assert rebuilt["tags_code"].astype(np.int64).tolist() == codes.tolist()
            for column in ("commit_log_offset", "store_size"):
                assert rebuilt[column].tolist() == units[column].tolist()


def test_continued_queues_keep_their_addresses(store: Path) -> None:
    before = tree_of(store / "consumequeue")
    report = rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)
    assert (report.files_completed, report.corrupt) == (0, [])
    assert tree_of(store / "consumequeue") == before
    file = store / "consumequeue" / TOPIC / "0" / f"{2000:020d}"
    content = file.read_bytes()
    file.write_bytes(content[:200].ljust(2000, b"\0"))
    report = rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)
    assert (report.files_completed, report.corrupt) == (1, [])
    completed = file.read_bytes()
    assert completed[:200] == content[:200]
    assert completed != content  # the new units have tags codes, which brokers accept
    assert grave(check(store, FILTERED.broker_conf)[1]) == []


def test_another_tags_code_in_the_extension_contradicts_the_log(store: Path) -> None:
    file = store / "consumequeue_ext" / TOPIC / "0" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptLogError, match=f"{TOPIC}/0: 1 units"):
        rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)
