"""A check with a journal reads what is new or has changed, and finds all damage there; what it cannot see is small."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_mq.verifier.finding import Finding
from spark_mq.verifier.result import VerifyReport
from tests.support.rebuilt import rebuild_here
from tests.support.store_history import cut_log, expire, grow_log, record_ends, settings_of
from tests.support.stores import WORKLOAD, Unpack
from tests.support.verified import check, grave

NEW_MESSAGES = 40
TREES = ("consumequeue", "index")


@dataclass(frozen=True)
class History:
    """A store that was sound and then grew, and its journal."""

    whole: Path
    path: Path
    journal: Path

    def check(self, since: bool = True, append: Callable[[], object] = list) -> tuple[VerifyReport, list[Finding]]:
        """The report and the findings of a check, with or without the journal; a broker can append meanwhile."""
        return check(self.path, WORKLOAD.broker_conf, journal=self.journal if since else None, append=append)

    def codes(self, since: bool = True) -> set[str]:
        return {one.code for one in grave(self.check(since)[1])}

    def grow(self, end: int | None = None) -> None:
        """Let the broker's log grow, and its queues and index in place, as a broker lets them grow."""
        grow_log(self.whole, self.path, end)
        built = self.path.parent / "built"
        shutil.rmtree(built, ignore_errors=True)
        rebuild_here(self.path, built, **settings_of(WORKLOAD))
        for file in (file for tree in TREES for file in (built / tree).rglob("*") if file.is_file()):
            place, content = self.path / file.relative_to(built), file.read_bytes()
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.write_bytes(content)
            elif place.read_bytes() != content:
                with place.open("r+b") as target:
                    target.write(content)

    def files(self, tree: str) -> list[Path]:
        return sorted(file for file in (self.path / tree).rglob("*") if file.is_file())

    def flip(self, file: Path, position: int) -> None:
        """Change a byte in place."""
        with file.open("r+b") as target:
            target.seek(position)
            byte = target.read(1)[0]
            target.seek(position)
            target.write(bytes([byte ^ 0x55]))


@pytest.fixture
def history(unpacked: Unpack, tmp_path: Path) -> History:
    """A store that lacks its last messages, is sound, and was checked."""
    whole = unpacked(WORKLOAD)
    end = record_ends(WORKLOAD)[-NEW_MESSAGES - 1]
    store = cut_log(whole, tmp_path / "store", end)
    for file in (store / "config").glob("*Offset.json*"):
        file.write_text('{"offsetTable":{}}')
    rebuild_here(store, **settings_of(WORKLOAD))
    made = History(whole, store, tmp_path / "journal.json")
    report, findings = made.check()
    assert not grave(findings)
    assert report.messages == len(record_ends(WORKLOAD)) - NEW_MESSAGES
    assert report.whole_reason == "there is no earlier sound check"
    return made


def test_nothing_is_read_again_if_nothing_is_new(history: History) -> None:
    report, findings = history.check()
    assert (report.messages, report.index_entries, report.whole_reason) == (0, 0, "")
    assert report.is_sound
    assert report.verdict.startswith("sound: what is new or has changed since ")
    whole, all_findings = history.check(since=False)
    assert report.sound_bytes == whole.log_bytes
    assert {one.code for one in findings} <= {one.code for one in all_findings}


def test_what_is_new_is_read(history: History) -> None:
    before = json.loads(history.journal.read_bytes())
    history.grow()
    report, findings = history.check()
    whole, _ = history.check(since=False)
    assert not grave(findings)
    assert report.messages == NEW_MESSAGES
    assert report.log_bytes + report.sound_bytes == whole.log_bytes
    after = json.loads(history.journal.read_bytes())
    assert after["start"] > before["start"]
    assert after["whole"] == before["whole"] < after["checked"]
    assert history.check()[0].messages == 0


OF_INDEX = ("entry hash", "entry offset", "entry time", "entry chain", "slot", "header", "count")


def last_units(history: History) -> tuple[Path, int]:
    """A queue file with a new message, and the position of its last unit."""
    for file in history.files("consumequeue/OrderEvents"):
        content = file.read_bytes().rstrip(b"\0")
        if content:
            return file, (len(content) - 1) // 20 * 20
    raise AssertionError


def new_part_of(history: History, place: str) -> tuple[Path, int]:
    """A file, and the position of a byte in what is new of it."""
    new = sorted(int(fact["offset"]) for fact in WORKLOAD.facts("msg"))[-3]
    if place == "body CRC":
        segment = next(file for file in reversed(history.files("commitlog")) if int(file.name) <= new)
        return segment, new - int(segment.name) + 9
    if place.startswith("unit"):
        file, position = last_units(history)
        return file, position + (7 if place == "unit offset" else 19)
    file = history.files("index")[-1]
    content = file.read_bytes()
    settings = dict(line.split("=", 1) for line in WORKLOAD.broker_conf.read_text().splitlines() if "=" in line)
    slots = int(settings["maxHashSlotNum"])
    count = int.from_bytes(content[36:40], "big")
    at = {"entry hash": 2, "entry offset": 11, "entry time": 15, "entry chain": 19}
    if place in at:
        return file, 40 + 4 * slots + 20 * (count - 1) + at[place]
    hashed = int.from_bytes(content[40 + 4 * slots + 20 * (count - 1) :][:4], "big") % slots
    return file, {"slot": 40 + 4 * hashed + 3, "header": 15, "count": 39}[place]


@pytest.mark.parametrize(
    ("place", "messages"),
    [
        *((place, NEW_MESSAGES) for place in ("body CRC", "unit offset", "unit tags", *OF_INDEX)),
        *((place, 5) for place in OF_INDEX),
    ],
)
def test_damage_in_what_is_new_is_found(place: str, messages: int, history: History) -> None:
    """The last index file was sound up to an entry, and only its end is read."""
    history.grow(record_ends(WORKLOAD)[messages - NEW_MESSAGES - 1])
    assert json.loads(history.journal.read_bytes())["entries"][0] == history.files("index")[-1].name
    file, position = new_part_of(history, place)
    history.flip(file, position)
    journal = history.journal.read_bytes()
    findings = history.check()[1]
    whole, all_findings = history.check(since=False)
    assert not whole.is_sound
    assert {one.code for one in grave(findings)} == {one.code for one in grave(all_findings)}
    assert history.journal.read_bytes() == journal  # the next check finds it again


@pytest.mark.parametrize("puts_time_back", [False, True])
@pytest.mark.parametrize("tree", ["commitlog", "consumequeue/OrderEvents/1", "index"])
def test_a_file_that_should_not_change_is_read_if_it_did(tree: str, puts_time_back: bool, history: History) -> None:
    """Its time of writing can be put back; that of its last change of any kind cannot."""
    file = history.files(tree)[0]
    times = file.stat()
    history.flip(file, {"commitlog": 5, "index": 31}.get(tree, 7))
    if puts_time_back:
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    report, findings = history.check()
    whole, all_findings = history.check(since=False)
    assert not whole.is_sound
    assert {one.code for one in grave(findings)} == {one.code for one in grave(all_findings)}
    assert report.whole_reason.endswith(" is not as it was")


def test_a_log_that_was_cut_and_grew_again_is_read_from_its_segment(history: History) -> None:
    """A broker lost the end of its log, and wrote other messages there."""
    segment = history.files("commitlog")[-1]
    content = bytearray(segment.read_bytes())
    end = record_ends(WORKLOAD)[-NEW_MESSAGES - 1] - int(segment.name)
    start = record_ends(WORKLOAD)[-NEW_MESSAGES - 6] - int(segment.name)
    content[start:end] = bytes(end - start)
    with segment.open("r+b") as file:
        file.write(content)
    report, findings = history.check()
    whole, all_findings = history.check(since=False)
    assert not whole.is_sound
    assert {one.code for one in grave(findings)} == {one.code for one in grave(all_findings)}
    assert report.whole_reason == f"commitlog/{segment.name} is not as it was"


def test_what_a_broker_was_about_to_write_is_looked_at_again(history: History) -> None:
    """A unit lacks while the broker appends, which is no finding; it still lacks at the next check."""
    file, position = last_units(history)
    unit = file.read_bytes()[position : position + 20]
    with file.open("r+b") as target:
        target.seek(position)
        target.write(bytes(20))
    history.journal.unlink()
    report, findings = history.check(append=lambda: grow_log(history.whole, history.path))
    assert not grave(findings)
    assert json.loads(history.journal.read_bytes())["start"] == int.from_bytes(unit[:8], "big")
    history.grow()
    with file.open("r+b") as target:
        target.seek(position)
        target.write(bytes(20))
    report, findings = history.check()
    assert {one.code for one in grave(findings)} == {one.code for one in grave(history.check(since=False)[1])} != set()
    assert report.whole_reason == ""


def test_rebuilt_queues_are_read_again(history: History) -> None:
    shutil.rmtree(history.path / "consumequeue")
    rebuild_here(history.path, only="consumequeue", **settings_of(WORKLOAD))
    report, findings = history.check()
    assert not grave(findings)
    assert report.sound_bytes == 0
    assert report.whole_reason.endswith(" is not as it was")
    assert history.check()[0].messages == 0


def test_lost_files_are_found(history: History) -> None:
    shutil.rmtree(history.path / "consumequeue" / "OrderEvents" / "0")
    assert history.codes() == history.codes(since=False) != set()


def test_a_new_file_with_old_messages_is_not_trusted(history: History) -> None:
    folder = history.path / "consumequeue" / "OrderEvents"
    shutil.copytree(folder / "0", folder / "9")
    assert history.codes() == history.codes(since=False) != set()


def test_expired_segments_are_no_change(history: History) -> None:
    history.grow()
    expire(history.path, 2)
    report, findings = history.check()
    assert not grave(findings)
    assert report.messages == NEW_MESSAGES
    assert report.whole_reason == ""


def test_a_lost_queue_file_is_found_after_segments_expired(history: History) -> None:
    expire(history.path, 1)
    assert not grave(history.check()[1])
    folder = max((file.parent for file in history.files("consumequeue")), key=lambda one: len(list(one.iterdir())))
    sorted(folder.iterdir())[-2].unlink()
    assert history.codes() == history.codes(since=False) != set()


def test_a_log_that_all_expired_is_read(history: History) -> None:
    history.grow()
    expire(history.path, len(history.files("commitlog")) - 1)
    content = json.loads(history.journal.read_bytes())
    history.journal.write_text(json.dumps({**content, "start": 1}))
    assert history.check()[0].whole_reason == "the log has nothing of what was sound"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"store": "/other"}, "is of another store, or of other settings of the broker"),
        ({"settings": {}}, "is of another store, or of other settings of the broker"),
        ({"version": "0"}, "is of another version of spark-mq"),
        ({"files": {"a": 1}}, "is not a journal of this command"),
        ({"queues": 5}, "is not a journal of this command"),
    ],
)
def test_a_journal_of_something_else_leads_to_a_whole_check(
    change: dict[str, object], reason: str, history: History
) -> None:
    content = json.loads(history.journal.read_bytes())
    history.journal.write_text(json.dumps({**content, **change}))
    report, _ = history.check()
    assert report.sound_bytes == 0
    assert report.whole_reason.endswith(reason)
    assert history.check()[0].messages == 0  # the journal is a right one now


def test_bytes_in_the_middle_of_a_growing_file_are_not_seen(history: History) -> None:
    """What the command says of it: only the edges of the sound part are looked at."""
    segment, end = history.files("commitlog")[-1], record_ends(WORKLOAD)[-NEW_MESSAGES - 1]
    base = int(segment.name)
    offsets = sorted(int(fact["offset"]) for fact in WORKLOAD.facts("msg") if fact["bodyLenRaw"] > 20)
    inside, at_the_edge = (
        next(offset for offset in offsets if offset > base + first) for first in (4096, end - base - 4000)
    )
    assert inside < end - 4096
    history.flip(segment, inside - base + 9)
    assert not history.check(since=False)[0].is_sound
    assert history.check()[0].is_sound
    history.flip(segment, at_the_edge - base + 9)
    assert not history.check()[0].is_sound
