"""What a boot does to crashed stores is what `recover` and `state` say before it.

Brokers are killed, and states that a crash could leave are derived of their stores (`tests/support/crashes`). Each
state is booted by the message stores of four versions, whatever version wrote it. `make soak` tries 1,152 states.

No two kills of a broker leave the same store. `SPARK_MQ_CRASHED=FOLDER` keeps the stores there, and uses those that it
has: then each state of a test has the same bytes again. With `SPARK_MQ_SEED=NUMBER`, other states are tried.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_mq.store.boot import Boot
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from tests.broker import harness
from tests.support.answers import Answers
from tests.support.boots import rows
from tests.support.crashes import CrashModel, StoreFiles, WrittenMessage, left_messages, written_end, written_messages
from tests.support.soak import SOAKS

pytestmark = pytest.mark.broker

VERSIONS = ("4.9.7", "5.3.3", "5.4.0", "5.5.0") if SOAKS else ("4.9.7", "5.3.3")
STATES = 36 if SOAKS else 4
"""States of each store. State 0 is as the broker left it."""
OF_WHOLE_BROKER = 1
"""The state of each store that a whole broker of its version boots, too."""
SEED = 10_000 * int(os.environ.get("SPARK_MQ_SEED", "0"))
KEPT = os.environ.get("SPARK_MQ_CRASHED")

BASE = {
    "autoCreateTopicEnable": "false",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    # Smaller ones: two index files of one millisecond have one name, and a broker loses the entries of the first.
    "maxIndexNum": "3000",
    "messageIndexEnable": "true",
    "timerWheelEnable": "false",
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "async": {},
    "sync": {"flushDiskType": "SYNC_FLUSH"},
    "pool": {"transientStorePoolEnable": "true"},
    "tiny": {"mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "20", "maxIndexNum": "1500"},
    "flushed": {
        "flushCommitLogThoroughInterval": "50",
        "flushConsumeQueueThoroughInterval": "50",
        "flushIntervalConsumeQueue": "10",
        "flushIntervalCommitLog": "10",
    },
    "clean": {"mappedFileSizeCommitLog": "131072"},
    "upgraded": {},
    "again": {},
}
"""Settings, and kinds of runs, of the brokers."""


_LOGGED = {
    r"/((?:commitlog|consumequeue)/\S+) \d+ length not matched": "the length of {}.",
    r"newPosition < 0: .*ConsumeQueue\.correctMinOffset": "a queue file without a unit.",
    r"start waits .*reputOffset=(\d+) ": "a wait for {}.",
}
"""Causes by what a broker that does not start has logged."""
_SAID = {
    r"(consumequeue/).* other queue files have a wrong size": "the length of {}",
    r"(\S+) (?:has \d+ bytes|is empty)": "the length of {}.",
    r"has no unit": "a queue file without a unit.",
    r"waits forever for commit log offset (\d+)": "a wait for {}.",
}
"""The same by what is said; of several queue files that have a wrong length, a broker finds any first."""


def cause_of(text: str, causes: Mapping[str, str]) -> str:
    """The cause that a text has; the text itself if it has none."""
    found = ((re.search(pattern, text), cause) for pattern, cause in causes.items())
    return next((cause.format(*match.groups()) for match, cause in found if match), text)


def causes_differ(answer: Mapping[str, Any], obstacles: Sequence[str]) -> Iterator[str]:
    """Whether a broker does not start for another cause than the first of `obstacles`, or only one of both is there."""
    if "failure" not in answer or not obstacles:
        yield f"start: {answer.get('failure', 'it starts')}, said: {obstacles}"
        return
    seen = cause_of(" ".join([answer["failure"], *answer["log"]]), _LOGGED)
    said = cause_of(obstacles[0].replace(",", ""), _SAID)
    if not seen.startswith(said):
        yield f"it does not start because of {seen}, said: {said}"


def make_crashed_store(kind: str, version: str, store: Path, seed: int) -> None:
    """Make the store of a broker that is killed while messages come, or stops; or whose store has another past."""
    settings, chance = {**BASE, **SETTINGS[kind]}, random.Random(seed)
    if kind == "upgraded":
        other = chance.choice([one for one in VERSIONS if one != version])
        with harness.Broker(other, store, settings) as broker:
            harness.send(broker, "sequence", seed=1, count=200, body=80)
    if kind == "again":
        _kill(version, store, settings, chance, 200_000)
    _kill(version, store, settings, chance, chance.choice([400_000, 700_000, 1_000_000]), is_killed=kind != "clean")


def _kill(
    version: str, store: Path, settings: Mapping[str, str], chance: random.Random, size: int, is_killed: bool = True
) -> None:
    with harness.Broker(version, store, settings) as broker:
        before = written_end(store)
        harness.send(broker, "sequence", seed=2, count=chance.randrange(10, 60))
        sender = harness.Sender(broker, "burst", seed=chance.randrange(1000), count=20_000)
        while sender.is_sending and written_end(store) < before + size:
            time.sleep(0.002)
        (broker.kill if is_killed else broker.stop)()
        sender.kill()


@dataclass
class Case:
    """A state of a store, one version that boots it, and what is said of that boot: by all doors in a fourth of all.

    Attributes:
        live_end: The commit log offset at which the log ends for readers.
    """

    about: str
    version: str
    store: Path
    messages: list[WrittenMessage]
    left: set[int]
    whole: set[int]
    live_end: int
    before: StoreFiles
    slots: int
    recovery: Boot
    answers: Answers | None

    def differences(self, answer: Mapping[str, Any]) -> Iterator[str]:
        """Where the boot, whose `answer` the store gave, is not as was said."""
        recovery = self.recovery
        if self.answers is not None:
            yield from self.answers.contradictions()
        if "failure" in answer or recovery.obstacles:
            yield from causes_differ(answer, recovery.obstacles)
            return
        if answer["logEnd"] != (recovery.log_end or 0):
            yield f"log end {answer['logEnd']}, said: {recovery.log_end}"
        ends = {(topic, int(id)): end for topic, ids in answer["queueEnds"].items() for id, end in ids.items() if end}
        said = {queue: end for queue, end in recovery.max_offsets.items() if end}
        if ends != said:
            yield f"queue ends {sorted(ends.items() - said.items())}, said: {sorted(said.items() - ends.items())}"
        after = StoreFiles.of(self.store, self.slots)
        deleted, named = self.before.deleted(after), {row["file"] for row in rows(recovery, "delete")}
        if deleted != named:
            yield f"deleted {sorted(deleted - named)}, said: {sorted(named - deleted)}"
        yield from self._messages(recovery, ends, after)
        yield from self._index(recovery, after)

    def differences_of_a_broker(self, settings: Mapping[str, str]) -> Iterator[str]:
        """Where a whole broker does something else to a copy than its message store alone has done."""
        copy = whole_broker_copy(self.store)
        try:
            with harness.Broker(self.version, copy, settings):
                if self.recovery.obstacles:
                    yield "a whole broker starts"
        except harness.HarnessError:
            if not self.recovery.obstacles:
                yield "a whole broker does not start"
            return
        alone, whole = StoreFiles.of(self.store, self.slots), StoreFiles.of(copy, self.slots)
        if alone.units != whole.units:
            yield "a whole broker leaves other units"
        if sum(alone.entries.values(), Counter()) != sum(whole.entries.values(), Counter()):
            yield "a whole broker leaves other index entries"
        named = ({name for name in files.inodes if not name.startswith("index/")} for files in (alone, whole))
        if len({frozenset(names) for names in named}) > 1:
            yield "a whole broker leaves other files"

    def _messages(self, recovery: Boot, ends: Mapping[tuple[str, int], int], after: StoreFiles) -> Iterator[str]:
        units = {
            queue: {at: offset for at, offset in places.items() if at < ends.get(queue, 0)}
            for queue, places in after.units.items()
        }
        led_to = {(queue, offset) for queue, places in units.items() for offset in places.values()}
        shown = {offset for places in self.before.units.values() for offset in places.values()}
        lost, shifted, cut, is_shown = 0, 0, 0, False
        log_start = min((int(name[-20:]) for name in after.inodes if name.startswith("commitlog/")), default=0)
        for message in self.messages:
            is_there = message.offset in self.left
            is_in_log = is_there and message.offset < (recovery.log_end or 0)
            if is_in_log and units.get(message.queue, {}).get(message.queue_offset) == message.offset:
                continue
            if is_in_log and (message.queue, message.offset) in led_to:
                shifted += 1
            elif is_in_log and message.offset < self.live_end:
                lost += 1
            elif message.offset >= log_start:
                cut += is_there and message.offset < self.live_end
                is_shown |= is_there or message.offset in shown
        if (lost, shifted) != (recovery.lost + recovery.deleted, recovery.shifted):
            yield f"lost {lost}, shifted {shifted}; said: {recovery.lost} + {recovery.deleted}, {recovery.shifted}"
        if cut != recovery.cut_messages:
            yield f"cut {cut}; said: {recovery.cut_messages}"
        if recovery.is_harmless and (lost or shifted or is_shown):
            yield "it is not harmless"

    def _index(self, recovery: Boot, after: StoreFiles) -> Iterator[str]:
        deleted = self.before.deleted(after)
        kept = (found for name, found in self.before.entries.items() if f"index/{name}" not in deleted)
        had, has = sum(kept, Counter()), sum(after.entries.values(), Counter())
        doubled = sum(min(had[offset], has[offset] - had[offset]) for offset in had)
        if doubled != recovery.doubled_entries:
            yield f"doubled entries {doubled}, said: {recovery.doubled_entries}"
        lacking = [
            message.offset
            for message in self.messages
            if message.offset in self.whole
            and message.offset < (recovery.log_end or 0)
            and has[message.offset] < message.keys
        ]
        part = recovery.unindexed
        outside = [offset for offset in lacking if part is None or offset not in part]
        if outside:
            yield f"{len(outside)} of {len(lacking)} without entries from {outside[0]} on, said: {part}"
        if part is not None and not lacking:
            yield f"none lacks entries, said: {part}"


def whole_broker_copy(store: Path) -> Path:
    """The copy of a store that a whole broker gets, if there is one."""
    return store.with_name(f"{store.name}.whole")


def kept_names(store: Path) -> Path:
    """The folder with other names of the files of a store."""
    return store.with_name(f"{store.name}.names")


def cases_of(store: Path, settings: Mapping[str, str], conf: Path, folder: Path, seed: int) -> Iterator[list[Case]]:
    """States derived of a store, by number, each with a case for each version."""
    messages, slots = written_messages(store), int(settings["maxHashSlotNum"])
    for number in range(STATES):
        path = harness.copy_store(store, folder / f"{seed}.{number}")
        about = CrashModel(random.Random(f"{seed} {number}"), messages).crash(path) if number else "as it was"
        left = left_messages(messages, path)
        with MessageStore(str(path)) as opened:
            live_end = opened.get_max_phy_offset()
        found = []
        for version in VERSIONS:
            is_asked = version == VERSIONS[(seed + number) % len(VERSIONS)]
            answers = Answers.of(path, version, conf) if is_asked else None
            recovery = next_recovery(str(path), version, str(conf)) if answers is None else answers.recovery
            assert recovery is not None, f"{path} is refused"
            copy = harness.copy_store(path, folder / f"{seed}.{number}.{version}")
            if number == OF_WHOLE_BROKER and version == VERSIONS[seed % 100]:
                harness.copy_store(path, whole_broker_copy(copy))
            before = StoreFiles.of(copy, slots)
            # A file that is deleted and created again would get the same inode again, if no other name kept it.
            shutil.copytree(copy, kept_names(copy), copy_function=os.link)
            name = f"{seed}.{number}: {about}"
            found.append(Case(name, version, copy, messages, *left, live_end, before, slots, recovery, answers))
        shutil.rmtree(path)
        yield found


def differences(cases: list[Case], conf: Path, settings: Mapping[str, str]) -> list[str]:
    """Boot the stores of all cases, and compare."""
    found = []
    for version in VERSIONS:
        chosen = [case for case in cases if case.version == version]
        answers = harness.boot_stores([(case.store, conf) for case in chosen], version)
        for case, answer in zip(chosen, answers, strict=True):
            texts = list(case.differences(answer))
            if whole_broker_copy(case.store).exists():
                texts += case.differences_of_a_broker(settings)
            found += [f"{case.about} by {version}: {text}" for text in texts]
            for path in (case.store, kept_names(case.store)):
                shutil.rmtree(path, ignore_errors=True)
    return found


CrashedStores = Callable[[str, str], tuple[Path, int]]
"""The store of a kind and a version, and its seed."""


@pytest.fixture(scope="module")
def crashed_store(tmp_path_factory: pytest.TempPathFactory) -> CrashedStores:
    folder = tmp_path_factory.mktemp("crashed") if KEPT is None else Path(KEPT)

    def make(kind: str, version: str) -> tuple[Path, int]:
        store, seed = folder / f"{kind}-{version}", SEED + 100 * list(SETTINGS).index(kind) + VERSIONS.index(version)
        if not store.exists():
            made = folder / f"{kind}-{version}.made"
            shutil.rmtree(made, ignore_errors=True)
            make_crashed_store(kind, version, made, seed)
            made.rename(store)
        return store, seed

    return make


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS if SOAKS else VERSIONS[1:])
@pytest.mark.parametrize("kind", SETTINGS if SOAKS else ["pool"])
def test_a_boot_does_to_a_crashed_store_what_was_said(
    kind: str, version: str, crashed_store: CrashedStores, tmp_path: Path
) -> None:
    (store, seed), settings = crashed_store(kind, version), {**BASE, **SETTINGS[kind]}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    cases = [case for found in cases_of(store, settings, conf, tmp_path, seed) for case in found]
    found = differences(cases, conf, settings)
    refused = sum(bool(case.recovery.obstacles) for case in cases)
    print(f"{kind} {version}: {len(cases) // len(VERSIONS)} states, {len(cases)} boots, {refused} refused")
    assert not found, "\n".join([f"{len(found)} differences", *found])
