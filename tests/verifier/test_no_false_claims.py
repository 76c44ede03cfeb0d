"""Damaged stores of all versions, asked at every door: nobody says sound, or that nothing is lost, where it is not so.

The judges share nothing with the doors: the messages as the broker wrote them, their units in the damaged files, and
the oracle of `verify`. The doors are also compared with each other. `SPARK_MQ_SOAK=1` tries 2,000 stores.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from spark_mq.errors import CorruptLogError
from spark_mq.format.kernels.recovery import RecordCheck
from spark_mq.format.record import decode_record
from spark_mq.repairer.repair import RepairReport
from spark_mq.store.log.recovery_walk import END_REASONS
from spark_mq.store.verdict import losses as boot_losses
from spark_mq.testing.plain_check import Oracle
from spark_mq.testing.plain_queue import OracleMessage, messages_of
from tests.support.answers import Answers, answer_of, ends_of_lacking, harm
from tests.support.damages import DAMAGES
from tests.support.index_damages import EditedIndexFile, damage_index
from tests.support.random_damages import QUEUE_AND_LOG_ENDS, damage_bytes
from tests.support.repaired import repair_here
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, RealStore, Unpack, stores_in
from tests.support.verified import Bench, check, grave

Result = TypeVar("Result")
VERSIONS = ("4.9.0", "4.9.7", "5.0.0", "5.1.0", "5.3.1", "5.3.3", "5.4.0", "5.5.1")
STORES = [*stores_in(OWN_STORES), *stores_in(OWN_STORES / "versions")]
SOUND = ("workload-533", "workload-49x", "crc-533", "workload-550", "upgraded-550")
"""Stores of which the oracle of `verify` knows each byte: nothing has expired, and the broker was not killed."""
NO_PLACE = (OSError, LookupError, StopIteration, ValueError, AssertionError, struct.error)
"""What a damage raises that finds no place in a store, or none any more."""
USUAL = (*range(18), 274, 411, 736, 1249, 1270, 1332, 1891)
"""The cases of a usual run; each of the last six found a false claim once."""


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
        lacking: The messages whose bytes are as they were, and to which no unit leads at their queue offset.

    """

    gone: frozenset[int]
    shown: frozenset[int]
    lacking: frozenset[OracleMessage]

    @classmethod
    def of(cls, messages: list[OracleMessage], folder: Path) -> Truth:
        segments = {
            int(file.name): file.read_bytes()
            for file in (folder / "commitlog").iterdir()
            if file.is_file() and _is_offset(file.name)
        }
        units = Units(folder)
        framed, whole = set(), set()
        for message in messages:
            base = max((base for base in segments if base <= message.offset), default=None)
            if base is None:
                continue
            data = segments[base]
            if data.startswith(message.data, message.offset - base):
                whole.add(message.offset)
                framed.add(message.offset)
                continue
            with suppress(CorruptLogError):
                decode_record(data, message.offset - base, message.offset)
                framed.add(message.offset)
        first, last = min(framed, default=0), max(framed, default=-1)
        lost = {message.offset for message in messages} - framed
        return cls(
            frozenset(offset for offset in lost if first < offset < last),
            frozenset(m.offset for m in messages if m.offset in lost and m.offset > last and units.has(m)),
            frozenset(m for m in messages if m.offset in whole and not units.has(m)),
        )


def _is_offset(name: str) -> bool:
    return len(name) == 20 and name.isdecimal()


class Units:
    """The units in the queue files of a damaged store."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for file in (folder / "consumequeue").glob("*/*/*"):
            if file.is_file() and _is_offset(file.name) and file.parent.name.isdecimal():
                queue = file.parent.parent.name, int(file.parent.name)
                self._files.setdefault(queue, []).append((int(file.name), file.read_bytes()))

    def has(self, message: OracleMessage) -> bool:
        """Whether the unit at the queue offset of a message leads to it."""
        at, unit = message.queue_offset * 20, struct.pack(">qi", message.offset, message.size)
        files = self._files.get(message.queue, [])
        return any(data.startswith(unit, at - first) for first, data in files if first <= at)


def contradictions(truth: Truth, answers: Answers) -> Iterator[str]:
    """What the doors say against the bytes, and against each other."""
    losses, boot = truth.gone or truth.shown, answers.recovery
    if answers.denials and losses:
        yield f"{answers.denials} deny that {len(truth.gone)} + {len(truth.shown)} messages are lost"
    without = [message for message in truth.lacking if message.queue not in answers.deleted_queues]
    if answers.is_sound and (losses or without):
        yield f"verify: sound, but {len(losses)} messages are lost, and {len(without)} have no unit"
    if answers.quick is not None and answers.quick.is_sound and "as far as" not in answers.quick.verdict:
        yield "verify --quick says sound without a limit"
    plan = answers.plan
    if plan is not None and not plan.actions and ("the store is sound" in plan.verdict) != answers.is_sound:
        yield f"repair: {plan.verdict}, but verify: {answers.damage}"
    is_known = boot is not None and boot.is_full and not boot.deletes_queues
    if boot is not None and is_known and len(truth.lacking) > ends_of_lacking(boot):
        yield f"recover knows the ends of {ends_of_lacking(boot)} messages, but {len(truth.lacking)} have no unit"
    if answers.check is not None and answers.is_sound and "spark-mq repair" in answers.check.next:
        yield f"check says {answers.check.next}, but repair has nothing to do"
    yield from answers.contradictions()


def false_repair(plan: RepairReport, done: RepairReport, after: Answers) -> Iterator[str]:
    """What a repair says against a check before it and after it."""
    if not done.is_complete:
        if plan.is_complete:
            yield f"repair planned to do all, but: {done.verdict}, {done.left}"
        return
    if not after.is_sound:
        yield f"repair: {done.verdict}, but verify: {after.damage}"
    boot = after.recovery
    if boot is not None and boot.is_full and harm(boot):
        yield f"repair: {done.verdict}, but recover: {boot_losses(boot)}"
    if after.quick is not None and not after.quick.is_sound:
        yield f"repair: {done.verdict}, but verify --quick: {after.quick.counts}"
    if after.check is not None:
        said = [fact.text for fact in after.check.losses if not fact.text.startswith(tuple(lasting_losses(after)))]
        if said:
            yield f"repair: {done.verdict}, but check: {after.check.answer}, {said}"


def lasting_losses(after: Answers) -> Iterator[str]:
    """How the losses begin that `check` names of a sound store: the version is the reason."""
    recovery = after.recovery
    yield "a downgrade to "
    if recovery is not None and recovery.end_reason == END_REASONS[RecordCheck.TOO_NEW]:
        yield "the boot cuts "
    if recovery is not None and recovery.is_full and recovery.deleted_index_files:
        yield "the boot leaves messages "


@pytest.fixture(autouse=True)
def _no_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair holds the lock itself, and its checks would wait for a broker that dispatches its last messages."""
    monkeypatch.setattr("spark_mq.verifier.log_bounds._DISPATCH_SECONDS", 0.0)


@pytest.mark.parametrize("seed", cases(USUAL, range(2000)))
def test_nobody_makes_a_false_claim(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    chance = random.Random(f"claims {seed}")
    store, version = STORES[seed % len(STORES)], chance.choice(VERSIONS)
    original, conf = unpacked(store), store.broker_conf
    bench = Bench(store, Path(shutil.copytree(original, tmp_path / "store", symlinks=True)))
    done = do_damages(bench, chance)
    if chance.random() < 0.3:
        (bench.path / "abort").touch()
    case = store.name, version, done
    truth = Truth.of(known(store, original), bench.path)
    before = Answers.of(bench.path, version, conf)
    repaired = answer_of(lambda: repair_here(bench.path, conf, apply=True, offsets=True))
    if repaired is not None:
        before = replace(before, plan=replace(repaired, is_applied=False, after=None))
    assert list(contradictions(truth, before)) == [], case
    if before.is_sound:
        assert before.plan is not None
        assert not before.plan.actions, case
        assert not {named.name for named in DAMAGES if named.store == store.name}.intersection(done), case
        if not before.deleted_queues and store.name in SOUND:
            assert Oracle(store, original).visible_changes(bench.path) == [], case
    if before.plan is None or repaired is None or not repaired.actions:
        return
    again = repair_here(bench.path, conf, offsets=True)
    after = replace(Answers.of(bench.path, version, conf), plan=again)
    assert not (repaired.is_complete and again.actions), case
    assert repaired.after is not None
    assert repaired.after.counts == again.before.counts, case
    truth = Truth.of(known(store, original), bench.path)
    assert list(contradictions(truth, after)) == [], (case, "after repair")
    assert list(false_repair(before.plan, repaired, after)) == [], case


def test_a_damaged_index_file_of_expired_messages_is_set_aside(unpacked: Unpack, tmp_path: Path) -> None:
    """Nothing of the log belongs into it, so no new file takes its place."""
    store = RealStore("deleted-533", OWN_STORES)
    bench = Bench.of(unpacked(store), store.name, tmp_path)
    os.truncate(bench.path / "index/20261121110049708", 3061)
    assert repair_here(bench.path, store.broker_conf, apply=True, offsets=True).is_complete
    assert grave(check(bench.path, store.broker_conf)[1]) == []
