"""What the doors of the package say of one store, and where they contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from spark_mq.cli.check import Answer, answers_of
from spark_mq.errors import SparkMqError
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.repairer.repair import RepairReport
from spark_mq.reporter.status import state_word
from spark_mq.store.boot import Boot
from spark_mq.store.boot_conditions import BootConditions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import parse_fastjson
from spark_mq.store.file_states import IndexState
from spark_mq.store.lacking_messages import LackingMessages, find_lacking_messages
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recoveries, next_recovery
from spark_mq.store.store_state import StoreState, store_state
from spark_mq.store.verdict import losses as boot_losses
from spark_mq.store.verdict import verdict as state_verdict
from spark_mq.verifier.codes import CODES, Severity
from spark_mq.verifier.quick import quick_check
from spark_mq.verifier.result import VerifyReport

Result = TypeVar("Result")


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
        quick: The report of `verify --quick`.
        recovery: What `recover` says.
        state: What `state --full` says.
        quick_state: What `state` says without reading the log.
        check: What `check` says of the full state and the quick report.
        plan: The plan of `repair`, with the report of `verify`.
    """

    quick: VerifyReport | None
    recovery: Boot | None
    state: StoreState | None
    quick_state: StoreState | None
    check: Answer | None
    plan: RepairReport | None = None

    @classmethod
    def of(cls, folder: Path, version: str, conf: Path) -> Answers:
        with pytest.MonkeyPatch.context() as patch:
            read_once(patch)
            return cls._asked(str(folder), version, str(conf))

    @classmethod
    def _asked(cls, path: str, version: str, conf: str) -> Answers:
        settings = BrokerConf.of(conf)
        found = answer_of(lambda: quick_check(path, settings))
        state = answer_of(lambda: store_state(path, version, conf, full=True))
        return cls(
            None if found is None else found[0],
            answer_of(lambda: next_recovery(path, version, conf)),
            state,
            answer_of(lambda: store_state(path, version, conf, full=False)),
            None if state is None or found is None else answers_of(state, found[0], version)[0],
        )

    @property
    def damage(self) -> dict[str, int]:
        """The warnings and errors of `verify`, counted; empty if it refuses the store."""
        counts = {} if self.plan is None else self.plan.before.counts
        return {code: count for code, count in counts.items() if CODES[code].severity != Severity.NOTE}

    @property
    def is_sound(self) -> bool:
        """Whether `verify` answers, and finds neither a warning nor an error."""
        return self.plan is not None and not self.damage

    @property
    def deleted_queues(self) -> set[tuple[str, int]]:
        """The queues of which `verify` notes that their topic seems to be deleted: if it is not, they are lost."""
        noted = [] if self.plan is None else self.plan.before.first.get("QUEUE_DELETED", [])
        return {(finding.topic or "", finding.queue_id or 0) for finding in noted}

    @property
    def denials(self) -> list[str]:
        """The doors that say that nothing is lost, and nothing is in doubt."""
        said = []
        for name, state in (("recover and state --full", self.state), ("state", self.quick_state)):
            if state is not None and "loses nothing" in " ".join(state_verdict(state)):
                said.append(name)
        if self.check is not None and self.check.answer == "yes":
            said.append("check")
        checked = None if self.plan is None else self.plan.before
        if self.state is not None and checked is not None and state_word(self.state, checked)[0].startswith("SOUND"):
            said.append("report")
        return said

    def contradictions(self) -> Iterator[str]:
        """Where the doors contradict each other."""
        denials, boot, state, seen = self.denials, self.recovery, self.state, self.quick_state
        if self.is_sound and self.quick is not None and not self.quick.is_sound:
            yield f"verify: sound, but verify --quick: {self.quick.counts}"
        if boot is not None and not boot.is_harmless and denials:
            yield f"recover: not harmless, but {denials} deny it"
        if self.check is not None and self.check.answer == "yes" and state is not None and state.obstacles:
            yield f"check: yes, but state: {state.obstacles}"
        if boot is not None and state is not None and bool(state.obstacles) != bool(boot.obstacles):
            yield f"state --full says {state.obstacles}, recover {boot.obstacles}"
        shows_boots = self.plan is not None and self.plan.before.shows_boots
        if shows_boots and state is not None and seen is not None and not state.obstacles:
            shown = replace(seen, boots=tuple(replace(one, is_full=True) for one in seen.boots))
            if state_verdict(shown) != state_verdict(state):
                yield f"a check shows {state_verdict(shown)}, but state --full: {state_verdict(state)}"
        if boot is None or not boot.is_full or boot.deletes_queues:
            return
        if state is not None and list(state.boots) != [boot]:
            yield f"state --full says {state.boots}, recover {boot}"
        if self.is_sound and (harm(boot) or (boot.deleted and not self.deleted_queues)):
            yield f"verify: sound, but recover: {boot_losses(boot)}"
        if seen is None:
            return
        (quick,) = seen.boots
        if quick.lost + quick.shifted > ends_of_lacking(boot) - boot.completed:
            yield f"state sees more losses than there are: {boot_losses(quick)}, but {boot_losses(boot)}"
        if (quick.recovers_from, quick.deleted_index_files) != (boot.recovers_from, boot.deleted_index_files):
            yield f"state starts {quick.recovers_from}, {quick.deleted_index_files}; recover {boot.recovers_from}"
        # Damage that a quick look does not see can end the log before the messages that it means.
        if quick.unindexed is not None and boot.unindexed is None and quick.unindexed.start < (boot.log_end or 0):
            yield f"state says that the index lacks {quick.unindexed}, recover that it lacks nothing"


def read_once(patch: pytest.MonkeyPatch) -> None:
    """Let the doors share what they read of the log, the models of a boot, and config files: it takes most time."""
    tails: dict[str, LackingMessages] = {}
    recoveries: dict[tuple[BrokerVersions, bool], Boot] = {}

    def lacking(store: MessageStore) -> LackingMessages:
        if str(store.location) not in tails:
            tails[str(store.location)] = find_lacking_messages(store)
        return tails[str(store.location)]

    def recover(
        conditions: BootConditions,
        starts: Iterable[tuple[BrokerVersions, bool]],
        gone: int,
        index: IndexState | None = None,
    ) -> list[Boot]:
        asked = list(starts)
        missing = [start for start in asked if start not in recoveries]
        found = next_recoveries(conditions, missing, gone, index) if missing else []
        recoveries.update(zip(missing, found, strict=True))
        return [recoveries[start] for start in asked]

    for module in ("store_state", "file_states"):
        patch.setattr(f"spark_mq.store.{module}.find_lacking_messages", lacking)
    patch.setattr("spark_mq.store.recovery.next_recoveries", recover)
    patch.setattr("spark_mq.store.config.config_file.parse_fastjson", cache(parse_fastjson))


def ends_of_lacking(boot: Boot) -> int:
    """The number of messages without a unit of which a boot says what comes of them."""
    return boot.completed + boot.lost + boot.shifted + boot.deleted + boot.cut_messages


def harm(boot: Boot) -> bool:
    """Whether a boot has to do with damage, whatever version boots."""
    return any((boot.lost, boot.shifted, boot.gone, boot.revived, boot.damaged_bytes))
