"""Files that users keep are read as the first release wrote them: whatever is changed, these contents stay readable.

Offsets of streams of stores are in `tests/source/test_message_stream.py` and `test_several_stream.py`, the history of
reports in `tests/reporter/test_page.py`, and an archive in `tests/archive/test_kept_archive.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, UnfinishedAppendError
from spark_mq.io.location import Location
from spark_mq.live.message_stream import LiveOffset
from spark_mq.producer.resend_journal import Begun, Journal
from spark_mq.restorer.appended_messages import _load
from spark_mq.store.config.store_paths import APPENDS
from spark_mq.verifier.journal import Journal as SoundStore
from spark_mq.verifier.journal import KnownFile, SoundEntries

CLUSTER_OFFSET = (
    '{"version": 1, "queues": {"broker-a": {"orders": {"0": 7, "3": 9}}}, "began": {"broker-a": {"orders": {"3": 8}}}}'
)

RESEND = """\
{"journal": "spark-mq resend 1", "source": "/data/store", "cluster": "rocketmq://ns:9876", "to_topic": null}
{"begin": "m0", "topic": "orders", "unique_key": "u0"}
{"sent": "m0"}
{"begin": "m1", "topic": "orders", "unique_key": "u1"}
{"refused": "m1", "reason": "no permission"}
{"begin": "m2", "topic": "orders", "unique_key": "u2"}
"""

REPORT = '"report": {"source": "/data/old", "store": "/data/store", "mode": "append", "messages": 3, "log_end": 900}'
APPEND = f'{{"identity": "night-1", "state": "log 0 to 900", {REPORT}}}'

SOUND = """\
{"store": "/data/store", "settings": {"maxIndexNum": "500"}, "checked": 1795248093336, "whole": 1795248000000,
"start": 4096, "last_store_timestamp": 1795248093000, "newest_store_timestamp": 1795248093000,
"files": {"commitlog/00000000000000000000": [[131072, 5, 6, 7], 0, 9223372036854775807, 4096, 123]},
"queues": [["orders", 0, 0, 12]], "entries": ["20261121110042150", 12, 456, [1795248093000, 0]],
"format": 1, "version": VERSION}
"""


def test_an_offset_of_a_stream_of_a_cluster() -> None:
    offset = LiveOffset.of_json(json.loads(CLUSTER_OFFSET))
    assert offset.queues == {("broker-a", "orders", 0): 7, ("broker-a", "orders", 3): 9}
    assert offset.began == {("broker-a", "orders", 3): 8}
    assert json.dumps(offset.to_json()) == CLUSTER_OFFSET
    with pytest.raises(OptionError, match="version 2, not 1"):
        LiveOffset.of_json({**json.loads(CLUSTER_OFFSET), "version": 2})


def test_a_journal_of_a_resend(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(RESEND)
    names = {"source": "/data/store", "cluster": "rocketmq://ns:9876", "to_topic": None}
    found = Journal.read(str(path), names)
    assert (found.sent, found.uncertain) == ({"m0"}, {"m2": Begun("orders", "u2")})
    with Journal.writing(str(path), names):
        pass
    assert path.read_text() == RESEND


@pytest.mark.parametrize("version", ["", '"version": 1, '])
def test_the_appends_of_a_store(version: str, tmp_path: Path) -> None:
    file = tmp_path / APPENDS
    file.write_text(f'{{{version}"appends": [{APPEND}]}}')
    (found,) = _load(Location.resolve(str(tmp_path)))
    assert (found.identity, found.state, found.report.messages, found.report.log_end) == (
        "night-1", "log 0 to 900", 3, 900,
    )  # fmt: skip
    file.write_text(f'{{"version": 2, "appends": [{APPEND}]}}')
    with pytest.raises(UnfinishedAppendError, match="version 2, and this spark-mq reads 1: update it"):
        _load(Location.resolve(str(tmp_path)))


def test_a_journal_of_sound_checks(tmp_path: Path) -> None:
    """One of another release leads to a whole check (`tests/verifier/test_since_last.py`)."""
    file = tmp_path / "journal.json"
    file.write_text(SOUND.replace("VERSION", json.dumps(SoundStore.version)))
    found = SoundStore.load(Location.resolve(str(file)))
    assert isinstance(found, SoundStore)
    assert found.files == {"commitlog/00000000000000000000": KnownFile((131072, 5, 6, 7), 0, (1 << 63) - 1, 4096, 123)}
    assert found.queues == [("orders", 0, 0, 12)]
    assert found.entries == SoundEntries("20261121110042150", 12, 456, (1795248093000, 0))
