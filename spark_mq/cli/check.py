"""`spark-mq check STORE`: may a broker be started on this store? Without Spark or a JVM."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import DAMAGED, FAILED, FOUND
from spark_mq.cli.output.terminal import print_answer
from spark_mq.format.amounts import size_text
from spark_mq.format.broker_version import BrokerVersions, versions_text
from spark_mq.io.location import Location
from spark_mq.store.boot import Boot
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.store_state import StoreState, store_state
from spark_mq.store.verdict import (
    AT_LEAST,
    CERTAIN,
    COPY_CONFIG,
    NOT_KNOWN,
    Fact,
    clean_stop,
    losses,
    lost_before,
    lost_files,
    messages,
    of_config,
    of_deleted_topics,
    of_replica,
    of_settings,
    of_timers,
    to_mount,
    unknown_lock,
    whole_without_abort,
)
from spark_mq.verifier.codes import Severity
from spark_mq.verifier.config_files import ConfigFiles
from spark_mq.verifier.result import Summary

if TYPE_CHECKING:
    from spark_mq.verifier.result import VerifyReport

_YES, _UNKNOWN, _LOSSES, _NO = "yes", "yes, losses are not known", "yes, with losses", "no"
_STATUS = {_YES: FOUND, _UNKNOWN: DAMAGED, _LOSSES: DAMAGED, _NO: FAILED}
_OF_BOOT = (
    *("LOG_STALE_TAIL", "SEGMENT_GAP", "QUEUE_LAGS", "QUEUE_LAGS_CLEAN", "QUEUE_MISSING"),
    *("QUEUE_UNIT_STALE", "INDEX_LAGS", "INDEX_MISSING", "INDEX_ENTRY_STALE"),
    *("CONFIG_BROKEN", "CONFIG_MISSING", "TIMER_LOG_CUT"),
)
"""Codes of which the model of a boot says what comes of them."""
_PAST_ENDS = ("OFFSET_PAST_END", "DELAY_OFFSET_PAST_END")
_LOST_MESSAGES = (*_PAST_ENDS, "CHECKPOINT_AHEAD")
"""Warnings that can show that messages were lost."""


@dataclass(frozen=True)
class Answer:
    """The answer for some versions."""

    versions: str
    answer: str
    losses: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    next: str


@command(
    "check",
    """
    STORE
    --expect-version V  the version of the broker that starts next, such as 5.3.3 (default: all that the files allow)
    --broker-conf FILE  the broker's settings file, for file sizes, and settings of the index and of recovery
    --json
    """,
    example="/data/store",
    epilog="""
    The answer is that of the next boot of a broker (`spark-mq state --full`) and of a quick check (`spark-mq verify
    --quick`). The whole log is read: about a second for 1 GiB that is in memory. Each line says how sure it is:
    `certain`, `at least`, or `not known`. Without --expect-version, it is the answer of all versions that the files of
    the store allow.

    What is not read: the bodies of messages before the first segment that the boot checks, and the middle of index
    files. `spark-mq verify` reads everything.
    """,
)
def check(arguments: argparse.Namespace) -> int:
    """Print the answer; returns the exit status."""
    found = check_store(
        arguments.store, arguments.expect_version, broker_conf_path(arguments.broker_conf, arguments.store)
    )
    worst = max((one.answer for one in found), key=list(_STATUS).index)
    print_answer(
        arguments.json,
        lambda: {"store": arguments.store, "answer": worst, "answers": [asdict(one) for one in found]},
        lambda: _lines(found),
    )
    return _STATUS[worst]


def check_store(store: str, expect_version: str | None, conf: str | None) -> list[Answer]:
    """The answers for a store: one for each group of versions whose answer is another one."""
    from spark_mq.verifier.quick import quick_check

    state = store_state(store, expect_version, conf, full=True, with_forced=False)
    return answers_of(state, quick_check(store, BrokerConf.of(conf))[0], expect_version)


def answers_of(state: StoreState, report: VerifyReport, expect_version: str | None) -> list[Answer]:
    """The answers for a store, from its state with the whole log, and the report of a quick check."""
    unknown = [*(Fact(NOT_KNOWN, text) for text in [unknown_lock(state)] if text), *of_settings(state)]
    is_past = not report.counts.keys().isdisjoint(_PAST_ENDS)
    config = ConfigFiles.of(Location.resolve(state.store)) if is_past else None
    before, files = list(lost_before(state)), list(lost_files(state))
    downgrade = [] if expect_version is None else list(_downgrade(state.store, expect_version))
    by_answer: dict[Answer, list[Boot]] = {}
    for boot in state.boots:
        damage = _damage(report, _past_ends(report, config, boot))
        losses = (*_of_boot(state, boot), *before, *damage, *files, *unknown, *downgrade)
        are_known = any(loss.certainty != NOT_KNOWN for loss in losses)
        answer = _LOSSES if are_known else _UNKNOWN if losses else _YES
        if state.obstacles or state.last_stop.is_running or state.is_emptied_by(boot):
            answer = _NO
            losses = (*_why_not(state, boot), *losses)
        quick = Fact(AT_LEAST, f"the quick check: {report.verdict}")
        facts = (*of_deleted_topics(state), *_come_back(state, boot), *of_replica(state), quick)
        by_answer.setdefault(Answer("", answer, losses, facts, _next(state, boot, answer)), []).append(boot)
    return [replace(one, versions=versions_text(boot.rules for boot in boots)) for one, boots in by_answer.items()]


def _why_not(state: StoreState, boot: Boot) -> Iterator[Fact]:
    if state.last_stop.is_running:
        yield Fact(CERTAIN, "a broker runs on it, or a job writes into it: the lock is taken")
    for obstacle in state.obstacles:
        yield Fact(CERTAIN, f"it does not start: {obstacle}")
    if state.is_emptied_by(boot):
        yield Fact(CERTAIN, "commitlog/ has no segment: a boot deletes all consume queues")


def _of_boot(state: StoreState, boot: Boot) -> Iterator[Fact]:
    if not boot.is_full and not boot.deletes_queues:
        yield Fact(NOT_KNOWN, "what the boot loses: it does not start")
    yield from (replace(loss, text=f"the boot {loss.text}") for loss in losses(boot))
    if state.index is not None and not boot.is_index_known:
        yield Fact(NOT_KNOWN, f"what the index lacks: {state.index.unknown_layout}")


def _past_ends(report: VerifyReport, config: ConfigFiles | None, boot: Boot) -> dict[str, int]:
    """The numbers of offsets past the ends of queues, when the boot has completed these; nothing without `config`.

    A broker reads the offsets of delay levels again after it has dispatched (`ScheduleMessageService.start`@4.9.7).
    """
    if config is None or not boot.completed:
        return {}
    after = Summary()
    for batch in config.findings({queue: range(end) for queue, end in boot.max_offsets.items()}, ()):
        after.add(batch)
    return {code: min(report.counts.get(code, 0), after.counts.get(code, 0)) for code in _PAST_ENDS}


def _damage(report: VerifyReport, past_ends: Mapping[str, int]) -> Iterator[Fact]:
    """Findings of the quick check of which no boot says what comes."""
    for name, code in report.codes():
        is_grave = code.severity == Severity.ERROR and name not in _OF_BOOT
        count = past_ends.get(name, report.counts[name])
        if count and (is_grave or name in _LOST_MESSAGES):
            certainty = AT_LEAST if is_grave else NOT_KNOWN
            yield Fact(certainty, f"{name} {count:,}: {code.meaning}", f"do: {code.remedy}")


def _downgrade(store: str, version: str) -> Iterator[Fact]:
    shown, given = find_broker_versions(Location.resolve(store)), BrokerVersions.parse(version, "--expect-version")
    if given.last < shown.first:
        text = f"a downgrade to {given}: a broker of {shown.first} or later wrote here ({shown.evidence})"
        yield Fact(NOT_KNOWN, f"{text}; what {given} does with its other files was not tried")


def _come_back(state: StoreState, boot: Boot) -> Iterator[Fact]:
    stop = clean_stop(state) if state.last_stop.is_clean else "not stopped cleanly: the file abort is there"
    yield Fact(CERTAIN, stop)
    if boot.recovers_from is not None:
        size = size_text(max(state.log.end - boot.recovers_from, 0))
        completed = f", and completes {messages(boot.completed)} in their queues" if boot.completed else ""
        yield Fact(CERTAIN if boot.is_full else AT_LEAST, f"before it serves, it checks {size} of the log{completed}")


def _next(state: StoreState, boot: Boot, answer: str) -> str:
    store = shlex.quote(state.store)
    if state.last_stop.is_running:
        return "ask again after the broker has stopped"
    if state.obstacles or state.is_emptied_by(boot):
        return f"repair what is named; then `spark-mq check {store}`"
    if unknown_lock(state):
        return f"`spark-mq check {store}` as the broker's user"
    if any(of_settings(state)):
        return "start a broker on a copy of the store first"
    if answer == _YES and (text := to_mount(state)):
        return text
    if answer == _YES:
        return "start the broker" + ("" if state.last_stop.is_clean else ", and keep the file abort")
    if state.gone.count or boot.cut_bytes or boot.damaged_bytes:
        return f"look for a copy of the last segments; `spark-mq verify {store}` names all damage"
    if boot.queues_cut_at is not None:
        return whole_without_abort(state.store)
    if boot.deleted_index_files and not (boot.lost or boot.shifted or boot.revived):
        return f"`spark-mq rebuild {store} --only index --replace`, whose checkpoint lets the boot keep the index"
    if boot.lost or boot.shifted or boot.unindexed is not None or boot.revived:
        return f"`spark-mq repair {store} --apply`"
    if not boot.is_index_known:
        return f"`spark-mq check {store} --broker-conf FILE`, with the broker's settings file"
    if any(of_config(state)):
        return COPY_CONFIG
    return f"`spark-mq {'delayed' if any(of_timers(state)) else 'verify'} {store}`"


def _lines(found: Sequence[Answer]) -> Iterator[str]:
    for number, one in enumerate(found):
        if number:
            yield ""
        yield f"May a broker of {one.versions} start? {one.answer.upper()}"
        for fact in (*one.losses, *one.facts):
            yield f"  {fact.certainty:<10} {fact.text}"
            if fact.until:
                yield f"  {'':<10} ({fact.until})"
        yield f"  {'next':<10} {one.next}"
