"""The answer to the first question about a store, and what to do."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_mq.format.amounts import counted, size_text
from spark_mq.format.broker_version import MESSAGE_VERSION_2, BrokerVersions, versions_text
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import NOT_CONSIDERED
from spark_mq.store.config.config_file import WITHOUT_FILE, lost_config
from spark_mq.store.config.store_paths import TIMER_LOG

if TYPE_CHECKING:
    from spark_mq.store.boot import Boot
    from spark_mq.store.config.broker_conf import FileSetting
    from spark_mq.store.store_state import StoreState


CERTAIN, AT_LEAST, NOT_KNOWN = "certain", "at least", "not known"
_SHOWN = 5
"""Topics that are named; the rest is a number."""


@dataclass(frozen=True)
class Fact:
    """One thing that an answer rests on: how sure it is, what it is, and how long it stays so, or unless what."""

    certainty: str
    text: str
    until: str = ""

    @property
    def sentence(self) -> str:
        """The fact as a sentence."""
        until = f" ({self.until})" if self.until else ""
        return f"{self.text[:1].upper()}{self.text[1:]}{until}."


def verdict(state: StoreState) -> list[str]:
    """The answer, a sentence each: how the broker stopped, whether it starts, what is lost, and what a boot loses."""
    said = [_stop(state)]
    if state.obstacles:
        more = f" ({len(state.obstacles) - 1:,} more below)" if len(state.obstacles) > 1 else ""
        said.append(f"A broker may not start: {state.obstacles[0]}{more}.")
    facts = (
        *lost_before(state),
        *of_deleted_topics(state),
        *lost_files(state),
        *of_replica(state),
        *of_settings(state),
    )
    return [*said, *(fact.sentence for fact in facts), *next_boots(state)]


def setting_line(setting: FileSetting, width: int = 15) -> str:
    """The line of a setting that was assumed, in the details of a report."""
    if setting.name.islower():
        return f"  {setting.name:<{width}} {setting.value} ({setting.source})"
    return f"  {setting.name}={setting.value} ({setting.source})"


def clean_stop(state: StoreState) -> str:
    """What is said if there is no file `abort`. A copy of a running broker's store can lack it, too.

    Each clean stop writes the checkpoint (`DefaultMessageStore.shutdown`@5.3.3).
    """
    if state.checkpoint_problem is None:
        return "stopped cleanly"
    return f"without a file abort, a boot takes it for stopped cleanly, but {state.checkpoint_problem}"


def _stop(state: StoreState) -> str:
    stop = state.last_stop
    if stop.is_running:
        return "A broker runs on this store, or a job writes into it: the lock is taken, and the figures change."
    if stop.is_clean:
        return Fact(CERTAIN, clean_stop(state)).sentence
    locked = "whether a broker runs on the store is not known" if stop.is_running is None else "no broker runs on it"
    return f"Not stopped cleanly: the file abort is there, and {locked}."


def lost_before(state: StoreState) -> Iterator[Fact]:
    """What is lost whatever boot comes."""
    gaps, boots = state.log.gaps, state.boots
    missing = sum(gap.size for gap in gaps)
    if missing:
        lost = f"no segment has {size_text(missing)} of the log: the messages in it are lost"
        yield Fact(CERTAIN, lost, "unless the files are elsewhere")
    damaged = max((boot.damaged_bytes for boot in boots), default=0) - missing
    if damaged > 0:
        lost = f"{size_text(damaged)} of the log are not records: the messages in them are lost"
        yield Fact(AT_LEAST, lost, "for good, unless a copy of the segment has them")
    count = max((boot.gone for boot in boots), default=0)
    if count:
        topics = _topics((topic, of_queue) for (topic, _), of_queue in state.gone.by_queue.items())
        lost = f"the log ends before at least {messages(count)} that queues or the index show{topics}: they are lost"
        yield Fact(AT_LEAST, lost, "unless a newer copy of the segment has them, or an earlier recovery cut them off")


def of_deleted_topics(state: StoreState) -> Iterator[Fact]:
    """The messages of deleted topics: no loss, unless the store does not show the topics."""
    deleted = max((boot.deleted for boot in state.boots), default=0)
    if deleted:
        lost = f"topics that seem to be deleted have {messages(deleted)} without a unit"
        until = "lost if the topics were not deleted: `spark-mq repair` does not add their units"
        yield Fact(CERTAIN, lost, until)


def of_replica(state: StoreState) -> Iterator[Fact]:
    """What the store of a broker in controller mode does not show: what it does when it hears from its group.

    A slave cuts its log by the epochs of its master (`AutoSwitchHAClient.doTruncate`@5.3.3). A broker that becomes
    master cuts it at the first record that is not sound after what is dispatched
    (`AutoSwitchHAService.truncateInvalidMsg`).
    """
    if state.is_replica:
        text = "its broker is in controller mode: a boot is known only as that of a broker without its group; what it"
        compare = f"`spark-mq compare {shlex.quote(state.store)} MASTER`"
        yield Fact(NOT_KNOWN, f"{text} cuts off when it follows another master, {compare} says")


def of_settings(state: StoreState) -> Iterator[Fact]:
    """The settings with which a boot has other rules; of controller mode, `of_replica` says what is not known.

    With `duplicationEnable`, a boot of 5.x cuts the log at the first message that it checks and that has no property
    __DUP_INFO, as most have none (`CommitLog.checkMessageAndReturnSize`@5.3.3).
    """
    for one in state.settings:
        if one.value == NOT_CONSIDERED and one.name != "enableControllerMode":
            yield Fact(NOT_KNOWN, f"with {one.name}=true, which is not considered here, a boot can lose more")


def of_timers(state: StoreState) -> Iterator[Fact]:
    """What the timer log lost."""
    if state.lost_timers is not None:
        end, log_stop = state.lost_timers
        text = (
            f"timers: {TIMER_LOG}/ ends at {end:,}, and config/timercheck says {log_stop:,}. Those that wait, and are "
        )
        text += "not in it, are never delivered"
        again = "without config/timercheck, a broker reads all timers of the log again, and delivers those whose time"
        until = f"`spark-mq delayed {shlex.quote(state.store)}` names them; {again} has passed, also a second time"
        yield Fact(NOT_KNOWN, text, until)


def of_config(state: StoreState) -> Iterator[Fact]:
    """What is lost with files of `config/` that are missing."""
    topics = {topic for boot in state.boots for topic, _ in boot.max_offsets}
    is_written = state.checkpoint.written_end == state.log.end
    for name in lost_config(state.missing_config, topics, state.last_stop.is_clean, is_written):
        text = f"the file config/{name} is missing or empty, and so is its .bak: {WITHOUT_FILE[name]}"
        yield Fact(NOT_KNOWN, text)


COPY_CONFIG = "copy the files of config/ from a backup, or from a replica of the broker"


def lost_files(state: StoreState) -> Iterator[Fact]:
    """What is lost with files other than log, queues and index."""
    yield from of_timers(state)
    yield from of_config(state)


def next_boots(state: StoreState) -> Iterator[str]:
    """What the next boot does and loses, a sentence for all versions that do the same."""
    by_text: dict[str, list[BrokerVersions]] = {}
    for boot in state.boots:
        by_text.setdefault(boot_text(state, boot), []).append(boot.rules)
    for text, names in by_text.items():
        if_crashed = "If the broker crashes now, the" if state.last_stop.is_running else "The"
        yield f"{if_crashed} next boot of {versions_text(names)} {text}."
    if state.unpredicted:
        yield f"What a boot of {versions_text(state.unpredicted)} does with queues in RocksDB is not predicted."


def boot_text(state: StoreState, boot: Boot) -> str:
    """What a boot does, as the predicate of a sentence."""
    if boot.deletes_queues:
        return "finds no segment, and deletes all consume queues" if state.is_emptied_by(boot) else "finds an empty log"
    if boot.recovers_from is None:
        return "does not start"
    said = [f"starts at segment {boot.recovers_from:020d}", *(fact.text for fact in losses(boot))]
    unknown = "" if boot.is_index_known else "; what its index lacks is not known without --broker-conf"
    return f"{_joined(said if len(said) > 1 else [*said, _no_loss(state, boot)])}{unknown}"


def losses(boot: Boot) -> list[Fact]:
    """What a boot does to messages and their index entries that it should not; the texts are predicates."""
    said = []
    sure, least = CERTAIN if boot.is_full else AT_LEAST, boot.at_least
    started = "for good, once the broker has started"
    if boot.cut_bytes:
        cut = f"cuts {size_text(boot.cut_bytes)} off the log, with {counted(boot.cut_messages, 'whole message')}"
        said.append(Fact(sure, cut, started))
    if boot.lost:
        topics = _topics((queue.topic, queue.lost) for queue in boot.queues)
        until = "until `spark-mq repair` adds their units"
        if boot.queues_cut_at is not None:
            until = "for good, once new messages have their queue offsets; not if the file abort is deleted before"
        said.append(Fact(sure, f"loses {least}{messages(boot.lost)} for all consumers{topics}", until))
    if boot.shifted:
        topics = _topics((queue.topic, queue.shifted) for queue in boot.queues)
        said.append(Fact(sure, f"gives {least}{messages(boot.shifted)} a wrong queue offset{topics}", started))
    if boot.revived:
        old = f"takes {counted(boot.revived, 'record')} after the live end, old or damaged, for live ones"
        said.append(Fact(sure, old, "once the broker has started"))
    if boot.unindexed is not None:
        part = f"{boot.unindexed.start:,} and {boot.unindexed.stop:,}"
        until = "until `spark-mq repair` adds their entries; no loss if the broker writes no index "
        until += "files, which --broker-conf tells"
        said.append(Fact(sure, f"leaves messages between commit log offsets {part} without index entries", until))
    return said


def _topics(counts: Iterable[tuple[str, int]]) -> str:
    """The topics with the most messages, and the number of messages of each; empty without one."""
    by_topic: Counter[str] = Counter()
    for topic, count in counts:
        by_topic[topic] += count
    named = sorted((+by_topic).items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(named) - _SHOWN:,} more topics" if len(named) > _SHOWN else ""
    return f" ({', '.join(f'{topic} {count:,}' for topic, count in named[:_SHOWN])}{more})" if named else ""


def _no_loss(state: StoreState, boot: Boot) -> str:
    if any(of_settings(state)):
        return "what it loses is not known"
    if boot.is_full:
        if any(lost_files(state)):
            return "loses no more"
        return f"loses {'nothing' if boot.loses_nothing else 'no message' if boot.loses_no_message else 'no more'}"
    if state.obstacles:
        return "what it loses is not known before it can start"
    path = shlex.quote(state.store)
    return f"what it loses is not known without `spark-mq state {path} --full`: a quick look saw no loss"


NOTHING_TO_DO = "Nothing. Start the broker."
"""The remedy if the broker stopped cleanly, and its next boot loses nothing."""


def remedies(state: StoreState) -> list[str]:
    """What to do, a paragraph each."""
    said = [f"Repair this first, or the broker may not start: {obstacle}" for obstacle in state.obstacles]
    if unknown := unknown_lock(state):
        said.append(f"Ask again as the broker's user. It is not known {unknown}.")
    path, log = shlex.quote(state.store), shlex.quote(f"{state.store}/commitlog")
    if state.log.gaps:
        said.append(f"Put the missing segments into {log} if they are elsewhere.")
    if state.log.stale_tail is not None:
        said.append(
            f"Old records follow the live end at commit log offset {state.log.stale_tail.start:,}. First `spark-mq "
            f"repair {path} --apply`, which zeroes them, and keeps a copy."
        )
    if any(boot.gone for boot in state.boots):
        said.append(
            "The log is older than its queues or its index: if there is a newer copy of the last segment, put it into "
            f"{log} before a broker starts."
        )
    cutting = [boot for boot in state.boots if boot.cut_bytes]
    if cutting:
        said.append(_of_cuts(state, cutting))
    losing = [boot for boot in state.boots if (boot.lost or boot.shifted) and boot.queues_cut_at is None]
    if any(boot.queues_cut_at is not None for boot in state.boots):
        said.append(
            f"Do not start a broker while the file abort is there: it cuts units off queues that are whole. First "
            f"{whole_without_abort(state.store)}."
        )
    if losing:
        said += _of_losses(state, losing)
    elif any(map(state.is_emptied_by, state.boots)):
        said.append("If the segments are in another folder (storePathCommitLog), link them into commitlog/ first.")
    if any(boot.unindexed for boot in state.boots):
        said.append(
            f"For the index: `spark-mq rebuild {path} --only index --replace` while no broker runs. It builds all "
            "index files from the log, and writes a checkpoint with which a recovery keeps them."
        )
    if not all(boot.is_index_known for boot in state.boots):
        said.append("Give --broker-conf with the broker's settings file: without it, the index files cannot be read.")
    if any(of_timers(state)):
        said.append(f"For the timers: `spark-mq delayed {path}`, before a broker starts.")
    if any(of_config(state)):
        said.append(f"For config/: {COPY_CONFIG}, before a broker starts.")
    said += [f"Start a broker on a copy of the store first: {one.text}." for one in of_settings(state)]
    if text := to_mount(state):
        said.append(f"{text[0].upper()}{text[1:]}.")
    said = said or [_nothing(state)]
    if len({(boot.cut_bytes, boot.lost, boot.shifted, boot.unindexed) for boot in state.boots}) > 1:
        said.append("The versions differ: --broker-version V prints only the one that starts next.")
    return said


def to_mount(state: StoreState) -> str:
    """What to do before a broker starts if the store's filesystem is mounted read-only here; empty if it is not.

    That can be for a look at a copy, so it is no obstacle. Linux also does it after an error of the disk.
    """
    store = Location.resolve(state.store)
    if not store.is_local or not os.statvfs(store.path).f_flag & os.ST_RDONLY:
        return ""
    return "the store's filesystem is mounted read-only here: a broker starts only where it can write"


def unknown_lock(state: StoreState) -> str:
    """What is not known if this user cannot read the store's lock; empty if it can, or if the storage has no locks."""
    if state.last_stop.is_running is not None or sys.platform != "linux" or not Location.resolve(state.store).locks:
        return ""
    return "whether a broker runs on it: the file lock cannot be read by this user"


def whole_without_abort(store: str) -> str:
    """What to do before a boot on a DLedger log that would cut off units (`Boot.queues_cut_at`)."""
    return (
        f"`spark-mq repair {shlex.quote(store)} --apply`, which adds the units that queues lack; then delete the file "
        f"{shlex.quote(f'{store}/abort')}"
    )


def _nothing(state: StoreState) -> str:
    if state.last_stop.is_running:
        return "Nothing. After the broker has stopped, ask again."
    if not all(boot.is_full for boot in state.boots):
        return f"Before a broker starts: `spark-mq check {shlex.quote(state.store)}`, which reads the whole log."
    if any(boot.damaged_bytes for boot in state.boots):
        return f"`spark-mq verify {shlex.quote(state.store)}` names the damage of the log. The broker can start."
    if state.last_stop.is_clean:
        return NOTHING_TO_DO
    return "Start the broker, and keep the file abort: because of it, the broker completes queues and index."


def _of_losses(state: StoreState, losing: Sequence[Boot]) -> Iterator[str]:
    names, path = versions_text(boot.rules for boot in losing), shlex.quote(state.store)
    yield (
        f"Do not start a broker of {names} on the store as it is. First `spark-mq repair {path} --apply`, which adds "
        "the missing units and index entries from the log."
    )
    forced = [boot for boot in state.forced_boots if boot.rules in {one.rules for one in losing}]
    if forced and all(boot.is_full and not (boot.lost or boot.shifted or boot.cut_bytes) for boot in forced):
        but = "; but older messages lose their index entries" if any(boot.unindexed for boot in forced) else ""
        yield (
            f"Or, without Spark: `touch {shlex.quote(f'{state.store}/abort')}` before the start. The broker then "
            f"dispatches the log again from segment {forced[0].recovers_from or 0:020d}, and completes the queues{but}."
        )


def _of_cuts(state: StoreState, cutting: Sequence[Boot]) -> str:
    names, path = versions_text(boot.rules for boot in cutting), shlex.quote(state.store)
    if len(cutting) < len(state.boots) or not any(boot.rules.decide(MESSAGE_VERSION_2) for boot in cutting):
        others = "a version that does not cut it, or find out why"
    else:
        others = "a copy of the segment from a replica, or find out why"
    return (
        f"Do not start a broker of {names}: it cuts the log. Use {others}: `spark-mq recover {path} --as V` "
        f"says where, and `spark-mq verify {path}` names the damage."
    )


def messages(count: int) -> str:
    """A number of messages as text."""
    return counted(count, "message")


def _joined(parts: Sequence[str]) -> str:
    """The parts as a list in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
