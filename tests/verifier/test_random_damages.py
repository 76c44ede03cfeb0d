"""Random damages: each is found, or is harmless at every door, or is in a field that no check can see.

The oracle (`spark_mq/testing/plain_check.py`) says which, from the broker's bytes and the facts. If a check is silent,
the doors are asked (`tests/support/doors.py`): their answers are those of the sound store, except for what the list of
unseen fields in docs/verify.md permits. The other way round, a store whose queues alone are damaged has findings at
exactly the units that differ. `SPARK_MQ_SOAK=1` tries 100,000 damages.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import SparkMqError
from spark_mq.testing.plain_check import Oracle
from spark_mq.verifier.finding import Finding
from tests.support.disk_damages import DamagedStore, damage_disk, single_bit
from tests.support.doors import DOORS, Questions, ask
from tests.support.soak import SOAKS, cases
from tests.support.stores import OWN_STORES, STORES, WORKLOAD, RealStore, Unpack, stores_in
from tests.support.verified import check, grave

SOUND = [
    *(STORES[name] for name in ("workload-533", "workload-49x", "crc-533")),
    *stores_in(OWN_STORES / "versions"),
]
"""Stores of which the oracle knows each byte: nothing has expired, and the broker was not killed."""
TRIES = 250
BATCHES = range(80)
"""Of each store, in a soak; `TRIES` damages each."""
USUAL_TRIES = 8
DOORS_ASKED = 6

UNSEEN_COLUMNS = {
    "flag",
    "sys_flag",
    "transaction_type",
    "born_timestamp",
    "born_host",
    "store_host",
    "offset_message_id",
    "store_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "body",
    "body_compression",
    "properties",
    "tags",
    "keys",
    "unique_key",
    "_corrupt_record",
}
"""Columns of `messages` that unseen fields of a record fill. A changed body may not be decompressed any more."""
OF_CONFIG = {
    "topics",
    "consumer_offsets",
    "subscription_groups",
    "consumer_filters",
    "delay_offsets",
    "begin_offsets",
    "consumer_progress",
    "retries",
    "dead_letters",
    "delayed",
    "transactions",
    "life",
}
OF_CHECKPOINT = {
    *("checkpoint", "recover", "state", "state --full"),
    *("consumer_progress", "delayed", "transactions", "retries", "dead_letters", "life"),
}
"""Only a checkpoint shows that the log lost nothing at its end: without it, what became of messages is UNKNOWN."""
ABSENT = {"QUEUE_DELETED", "LOG_BEFORE_START"}
"""Notes: what is missing can have been deleted."""
OF_INDEX = {"index_files"}
OF_PLACES = {"log ends", "segments", "index_entries", "index_files", "consume_queue", "queues", "queue ends, units"}
"""Doors whose answers have no unseen field of a record, apart from times."""


@dataclass
class Trial:
    """A store that is damaged again and again, with what is known of it when it is sound."""

    store: DamagedStore
    oracle: Oracle
    asked: Questions
    before: list[Finding]
    answers: dict[str, object] = field(default_factory=dict)
    """What doors said of the sound store."""
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, packed: RealStore, original: Path, folder: Path) -> Trial:
        store, asked = DamagedStore.of(packed, original, folder), Questions.of(packed)
        _, before = check(store.path, packed.broker_conf)
        return cls(store, Oracle(packed, original), asked, before)

    def run(self, chance: random.Random) -> str | None:
        """Do a damage and put it right; what is wrong with the answers, or None."""
        kinds, done = damage_disk(self.store, chance)
        files, outcome, wrong = self.store.differences, "no byte", list[str]()
        if files:
            findings = self._findings()
            if findings is None or grave(findings):
                outcome = "found"
            elif findings:
                outcome, wrong = "noted", self._noted(files, {finding.code for finding in findings})
            else:
                outcome, wrong = self._silent(files, chance)
        self.counts.update({outcome: 1, **{f"{kind}: {outcome}": 1 for kind in set(kinds)}})
        self.store.restore()
        return f"{done}: {wrong}" if wrong else None

    def _findings(self) -> list[Finding] | None:
        """What a check finds; None if it refuses the store."""
        try:
            _, findings = check(self.store.path, self.store.packed.broker_conf)
        except SparkMqError:
            return None
        return [finding for finding in findings if finding not in self.before]

    def _noted(self, files: list[str], codes: set[str]) -> list[str]:
        """What is wrong with the messages of a store of which a check only notes something."""
        changes = [] if codes & ABSENT else self.oracle.visible_changes(self.store.path)[:3]
        rows = (
            [] if "LOG_BEFORE_START" in codes else self._wrong_rows(self._ask("messages"), self._changed_records(files))
        )
        return [*(f"not found: {change}" for change in changes), *rows]

    def _ask(self, door: str) -> Any:
        return ask(door, self.store.path, self.asked)

    def _sound(self, door: str) -> Any:
        if door not in self.answers:
            self.answers[door] = ask(door, self.oracle.original, self.asked)
        return self.answers[door]

    def _silent(self, files: list[str], chance: random.Random) -> tuple[str, list[str]]:
        """The outcome of a damage of which a check says nothing, and what is wrong with that."""
        wrong = [f"not found: {change}" for change in self.oracle.visible_changes(self.store.path)[:3]]
        asked = ["messages", *chance.sample(sorted(DOORS), DOORS_ASKED)]
        answers = {door: self._ask(door) for door in asked}
        differing = {door for door, answer in answers.items() if answer != self._sound(door)}
        parts, records = {file.split("/")[0] for file in files}, self._changed_records(files)
        permitted = set[str]()
        if "config" in parts:
            permitted |= OF_CONFIG
        if "checkpoint" in parts:
            permitted |= OF_CHECKPOINT
        if "index" in parts:
            permitted |= OF_INDEX
        if records:
            wrong += self._wrong_rows(answers["messages"], records)
            permitted |= set(DOORS) - OF_PLACES
        wrong += [f"{door} differs" for door in sorted(differing - permitted)]
        return "listed" if records or differing else "harmless", wrong

    def _changed_records(self, files: list[str]) -> set[int]:
        """The offsets of the records whose bytes differ."""
        found = set()
        for offset, size in self.store.records:
            file, at = self.store.place_of(offset)
            if file in files and self.store.read(file)[at : at + size] != self.store.sound[file][at : at + size]:
                found.add(offset)
        return found

    def _wrong_rows(self, rows: Any, changed: set[int]) -> list[str]:
        """What differs in the rows of `messages` although it is not an unseen field of a changed record."""
        sound = self._sound("messages")
        if len(rows) != len(sound):
            return [f"{len(rows)} messages, not {len(sound)}"]
        wrong = []
        for row, right in zip(rows, sound, strict=True):
            differing = {name for name in right if row[name] != right[name]}
            unseen = UNSEEN_COLUMNS if right["commit_log_offset"] in changed else set()
            if right["sys_flag"] & 0xC in (0x4, 0xC):
                unseen = unseen | {"queue_id", "queue_offset", "topic"} if unseen else unseen
            if differing - unseen:
                wrong.append(f"message {right['commit_log_offset']}: {differing - unseen}")
        return wrong[:3]


@pytest.mark.parametrize("batch", cases([0], BATCHES))
@pytest.mark.parametrize("packed", SOUND, ids=str)
def test_every_damage_is_found_or_harmless_or_listed(
    packed: RealStore, batch: int, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A repair would wait for a broker that dispatches its last messages; nobody writes here.
    monkeypatch.setattr("spark_mq.verifier.log_bounds._DISPATCH_SECONDS", 0.0)
    trial = Trial.of(packed, unpacked(packed), tmp_path)
    assert trial.oracle.visible_changes(trial.store.path) == []
    tries = TRIES if SOAKS else USUAL_TRIES
    wrong = [
        f"{seed}: {said}"
        for seed in range(batch * TRIES, batch * TRIES + tries)
        if (said := trial.run(random.Random(f"{packed.name} {seed}"))) is not None
    ]
    print(f"COUNTS {packed.name} {dict(trial.counts)}")
    assert not wrong
    assert trial.counts["found"] > tries // 2


def test_findings_about_queues_are_exactly_the_units_that_differ(unpacked: Unpack, tmp_path: Path) -> None:
    """A file that has another size or name is one finding; all others are named unit by unit."""
    store = DamagedStore.of(WORKLOAD, unpacked(WORKLOAD), tmp_path)
    for seed in range(2500 if SOAKS else 10):
        chance = random.Random(seed)
        file = chance.choice(store.files("consumequeue"))
        for _ in range(chance.randrange(1, 4)):
            single_bit(store, chance, file)
        before, after = store.sound[file], store.read(file)
        differ = {at for at in range(0, len(after), 20) if after[at : at + 20] != before[at : at + 20]}
        _, findings = check(store.path, WORKLOAD.broker_conf)
        assert {(f.file, f.position) for f in grave(findings)} == {(file, at) for at in differ}, seed
        store.restore()
