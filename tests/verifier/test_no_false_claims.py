"""Damaged stores of all versions, asked at every door: nobody says sound, or that nothing is lost, where it is not so.

The judges share nothing with the doors: the messages as the broker wrote them, their units in the damaged files, and
the oracle of `verify`. The doors are also compared with each other. `SPARK_MQ_SOAK=1` tries 2,000 stores.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from spark_mq.cli.check import Answer
from spark_mq.cli.check import check_store as ask_check
from spark_mq.cli.recover.text import verdict as recover_verdict
from spark_mq.cli.state.verdict import verdict as state_verdict
from spark_mq.errors import CorruptLogError, SparkMqError
from spark_mq.format.record import decode_record
from spark_mq.repairer.report import RepairReport
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.recovery import Recovery, next_recovery
from spark_mq.store.store_state import StoreState, store_state
from spark_mq.verifier.finding import Finding
from spark_mq.verifier.quick import quick_check
from spark_mq.verifier.result import VerifyReport
from tests.support.boot_oracle import OracleMessage, messages_of
from tests.support.damages import DAMAGES
from tests.support.index_damages import EditedIndexFile, damage_index
from tests.support.random_damages import QUEUE_AND_LOG_ENDS, damage_bytes
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, stores_in
from tests.support.verified import Bench, check, grave
from tests.support.verify_oracle import Oracle

Unpack = Callable[[RealStore], Path]
Result = TypeVar("Result")
VERSIONS = ("4.9.0", "4.9.7", "5.0.0", "5.1.0", "5.3.1", "5.3.3", "5.4.0", "5.5.1")
STORES = [*stores_in(OWN_STORES), *stores_in(OWN_STORES / "versions")]
SOUND = ("workload-533", "workload-49x", "crc-533", "workload-550", "upgraded-550")
"""Stores of which the oracle of `verify` knows each byte: nothing has expired, and the broker was not killed."""
NO_PLACE = (OSError, LookupError, StopIteration, ValueError, AssertionError, struct.error)
"""What a damage raises that finds no place in a store, or none any more."""
OFFSET_CODES = {"OFFSET_PAST_END", "DELAY_OFFSET_PAST_END"}


@cache
def known(store: RealStore, folder: Path) -> list[OracleMessage]:
    return messages_of(store, folder)


def do_damages(bench: Bench, chance: random.Random) -> list[str]:
    """Do 1 to 6 random damages, each of another kind; says which."""
    catalogue = [case for case in DAMAGES if case.store == bench.packed.name] or DAMAGES
    done = []
    for _ in range(chance.randint(1, 6)):
        kind = chance.choice(["catalogue", "catalogue", "bytes", "ends", "index"])
        with suppress(*NO_PLACE):
            if kind == "catalogue":
                case = chance.choice(catalogue)
                if case.name not in done:
                    done.append(case.name)
                    case.do(bench)
            elif kind == "bytes":
                done.append(damage_bytes(bench.path, chance))
            elif kind == "ends":
                cut = chance.choice(QUEUE_AND_LOG_ENDS)
                done.append(str(cut.__name__))
                cut(bench.path, chance)
            else:
                times = {fact["offset"]: fact["storeTimestamp"] for fact in bench.messages}
                file = chance.choice(sorted((bench.path / "index").iterdir()))
                edited = EditedIndexFile(file, bench.setting("maxHashSlotNum"), times)
                done.append(damage_index(edited, chance))
    return done


@dataclass(frozen=True)
class Truth:
    """What the bytes of a damaged store say of each message that the broker wrote.

    Attributes:
        gone: Offsets of messages before the last one that is left, and after the first, of which there is no record.
        shown: Offsets of messages after the last one that is left, to which units still lead.
        lacking: Offsets of messages whose bytes are as they were, and to which no unit leads at their queue offset.

    """

    gone: frozenset[int]
    shown: frozenset[int]
    lacking: frozenset[int]

    @classmethod
    def of(cls, messages: list[OracleMessage], folder: Path) -> Truth:
        segments = {
            int(file.name): file.read_bytes()
            for file in (folder / "commitlog").iterdir()
            if file.is_file() and _is_offset(file.name)
        }
        units = _units(folder)
        framed, whole = set(), set()
        for message in messages:
            base = max((base for base in segments if base <= message.offset), default=None)
            if base is None:
                continue
            data = segments[base]
            with suppress(CorruptLogError):
                decode_record(data, message.offset - base, message.offset)
                framed.add(message.offset)
            if data[message.offset - base :][: message.size] == message.data:
                whole.add(message.offset)
        first, last = min(framed, default=0), max(framed, default=-1)
        lost = {message.offset for message in messages} - framed
        return cls(
            frozenset(offset for offset in lost if first < offset < last),
            frozenset(m.offset for m in messages if m.offset in lost and m.offset > last and _has_unit(m, units)),
            frozenset(m.offset for m in messages if m.offset in whole and not _has_unit(m, units)),
        )


def _is_offset(name: str) -> bool:
    return len(name) == 20 and name.isdecimal()


def _units(folder: Path) -> dict[tuple[str, int, int], tuple[int, int]]:
    """By topic, queue id and queue offset: the commit log offset and the size of a unit."""
    found = {}
    for file in (folder / "consumequeue").glob("*/*/*"):
        if file.is_file() and _is_offset(file.name) and file.parent.name.isdecimal():
            data = file.read_bytes()
            for number, (offset, size, _) in enumerate(struct.iter_unpack(">qiq", data[: len(data) // 20 * 20])):
                place = file.parent.parent.name, int(file.parent.name), int(file.name) // 20 + number
                found[place] = offset, size
    return found


def _has_unit(message: OracleMessage, units: dict[tuple[str, int, int], tuple[int, int]]) -> bool:
    return units.get((*message.queue, message.queue_offset)) == (message.offset, message.size)


def answer_of(ask: Callable[[], Result]) -> Result | None:
    """The answer of a door; None if it refuses the store with an error of the package."""
    try:
        return ask()
    except SparkMqError:
        return None


@dataclass(frozen=True)
class Answers:
    """What the doors say of a store; None of a door that refuses it.

    Attributes:
        findings: The findings of `verify`.
        quick: The report of `verify --quick`.
        recovery: What `recover` says.
        state: What `state --full` says.
        quick_state: What `state` says without reading the log.
        check: What `check` says.

    """

    findings: list[Finding] | None
    quick: VerifyReport | None
    recovery: Recovery | None
    state: StoreState | None
    quick_state: StoreState | None
    check: Answer | None

    @classmethod
    def of(cls, folder: Path, version: str, conf: Path) -> Answers:
        path, settings = str(folder), BrokerConf.of(str(conf))
        found = answer_of(lambda: quick_check(path, settings))
        answers = answer_of(lambda: ask_check(path, version, str(conf)))
        verified = answer_of(lambda: check(folder, conf))
        return cls(
            None if verified is None else verified[1],
            None if found is None else found[0],
            answer_of(lambda: next_recovery(path, version, str(conf))),
            answer_of(lambda: store_state(path, version, str(conf), full=True)),
            answer_of(lambda: store_state(path, version, str(conf), full=False)),
            None if answers is None else answers[0],
        )

    @property
    def damage(self) -> list[Finding]:
        """The warnings and errors of `verify`."""
        return grave(self.findings or [])

    @property
    def is_sound(self) -> bool:
        """Whether `verify` answers, and finds neither a warning nor an error."""
        return self.findings is not None and not self.damage

    @property
    def names_deleted_queues(self) -> bool:
        """Whether `verify` has a note of queues whose topic seems to be deleted: if it is not, they are lost."""
        return any(finding.code == "QUEUE_DELETED" for finding in self.findings or [])

    @property
    def denials(self) -> list[str]:
        """The doors that say that nothing is lost, and nothing is in doubt."""
        said = []
        if self.recovery is not None and "loses nothing" in " ".join(recover_verdict(self.recovery)):
            said.append("recover")
        for name, state in (("state --full", self.state), ("state", self.quick_state)):
            if state is not None and "loses nothing" in " ".join(state_verdict(state)):
                said.append(name)
        if self.check is not None and self.check.answer == "yes":
            said.append("check")
        return said


def contradictions(truth: Truth, answers: Answers) -> Iterator[str]:
    """What the doors say against the bytes, and against each other."""
    denials, recovery, state, seen = answers.denials, answers.recovery, answers.state, answers.quick_state
    losses = truth.gone or truth.shown
    if denials and losses:
        yield f"{denials} deny that {len(truth.gone)} + {len(truth.shown)} messages are lost"
    is_all_there = answers.is_sound and not answers.names_deleted_queues
    if (answers.is_sound and losses) or (is_all_there and truth.lacking):
        yield f"verify: sound, but {len(losses)} messages are lost, and {len(truth.lacking)} have no unit"
    if is_all_there and answers.quick is not None and not answers.quick.is_sound:
        yield f"verify: sound, but verify --quick: {answers.quick.counts}"
    if answers.quick is not None and answers.quick.is_sound and "as far as" not in answers.quick.verdict:
        yield "verify --quick says sound without a limit"
    boot = None if recovery is None else recovery.boot
    if boot is not None and not boot.deletes_queues:
        ends = boot.completed + boot.lost + boot.shifted + boot.deleted + boot.cut_messages
        if len(truth.lacking) > ends:
            yield f"recover knows what becomes of {ends} messages, but {len(truth.lacking)} have no unit"
        if state is not None and list(state.boots) != [boot]:
            yield "state --full and recover say different things"
        # Some versions take a damaged record after the live end for a live one, which verify does not.
        if (
            is_all_there
            and not boot.revived
            and (boot.lost or boot.shifted or boot.gone or boot.deleted or boot.damaged_bytes)
        ):
            yield f"verify: sound, but recover: {recover_verdict(recovery)}" if recovery else ""
        # A quick look takes the last unit for the end of its queue, where a broker stops at a hole: it can fear more.
        has_hole = any(finding.code.startswith("QUEUE_") for finding in answers.damage)
        if seen is not None and seen.boots[0].lost + seen.boots[0].shifted > ends - boot.completed and not has_hole:
            yield "state sees more losses than there are"
    if recovery is not None and not recovery.is_harmless and denials:
        yield f"recover: not harmless, but {denials} deny it"
    if answers.check is not None and answers.check.answer == "yes" and state is not None and state.obstacles:
        yield f"check: yes, but state: {state.obstacles}"


def false_repair(plan: RepairReport, before: Answers, done: RepairReport, after: Answers) -> Iterator[str]:
    """What a repair says against a check before it and after it."""
    if not plan.actions and "the store is sound" in plan.verdict and not before.is_sound:
        yield f"repair: {plan.verdict}, but verify: {before.damage}"
    if not done.is_complete:
        # A plan takes stale units for the end of a queue without live messages; the report then names its offsets.
        is_only_offsets = {finding.code for finding in after.damage} <= OFFSET_CODES
        if plan.is_complete and not is_only_offsets:
            yield f"repair planned to do all, but: {done.verdict}, {done.left}"
        return
    if not after.is_sound:
        yield f"repair: {done.verdict}, but verify: {after.damage}"
    boot = None if after.recovery is None else after.recovery.boot
    if boot is not None and not boot.revived and (boot.lost or boot.shifted or boot.gone or boot.damaged_bytes):
        yield f"repair: {done.verdict}, but recover: {recover_verdict(after.recovery)}" if after.recovery else ""
    if after.quick is not None and not after.quick.is_sound and not after.names_deleted_queues:
        yield f"repair: {done.verdict}, but verify --quick: {after.quick.counts}"


@pytest.fixture(autouse=True)
def _no_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair holds the lock itself, and its checks would wait for a broker that dispatches its last messages."""
    monkeypatch.setattr("spark_mq.verifier.log_end._DISPATCH_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(2000 if SOAKS else 24))
def test_nobody_makes_a_false_claim(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    chance = random.Random(f"claims {seed}")
    store, version = STORES[seed % len(STORES)], chance.choice(VERSIONS)
    original, conf = unpacked(store), store.broker_conf
    bench = Bench(store, Path(shutil.copytree(original, tmp_path / "store", symlinks=True)))
    done = do_damages(bench, chance)
    if chance.random() < 0.3:
        (bench.path / "abort").touch()
    case = store.name, version, done
    truth, answers = Truth.of(known(store, original), bench.path), Answers.of(bench.path, version, conf)
    assert list(contradictions(truth, answers)) == [], case
    if answers.is_sound and not answers.names_deleted_queues and store.name in SOUND:
        assert Oracle(store, original).visible_changes(bench.path) == [], case
    if answers.is_sound:
        assert not {named.name for named in DAMAGES if named.store == store.name}.intersection(done), case
    plan = answer_of(lambda: repair_here(bench.path, conf, offsets=True))
    applied = answer_of(lambda: repair_here(bench.path, conf, apply=True, offsets=True))
    if plan is None or applied is None:
        assert not answers.is_sound, case
        return
    after = Answers.of(bench.path, version, conf)
    assert list(contradictions(Truth.of(known(store, original), bench.path), after)) == [], (case, "after repair")
    assert list(false_repair(plan, answers, applied, after)) == [], case


def test_a_damaged_index_file_of_expired_messages_is_set_aside(unpacked: Unpack, tmp_path: Path) -> None:
    """Nothing of the log belongs into it, so no new file takes its place."""
    store = RealStore("deleted-533", OWN_STORES)
    bench = Bench.of(unpacked(store), store.name, tmp_path)
    os.truncate(bench.path / "index/20261121110049708", 3061)
    assert repair_here(bench.path, store.broker_conf, apply=True, offsets=True).is_complete
    assert grave(check(bench.path, store.broker_conf)[1]) == []
