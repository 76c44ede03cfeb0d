"""The first lines of a store's page: what is the matter, and what to do, as `zpool status` says it of a pool."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.format.amounts import counted, size_text
from spark_mq.format.timestamp import iso_text
from spark_mq.reporter.figures import ArchiveFigures, Figures, StoreFigures
from spark_mq.store.store_state import StoreState
from spark_mq.store.verdict import NOTHING_TO_DO, losses, next_boots, of_settings, remedies, verdict
from spark_mq.verifier.codes import Severity
from spark_mq.verifier.result import VerifyReport

_MOST_ERRORS = 10


@dataclass(frozen=True)
class Status:
    """The state of a store in a word, how grave it is (`good`, `warn`, `bad`), and the lines below each name."""

    word: str
    level: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]


def status_of(figures: Figures) -> Status:
    """The status of a store, in its files or in an archive."""
    return _of_store(figures) if isinstance(figures, StoreFigures) else _of_archive(figures)


def _of_archive(figures: Figures) -> Status:
    assert isinstance(figures, ArchiveFigures)
    log, lost_end, damage = figures.log, figures.lost_end, figures.damage
    word, level = "COMPLETE", "good"
    if lost_end is not None:
        word, level = "ENDS BEFORE THE LOG", "warn"
    if damage:
        word, level = "LACKS MESSAGES", "bad"
    parts = [f"The archive has the log from commit log offset {log.start:,} to {log.stop:,}"]
    if figures.oldest is not None:
        parts.append(f"with messages from {iso_text(figures.oldest)} to {iso_text(figures.newest)}")
    snapshot = "no snapshot of config/" if figures.snapshot is None else iso_text(figures.snapshot)
    actions = [] if lost_end is None else ["Run `spark-mq archive` again."]
    if damage:
        actions.append("Look for another copy of these messages: a later run does not append them.")
    lines = (
        ("store", (figures.store,)),
        ("state", (word,)),
        ("status", (f"{', '.join(parts)}.", *(() if lost_end is None else (f"{lost_end}.",)))),
        ("action", tuple(actions) or ("Nothing.",)),
        ("newest snapshot", (snapshot,)),
        ("errors", tuple(one.describe() for one in damage[:_MOST_ERRORS]) or ("No part of the log is missing.",)),
    )
    return Status(word, level, lines)


def _of_store(figures: StoreFigures) -> Status:
    state, check = figures.state, figures.check
    word, level = state_word(state, check)
    boots = tuple(next_boots(state))
    checked = (
        f"{iso_text(figures.checked_at)}: {check.verdict}; {counted(check.messages or 0, 'message')} in "
        f"{size_text(check.log_bytes)}, {counted(check.queues, 'queue')} and "
        f"{counted(check.index_files, 'index file')} were read whole in {check.seconds:.1f} s"
    )
    lines = (
        ("store", (figures.store,)),
        ("state", (word,)),
        ("status", tuple(verdict(state)[: -len(boots) or None])),
        ("action", tuple(_actions(figures))),
        ("next boot", boots or ("No version of the broker is known to start on it.",)),
        ("last check", (checked,)),
        ("errors", tuple(_errors(figures))),
    )
    return Status(word, level, lines)


def state_word(state: StoreState, check: VerifyReport) -> tuple[str, str]:
    """The state of a store in a word, and how grave it is, by its state with the whole log, and the check."""
    if state.obstacles:
        return "CANNOT START", "bad"
    if check.count(Severity.ERROR):
        return "DAMAGED", "bad"
    if any(losses(boot) or state.is_emptied_by(boot) for boot in state.boots):
        return "LOSES MESSAGES AT THE NEXT BOOT", "bad"
    if not check.is_sound or any(boot.is_full and not boot.loses_nothing for boot in state.boots):
        return "NOT SOUND", "warn"
    if any(of_settings(state)) or not all(boot.is_full or boot.deletes_queues for boot in state.boots):
        return "SOUND, BUT THE NEXT BOOT IS NOT KNOWN", "warn"
    return ("SOUND, AND ITS BROKER RUNS" if state.last_stop.is_running else "SOUND"), "good"


def _actions(figures: StoreFigures) -> Iterator[str]:
    is_sound = figures.check.is_sound
    yield from (text for text in remedies(figures.state) if is_sound or text != NOTHING_TO_DO)
    if not is_sound:
        yield f"`spark-mq repair {shlex.quote(figures.store)}` shows what can be mended, and changes nothing."


def _errors(figures: StoreFigures) -> Iterator[str]:
    check = figures.check
    if check.is_sound:
        yield "No known errors."
    for name, code in check.codes():
        if code.severity != Severity.NOTE:
            yield f"{code.severity} {name}: {check.counts[name]:,}. {code.meaning}"
