"""Parts of a store that are not checked are named by a note, and are no damage of anything else."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import WITHOUT_FILE
from spark_mq.store.index.folder import IndexFileInfo
from spark_mq.testing import LogWriter
from spark_mq.verifier.quick import quick_check
from tests.support.repaired import repair_here
from tests.support.verified import Bench, check, grave


def notes(bench: Bench) -> list[str | None]:
    """The files of notes about kinds that are not checked: of a whole check, and the same of a quick one."""
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []
    files = sorted(finding.file or "" for finding in findings if finding.code == "NOT_CHECKED")
    report, quick = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert report.is_sound, report.counts
    rows = [row for row in quick.to_pylist() if row["code"] == "NOT_CHECKED"]
    assert sorted(row["file"] for row in rows) == files
    return list(files)


def test_queues_in_rocksdb_that_does_not_open_are_not_sound(bench: Bench) -> None:
    shutil.rmtree(bench.path / "consumequeue")
    (bench.path / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000004"):
        (bench.path / "consumequeue" / name).write_text("MANIFEST-000004\n")
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert [(finding.code, finding.file) for finding in grave(findings)] == [("QUEUE_DATABASE", "consumequeue")]
    report, _ = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert report.counts["QUEUE_DATABASE"] == 1
    assert not report.is_sound


def test_batch_queues(bench: Bench) -> None:
    (bench.path / "batchconsumequeue/Batches/0").mkdir(parents=True)
    _, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []
    report, _ = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert report.is_sound, report.counts


def test_a_copy_without_config_is_sound_and_a_note_says_what_a_broker_lacks(bench: Bench) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (bench.path / "config" / name).unlink()
    report, findings = check(bench.path, bench.packed.broker_conf)
    assert report.is_sound
    (found,) = [(one.file, one.severity, one.found) for one in findings if one.code == "CONFIG_MISSING"]
    assert found == ("config/topics.json", "note", WITHOUT_FILE["topics.json"])
    quick, _ = quick_check(str(bench.path), BrokerConf.of(str(bench.packed.broker_conf)))
    assert (quick.is_sound, quick.counts["CONFIG_MISSING"]) == (True, 1)


def a_store_of_4_9_with_multi_dispatch(folder: Path) -> Path:
    """Messages of T are also in `copies`, in turns with its own ones: 4.9 numbers both together."""
    writer = LogWriter(1 << 16)
    units: dict[str, list[bytes]] = {"T": [], "copies": [], "%LMQ%sensor": []}
    for number in range(8):
        topic = b"T" if number % 2 else b"copies"
        names, properties = [topic.decode()], b"TAGS\1a\2"
        if topic == b"T":
            names += ["copies", "%LMQ%sensor"]
            offsets = f"{number},{number // 2}".encode()
            properties += b"INNER_MULTI_DISPATCH\1copies,%LMQ%sensor\2INNER_MULTI_QUEUE_OFFSET\1" + offsets + b"\2"
        queue_offset = len(units[names[0]])
        offset = writer.append(1_600_000_000_000 + number, b"body", topic, 0, queue_offset, properties)
        for name in names:
            units[name].append(struct.pack(">qiq", offset, writer.next_offset - offset, ord("a")))
    writer.write(folder)
    for name, content in units.items():
        queue = folder / "consumequeue" / name / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(b"".join(content).ljust(400, b"\0"))
    return folder


def test_a_queue_with_messages_of_other_queues(tmp_path: Path) -> None:
    store = a_store_of_4_9_with_multi_dispatch(tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=400\nmessageIndexEnable=false\n")
    (store / "config").mkdir()
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"copies@readers":{0:8}}}')
    topics = {queue.name: {"topicName": queue.name} for queue in (store / "consumequeue").iterdir()}
    (store / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    _, findings = check(store, conf)
    assert grave(findings) == []
    skipped = {finding.file for finding in findings if finding.code == "NOT_CHECKED"}
    assert skipped == {"consumequeue/copies/0"}
    report, _ = quick_check(str(store), BrokerConf.of(str(conf)))
    assert report.is_sound, report.counts
    queue = store / f"consumequeue/copies/0/{0:020d}"
    data = bytearray(queue.read_bytes())
    data[2 * 20 + 19] ^= 1  # the queue's own messages are at even offsets
    data[3 * 20 + 19] ^= 1
    queue.write_bytes(data)
    (finding,) = grave(check(store, conf)[1])
    assert (finding.code, finding.topic, finding.position) == ("QUEUE_UNIT_WRONG", "copies", 40)


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    checked, findings = check(tmp_path, None)
    assert (findings, checked.messages) == ([], 0)


def test_index_files_whose_layout_nothing_shows(bench: Bench) -> None:
    for file in sorted((bench.path / "index").iterdir())[:-1]:
        file.unlink()
    (last,) = (bench.path / "index").iterdir()
    last.write_bytes(last.read_bytes()[:1000] + bytes(last.stat().st_size - 1000))
    report, findings = check(bench.path, None)
    assert [finding.file for finding in findings if finding.code == "NOT_CHECKED"] == ["index"]
    assert report.verdict.startswith("sound, except for what was not checked (")
    assert repair_here(bench.path, None).verdict == f"nothing to repair: the store is {report.verdict}"


def test_index_files_that_this_user_may_not_read_are_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a question for settings, which would not help."""

    def refuse(file: IndexFileInfo) -> None:
        raise PermissionError(13, "Permission denied", file.location.path)

    monkeypatch.setattr("spark_mq.store.index.folder.layout_of_full_file", refuse)
    with pytest.raises(PermissionError):
        check(bench.path, None)
