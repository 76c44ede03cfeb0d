"""A report of a repair: it never says that all is well if a check says something else."""

from __future__ import annotations

from itertools import product

import pytest

from spark_mq.repairer.changes import Change, ChangeKind
from spark_mq.repairer.plan import Action, Left
from spark_mq.repairer.repair import RepairReport
from spark_mq.store.config.broker_conf import NOTHING_TELLS, FileSetting
from spark_mq.verifier.codes import Treatment
from spark_mq.verifier.result import VerifyReport

ACTION = Action(Change(ChangeKind.CREATE, "index/1"), (("INDEX_MISSING", 1),), Treatment.INDEX_FILE)
LEFT = Left("LOG_CORRUPT", 1, "a reason")
ASSUMED = FileSetting("queue files", "6,000,000 bytes each", NOTHING_TELLS)


def checked(is_sound: bool) -> VerifyReport:
    counts = {} if is_sound else {"QUEUE_UNIT_WRONG": 2}
    return VerifyReport("/store", False, counts, {}, 0, 0, 0, 0, 0, 0, 0.0)


def report(before: bool, after: bool | None, actions: bool, left: bool, assumed: bool = False) -> RepairReport:
    return RepairReport(
        "/store",
        None,
        after is not None,
        checked(before),
        (ACTION,) if actions else (),
        (LEFT,) if left else (),
        (ASSUMED,) if assumed else (),
        after=None if after is None else checked(after),
    )


CASES = list(product((False, True), (None, False, True), (False, True), (False, True)))


@pytest.mark.parametrize(("before", "after", "actions", "left"), CASES)
def test_sound_is_what_the_last_check_says(before: bool, after: bool | None, actions: bool, left: bool) -> None:
    found = report(before, after, actions, left)
    last_is_sound = before if after is None else after
    if "the store is sound" in found.verdict:
        assert last_is_sound
        assert not left
    if found.is_complete:
        assert not left
        assert last_is_sound or (after is None and actions)
    else:
        assert "cannot be repaired" in found.verdict or "not sound: 2 errors" in found.verdict


def test_what_depends_on_an_assumption_says_so() -> None:
    assert report(False, None, True, False, assumed=True).verdict.endswith("if the broker has the assumed settings")
    assert report(False, True, True, False, assumed=True).verdict.endswith("if the broker has the assumed settings")
