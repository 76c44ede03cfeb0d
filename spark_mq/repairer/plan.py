"""The plan of a repair, and its request: which files are made, replaced, moved or cleared, why, and what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from pyarrow import fs

from spark_mq.errors import CorruptIndexError, OptionError, OutputExistsError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, IndexLayout
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC
from spark_mq.indexer.output_folder import check_output
from spark_mq.io.location import Location
from spark_mq.job.output_committer import WORK_FOLDER, UnfinishedTrees
from spark_mq.repairer.changes import Change, ChangeKind
from spark_mq.store.config.broker_conf import NOTHING_TELLS, FileSetting
from spark_mq.store.config.config_file import config_database
from spark_mq.store.config.store_kind import batch_topics, double_written_database, has_rocksdb_queues, queue_database
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, CURRENT, DLEDGER, INDEX
from spark_mq.store.index.folder import IndexFileInfo, check_layout_is_known, find_index_layout, index_files
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.queue.folders import find_queue_file_size, listed, queue_folders
from spark_mq.verifier.check import CheckedStore, VerifyRequest
from spark_mq.verifier.codes import CODES, Treatment
from spark_mq.verifier.finding import Codes, Damage, DamagedFile
from spark_mq.verifier.queue_task import file_range

if TYPE_CHECKING:
    from spark_mq.indexer.index_files import IndexFilePlan
    from spark_mq.repairer.index_gaps import IndexGap

_DATABASE_UNIT = 100
"""Bytes of a unit in a new database, with its key, at most; a topic with a longer name is rare."""

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
    """What to repair, and where to; see `spark_mq.repair` for the arguments."""

    check: VerifyRequest
    output: Location | None = None
    apply: bool = False
    offsets: bool = False
    assume_defaults: bool = False

    @classmethod
    def of(cls, check: VerifyRequest, output: str | None, **flags: bool) -> Self:
        """The request to repair what a check finds; `flags` are the other fields."""
        if output is None:
            if not check.store.is_local:
                raise OptionError(f"{check.store} is not on a local filesystem: give --output with another folder")
            return cls(check, None, **flags)
        folder = Location.resolve(output)
        check_output(folder, check.store, (CONSUME_QUEUE, INDEX))
        is_unfinished = not folder.is_local and UnfinishedTrees(folder, folder / WORK_FOLDER).names()
        if folder.entries() and not is_unfinished:
            raise OutputExistsError(f"--output {folder} is not empty: give a new folder")
        return cls(check, folder, **flags)

    @property
    def is_in_place(self) -> bool:
        """Whether files of the store itself are changed."""
        return self.apply and self.output is None


@dataclass(frozen=True, order=True)
class QueueFileName:
    """A queue file: its queue, and its number in the queue."""

    topic: str
    queue_id: int
    number: int

    @classmethod
    def of(cls, path: str, file_size: int) -> Self:
        """The file with a path in the store, such as `consumequeue/orders/0/00000000000000000000`."""
        folder, _, name = path.rpartition("/")
        queue, _, queue_id = folder.rpartition("/")
        return cls(queue.removeprefix(f"{CONSUME_QUEUE}/"), int(queue_id), int(name) // file_size)


@dataclass(frozen=True)
class Action:
    """What a repair does to one file, and the codes of the findings that are the reason."""

    change: Change
    codes: Codes
    treatment: Treatment


@dataclass(frozen=True)
class Left:
    """Findings that a repair leaves, and why."""

    code: str
    count: int
    reason: str


@dataclass
class RepairPlan:
    """The plan of a repair; `assumed` are settings of the new files that nothing in the store tells."""

    actions: list[Action] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    assumed: list[FileSetting] = field(default_factory=list)
    queue_files: list[QueueFileName] = field(default_factory=list)
    batch_files: list[str] = field(default_factory=list)
    index_files: list[IndexFilePlan] = field(default_factory=list)

    def leave(self, codes: Codes, reason: str) -> None:
        """Leave findings."""
        self.left += [Left(code, count, reason) for code, count in codes]

    def assume(self, name: str, value: str, source: str) -> None:
        """Note a setting if nothing in the store tells it."""
        if source == NOTHING_TELLS:
            self.assumed.append(FileSetting(name, value, source))

    def move_aside(self, file: str, codes: Codes) -> None:
        """Move a file into the backup."""
        self.actions.append(Action(Change(ChangeKind.ASIDE, file), codes, Treatment.ASIDE))

    def make(self, store: Location, file: str, codes: Codes, treatment: Treatment) -> None:
        """Put a new file in place, of an old one, or of a folder with its name, if there is one."""
        exists = (store / file).info().type != fs.FileType.NotFound
        change = Change(ChangeKind.REPLACE if exists else ChangeKind.CREATE, file)
        self.actions.append(Action(change, codes, treatment))

    def room_needed(self, request: RepairRequest, checked: CheckedStore) -> int:
        """Bytes of the new files, and of the parts of segments of which the backup has a copy."""
        layout, store = checked.index.layout, request.check.store
        sizes = {
            Treatment.QUEUE_FILE: checked.queue_file_size,
            Treatment.INDEX_FILE: 0 if layout is None else layout.file_size,
            Treatment.ASIDE: 0,
            Treatment.DATABASE: _DATABASE_UNIT * sum(queue.staged_units for queue in checked.queues.values()),
        }
        needed = 0
        for action in self.actions:
            change, size = action.change, sizes.get(action.treatment)
            if change.file in self.batch_files:
                size = next(check.file_size for check in checked.batches)
            if change.kind == ChangeKind.CLEAR and request.output is None:
                size = change.stop - change.start
            needed += (store / change.file).info().size or 0 if size is None else size
        return needed


def plan_repair(request: RepairRequest, damage: Damage, checked: CheckedStore) -> RepairPlan:
    """The plan of a repair."""
    plan = RepairPlan()
    _plan_queues(plan, request, damage, checked)
    _plan_index(plan, request, damage, checked)
    _plan_others(plan, request, damage, checked)
    by_file: dict[str, Action] = {}  # a file that is put in the place of a folder moves the folder aside
    for action in plan.actions:
        other = by_file.get(action.change.file)
        if other is not None:
            first, second = (action, other) if action.change.kind != ChangeKind.ASIDE else (other, action)
            action = replace(first, codes=tuple(sorted({*first.codes, *second.codes})))
        by_file[action.change.file] = action
    plan.actions = [by_file[file] for file in sorted(by_file)]
    plan.left += list(_forgotten(damage, plan))
    return plan


def _forgotten(damage: Damage, plan: RepairPlan) -> Iterator[Left]:
    """Findings that have a treatment, and that no action names: the plan must not pass over them in silence."""
    left_codes = {one.code for one in plan.left}
    files = {action.change.file for action in plan.actions}
    of_database = {code for one in plan.actions if one.treatment == Treatment.DATABASE for code, _ in one.codes}
    makes_index = any(file.startswith(f"{INDEX}/") for file in files)  # a gap is filled by other files, too
    for code, file, count, _ in damage.counts:
        treatment = CODES[code].treatment
        is_asked = treatment not in (Treatment.NOTHING, Treatment.NOT_REPAIRED, Treatment.OFFSETS)
        is_made = file in files or (makes_index and treatment == Treatment.INDEX_FILE) or code in of_database
        if is_asked and not is_made and code not in left_codes:
            yield Left(code, count, f"{file}: the store does not show how to make it again")


def _plan_queues(plan: RepairPlan, request: RepairRequest, damage: Damage, checked: CheckedStore) -> None:
    store, conf, file_size = request.check.store, request.check.conf, checked.queue_file_size
    in_database, files = has_rocksdb_queues(store), list[DamagedFile]()
    of_database = damage.treated(Treatment.DATABASE)
    for file in damage.treated(Treatment.QUEUE_FILE):
        tree, _, _ = file.file.partition("/")
        if tree == BATCH_CONSUME_QUEUE:
            plan.batch_files.append(file.file)
            plan.make(store, file.file, file.codes, Treatment.QUEUE_FILE)
        elif in_database or tree != CONSUME_QUEUE:
            of_database.append(file)
        else:
            files.append(file)
    if of_database:
        _plan_database(plan, request, checked, of_database)
    if in_database:
        return
    wrong_sizes = sum(file.has("QUEUE_FILE_SIZE") for file in files)
    if wrong_sizes and 2 * wrong_sizes > sum(len(folder.files) for folder in queue_folders(store / CONSUME_QUEUE)):
        reason = (
            "most queue files have this size, so the setting is another: give the broker's settings (--broker-conf)"
        )
        plan.leave((("QUEUE_FILE_SIZE", wrong_sizes),), reason)
        files = []
    due_times = sum(count for file in files for code, count in file.codes if code == "QUEUE_DUE_TIME")
    if due_times and not conf.is_given:
        reason = "due times depend on messageDelayLevel: give the broker's settings (--broker-conf)"
        plan.leave((("QUEUE_DUE_TIME", due_times),), reason)
        files = [file for file in files if not file.has("QUEUE_DUE_TIME")]
    for file in files:
        name = QueueFileName.of(file.file, file_size)
        with_messages = file_range(checked.queues.get((name.topic, name.queue_id)), file_size // UNIT_SIZE)
        if with_messages and name.number >= with_messages.stop:
            plan.move_aside(file.file, file.codes)
        else:
            plan.queue_files.append(name)
            plan.make(store, file.file, file.codes, Treatment.QUEUE_FILE)
    if plan.queue_files:
        size = find_queue_file_size(conf, listed([store / CONSUME_QUEUE]))
        plan.assume("queue files", f"{size.value:,} bytes each", size.source)
    if not conf.is_given and any(name.topic == SCHEDULE_TOPIC for name in plan.queue_files):
        plan.assume("messageDelayLevel", DEFAULT_DELAY_LEVELS, NOTHING_TELLS)


def _plan_database(
    plan: RepairPlan, request: RepairRequest, checked: CheckedStore, found: Iterable[DamagedFile]
) -> None:
    """Make a database of queues again, as a whole: RocksDB changes no table."""
    counts: dict[str, int] = defaultdict(int)
    for code, count in (one for file in found for one in file.codes):
        counts[code] += count
    codes, conf, store = tuple(sorted(counts.items())), request.check.conf, request.check.store
    database = queue_database(store) or double_written_database(store)
    folder = conf.queue_database if database is None else database.name
    if not conf.is_given:
        plan.leave(codes, "which queues a database has depends on the broker's settings: give them (--broker-conf)")
    elif not (request.output or store).is_local:
        plan.leave(codes, "RocksDB writes only to a local disk: give another --output")
    elif not checked.log.staged.messages:
        plan.leave(codes, "the log has no message of which units could be made")
    elif batch_topics(store):
        plan.leave(codes, "the store has batch consume queues, and no database of their topics is made")
    else:
        plan.make(store, f"{folder}/{CURRENT}", codes, Treatment.DATABASE)


def _plan_index(plan: RepairPlan, request: RepairRequest, damage: Damage, checked: CheckedStore) -> None:
    layout, staged, found = checked.index.layout, checked.log.staged, _index_damage(plan, damage)
    if not found or layout is None or not staged.splits:
        return
    from spark_mq.indexer.index_files import find_time_zone
    from spark_mq.repairer.index_gaps import find_gaps, plan_gap

    files = index_files(request.check.store)
    if not files and not _assume_layout(plan, request, layout, found):
        return
    broken, after_loss = _to_make_again(found, files, checked.index.files, layout)
    zone = find_time_zone([info for info in files if info.name not in broken], layout)
    codes = {path: file.codes for path, file in found.items()}
    of_end = tuple(one for file in found.values() for one in file.codes if one[0] in _ONLY_THE_END)
    for gap in find_gaps(files, broken, after_loss, lacks_end=bool(of_end)):
        try:
            planned = plan_gap(gap, staged, layout, zone.value)
            is_full = bool(planned) and planned[-1].entries + 1 >= layout.index_num
            if gap.after is not None and gap.after == files[-1] and not gap.damaged and not is_full:
                # What the last file lacks fills no file: it lacks it itself.
                gap = replace(gap, after=None, damaged=(gap.after,))
                planned = plan_gap(gap, staged, layout, zone.value)
        except CorruptIndexError as error:
            plan.leave(_of_neighbours(gap, codes), str(error))
            continue
        plan.index_files += planned
        for new in planned:
            path = f"{INDEX}/{new.name}"
            why = codes.get(path) or _of_neighbours(gap, codes) or codes.get(INDEX) or of_end
            plan.make(request.check.store, path, why, Treatment.INDEX_FILE)
        for old in gap.damaged:
            path = f"{INDEX}/{old.name}"
            if old.name not in {new.name for new in planned}:
                plan.move_aside(path, codes.get(path) or _of_neighbours(gap, codes))
    if any(new.name not in {info.name for info in files} for new in plan.index_files):
        plan.assume("names of index files", f"in the time zone {zone.value}", zone.source)


def _index_damage(plan: RepairPlan, damage: Damage) -> dict[str, DamagedFile]:
    """The damaged index files by path, without those that are perhaps right."""
    found = {file.file: file for file in damage.treated(Treatment.INDEX_FILE)}
    doubts = [codes for code, codes in _DOUBTS.items() if damage.has(code)]
    for doubtful in [file for file in found.values() if any(file.has_only(*codes) for codes in doubts)]:
        del found[doubtful.file]
        plan.leave(doubtful.codes, f"{doubtful.file} contradicts a damaged record of the log, and is perhaps right")
    return found


def _assume_layout(
    plan: RepairPlan, request: RepairRequest, layout: IndexLayout, found: Mapping[str, DamagedFile]
) -> bool:
    """Whether index files can be made without one that shows slots and entries."""
    store, conf = request.check.store, request.check.conf
    try:
        if not request.assume_defaults:
            check_layout_is_known(store, conf)
    except OptionError as error:
        for file in found.values():
            plan.leave(file.codes, str(error))
        return False
    text = f"{layout.hash_slot_num:,} slots and {layout.index_num:,} entries each"
    plan.assume("index files", text, find_index_layout(store, conf).source)
    return True


def _to_make_again(
    found: Mapping[str, DamagedFile],
    files: Sequence[IndexFileInfo],
    checked: Sequence[IndexFileInfo],
    layout: IndexLayout,
) -> tuple[frozenset[str], frozenset[str]]:
    """The names of files that are made again, and of sound files before which entries are missing."""
    broken = {info.name for info in files if f"{INDEX}/{info.name}" in found}
    # Nothing is wrong with a full file that only lags.
    lagging = {name for name in broken if found[f"{INDEX}/{name}"].has_only(*_ONLY_THE_END)}
    sound = {info.name for info in checked if info.name in lagging and info.header(layout).is_full(layout)}
    after_loss = {name for name in broken if _lacks_only_before(found[f"{INDEX}/{name}"], layout)}
    broken -= sound | after_loss
    # A broker fills each file but the last, so entries between two files are missing in one that is not full.
    beside = {info.name for pair in pairwise(checked) if pair[1].name in after_loss for info in pair}
    not_full = {info.name for info in checked[:-1] if not info.header(layout).is_full(layout)}
    broken |= beside & not_full
    return frozenset(broken), frozenset(after_loss - broken)


def _lacks_only_before(file: DamagedFile, layout: IndexLayout) -> bool:
    """Whether nothing is wrong with an index file, except that entries before its first one are missing.

    The time of the first entry counts from the end of the file before it, so it is a finding if that file is lost.
    """
    is_first = file.last_position <= layout.entries_at + ENTRY_SIZE
    return is_first and file.has("INDEX_ENTRY_MISSING") and file.has_only("INDEX_ENTRY_MISSING", "INDEX_TIME")


def _of_neighbours(gap: IndexGap, codes: dict[str, Codes]) -> Codes:
    """The codes of the files of a gap, and of the file after it, for a file that they show to be missing."""
    files = [*gap.damaged, *(() if gap.after is None else (gap.after,))]
    return tuple({code: count for file in files for code, count in codes.get(f"{INDEX}/{file.name}", ())}.items())


def _plan_others(plan: RepairPlan, request: RepairRequest, damage: Damage, checked: CheckedStore) -> None:
    store = request.check.store
    for treatment in (Treatment.CHECKPOINT, Treatment.CONFIG, *((Treatment.OFFSETS,) if request.offsets else ())):
        for file in damage.treated(treatment):
            database = config_database(store, file.file.removeprefix(f"{CONFIG}/"))
            if treatment == Treatment.OFFSETS and database is not None:
                plan.leave(file.codes, f"the offsets are in RocksDB, and {CONFIG}/{database.name} is not changed")
            else:
                plan.make(store, file.file, file.codes, treatment)
    for file in damage.treated(Treatment.ASIDE):
        plan.move_aside(file.file, file.codes)
    for file in damage.treated(Treatment.TAIL):
        if file.file.startswith(DLEDGER):
            plan.leave(file.codes, "files of a DLedger log are not changed; `spark-mq restore STORE NEW` leaves it out")
            continue
        segment = store / file.file
        start = checked.bounds.end - int(segment.name)
        change = Change(ChangeKind.CLEAR, file.file, start, find_data_end(segment, segment.info().size))
        plan.actions.append(Action(change, file.codes, Treatment.TAIL))
    reasons = {Treatment.NOT_REPAIRED: str(Treatment.NOT_REPAIRED)}
    if not request.offsets:
        reasons[Treatment.OFFSETS] = "the offsets of consumers are corrected only with --offsets"
    totals: dict[str, int] = defaultdict(int)
    for code, _, count, _ in damage.counts:
        totals[code] += count
    for code, count in totals.items():
        if CODES[code].treatment in reasons:
            plan.left.append(Left(code, count, reasons[CODES[code].treatment]))
