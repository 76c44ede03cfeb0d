"""A missing first segment: what queues and index still have of it is said, because it looks like expired messages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.format.index_file import HEADER, HEADER_SIZE
from spark_mq.format.timestamp import iso_text
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore
from spark_mq.store.metadata_tables import queues
from spark_mq.verifier.quick import quick_check
from tests.support.stores import WORKLOADS, RealStore, Unpack, segment_files
from tests.support.verified import Bench, check, grave

HAS_NO_UNIT = (4, 12)


def test_a_missing_first_segment_is_a_note_with_what_is_left_of_it(bench: Bench) -> None:
    start = bench.setting("mappedFileSizeCommitLog")
    (bench.path / f"commitlog/{0:020d}").unlink()
    headers = [HEADER.unpack(file.read_bytes()[:HEADER_SIZE]) for file in (bench.path / "index").iterdir()]
    older = sum(count > 1 and begin_offset < start for _, _, begin_offset, _, _, count in headers)
    (bench.path / "index/20991231235959999").write_bytes(bytes(bench.entry(bench.setting("maxIndexNum"))))  # no entry
    lost = [fact for fact in bench.messages if fact["offset"] < start]
    with_unit = [fact for fact in lost if fact["sysFlag"] & 12 not in HAS_NO_UNIT]
    queues = {(fact["topic"], fact["queueId"]) for fact in with_unit}
    oldest = iso_text(min(fact["storeTimestamp"] for fact in lost))
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []
    (note,) = [finding for finding in findings if finding.code == "LOG_BEFORE_START"]
    assert note.commit_log_offset == start
    found = note.found or ""
    assert found.startswith(f"{len(with_unit)} units of {len(queues)} queues, and entries of {older} index files")
    assert found.endswith(f"the oldest entry is of {oldest}")
    report, table = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert report.counts["LOG_BEFORE_START"] == 1
    assert found in table["found"].to_pylist()


def test_a_log_that_starts_at_its_start_has_no_such_note(bench: Bench) -> None:
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert "LOG_BEFORE_START" not in {finding.code for finding in findings}


@pytest.mark.parametrize("store", WORKLOADS, ids=str)
def test_a_queue_whose_messages_all_expired_is_not_damaged(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """A broker deletes queue files later, never the last one, and offers offsets of units that are left."""
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    segment_files(folder)[0].unlink()
    with MessageStore(str(folder)) as opened:
        rows = {(row["topic"], row["queue_id"]): row for row in queues(opened).to_pylist()}
    row = rows["DirectTopic", 1]
    assert (row["state"], row["problem"], row["max_offset"]) == ("CAUGHT_UP", None, 24)
    assert row["min_offset"] == (0 if store.name.endswith("49x") else 24)
    for segment in segment_files(folder)[:3]:
        report, _ = quick_check(str(folder), BrokerConf.of(str(store.broker_conf)))
        assert report.is_sound
        segment.unlink()
