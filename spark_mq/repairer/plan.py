"""The plan of a repair, and its request: which files are made, replaced, moved or cleared, why, and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import CorruptIndexError, OptionError, OutputExistsError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, IndexLayout
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC
from spark_mq.indexer.index_files import IndexFilePlan, find_time_zone
from spark_mq.indexer.output_folder import check_output
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, UnfinishedTrees
from spark_mq.repairer.changes import Change, ChangeKind
from spark_mq.repairer.index_gaps import IndexGap, find_gaps, plan_gap
from spark_mq.repairer.queue_task import QueueFileName
from spark_mq.store.config.broker_conf import NOTHING_TELLS, BrokerConf, FileSetting
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.index.folder import check_layout_is_known, find_index_layout, index_files
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE
from spark_mq.store.queue.folders import find_queue_file_size, listed, queue_folders
from spark_mq.verifier.check import CheckEvidence
from spark_mq.verifier.codes import CODES, Treatment
from spark_mq.verifier.verify_request import VerifyRequest

_ONLY_THE_END = ("INDEX_LAGS", "INDEX_MISSING")
"""Codes of a file to which only entries are missing."""

_DOUBTS = {
    "RECORD_TIME_FAR_BACK": {"INDEX_TIME", "INDEX_HEADER"},
    "RECORD_PROPERTIES": {"INDEX_ENTRY_WRONG", "INDEX_CHAIN", "INDEX_SLOT", "INDEX_TIME"},
    "TOPIC_NAME": {"INDEX_ENTRY_WRONG", "INDEX_CHAIN", "INDEX_SLOT", "INDEX_TIME"},
}
"""Codes of damaged records, and the codes of an index file that is perhaps right, and contradicts the damage."""


@dataclass(frozen=True)
class RepairRequest:
    """What to repair, and where to; see `spark_mq.repair` for the arguments.

    Attributes:
        output: The folder that gets the new files; None for the store itself.
        apply: Whether files are written; else the result is a plan.
        offsets: Whether offsets of consumers and delay levels after the end of a queue are corrected.
        assume_defaults: Whether index files are made with the broker's defaults if nothing tells their settings.
    """

    check: VerifyRequest
    output: Location | None = None
    apply: bool = False
    offsets: bool = False
    assume_defaults: bool = False

    @classmethod
    def of(
        cls,
        store: str,
        output: str | None = None,
        *,
        apply: bool = False,
        offsets: bool = False,
        broker_conf: str | None = None,
        scratch: str | None = None,
        split_size: int = DEFAULT_SPLIT_SIZE,
        assume_defaults: bool = False,
    ) -> Self:
        """The request with these arguments."""
        check = VerifyRequest.of(store, broker_conf, scratch, split_size)
        if output is None:
            if not check.store.is_local:
                raise OptionError(f"{check.store} is not on a local filesystem: give --output with another folder")
            return cls(check, None, apply, offsets, assume_defaults)
        folder = Location.resolve(output)
        check_output(folder, check.store, (CONSUME_QUEUE, INDEX))
        is_unfinished = not folder.is_local and UnfinishedTrees(folder, folder / WORK_FOLDER).names()
        if folder.entries() and not is_unfinished:
            raise OutputExistsError(f"--output {folder} is not empty: give a new folder")
        return cls(check, folder, apply, offsets, assume_defaults)

    @property
    def is_in_place(self) -> bool:
        """Whether files of the store itself are changed."""
        return self.apply and self.output is None


@dataclass(frozen=True)
class DamagedFile:
    """One file of a store with findings that have the same treatment.

    Attributes:
        codes: The codes of its findings, in order, each with the number of findings.
        last_position: The last byte at which there is a finding; -1 if none has a position.
    """

    file: str
    codes: tuple[tuple[str, int], ...]
    last_position: int = -1

    def has(self, *codes: str) -> bool:
        """Whether the file has a finding with one of these codes."""
        return any(code in codes for code, _ in self.codes)

    def has_only(self, *codes: str) -> bool:
        """Whether the file has only findings with these codes."""
        return all(code in codes for code, _ in self.codes)


@dataclass(frozen=True)
class DamagedFiles:
    """The findings of a check by code and file; few, however many findings there are.

    Attributes:
        counts: The number of findings of each code and file. The file of a finding without one is empty text.
        last_positions: By the same, the last byte at which there is such a finding; -1 if none has a position.
    """

    counts: Mapping[tuple[str, str], int]
    last_positions: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, findings: Iterable[pa.RecordBatch]) -> Self:
        """The findings of a check (`spark_mq.verifier.finding.FINDING_SCHEMA`)."""
        counts: Counter[tuple[str, str]] = Counter()
        last: dict[tuple[str, str], int] = {}
        for batch in findings:
            table = pa.Table.from_batches([batch]).select(["code", "file", "position"])
            grouped = table.group_by(["code", "file"]).aggregate([([], "count_all"), ("position", "max")])
            for row in grouped.to_pylist():
                key = row["code"], row["file"] or ""
                counts[key] += row["count_all"]
                position = row["position_max"]
                last[key] = max(last.get(key, -1), -1 if position is None else position)
        return cls(counts, last)

    def has(self, code: str) -> bool:
        """Whether there is a finding with a code."""
        return any(code == found for found, _ in self.counts)

    def totals(self) -> dict[str, int]:
        """The number of findings of each code, in the order of their names."""
        totals: Counter[str] = Counter()
        for (code, _), count in sorted(self.counts.items()):
            totals[code] += count
        return dict(totals)

    def treated(self, treatment: Treatment) -> list[DamagedFile]:
        """The files with a finding that has this treatment, by name."""
        codes: dict[str, list[tuple[str, int]]] = {}
        last: dict[str, int] = {}
        for (code, file), count in sorted(self.counts.items()):
            if CODES[code].treatment == treatment:
                codes.setdefault(file, []).append((code, count))
                last[file] = max(last.get(file, -1), self.last_positions[code, file])
        return [DamagedFile(file, tuple(found), last[file]) for file, found in sorted(codes.items())]


@dataclass(frozen=True)
class Action:
    """What a repair does to one file.

    Attributes:
        codes: The codes of the findings that are the reason, each with the number of findings.
    """

    change: Change
    codes: tuple[tuple[str, int], ...]
    treatment: Treatment


@dataclass(frozen=True)
class Left:
    """Findings that a repair leaves.

    Attributes:
        reason: Why they are left.
    """

    code: str
    count: int
    reason: str


@dataclass(frozen=True)
class RepairPlan:
    """The plan of a repair.

    Attributes:
        assumed: Settings of the new files that nothing in the store tells.
    """

    actions: tuple[Action, ...] = ()
    left: tuple[Left, ...] = ()
    assumed: tuple[FileSetting, ...] = ()
    queue_files: tuple[QueueFileName, ...] = ()
    index_files: tuple[IndexFilePlan, ...] = ()


@dataclass
class _Parts:
    """The parts of a plan that one kind of files adds."""

    actions: list[Action] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    assumed: list[FileSetting] = field(default_factory=list)
    queue_files: list[QueueFileName] = field(default_factory=list)
    index_files: list[IndexFilePlan] = field(default_factory=list)


def plan_repair(
    store: Location, conf: BrokerConf, damaged: DamagedFiles, evidence: CheckEvidence, request: RepairRequest
) -> RepairPlan:
    """The plan of a repair.

    Args:
        damaged: The findings of a check, by file.
        request: Says whether consumers' offsets after the end of a queue are corrected, and whether defaults are
            assumed for settings that nothing tells.
    """
    parts = [
        _queues(store, conf, damaged, evidence),
        _index(store, conf, damaged, evidence, request.assume_defaults),
        _others(store, damaged, evidence, request.offsets),
    ]
    actions = _one_for_each_file(action for part in parts for action in part.actions)
    left = [left for part in parts for left in part.left]
    return RepairPlan(
        tuple(sorted(actions, key=lambda action: action.change.file)),
        (*left, *_forgotten(damaged, actions, left)),
        tuple(setting for part in parts for setting in part.assumed),
        tuple(file for part in parts for file in part.queue_files),
        tuple(file for part in parts for file in part.index_files),
    )


def _one_for_each_file(actions: Iterable[Action]) -> list[Action]:
    """The actions, without those that move a folder aside in whose place a file is put: that moves it, too."""
    by_file: dict[str, Action] = {}
    for action in actions:
        other = by_file.get(action.change.file)
        if other is not None:
            first, second = (action, other) if action.change.kind != ChangeKind.ASIDE else (other, action)
            action = replace(first, codes=tuple(sorted({*first.codes, *second.codes})))
        by_file[action.change.file] = action
    return list(by_file.values())


def _forgotten(damaged: DamagedFiles, actions: Iterable[Action], left: Iterable[Left]) -> Iterator[Left]:
    """Findings that have a treatment, and that no action names: the plan must not pass over them in silence."""
    left_codes = {one.code for one in left}
    files = {action.change.file for action in actions}
    makes_index = any(file.startswith(f"{INDEX}/") for file in files)  # a gap is filled by other files, too
    for (code, file), count in sorted(damaged.counts.items()):
        treatment = CODES[code].treatment
        is_asked = treatment not in (Treatment.NOTHING, Treatment.NOT_REPAIRED, Treatment.OFFSETS)
        is_made = file in files or (makes_index and treatment == Treatment.INDEX_FILE)
        if is_asked and not is_made and code not in left_codes:
            yield Left(code, count, f"{file}: the store does not show how to make it again")


def _queues(store: Location, conf: BrokerConf, damaged: DamagedFiles, evidence: CheckEvidence) -> _Parts:
    parts = _Parts()
    files = damaged.treated(Treatment.QUEUE_FILE)
    wrong_sizes = sum(file.has("QUEUE_FILE_SIZE") for file in files)
    if wrong_sizes and 2 * wrong_sizes > _count_queue_files(store):
        reason = (
            "most queue files have this size, so the setting is another: give the broker's settings (--broker-conf)"
        )
        parts.left.append(Left("QUEUE_FILE_SIZE", wrong_sizes, reason))
        files = []
    due_times = sum(count for file in files for code, count in file.codes if code == "QUEUE_DUE_TIME")
    if due_times and not conf.is_given:
        reason = "due times depend on messageDelayLevel: give the broker's settings (--broker-conf)"
        parts.left.append(Left("QUEUE_DUE_TIME", due_times, reason))
        files = [file for file in files if not file.has("QUEUE_DUE_TIME")]
    ends = {(queue.topic, queue.queue_id): queue.queue_max for queue in evidence.queues}
    for file in files:
        name = QueueFileName.of(file.file, evidence.queue_file_size)
        end = ends.get((name.topic, name.queue_id))
        if end is not None and name.number * (evidence.queue_file_size // UNIT_SIZE) >= end:
            parts.actions.append(Action(Change(ChangeKind.ASIDE, file.file), file.codes, Treatment.ASIDE))
            continue
        parts.queue_files.append(name)
        parts.actions.append(_made(store, file, Treatment.QUEUE_FILE))
    if parts.queue_files:
        size = find_queue_file_size(conf, listed([store / CONSUME_QUEUE]))
        parts.assumed += _untold("queue files", f"{size.value:,} bytes each", size.source)
    if not conf.is_given and any(name.topic == SCHEDULE_TOPIC for name in parts.queue_files):
        parts.assumed += _untold("messageDelayLevel", DEFAULT_DELAY_LEVELS, NOTHING_TELLS)
    return parts


def _untold(name: str, value: str, source: str) -> list[FileSetting]:
    """The setting, if nothing in the store tells it."""
    return [FileSetting(name, value, source)] if source == NOTHING_TELLS else []


def _count_queue_files(store: Location) -> int:
    return sum(len(folder.files) for folder in queue_folders(store / CONSUME_QUEUE))


def _index(
    store: Location, conf: BrokerConf, damaged: DamagedFiles, evidence: CheckEvidence, assume_defaults: bool
) -> _Parts:
    parts = _Parts()
    found = {file.file: file for file in damaged.treated(Treatment.INDEX_FILE)}
    for doubtful in [file for file in found.values() if _is_doubtful(file, damaged)]:
        reason = f"{doubtful.file} contradicts a damaged record of the log, and is perhaps right"
        parts.left += [Left(code, count, reason) for code, count in found.pop(doubtful.file).codes]
    layout = evidence.index.layout
    if not found or layout is None or evidence.staged is None:
        return parts
    files = index_files(store)
    if not files:
        try:
            if not assume_defaults:
                check_layout_is_known(store, conf)
        except OptionError as error:
            parts.left += [Left(code, count, str(error)) for file in found.values() for code, count in file.codes]
            return parts
        text = f"{layout.hash_slot_num:,} slots and {layout.index_num:,} entries each"
        parts.assumed += _untold("index files", text, find_index_layout(store, conf).source)
    broken = {file.name for file in files if f"{INDEX}/{file.name}" in found}
    lagging = (info for info in evidence.index.files if info.name in broken and _lags(found[f"{INDEX}/{info.name}"]))
    sound = {info.name for info in lagging if info.header(layout).is_full(layout)}
    after_loss = {name for name in broken if _lacks_only_before(found[f"{INDEX}/{name}"], layout)}
    broken -= sound | after_loss
    # A broker fills each file but the last, so entries between two files are missing in one that is not full.
    beside = {info.name for pair in pairwise(evidence.index.files) if pair[1].name in after_loss for info in pair}
    not_full = {info.name for info in evidence.index.files[:-1] if not info.header(layout).is_full(layout)}
    broken |= beside & not_full
    after_loss -= broken
    lacks_end = any(file.has(*_ONLY_THE_END) for file in found.values())
    zone = find_time_zone([file for file in files if file.name not in broken], layout)
    codes = {path: entry.codes for path, entry in found.items()}
    for gap in find_gaps(files, frozenset(broken), frozenset(after_loss), lacks_end):
        try:
            planned = plan_gap(gap, evidence.staged, layout, zone.value)
            if gap.after is not None and gap.after == files[-1] and not gap.damaged and not planned.is_full(layout):
                # What the last file lacks fills no file: it lacks it itself.
                gap = IndexGap(gap.before, None, (gap.after,))
                planned = plan_gap(gap, evidence.staged, layout, zone.value)
        except CorruptIndexError as error:
            parts.left += [Left(code, count, str(error)) for code, count in _of_neighbours(gap, codes)]
            continue
        for plan in planned.files:
            path = f"{INDEX}/{plan.name}"
            why = codes.get(path) or _of_neighbours(gap, codes) or codes.get(INDEX) or _of_end(found)
            parts.index_files.append(plan)
            parts.actions.append(_made(store, DamagedFile(path, why), Treatment.INDEX_FILE))
        for unused in planned.unused:
            path = f"{INDEX}/{unused.name}"
            why = codes.get(path) or _of_neighbours(gap, codes)
            parts.actions.append(Action(Change(ChangeKind.ASIDE, path), why, Treatment.ASIDE))
    if any(plan.name not in {file.name for file in files} for plan in parts.index_files):
        parts.assumed += _untold("names of index files", f"in the time zone {zone.value}", zone.source)
    return parts


def _is_doubtful(file: DamagedFile, damaged: DamagedFiles) -> bool:
    codes = {code for code, _ in file.codes}
    return any(codes <= doubted for code, doubted in _DOUBTS.items() if damaged.has(code))


def _lags(file: DamagedFile) -> bool:
    """Whether nothing is wrong with an index file, except that entries after its last one are missing."""
    return file.has_only(*_ONLY_THE_END)


def _lacks_only_before(file: DamagedFile, layout: IndexLayout) -> bool:
    """Whether nothing is wrong with an index file, except that entries before its first one are missing.

    The time of the first entry counts from the end of the file before it, so it is a finding if that file is lost.
    """
    is_first = file.last_position <= layout.entries_at + ENTRY_SIZE
    return is_first and file.has("INDEX_ENTRY_MISSING") and file.has_only("INDEX_ENTRY_MISSING", "INDEX_TIME")


def _of_neighbours(gap: IndexGap, codes: dict[str, tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    """The codes of the files of a gap, and of the file after it, for a file that they show to be missing."""
    files = [*gap.damaged, *(() if gap.after is None else (gap.after,))]
    return tuple({code: count for file in files for code, count in codes.get(f"{INDEX}/{file.name}", ())}.items())


def _of_end(found: dict[str, DamagedFile]) -> tuple[tuple[str, int], ...]:
    return tuple((code, count) for file in found.values() for code, count in file.codes if code in _ONLY_THE_END)


def _others(store: Location, damaged: DamagedFiles, evidence: CheckEvidence, offsets: bool) -> _Parts:
    parts = _Parts()
    for treatment in (Treatment.CHECKPOINT, Treatment.CONFIG, *((Treatment.OFFSETS,) if offsets else ())):
        parts.actions += [_made(store, file, treatment) for file in damaged.treated(treatment)]
    for file in damaged.treated(Treatment.ASIDE):
        parts.actions.append(Action(Change(ChangeKind.ASIDE, file.file), file.codes, Treatment.ASIDE))
    for file in damaged.treated(Treatment.TAIL):
        segment = store / file.file
        start = evidence.bounds.end - int(segment.name)
        change = Change(ChangeKind.CLEAR, file.file, start, find_data_end(segment, segment.info().size))
        parts.actions.append(Action(change, file.codes, Treatment.TAIL))
    parts.left += _left(damaged, offsets)
    return parts


def _left(damaged: DamagedFiles, offsets: bool) -> Iterator[Left]:
    """Findings that no repair treats, or none that was asked for."""
    treatments = {Treatment.NOT_REPAIRED: str(Treatment.NOT_REPAIRED)}
    if not offsets:
        treatments[Treatment.OFFSETS] = "the offsets of consumers are corrected only with --offsets"
    for code, count in damaged.totals().items():
        if CODES[code].treatment in treatments:
            yield Left(code, count, treatments[CODES[code].treatment])


def _made(store: Location, file: DamagedFile, treatment: Treatment) -> Action:
    """The action that puts a new file in place, of an old one, or of a folder with its name, if there is one."""
    exists = (store / file.file).info().type != fs.FileType.NotFound
    kind = ChangeKind.REPLACE if exists else ChangeKind.CREATE
    return Action(Change(kind, file.file), file.codes, treatment)
