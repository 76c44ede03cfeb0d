"""`spark-mq state`: the state of a store, as lines of text or as one JSON object."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output.metrics import Metric, write_metrics
from spark_mq.cli.output.terminal import print_answer
from spark_mq.cli.output.value_text import local_time_of
from spark_mq.format.amounts import counted, duration_text, size_text
from spark_mq.format.broker_version import DISPATCHES_AFTER_QUEUE_END, BrokerVersions, versions_text
from spark_mq.store.boot import Boot, QueueOutcome
from spark_mq.store.disk_use import DiskUse
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.store_state import StoreState, store_state
from spark_mq.store.verdict import messages, of_settings, remedies, setting_line, verdict

_SHOWN = 5
"""Queues and files that are named; the rest is a number."""


@command(
    "state",
    """
    STORE
    --broker-version V  the version of the broker that starts next, such as 5.3.3 (default: all that the files allow)
    --broker-conf FILE  the broker's settings file, for file sizes, and settings of the index and of recovery
    --metrics FILE
    --json
    --full              read the whole log (the default up to 1 GiB)
    | --quick           read at most 256 KiB of the log
    """,
    example="/data/store",
    epilog="""
    The first lines are the answer: whether the broker was stopped cleanly, whether it starts, and what it loses. Then
    come the details, and what to do.

    A log of at most 1 GiB, and with --full any log, is read whole: then the boots are those of `spark-mq recover`,
    record by record. Otherwise few bytes are read: names, sizes and times of files, the last units of queues, the last
    files of the queue with the newest message, the ends of index files, and at most 256 KiB of the log. Then "at least"
    is in front of the numbers, and what was not read is not known. `spark-mq verify` checks everything.

    Brokers recover by other rules since 5.0.0, 5.1.0, 5.3.2, 5.4.0 and 5.5.0. The files of a store do not show which of
    them it was: without --broker-version, all possible ones are printed.
    """,
)
def print_state(arguments: argparse.Namespace) -> int:
    """Print the state; returns the exit status."""
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    full = True if arguments.full else False if arguments.quick else None
    state = store_state(arguments.store, arguments.broker_version, conf, full)
    write_metrics(arguments.metrics, metrics_of(state))
    print_answer(arguments.json, lambda: state_fields(state), lambda: state_lines(state))
    return FOUND


def metrics_of(state: StoreState) -> Iterator[Metric]:
    """The figures of a state."""

    def metric(name: str, meaning: str, value: float | None, **labels: str) -> Metric:
        return Metric(f"state_{name}", meaning, value, {"store": state.store, **labels})

    stop, lacking, index = state.last_stop, state.lacking, state.index
    yield metric("clean_stop", "whether the broker was stopped cleanly: 1 or 0", stop.started_timestamp is None)
    yield metric("obstacles", "reasons for which a broker does not start", len(state.obstacles))
    yield metric("log_start", "commit log offset of the first message", state.log.start)
    yield metric("log_end", "commit log offset after the last message", state.log.end)
    meaning = "messages without a unit in their queue, at least"
    yield metric("queue_lacking_messages", meaning, len(lacking.messages))
    lacks = None if index is None else len(index.lacking)
    yield metric("index_lacking_messages", "messages with keys and without index entries, at least", lacks)
    for boot in state.boots:
        meaning = "messages that the next boot of a broker of these versions loses, at least"
        yield metric("next_boot_lost_messages", meaning, boot.lost, versions=str(boot.rules))
    for use in state.disk:
        yield metric("disk_bytes", "bytes of the files in a folder", use.size, tree=use.tree)
    yield metric("time_seconds", "when the state was read, in seconds since the epoch", round(time.time()))


def state_lines(state: StoreState) -> list[str]:
    """The lines; a line of a section begins with two spaces, and the name of its row."""
    sections = [
        verdict(state),
        ["last stop", *_last_stop(state)],
        ["commit log", *_log(state)],
        ["lag", *_lag(state)],
        *_boots(state),
        ["assumed", *map(setting_line, state.settings)],
        ["disk", *(_disk(use) for use in state.disk)],
        ["what to do", *(f"  - {remedy}" for remedy in remedies(state))],
    ]
    return [line for section in sections for line in (*section, "")][:-1]


def _row(name: str, text: str) -> str:
    return f"  {name:<15} {text}"


def _last_stop(state: StoreState) -> Iterator[str]:
    stop, checkpoint = state.last_stop, state.checkpoint
    if stop.started_timestamp is None:
        yield _row("stop", "clean: there is no file abort")
    else:
        yield _row("stop", f"not clean: abort exists since the start at {local_time_of(stop.started_timestamp)}")
    yield _row("lock", {True: "taken", False: "free", None: "not known"}[stop.is_running])
    if state.checkpoint_problem is not None:
        yield _row("checkpoint", state.checkpoint_problem)
    yield _row("flushed log", _time(checkpoint.physic_msg_timestamp))
    yield _row("flushed queues", _time(checkpoint.logics_msg_timestamp))
    yield _row("flushed index", f"{_time(checkpoint.index_msg_timestamp)} (full files only)")


def _time(millis: int) -> str:
    return "never (0)" if millis == 0 else local_time_of(millis)


def _log(state: StoreState) -> Iterator[str]:
    log = state.log
    if log.last_segment is None:
        yield _row("log", "empty: commitlog/ has no segment with a message")
        return
    yield _row("log", f"commit log offsets {log.start:,} to {log.end:,}")
    yield _row("segments", f"{log.files:,} of {size_text(log.file_size)}; the log ends in {log.last_segment}")
    if log.last_store_timestamp is not None:
        yield _row("last in queues", f"a message stored at {local_time_of(log.last_store_timestamp)}")
    for gap in log.gaps[:_SHOWN]:
        yield _row("missing", f"no segment has commit log offsets {_range(gap)}")
    if len(log.gaps) > _SHOWN:
        yield _row("missing", f"{len(log.gaps) - _SHOWN:,} more parts of the log")
    if (tail := log.stale_tail) is not None:
        size = size_text(tail.stop - tail.start)
        yield _row("after the end", f"{counted(tail.count, 'old record')} ({size}) that a boot takes for live ones")


def _lag(state: StoreState) -> Iterator[str]:
    lacking, files = state.lacking, "units" if state.has_rocksdb_queues else "files"
    if not lacking.messages and not state.queue_count:
        yield _row("queues", f"no queue has {files}")
    elif not lacking.messages:
        yield _row("queues", f"{state.queue_count:,} have {files}; each message at the end of the log has its unit")
    else:
        least = "" if lacking.is_complete else "at least "
        counts = Counter((message.topic, message.queue_id) for message in lacking.messages)
        first = min(lacking.messages, key=lambda message: message.commit_log_offset)
        (topic, queue_id), most = max(counts.items(), key=lambda item: item[1])
        size = size_text(lacking.log_end - first.commit_log_offset)
        lagging = f"{len(counts):,} queue{'s lack' if len(counts) > 1 else ' lacks'}"
        known = "" if not state.queue_count else f" ({state.queue_count:,} have {files})"
        yield _row("queues", f"{lagging} {least}{messages(len(lacking.messages))}, in {size} of log{known}")
        yield _row("furthest", f"{topic}/{queue_id} lacks {least}{messages(most)}")
        yield _row("first", f"{first.topic}/{first.queue_id}, commit log offset {first.commit_log_offset:,}")
    for (topic, queue_id), count in list(state.gone.by_queue.items())[:_SHOWN]:
        yield _row("past the end", f"{topic}/{queue_id} has {count:,} units of messages that the log does not have")
    yield from _index_lag(state)
    last = state.log.last_store_timestamp
    for snapshot in state.config:
        if last is not None and snapshot.name in _offset_files(state):
            millis = snapshot.modification_timestamp - last
            when = "after" if millis >= 0 else "before"
            yield _row("config", f"{snapshot.name} was written {duration_text(abs(millis))} {when} that last message")


def _index_lag(state: StoreState) -> Iterator[str]:
    index = state.index
    if index is None:
        yield _row("index", "none: messageIndexEnable or indexFileWriteEnable is false")
        return
    for problem in index.problems[:_SHOWN]:
        yield _row("index problem", problem)
    if index.unknown_layout is not None:
        yield _row("index", "what it lacks is not known")
        return
    if index.covered_timestamp is None:
        yield _row("index", "no valid file has an entry" if index.files else "there are no index files")
    time = "" if index.covered_timestamp is None else f", stored up to {local_time_of(index.covered_timestamp)}"
    if index.lacking or not index.is_complete:
        least = "" if index.is_complete else "at least "
        yield _row("index", f"lacks {least}{messages(len(index.lacking))} from offset {index.covered_to:,} on{time}")
    elif index.covered_timestamp is not None:
        yield _row("index", f"has all messages that have keys{time}")


def _offset_files(state: StoreState) -> list[str]:
    return [snapshot.name for snapshot in state.config if snapshot.name in ("consumerOffset.json", "delayOffset.json")]


def _boots(state: StoreState) -> Iterator[list[str]]:
    by_lines: dict[tuple[str, ...], list[BrokerVersions]] = {}
    for boot in state.boots:
        if boot.recovers_from is not None:
            by_lines.setdefault(tuple(_boot(state, boot)), []).append(boot.rules)
    for lines, names in by_lines.items():
        yield [f"next boot of {versions_text(names)}", *lines]


def _boot(state: StoreState, boot: Boot) -> Iterator[str]:
    start = boot.recovers_from or 0
    checked = size_text(max(state.log.end - start, 0))
    why = "by the queues in RocksDB" if state.has_rocksdb_queues and not boot.is_clean else _why_there(boot)
    yield _row("starts at", f"segment {start:020d} ({why}); checks {checked}")
    damage = "" if boot.is_full else ", or up to damage before that"
    for part in boot.dispatched:
        yield _row("dispatches", f"commit log offsets {_range(part)} again{damage}")
    if not boot.dispatched:
        yield _row("dispatches", "nothing again")
    if boot.completed:
        yield _row("completes", f"{boot.at_least}{messages(boot.completed)} in their queues")
    for outcome in [one for one in boot.queues if one.lost or one.shifted][:_SHOWN]:
        yield _row("loses", _outcome(boot, outcome))
    hidden = sum(bool(one.lost or one.shifted) for one in boot.queues) - _SHOWN
    if hidden > 0:
        yield _row("loses", f"messages of {hidden:,} more queues")
    if boot.deleted_index_files:
        names = ", ".join(boot.deleted_index_files[:_SHOWN])
        more = len(boot.deleted_index_files) - _SHOWN
        others = f" and {more:,} more" if more > 0 else ""
        yield _row("deletes", f"index files {names}{others}: they end after the last flushed one")
    if boot.doubled_entries:
        yield _row("puts twice", f"{boot.doubled_entries:,} index entries of one message, which harms no query")
    if boot.unindexed is not None:
        yield _row("index lacks", f"messages at commit log offsets {_range(boot.unindexed)}{damage}")
    if not boot.is_clean and _offset_files(state):
        yield _row(
            "repeats", f"messages consumed or delivered after the last write of {' and '.join(_offset_files(state))}"
        )


def _why_there(boot: Boot) -> str:
    if not boot.is_clean:
        return "by the checkpoint"
    if boot.rules.decide(DISPATCHES_AFTER_QUEUE_END):
        return "the last one that begins before the end of the queues"
    return "the third-last file, or the first one of fewer"


def _range(part: LogRange) -> str:
    return f"{part.start:,} to {part.stop:,} ({size_text(part.size)})"


def _outcome(boot: Boot, outcome: QueueOutcome) -> str:
    said = []
    if outcome.first_lost_offset is not None:
        at = f"commit log offset {outcome.first_lost_offset:,}"
        said.append(f"{boot.at_least}{messages(outcome.lost)}, the first at {at}")
    if outcome.shifted:
        said.append(f"{messages(outcome.shifted)} with a queue offset that is too small")
    return f"{outcome.topic}/{outcome.queue_id}: {'; '.join(said)}"


def _disk(use: DiskUse) -> str:
    allocated = "" if use.allocated is None else f", {size_text(use.allocated)} on the disk"
    return _row(use.tree, f"{size_text(use.size)} in {counted(use.files, 'file')}{allocated}")


def state_fields(state: StoreState) -> dict[str, Any]:
    """The fields; names ending in `timestamp` are times in ISO 8601, and NULL if they were never set."""
    lacking, index = state.lacking, state.index
    return {
        "store": state.store,
        "verdict": " ".join(verdict(state)),
        "what_to_do": remedies(state),
        "last_stop": asdict(state.last_stop),
        "checkpoint": asdict(state.checkpoint) | {"problem": state.checkpoint_problem},
        "log": asdict(state.log),
        "queues": {
            "count": state.queue_count,
            "lacking_messages": len(lacking.messages),
            "is_complete": lacking.is_complete,
            "dispatched_to": lacking.dispatched_to,
        },
        "gone_messages": state.gone.count,
        "index": None
        if index is None
        else {
            "files": [file.name for file in index.files],
            "covered_to": index.covered_to,
            "covered_timestamp": index.covered_timestamp,
            "lacking_messages": len(index.lacking),
            "is_complete": index.is_complete,
            "problems": list(index.problems),
        },
        "config": [asdict(snapshot) for snapshot in state.config],
        "obstacles": list(state.obstacles),
        "settings": [asdict(setting) for setting in state.settings],
        "boots": [_boot_fields(state, boot) for boot in state.boots],
        "boots_with_abort": [_boot_fields(state, boot) for boot in state.forced_boots],
        "disk": [asdict(use) for use in state.disk],
    }


def _boot_fields(state: StoreState, boot: Boot) -> dict[str, Any]:
    shown = asdict(replace(boot, rows=None, max_offsets={}))
    del shown["rows"], shown["max_offsets"]
    counts = {"completed": boot.completed, "shifted": boot.shifted, "lost": boot.lost}
    loses_nothing = boot.loses_nothing and not any(of_settings(state))
    return shown | {"rules": str(boot.rules)} | counts | {"loses_nothing": loses_nothing}
