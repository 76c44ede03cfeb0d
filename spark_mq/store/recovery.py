"""What a broker would do to a store at its next start, exactly: a dry run over the records that it would check.

The steps are those of `DefaultMessageStore.load` and `start`, 4.9.0 to 5.5.1. `boot` predicts the same from a few
facts, and has the rules that both share. Not modelled, as there: controller mode and `duplicationEnable`; nor
`enableMultiDispatch`. The broker is a master; on a DLedger log it is the only node of its group, or
the leader.

The rest of the log is read, too: its messages that have no unit do not get one by the start (`dispatch_requests`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from spark_mq.errors import UnsupportedStoreError
from spark_mq.format.array_types import Int64s
from spark_mq.format.broker_version import (
    BATCH_PROPERTIES_ARE_CHECKED,
    DISPATCHES_AFTER_QUEUE_END,
    DISPATCHES_AT_CLEAN_BOOT,
    DLEDGER_DISPATCHES_AFTER_CRASH,
    EMPTY_LAST_FILE_IS_DELETED,
    FOLDERS_ARE_SKIPPED,
    INDEX_TAGS,
    MESSAGE_VERSION_2,
    PROPERTY_CRC,
    READS_BEFORE_EMPTY_QUEUE_FILE,
    RECOVERS_FROM_FLUSHED_QUEUES,
    RECOVERS_FROM_TENTH_FILE,
    SIZE_IS_CHECKED_FIRST,
    BrokerVersion,
    BrokerVersions,
)
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.dledger import HEAD_SIZE as ENTRY_HEAD_SIZE
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.kernels import recovery as kernels
from spark_mq.format.kernels.recovery import RecordCheck
from spark_mq.format.record import HEAD_SIZE
from spark_mq.store.boot import (
    Boot,
    BootFacts,
    SegmentHead,
    dispatch_obstacle,
    index_outcome,
    matches_recovery,
    newest_heads,
    next_boot,
    recovery_start,
)
from spark_mq.store.boot_conditions import BootConditions, one_boot_group
from spark_mq.store.config.store_kind import dledger_node
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX, mapped_files
from spark_mq.store.dispatch_log import DispatchLog, RecoveryRows
from spark_mq.store.dispatch_requests import ANYWHERE, NOWHERE, CheckedLog, DispatchRequests, QueueNumbers
from spark_mq.store.file_states import IndexFileEnd, IndexState, index_state
from spark_mq.store.index.folder import index_files, index_layout, read_entries
from spark_mq.store.lacking_entries import find_lacking_entries
from spark_mq.store.lacking_messages import find_gone_messages
from spark_mq.store.lacking_scan import LackingScan
from spark_mq.store.log.dledger_log import RecoveredEntries, recover_entries
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.recovery_walk import END_REASONS, DispatchWalk, accepts_record
from spark_mq.store.log.segment_files import SegmentFile, booted_folder, find_data_end, usual_size
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import (
    QueueFileInfo,
    QueueFolder,
    find_batch_file_size,
    find_queue_file_size,
    queue_folders,
    queue_path,
    queues_in_files,
    without_empty_file,
)
from spark_mq.store.queue.queue_database import database_tree, makes_light_queues
from spark_mq.store.queue.recovered_queue import NO_FILE, RecoveredQueue, recover_queue, truncate_queue
from spark_mq.store.starting_queues import StartingDatabase, StartingLightDatabase, StartingQueues

_CHECKED = "while the log is checked"


def next_recovery(path: str, broker_version: str, broker_conf: str | None = None) -> Boot:
    """What a broker of a version would do to the store at `path` if it were started now. Nothing is changed.

    The records from the segment on with which the broker begins are read and checked, without Spark. Of the others, it
    is found out whether they have a unit. The version must tell which rules apply.
    """
    release = one_boot_group(broker_version)
    with MessageStore(path, broker_version, broker_conf) as store:
        if store.records.has_entries:
            release = one_boot_group(broker_version, has_entries=True)
        gone, conditions = find_gone_messages(store).count, BootConditions.of(store)
        return next_recoveries(conditions, [(release, not conditions.last_stop.is_clean)], gone)[0]


def next_recoveries(
    conditions: BootConditions,
    starts: Sequence[tuple[BrokerVersions, bool]],
    gone: int,
    index: IndexState | None = None,
) -> list[Boot]:
    """The same for several starts. What several of them read is read once; `index` if it was read before."""
    stopped = _StoppedStore(conditions, gone)
    if index is not None:
        stopped.index = index
    # The last starts dispatch most: what they read is enough for the others.
    start = _Start if stopped.node is None else _DLedgerStart
    found = [start(stopped, release, after_crash).run() for release, after_crash in reversed(starts)]
    return found[::-1]


class _StoppedStore:
    """What all starts read of a store."""

    def __init__(self, conditions: BootConditions, gone: int) -> None:
        self.conditions, self.gone = conditions, gone
        self.store = store = conditions.store
        self.conf = store.broker_conf
        self.node = dledger_node(store.location)
        self.log_folder, self.has_entries = booted_folder(store.location)
        self.segments = mapped_files(self.log_folder.entries())
        files = queues_in_files(store.location)
        self.folders = list(files if conditions.database is None else queue_folders(store.tree, with_empty=True))
        # A broker that does not delete an empty last file does not start.
        folders = [without_empty_file(folder) for folder in self.folders]
        if conditions.light is not None:
            tree = database_tree(conditions.light.folder)
            folders += [folder for folder in queue_folders(tree) if folder.topic.startswith(LIGHT_PREFIX)]
        makes_light = makes_light_queues(store.location, self.conf)
        self.numbers = QueueNumbers(folders, store.files, store.batch_topics, makes_light)
        self.log = CheckedLog(self.numbers)
        self.scan = LackingScan(store, self.numbers, self.log)
        self.recovered = cache(lambda folder, file_size: recover_queue(folder, file_size, store.files))
        self.truncated = cache(lambda queue, end: truncate_queue(queue, end, store.files))
        self.entries_from = cache(self._entries_from)
        self._obstacles: dict[tuple[bool, ...], list[str]] = {}
        flushed = conditions.checkpoint.index_msg_timestamp
        self._find_lacking = cache(lambda names, stop: find_lacking_entries(store, names, stop, flushed))

    @cached_property
    def index(self) -> IndexState:
        return index_state(self.store, self.conditions.checkpoint.index_msg_timestamp)

    def find_lacking_entries(self, kept: Sequence[IndexFileEnd], stop: int) -> LogRange | None:
        """The first part of the log before `stop` in which messages lack entries in the files that the broker keeps."""
        names, index = frozenset(file.name for file in kept), self.index
        if len(kept) == len(index.files):
            found = LogRange(index.covered_to, index.lacking[0]) if index.lacking else None
        else:
            found = self._find_lacking(names, index.log_end)
        if found is None and stop > index.log_end:  # a boot can end the log after the live end
            found = self._find_lacking(names, stop)
        return found if found is not None and found.stop < stop else None

    def _entries_from(self, start: int, names: frozenset[str]) -> tuple[Int64s, Int64s]:
        """The commit log offsets from `start` on that entries of these index files have, and the number of each."""
        files = index_files(self.store.location) if names else []
        layout = index_layout(self.store.location, self.conf, files) if names else IndexLayout()
        found = [np.empty(0, np.int64)]
        for file in files:
            if file.name in names:
                offsets = read_entries(file, layout)["commit_log_offset"]
                found.append(offsets[offsets >= start])
        return np.unique(np.concatenate(found), return_counts=True)

    def obstacles(self, folders: Sequence[QueueFolder], version: BrokerVersion) -> list[str]:
        """The obstacles of a version, which finds the queue files of `folders`."""
        rules = EMPTY_LAST_FILE_IS_DELETED.holds(version), FOLDERS_ARE_SKIPPED.holds(version)
        if rules not in self._obstacles:
            files = folders if self.conditions.database is None else []
            self._obstacles[rules] = self.conditions.obstacles.of(files, version)
        return self._obstacles[rules]


class _Start:
    """One start of a broker on a store, whose steps add rows in their order."""

    def __init__(self, stopped: _StoppedStore, release: BrokerVersions, after_crash: bool) -> None:
        self._stopped, self._store, self._location = stopped, stopped.store, stopped.store.location
        self._release, self._version = release, release.last
        self._conf, self._conditions, self._settings = stopped.conf, stopped.conditions, stopped.conditions.settings
        self._rows = RecoveryRows()
        self._stop = replace(stopped.conditions.last_stop, is_clean=not after_crash)
        self._checkpoint = stopped.conditions.checkpoint
        self._live_end = -1
        self._empty_files: tuple[str, ...] = ()

    def run(self) -> Boot:
        files, folders = self._log_files(), self._queue_folders()
        database, light = self._conditions.database, self._conditions.light
        if not self._conditions.are_known(self._release):
            raise self._conditions.unknown_rules()
        queue_files = find_queue_file_size(self._conf, [(self._location / CONSUME_QUEUE, folders)])
        obstacles = self._stopped.obstacles(folders, self._version)
        if obstacles:
            self._rows = RecoveryRows()  # nothing is changed
            return self._refused(*obstacles)
        self._live_end = self._store.get_max_phy_offset()
        batch_files = find_batch_file_size(self._conf, self._location)
        sizes = {False: queue_files.value, True: batch_files.value}
        recovered = [self._recover(one, sizes[one.is_batch]) for one in folders] if database is None else []
        if not files:
            return self._without_log(recovered)
        numbers, log_start, light_end = self._stopped.numbers, files[0].base, None
        queues: StartingQueues
        if database is not None:
            queues = StartingDatabase(database, numbers, log_start)
        elif light is not None:
            in_database = StartingDatabase(light, numbers, log_start, LIGHT_PREFIX)
            light_end = in_database.highest
            queues = StartingLightDatabase(recovered, numbers, queue_files.value, in_database)
        else:
            queues = StartingQueues(recovered, numbers, queue_files.value)
        return self._with_log(files, queues, self._facts(files, queues.highest, light_end))

    # -- load ---------------------------------------------------------------------------------------------------------

    def _log_files(self) -> list[SegmentFile]:
        """The files of the log that the broker maps; an empty last one is deleted by some versions."""
        folder, infos, has_entries = self._stopped.log_folder, list(self._stopped.segments), self._stopped.has_entries
        if infos and infos[-1].size == 0 and not has_entries and EMPTY_LAST_FILE_IS_DELETED.holds(self._version):
            name = infos.pop().base_name
            offset = _offset(name)
            self._rows.add(
                "delete", "segment", "it is empty", file=f"{COMMIT_LOG}/{name}", commit_log_offset=offset, bytes=0
            )
        size = self._conf.commit_log_file_size or usual_size(infos)
        bases = [int(info.base_name) for info in infos]
        return [SegmentFile(folder / f"{base:020d}", base, size, has_entries=has_entries) for base in bases]

    def _queue_folders(self) -> list[QueueFolder]:
        folders = []
        for folder in self._stopped.folders:
            kept = without_empty_file(folder) if EMPTY_LAST_FILE_IS_DELETED.holds(self._version) else folder
            if kept is not folder:
                self._delete_queue_file(folder, folder.files[-1], "it is empty")
            folders.append(kept)
        return folders

    def _recover(self, folder: QueueFolder, file_size: int) -> RecoveredQueue:
        queue = self._stopped.recovered(folder, file_size)
        for info in queue.deleted:
            at = f"the queue ends at queue offset {queue.next_offset:,}: the unit there is not valid"
            self._delete_queue_file(folder, info, at)
        return queue

    def _delete_queue_file(self, folder: QueueFolder, info: QueueFileInfo, reason: str) -> None:
        file = queue_path(folder.topic, folder.queue_id, info.base_name, folder.tree)
        first = None if folder.is_batch else _offset(info.base_name) // UNIT_SIZE
        place = {"topic": folder.topic, "queue_id": folder.queue_id, "queue_offset": first}
        self._rows.add("delete", "queue file", reason, file=file, **place, bytes=info.size)

    def _facts(self, files: Sequence[SegmentFile], queue_end: int, light_end: int | None) -> BootFacts:
        facts = BootFacts(
            self._stop.is_clean,
            log_start=files[0].base,
            log_end=-1,
            segments=tuple(file.base for file in files),
            checkpoint=self._checkpoint,
            queue_end=queue_end,
            index=self._stopped.index,
            settings=self._settings,
            has_rocksdb_queues=self._conditions.database is not None,
            light_end=light_end,
            last_in_database=self._conditions.last_in_database,
        )
        if self._stop.is_clean and not self._release.decide(RECOVERS_FROM_TENTH_FILE):
            return facts
        heads = map(self._head, reversed(files))
        return replace(facts, heads=newest_heads(heads, lambda head: matches_recovery(head, facts, self._release)))

    def _head(self, file: SegmentFile) -> SegmentHead:
        start = ENTRY_HEAD_SIZE if file.has_entries else 0
        data = self._store.files.read(file.location, start, HEAD_SIZE)
        is_whole = (
            file.has_entries
            or not self._release.decide(RECOVERS_FROM_TENTH_FILE)
            or accepts_record(file, self._record_rules())
        )
        return SegmentHead.of(file.base, data, is_whole=is_whole)

    def _without_log(self, queues: Sequence[RecoveredQueue]) -> Boot:
        for queue in queues:
            for info in queue.files:
                self._delete_queue_file(queue.folder, info, "the log has no segment")
        database = self._conditions.database or self._conditions.light
        if database is not None:
            self._rows.add("delete", "database", "the log has no segment", file=database.folder.name)
        facts = BootFacts(self._stop.is_clean, -1, -1, (), checkpoint=self._checkpoint, gone=self._lose_gone(-1))
        return self._done(replace(next_boot(self._release, facts), is_full=True))

    # -- recover, start -----------------------------------------------------------------------------------------------

    def _with_log(self, files: Sequence[SegmentFile], queues: StartingQueues, facts: BootFacts) -> Boot:
        add, start = self._rows.add, recovery_start(self._release, facts)
        first = facts.segments.index(start)
        if self._accelerates and self._checkpoint.physic_msg_timestamp > 0 >= self._checkpoint.logics_physical_offset:
            return self._refused("enableAcceleratedRecovery is true, but the checkpoint has no logicsPhysicalOffset")
        # The first byte that is checked is the segment's, or the one after what queues have.
        position = max(self._checkpoint.logics_physical_offset - start, 0) if self._accelerates else 0
        begin, place = start + position, {"file": files[first].path, "position": position}
        add("start", "segment", self._why_there(facts), **place, commit_log_offset=begin)
        checks_offsets = self._settings.check_commit_log_offset_on_recover and self._recovers_from_flushed
        since = self._dispatched_from(facts)
        checked, end = self._stopped.log.read(files[first:], self._record_rules(), position, since, checks_offsets)
        records = checked.records()
        log_end, end_reason, count = end.commit_log_offset, END_REASONS[end.found], int(records.position.size)
        size = int(records.store_size.sum(dtype=np.int64))
        add("check", "log", commit_log_offset=begin, bytes=size, count=count)
        add("end", "log", end_reason, file=end.file.path, position=end.position, commit_log_offset=log_end)
        revived = self._revive(records, self._old_from(files))

        log = DispatchLog(queues, self._rows, self._settings.dispatches_to_light_queues)
        log.dispatch(checked, LogRange(max(since, start), log_end), _CHECKED, since)
        cut_bytes = 0 if end.found == RecordCheck.BLANK else max(self._live_end - log_end, 0)
        kept = self._truncate_log(files, log_end, cut_bytes)
        # Since 5.4.0 the end of the queues is that after the dispatch.
        queue_end = queues.highest if self._release.decide(RECOVERS_FROM_TENTH_FILE) else facts.queue_end
        in_database = queues.light if isinstance(queues, StartingLightDatabase) else queues
        if isinstance(in_database, StartingDatabase):
            self._correct_ends(in_database, log_end)
        if not isinstance(queues, StartingDatabase) and queue_end >= log_end:
            self._truncate_queues(queues, log, log_end)

        self._find_empty_files(queues)
        stuck = self._dispatch_rest(kept, queues, log, log_end)
        boot = self._boot(start, cut_bytes=cut_bytes, revived=revived, end_reason=end_reason, checked=count)
        return self._finish(boot, files, queues, log, replace(facts, log_end=log_end), stuck)

    def _boot(self, recovers_from: int | None = None, **known: Any) -> Boot:
        """What this start does, as far as it is known."""
        return Boot(self._release, self._stop.is_clean, recovers_from, **known)

    def _old_from(self, files: Sequence[SegmentFile]) -> int:
        """The commit log offset from which on records are old, not live."""
        return NOWHERE if self._stop.is_running else max(self._live_end, files[0].base)

    def _finish(
        self,
        boot: Boot,
        files: Sequence[SegmentFile],
        queues: StartingQueues,
        log: DispatchLog,
        facts: BootFacts,
        stuck: int | None,
    ) -> Boot:
        """The boot after everything was dispatched, with what is lost, and the index."""
        log_end, add = facts.log_end, self._rows.add
        old_from = min(self._old_from(files), log_end)  # DLedger cuts its log before the messages are dispatched
        lacking = self._stopped.scan.before(queues, log_end)
        outcomes, deleted_messages = log.outcomes(lacking, old_from)
        deleted, doubled, unindexed = self._index(facts, log)
        boot = replace(
            boot,
            dispatched=tuple(log.ranges),
            deleted_index_files=deleted,
            unindexed=unindexed,
            queues=outcomes,
            cut_messages=self._stopped.scan.count_after(log_end) if boot.cut_bytes else 0,
            gone=self._lose_gone(self._live_end),
            deleted=deleted_messages,
            damaged_bytes=self._lose_damaged(log_end),
            is_full=True,
            is_index_known=facts.is_index_known,
            doubled_entries=doubled,
            log_end=log_end,
            max_offsets=queues.max_offsets(),
        )
        obstacles = self._empty_files
        if log.fails_at is not None:
            if not isinstance(queues, StartingDatabase) and self._conditions.light is None:
                obstacles += (dispatch_obstacle(log.fails_at),)
                add("refuse", "store", obstacles[-1], commit_log_offset=log.fails_at)
            else:
                raise UnsupportedStoreError(
                    f"{self._location}: {dispatch_obstacle(log.fails_at)}. With light message queues in RocksDB, it is "
                    "not known whether the broker starts"
                )
        if stuck is not None:
            obstacles += (
                f"it waits forever for commit log offset {stuck:,}, which no segment has: it dispatches the log from "
                "the end of the queues on before it starts",
            )
            add("refuse", "store", obstacles[-1], commit_log_offset=stuck)
        return self._done(replace(boot, obstacles=obstacles))

    def _why_there(self, facts: BootFacts) -> str:
        rules = self._release
        if not self._stop.is_clean:
            by_offset = rules.decide(RECOVERS_FROM_FLUSHED_QUEUES) and self._checkpoint.logics_physical_offset > 0
            by = "the checkpoint's offset" if by_offset else "the checkpoint's times"
            by = "the part that the queues in RocksDB have" if facts.has_rocksdb_queues else by
            if any(matches_recovery(head, facts, rules) for head in facts.heads):
                return f"the newest one whose first record is not after {by}"
            if rules.decide(RECOVERS_FROM_TENTH_FILE) and len(facts.heads) >= self._settings.commit_log_recover_max_num:
                return f"commitLogRecoverMaxNum={self._settings.commit_log_recover_max_num} files"
            return f"the first one: no segment begins with a record that is not after {by}"
        if rules.decide(DISPATCHES_AFTER_QUEUE_END):
            return "after a clean stop, the last one that begins at or before the end of the queues"
        return "after a clean stop, the third-last one"

    @property
    def _recovers_from_flushed(self) -> bool:
        """Whether the settings of 5.5.0 for a start after a crash count."""
        return not self._stop.is_clean and RECOVERS_FROM_FLUSHED_QUEUES.holds(self._version)

    @property
    def _accelerates(self) -> bool:
        """Whether the check begins at the offset up to which queues were flushed, not with a segment (5.5.0)."""
        return self._settings.enable_accelerated_recovery and self._recovers_from_flushed

    def _lose_gone(self, live_end: int) -> int:
        if self._stopped.gone:
            reason = "queues or the index show them after the end of the log, which does not have them"
            self._rows.add("lose", "log", reason, commit_log_offset=live_end, count=self._stopped.gone)
        return self._stopped.gone

    def _lose_damaged(self, log_end: int) -> int:
        """Bytes before the end of the log that are not records."""
        reason = "no record, and no segment, has these bytes: their messages are lost already"
        damaged = [part for part in self._stopped.scan.damaged if part.start < log_end]
        for part in damaged:
            self._rows.add("lose", "log", reason, commit_log_offset=part.start, bytes=part.size)
        return sum(part.size for part in damaged)

    def _record_rules(self) -> int:
        version, conf = self._version, self._conf
        rules = {
            kernels.CHECKS_BODY_CRC: conf.is_enabled("checkCRCOnRecover", default=True),
            kernels.ACCEPTS_V2: MESSAGE_VERSION_2.holds(version),
            kernels.CHECKS_SIZE_FIRST: SIZE_IS_CHECKED_FIRST.holds(version),
            kernels.CHECKS_BATCH: BATCH_PROPERTIES_ARE_CHECKED.holds(version),
            kernels.CHECKS_PROPERTY_CRC: PROPERTY_CRC.holds(version) and conf.is_enabled("forceVerifyPropCRC"),
        }
        return sum(rule for rule, holds in rules.items() if holds)

    def _revive(self, checked: DispatchRequests, old_from: int) -> int:
        old = checked.position >= old_from
        count = int(old.sum())
        if count:
            first, size = int(checked.position[old][0]), int(checked.store_size[old].sum(dtype=np.int64))
            reason = "old or damaged records that follow the live end without a gap"
            self._rows.add("revive", "log", reason, commit_log_offset=first, bytes=size, count=count)
        return count

    def _dispatched_from(self, facts: BootFacts) -> int:
        """The commit log offset that a record must at least state to be dispatched while it is checked."""
        if not self._stop.is_clean:
            return ANYWHERE
        is_some = self._release.decide(DISPATCHES_AFTER_QUEUE_END)
        return facts.dispatched_since(self._release) if is_some else NOWHERE

    def _truncate_log(self, files: Sequence[SegmentFile], log_end: int, cut_bytes: int) -> list[SegmentFile]:
        """`MappedFileQueue.truncateDirtyFiles`; returns the files that are kept."""
        kept = []
        for file in files:
            name, position = file.path, log_end - file.base
            if position < 0:
                is_empty = find_data_end(file.location, file.size) == 0
                reason = "created in advance, without a record" if is_empty else "after the end of the log"
                self._rows.add("delete", "segment", reason, file=name, commit_log_offset=file.base, bytes=file.size)
                continue
            kept.append(file)
            if position < file.size and (dropped := find_data_end(file.location, file.size) - position) > 0:
                what = "live records" if cut_bytes else "no whole live record"
                reason = f"after the end of the log: {what}; the bytes stay in the file until messages overwrite them"
                place = {"file": name, "position": position, "commit_log_offset": log_end}
                self._rows.add("truncate", "segment", reason, **place, bytes=dropped)
        return kept

    def _truncate_queues(
        self,
        queues: StartingQueues,
        log: DispatchLog,
        log_end: int,
        reason: str = "units of messages after the end of the log",
    ) -> None:
        """Cut the queues at the end of the log."""
        before = list(queues.on_disk)
        for number, after in queues.truncate(log_end, self._stopped.truncated).items():
            queue = before[number]
            topic, queue_id = queues.names[number]
            for info in after.deleted:
                self._delete_queue_file(after.folder, info, "its first unit is of a message after the end of the log")
            first = _offset(queue.files[0].base_name) if queue.files else 0
            stop = first if after.end == NO_FILE else after.end
            size = queue.folder.unit_size
            units = (queue.end - stop) // size
            action, why = "truncate", reason
            if units == 0:  # only a file without a unit
                continue
            if units > 0:
                log.cut(number)
            else:
                action, why = "add", "its last file is empty, and the broker counts the first unit of a file"
            at = min(queue.next_offset, after.next_offset) if after.end != NO_FILE else queue.folder.first_offset
            place = {"topic": topic, "queue_id": queue_id, "queue_offset": at}
            self._rows.add(action, "queue", why, **place, bytes=abs(units) * size, count=abs(units))

    def _correct_ends(self, queues: StartingDatabase, log_end: int) -> None:
        """Correct the table of ends of queues in RocksDB, if the log ends before the dispatched part."""
        for (topic, queue_id), before, after in queues.correct_ends(log_end):
            reason = "it ended after the end of the log"
            if queues.leads_before((topic, queue_id), after[1] + 1, log_end):
                reason += (
                    ". The search for its new end stops early, at the first message after the end of the log: new "
                )
                reason += "messages take the queue offsets of old ones"
            place = {"topic": topic, "queue_id": queue_id, "queue_offset": after[1] + 1}
            self._rows.add("truncate", "queue", reason, **place, count=before[1] - after[1])
        for (topic, queue_id), end in queues.ends_from(log_end):
            reason = "it still ends after the end of the log: the queue offset of its next message"
            self._rows.add("add", "queue", reason, topic=topic, queue_id=queue_id, queue_offset=end[1] + 1)

    def _find_empty_files(self, queues: StartingQueues) -> None:
        """Find queue files without a unit with which the broker does not start, after it has checked the log."""
        if isinstance(queues, StartingDatabase) or not READS_BEFORE_EMPTY_QUEUE_FILE.holds(self._version):
            return
        for file in queues.empty_last_files():
            obstacle = f"{file} has no unit, and brokers of 5.0 to 5.4 do not start with it; move it away"
            self._rows.add("refuse", "store", obstacle, file=file)
            self._empty_files += (obstacle,)

    def _dispatch_rest(
        self, kept: Sequence[SegmentFile], queues: StartingQueues, log: DispatchLog, log_end: int
    ) -> int | None:
        """Dispatch from the end of the queues on, as `start` does.

        Returns the offset at which the broker waits forever, if there is one.
        """
        is_4_9 = self._release.decide(DISPATCHES_AT_CLEAN_BOOT)
        if not is_4_9 and not self._settings.recheck_reput_offset_from_cq:
            return None
        offset = max(queues.highest, kept[0].base, 0)
        walk = DispatchWalk(kept, log_end, self._record_rules(), checks_end=not is_4_9)
        found = self._stopped.numbers.requests(walk.read(offset))
        log.dispatch(found, LogRange(offset, log_end), "from the end of the queues on, before it starts")
        return walk.stuck_at

    # -- index --------------------------------------------------------------------------------------------------------

    def _index(self, facts: BootFacts, log: DispatchLog) -> tuple[tuple[str, ...], int, LogRange | None]:
        """The deleted index files, the number of doubled entries, and the part of the log that the index lacks."""
        assert facts.index is not None
        add, sizes = self._rows.add, {file.name: file.size for file in index_files(self._location)}
        deleted, unindexed = index_outcome(facts, log.ranges, self._stopped.find_lacking_entries)
        for file in facts.index.files:
            if file.name in deleted:
                reason, name = "it ends after the checkpoint's index time, as every file that is not full", file.name
                end, size = file.end_offset, sizes.get(name)
                add("delete", "index file", reason, file=f"{INDEX}/{name}", commit_log_offset=end, bytes=size)
        if not self._settings.writes_index_files:
            return deleted, 0, None
        kept = [file for file in facts.index.files if file.name not in deleted]
        index_end = kept[-1].end_offset if kept else 0
        names = {file.name for file in kept if file.end_offset >= index_end} if facts.is_index_known else set()
        known = self._stopped.entries_from(index_end, frozenset(names))
        doubled, first = log.doubled_entries(index_end, *known, INDEX_TAGS.holds(self._version))
        if doubled:
            reason = "the keys of the last message in the index are put again, which harms no query"
            add("double", "index", reason, commit_log_offset=first, count=doubled)
        if unindexed is not None:
            reason = "no index file has the messages with keys in this part, and they are not dispatched"
            add("lack", "index", reason, commit_log_offset=unindexed.start, bytes=unindexed.size)
        if kept and index_end >= facts.log_end > 0:
            reason = "the index ends after the end of the log: the keys of new messages are not put before this offset"
            file_name, size = f"{INDEX}/{kept[-1].name}", index_end - facts.log_end
            add("skip", "index", reason, file=file_name, commit_log_offset=index_end, bytes=size)
        return deleted, doubled, unindexed

    def _refused(self, *obstacles: str) -> Boot:
        for obstacle in obstacles:
            self._rows.add("refuse", "store", obstacle)
        return self._done(self._boot(obstacles=obstacles))

    def _done(self, boot: Boot) -> Boot:
        return replace(boot, rows=self._rows.to_table())


class _DLedgerStart(_Start):
    """A start on a DLedger log (`DLedgerCommitLog.recoverNormally` and `recoverAbnormally`@5.3.3).

    DLedger itself finds the end of the log. After an unclean stop, since 5.2.0, messages are dispatched from the
    segment on that the times of the checkpoint select. Then the queues are cut where the sum of the records' sizes
    ends: the broker forgets the heads of the entries in the last file. So the last units of queues are lost. When the
    group has a leader, the messages after the committed entry of DLedger's checkpoint are dispatched again.
    """

    def _record_rules(self) -> int:
        return super()._record_rules() | kernels.HAS_HEADS

    def _with_log(self, files: Sequence[SegmentFile], queues: StartingQueues, facts: BootFacts) -> Boot:
        assert self._stopped.node is not None
        add, found = self._rows.add, recover_entries(self._stopped.node, files)
        last = next(file for file in reversed(files) if file.base <= max(found.end - 1, files[0].base))
        if files[-1].base - found.end > files[-1].size:
            return self._refused(
                f"DLedger accepts entries up to commit log offset {found.end:,} only, and does not cut off more than a "
                f"whole file: {found.reason}. `spark-mq restore STORE NEW` makes a plain store of all entries"
            )
        first = next(file for file in files if file.base == found.start)
        reason = "the third-last one, or the last one before it whose first entry DLedger's index has"
        add("start", "segment", reason, file=first.path, position=0, commit_log_offset=first.base)
        size = found.end - first.base
        add("check", "log", "entries, by their indexes and terms", bytes=size, count=found.count)
        place = {"file": last.path, "position": found.end - last.base, "commit_log_offset": found.end}
        add("end", "log", found.reason, **place)
        if found.index_from is not None:
            reason = f"DLedger writes its own index again, from entry {found.index_from:,} on"
            add("complete", "DLedger index", reason)
        cut_bytes = max(self._live_end - found.end, 0)
        kept = self._truncate_log(files, found.end, cut_bytes)
        log = DispatchLog(queues, self._rows, self._settings.dispatches_to_light_queues)
        cut_at = found.end
        dispatches = bool(self._release.decide(DLEDGER_DISPATCHES_AFTER_CRASH)) and not self._stop.is_clean
        if dispatches:
            cut_at = self._dispatch_checked(kept, queues, facts, log, found.end)
        is_cut = facts.queue_end >= cut_at
        if is_cut:
            early = f"units from commit log offset {cut_at:,} on: the broker leaves out the heads of entries in its sum"
            self._truncate_queues(queues, log, cut_at, *([early] if dispatches else []))
        self._find_empty_files(queues)
        stuck = self._dispatch_committed(kept, queues, log, found)
        lost_at = cut_at if is_cut and cut_at < found.end else None
        boot = self._boot(
            first.base, cut_bytes=cut_bytes, queues_cut_at=lost_at, end_reason=found.reason, checked=found.count
        )
        return self._finish(boot, files, queues, log, replace(facts, log_end=found.end), stuck)

    def _dispatch_checked(
        self, files: Sequence[SegmentFile], queues: StartingQueues, facts: BootFacts, log: DispatchLog, log_end: int
    ) -> int:
        """Dispatch from a segment on; returns the offset at which the queues are cut then."""
        matching = (head.base for head in facts.heads if matches_recovery(head, facts, self._release))
        start = next(matching, files[0].base)
        first = facts.segments.index(start)
        checked, end = self._stopped.log.read(files[first:], self._record_rules(), 0, ANYWHERE, checks_offsets=False)
        if end.commit_log_offset < log_end:
            reason = f"{END_REASONS[end.found]}: no later message is dispatched while the log is checked"
            place = {"file": end.file.path, "position": end.position, "commit_log_offset": end.commit_log_offset}
            self._rows.add("end", "log", reason, **place)
        in_last = checked.position >= end.file.base
        cut_at = end.file.base + int(checked.store_size[in_last].sum(dtype=np.int64))
        is_cut = facts.queue_end >= cut_at
        part = LogRange(start, end.commit_log_offset)
        log.dispatch(checked, part, _CHECKED, cut_at=cut_at if is_cut else NOWHERE)
        return cut_at

    def _dispatch_committed(
        self, files: Sequence[SegmentFile], queues: StartingQueues, log: DispatchLog, found: RecoveredEntries
    ) -> int | None:
        offset = max(found.committed, files[0].base)
        reason = "from the end of the entries on that DLedger knows as committed"
        if self._release.decide(DISPATCHES_AT_CLEAN_BOOT) or self._settings.recheck_reput_offset_from_cq:
            offset, reason = max(queues.highest, files[0].base), "from the end of the queues on"
        is_4_9 = bool(self._release.decide(DISPATCHES_AT_CLEAN_BOOT))
        walk = DispatchWalk(files, found.end, self._record_rules(), checks_end=not is_4_9)
        log.dispatch(self._stopped.numbers.requests(walk.read(offset)), LogRange(offset, found.end), reason)
        return walk.stuck_at


def _offset(name: str) -> int:
    """The number in a file's name, at most the largest one that a table can have."""
    return min(int(name), (1 << 63) - 1)
