"""Units with addresses in `consumequeue_ext`: a real store is sound, damage is found, and a repair removes it."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spark_mq import MessageStore
from spark_mq.format.consume_queue import UNIT_DTYPE
from spark_mq.format.consume_queue_ext import is_address
from tests.support.filtered_store import FILTERED, TOPIC
from tests.support.repaired import repair_here
from tests.support.stores import RealStore, tree_of
from tests.support.verified import check, grave


@pytest.fixture
def store(unpacked: Callable[[RealStore], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(FILTERED), tmp_path / "store"))


def codes(path: Path) -> Counter[str]:
    return Counter(finding.code for finding in grave(check(path, FILTERED.broker_conf)[1]))


def test_a_real_store_is_sound(store: Path) -> None:
    _, findings = check(store, FILTERED.broker_conf)
    assert [(finding.code, finding.file) for finding in findings] == [("NOT_CHECKED", "consumequeue_ext")]


def test_an_extension_that_lost_its_end(store: Path) -> None:
    lost = sorted((store / "consumequeue_ext" / TOPIC / "0").iterdir())[-1]
    first = -(1 << 63) + int(lost.name)
    lost.unlink()
    with MessageStore(str(store)) as opened:
        queue = opened.queues[TOPIC, 0]
        count = sum(queue.unit(offset)[2] >= first for offset in range(queue.written_end))
    assert codes(store) == {"QUEUE_EXT_MISSING": count}
    assert count > 0


def test_another_tags_code_in_an_extension_unit(store: Path) -> None:
    file = store / "consumequeue_ext" / TOPIC / "1" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    struct.pack_into(">q", content, 2, 12345)
    file.write_bytes(content)
    _, findings = check(store, FILTERED.broker_conf)
    (found,) = grave(findings)
    assert (found.code, found.topic, found.queue_id, found.position) == ("QUEUE_UNIT_WRONG", TOPIC, 1, 0)
    assert "tags code 12345" in (found.found or "")


def test_another_due_time_in_an_extension_unit(store: Path) -> None:
    (file,) = (store / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX").rglob("0*")
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)
    assert codes(store) == {"QUEUE_DUE_TIME": 1}


def test_a_repair_writes_tags_codes_where_the_extension_is_lost(store: Path) -> None:
    folder = store / "consumequeue_ext" / TOPIC / "0"
    last = sorted(folder.iterdir())[-1]
    lost = -(1 << 63) + int(last.name)
    last.unlink()
    before = tree_of(store / "consumequeue")
    report = repair_here(store, FILTERED.broker_conf, apply=True)
    assert report.is_applied
    assert codes(store) == {}
    after = tree_of(store / "consumequeue")
    changed = {name for name in after if before[name] != after[name]}
    assert all(name.startswith(f"{TOPIC}/0/") for name in changed)
    with MessageStore(str(store)) as opened:
        found = opened.queues[TOPIC, 0].units(0, opened.queues[TOPIC, 0].written_end)["tags_code"].tolist()
    old = np.frombuffer(b"".join(before[f"{TOPIC}/0/{2000 * n:020d}"] for n in range(2)), UNIT_DTYPE)[: len(found)]
    for code, address in zip(found, old["tags_code"].tolist(), strict=True):
        assert code == address if address < lost else not is_address(code)
