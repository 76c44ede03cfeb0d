"""Random damages: each is found, or is harmless at every door, or is in a field that no check can see.

The oracle (`spark_mq/testing/plain_check.py`) says which, from the broker's bytes and the facts. If a check is silent,
the doors are asked (`tests/support/doors.py`): their answers are those of the sound store, except for what the list of
unseen fields in docs/verify.md permits. The other way round, a store whose queues alone are damaged has findings at
exactly the units that differ. `SPARK_MQ_SOAK=1` tries 100,000 damages and more.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from spark_mq.errors import SparkMqError
from spark_mq.testing.plain_check import Oracle
from spark_mq.verifier.finding import Finding
from tests.support.disk_damages import DamagedStore, damage_disk, single_bit
from tests.support.doors import DOORS, Questions, ask, with_rows
from tests.support.soak import SOAKS, cases
from tests.support.stores import OWN_STORES, STORES, WORKLOAD, RealStore, Unpack, stores_in
from tests.support.verified import check, grave

SOUND = [
    *(STORES[name] for name in ("workload-533", "workload-49x", "crc-533")),
    *stores_in(OWN_STORES / "versions"),
    *(RealStore(name, OWN_STORES / "forms") for name in ("fBatchcq533", "fCompact533", "fLmq533", "fLite550")),
]
"""Stores of which the oracle knows each byte of log, queue files and index files: nothing has expired, and the broker
was not killed. Of other parts, such as databases and batch consume queues, only the doors say whether they are sound.
"""
TRIES = 250
BATCHES = range(45)
"""Of each store, in a soak; `TRIES` damages each."""
USUAL_TRIES = 8
DOORS_ASKED = 2
ALL_ASKED = 0.1
"""The share of the silent cases in which all doors are asked."""

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
    "topics": {"topics", "consumer_progress", "retries", "dead_letters", "life"},
    "subscriptionGroup": {"subscription_groups", "retries", "dead_letters", "life"},
    "consumerOffset": {"consumer_offsets", "consumer_progress", "retries", "dead_letters", "life"},
    "lmqConsumerOffset": {"consumer_offsets", "consumer_progress", "retries", "dead_letters", "life"},
    "consumerFilter": {"consumer_filters"},
    "delayOffset": {"delay_offsets", "delayed", "retries", "life"},
    "timercheck": {"delayed", "life"},
}
"""By the name of a file of `config/`, before a dot: the doors that it answers."""
OF_CHECKPOINT = {"checkpoint", "recover", "state", "state --full"}
OF_LOST_CHECKPOINT = {"consumer_progress", "delayed", "transactions", "retries", "dead_letters", "life"}
"""Only a checkpoint shows that the log lost nothing at its end: without it, what became of messages is UNKNOWN."""
ABSENT = {"QUEUE_DELETED", "LOG_BEFORE_START"}
"""Notes: what is missing can have been deleted."""
OF_INDEX = {"index_files"}
OF_ROWS = {
    *("messages of a topic", "messages in a time", "messages_by_key", "by id", "by key", "by keys", "as broker"),
    *("by unique key", "by queue, log", "by queue, units", "compacted_messages", "compaction_states"),
}
"""Doors that answer with rows of messages."""
OF_MEANING = {
    *("life", "transactions", "delayed", "retries", "dead_letters", "traces", "consumer_progress"),
    *("duplicates", "hot_keys", "rates", "skew"),
}
"""Doors that conclude something from messages."""
OF_TIMES = {"messages in a time", "by time, log", "by time, units", "state", "state --full", "recover"}
"""Doors that conclude something from the store times of messages."""


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
            []
            if "LOG_BEFORE_START" in codes
            else self._wrong_rows(with_rows(self._ask("messages")), self._changed_records(files))
        )
        return [*(f"not found: {change}" for change in changes), *rows]

    def _ask(self, door: str) -> Any:
        return ask(door, self.store.path, self.asked)

    def _sound(self, door: str) -> Any:
        if door not in self.answers:
            self.answers[door] = ask(door, self.oracle.original, self.asked)
        return self.answers[door]

    @cached_property
    def _sound_rows(self) -> Any:
        return with_rows(self._sound("messages"))

    def _silent(self, files: list[str], chance: random.Random) -> tuple[str, list[str]]:
        """The outcome of a damage of which a check says nothing, and what is wrong with that."""
        wrong = [f"not found: {change}" for change in self.oracle.visible_changes(self.store.path)[:3]]
        count = len(DOORS) if chance.random() < ALL_ASKED else DOORS_ASKED
        asked = {"messages", *chance.sample(sorted(DOORS), count)}
        answers = {door: self._ask(door) for door in asked}
        differing = {door for door, answer in answers.items() if answer != self._sound(door)}
        parts, records = {file.split("/")[0] for file in files}, self._changed_records(files)
        permitted = set[str]()
        for file in files:
            if file.startswith("config/"):
                permitted |= OF_CONFIG.get(Path(file).name.split(".")[0], set())
        if "checkpoint" in parts:
            permitted |= OF_CHECKPOINT
            if not self.store.read("checkpoint"):
                permitted |= OF_LOST_CHECKPOINT
        if "index" in parts:
            permitted |= OF_INDEX
        if records:
            rows = with_rows(answers["messages"])
            wrong += self._wrong_rows(rows, records)
            permitted |= {"messages", *OF_MEANING}
            permitted |= {door for door in differing & OF_ROWS if self._is_same(door, answers[door], records)}
            if not wrong and _times(rows) != _times(self._sound_rows):
                permitted |= OF_TIMES
        wrong += [f"{door} differs" for door in sorted(differing - permitted)]
        return "listed" if records or differing else "harmless", wrong

    def _is_same(self, door: str, answer: Any, changed: set[int]) -> bool:
        """Whether the answer of a door differs from the right one in unseen fields at most."""
        right = with_rows(self._sound(door))
        if door == "by id":  # with another store host, a message has another id
            rows = zip(with_rows(self._ask("messages")), self._sound_rows, strict=False)
            moved = [one["commit_log_offset"] for one, sound in rows if one["store_host"] != sound["store_host"]]
            right = [[row for row in found if row["commit_log_offset"] not in moved] for found in right]
        return _without_unseen(with_rows(answer), changed) == _without_unseen(right, changed)

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
        sound = self._sound_rows
        if len(rows) != len(sound):
            return [f"{len(rows)} messages, not {len(sound)}"]
        wrong = []
        for row, right in zip(rows, sound, strict=True):
            differing = {name for name in right if row[name] != right[name]} - _unseen(right, changed)
            if differing:
                wrong.append(f"message {right['commit_log_offset']}: {differing}")
        return wrong[:3]


def _times(rows: Any) -> list[Any]:
    return [row["store_timestamp"] for row in rows]


def _unseen(row: dict[str, Any], changed: set[int]) -> set[str]:
    """The columns of a row that no check sees. A message of type PREPARED or ROLLBACK has no unit."""
    if row.get("commit_log_offset") not in changed:
        return set()
    return UNSEEN_COLUMNS | ({"queue_id", "queue_offset", "topic"} if row["sys_flag"] & 0x4 else set())


def _without_unseen(answer: object, changed: set[int]) -> object:
    """An answer without the unseen fields of changed records."""
    if isinstance(answer, dict):
        unseen = _unseen(answer, changed)
        return {name: value for name, value in answer.items() if name not in unseen}
    return [_without_unseen(one, changed) for one in answer] if isinstance(answer, list | tuple) else answer


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
    assert trial.counts["found"] > tries // 4


def test_findings_about_queues_are_exactly_the_units_that_differ(unpacked: Unpack, tmp_path: Path) -> None:
    """A file that has another size or name is one finding; all others are named unit by unit."""
    store = DamagedStore.of(WORKLOAD, unpacked(WORKLOAD), tmp_path)
    for seed in range(2500 if SOAKS else 10):
        chance = random.Random(seed)
        file = chance.choice(store.files("consumequeue"))
        for _ in range(chance.randrange(1, 4)):
            single_bit(store, chance, file)
        before, after = store.sound[file], store.read(file)
        differ = [at for at in range(0, len(after), 20) if after[at : at + 20] != before[at : at + 20]]
        units = [before if any(before[at + 8 : at + 12]) else after for at in differ]  # the unit of the log, if any
        offsets = [
            int.from_bytes(unit[at : at + 8], "big", signed=True) for at, unit in zip(differ, units, strict=True)
        ]
        _, findings = check(store.path, WORKLOAD.broker_conf)
        found = {(f.file, f.position, f.commit_log_offset) for f in grave(findings)}
        assert found == {(file, *one) for one in zip(differ, offsets, strict=True)}, seed
        store.restore()
