"""The log, staged as for a rebuild; its records are checked while they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags
from spark_mq.format.broker_version import INDEX_TAGS
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dledger import HEAD_SIZE
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.rebuild_plan import DispatchSettings, DispatchTargets
from spark_mq.indexer.stage import StagedLog, misaligned_segments
from spark_mq.indexer.staged_files import SplitRow
from spark_mq.indexer.tag_entries import TagRun, decide_tags
from spark_mq.io.location import Location
from spark_mq.job.tasks import TaskRunner
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.store_kind import batch_topics
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, DLEDGER_INDEX, INDEX
from spark_mq.store.log.commit_log import CommitLog, Segment, Split, plan_splits, within_offsets
from spark_mq.store.log.live_reader import NO_TIME
from spark_mq.store.log.log_range import joined, range_of
from spark_mq.store.log.record_lookup import UNFINISHED
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.verifier.entry_match import ExpectedEntries
from spark_mq.verifier.finding import findings
from spark_mq.verifier.journal import WHOLE, Since
from spark_mq.verifier.listed_store import ListedStore
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.records import FAR_BACK_MILLIS, dispatched_queues, record_findings, undispatched_findings
from spark_mq.verifier.result import FindingSink, Summary

_END = 1 << 62
_MAX_HOLES = 256
"""The limit of damaged ranges of a split that the driver gets; more of them become one range."""

_EXPECTED = {
    "RECORD_QUEUE_OFFSET": "a possible queue offset",
    "SEGMENT_FILLER": "the filler of the segment",
    "LOG_CORRUPT": "a record",
}


@dataclass(frozen=True)
class CheckedLog:
    """The log, staged, and what is wrong with its records; without splits if it has no segment.

    `named` are the queues that its messages name (`records.dispatched_queues`). `is_accepted` says that a recovery of
    each version accepts all records whose CRCs are right (`are_all_accepted`).
    """

    staged: StagedLog
    summaries: tuple[Summary, ...] = ()
    named: frozenset[Queue] = frozenset()
    doubtful_tags: tuple[TagRun, ...] = ()
    is_accepted: bool = True

    def bounds(self, log: CommitLog, is_clean: bool) -> LogBounds:
        """Start and end of the log, and its damaged and missing parts."""
        if not self.staged.splits:
            return LogBounds(0, 0, is_clean)
        damage = [*log.gaps, *(corrupt for split in self.staged.splits for corrupt in split.corrupt)]
        return LogBounds(self.staged.start, self.staged.end, is_clean, tuple(joined(map(range_of, damage))))

    def expected_entries(self) -> ExpectedEntries:
        """The index entries that the log has."""
        splits, folder = self.staged.splits, self.staged.folder
        return ExpectedEntries(
            tuple(split.staged_entries(folder) for split in splits), tuple(split.start for split in splits)
        )

    def findings(self, log: CommitLog) -> Iterator[pa.RecordBatch]:
        """What no task sees: times that step back between two splits, and notes about what is not checked."""
        paths = {segment.base: segment.path for segment in log.segments}
        for run in self.doubtful_tags:
            expected = f"entries for the tags of {run.messages} messages, unless a broker before {INDEX_TAGS.since} ran"
            yield findings("NOT_CHECKED", INDEX, expected, "no such entries", commit_log_offset=run.first)
        if self.staged.inner_batches:
            units = f"{self.staged.inner_batches} inner batches are of topics without batch consume queues"
            yield findings("NOT_CHECKED", BATCH_CONSUME_QUEUE, found=units)
        for before, after in pairwise(split for split in self.staged.splits if split.messages):
            assert before.last_store_timestamp is not None
            assert after.first_store_timestamp is not None
            back = before.last_store_timestamp - after.first_store_timestamp
            if back > 0:
                yield findings(
                    "RECORD_TIME_FAR_BACK" if back > FAR_BACK_MILLIS else "RECORD_TIME_BACK",
                    paths[after.segment],
                    f"a store time of {before.last_store_timestamp} or later",
                    f"store time {after.first_store_timestamp}",
                    position=after.first_position,
                    commit_log_offset=after.segment + after.first_position,
                )


@dataclass(frozen=True)
class CheckedSplit:
    """The result of one split: its row, its findings, and `named` and `is_accepted` of `CheckedLog`."""

    row: SplitRow
    summary: Summary
    named: frozenset[Queue]
    is_accepted: bool = True


def check_log(
    listed: ListedStore, split_size: int, runner: TaskRunner, staged: Location, found: Location, since: Since = WHOLE
) -> CheckedLog:
    """The log from `since.start` on, staged into the folder `staged`; findings are written into the folder `found`."""
    log, index, queue_file_size = listed.log, listed.index, listed.queue_file_size
    staged.make_folder()
    if not log.segments:
        return CheckedLog(StagedLog(staged, (), 0, 0, ()))
    settings = DispatchSettings(
        queue_file_size,
        listed.conf.message_delay_level,
        None,  # which tags have entries can be seen only after all of the log is staged
        listed.has_light_queues,
        tuple(sorted(batch_topics(listed.location))),
    )
    targets = DispatchTargets(staged, settings, has_queues=queue_file_size > 0, has_index=True)

    def check(name: str, splits: Sequence[Split], exact: bool) -> list[CheckedSplit]:
        work = partial(check_split, targets=targets, exact=exact, found=found, since=since)
        return runner.each(name, "splits", splits, work, sum(split.stop - split.start for split in splits))

    def in_order(splits: Iterable[CheckedSplit]) -> list[CheckedSplit]:
        return sorted(splits, key=lambda split: (split.row.segment, split.row.split_start))

    splits, last = within_offsets(plan_splits(log, split_size), since.start, _END), log.segments[-1]
    if splits:
        checked = in_order(check("check log", splits, exact=False))
    else:  # nothing was appended
        position = since.start - last.base
        row = SplitRow(last.base, position, position, end_position=position)
        checked = [CheckedSplit(row, Summary(), frozenset())]
    misaligned = misaligned_segments([split.row for split in checked], last.base)
    if misaligned:
        whole = [Split(segment, 0, segment.data_end) for segment in log.segments if segment.base in misaligned]
        whole = within_offsets(whole, since.start, _END)
        aligned = [split for split in checked if split.row.segment not in misaligned]
        checked = in_order([*aligned, *check("check log again", whole, exact=True)])
    rows = tuple(split.row for split in checked)
    whole_log = StagedLog(staged, rows, 0, sum(row.bytes_read for row in rows), ())
    layout, versions = index.layout or IndexLayout(), find_broker_versions(listed.location)
    tagged_log, tagged = decide_tags(whole_log, index.files, layout, versions, runner)
    named = frozenset[Queue]().union(*(split.named for split in checked))
    is_accepted = all(split.is_accepted for split in checked)
    return CheckedLog(tagged_log, tuple(split.summary for split in checked), named, tagged.doubtful, is_accepted)


def check_split(
    split: Split, targets: DispatchTargets, exact: bool, found: Location, since: Since = WHOLE
) -> CheckedSplit:
    """One split, staged and checked; `exact` says that it is the rest of a segment, read up to its live end."""
    from spark_mq.format.kernels.big_endian import read_i64
    from spark_mq.format.kernels.properties import checked_pieces
    from spark_mq.format.kernels.recovery import are_all_accepted
    from spark_mq.indexer.split_dispatch import dispatch_split
    from spark_mq.store.log.record_reader import RecordChunk

    name, segment = split.segment.path, split.segment.base
    follows_sound = segment + split.start == since.start
    newest = since.last_store_timestamp if follows_sound else None
    queues: set[Queue] = set()
    is_accepted = True
    with FindingSink(found) as sink:

        def check(chunk: RecordChunk) -> None:
            nonlocal newest, is_accepted
            wrong_pieces, has_inner = checked_pieces(chunk.buffer, chunk.frames)
            sink.add(record_findings(chunk.buffer, chunk.frames, wrong_pieces, name, segment, newest))
            queues.update(dispatched_queues(chunk.buffer, chunk.frames[has_inner], targets.settings.has_light_queues))
            if targets.settings.has_light_queues and has_inner.any():
                sink.add(undispatched_findings(chunk.buffer, chunk.frames[has_inner], name, segment))
            is_accepted = is_accepted and are_all_accepted(chunk.buffer, chunk.frames, has_inner)
            newest = int(read_i64(chunk.buffer, int(chunk.frames[-1].store_timestamp_at)))

        row = dispatch_split(split, targets, exact, check, NO_TIME if newest is None else newest)
        sink.add(_corrupt_findings(split.segment, row.corrupt))
    holes = joined(map(range_of, row.corrupt), _MAX_HOLES)
    few = tuple(replace(row.corrupt[0], commit_log_offset=one.start, length=one.size) for one in holes)
    return CheckedSplit(replace(row, corrupt=few), sink.summary, frozenset(queues), is_accepted)


def _corrupt_findings(segment: Segment, corrupt: Iterable[CorruptRange]) -> Iterator[pa.RecordBatch]:
    """A finding for each damaged range, those with one code in one batch."""
    ranges = defaultdict[str, list[CorruptRange]](list)
    for one in corrupt:
        ranges[_code_of(segment, one)].append(one)
    for code, some in ranges.items():
        offsets = np.array([one.commit_log_offset for one in some], np.int64)
        yield findings(
            code,
            segment.path,
            _EXPECTED[code],
            [f"{one.length} bytes: {one.reason}" for one in some],
            position=offsets - segment.base,
            commit_log_offset=offsets,
        )


def _code_of(segment: Segment, corrupt: CorruptRange) -> str:
    if corrupt.code == "BAD_QUEUE_OFFSET":
        return "RECORD_QUEUE_OFFSET"
    reaches_end = corrupt.commit_log_offset + corrupt.length >= segment.end_offset
    is_filler = reaches_end and not segment.is_last and corrupt.code != UNFINISHED
    return "SEGMENT_FILLER" if is_filler else "LOG_CORRUPT"


def entry_findings(node: Location, segment: Segment) -> Iterator[pa.RecordBatch]:
    """What is wrong with the entries of a segment of a DLedger log, and with the units of DLedger's index for them.

    What is between two records and is not the head of an entry is found with the records (`LOG_CORRUPT`). No broker
    writes the CRCs of a head, and none reads them.
    """
    from spark_mq.store.log.dledger_log import index_units, read_entries

    first, last, wrong = 0, None, 0
    for entries in read_entries(segment, segment.data_end):
        if last is None:
            first = int(entries.index[0])
            unit = index_units(node, first - 1, first)
            last = first - 1, int(unit["term"][0])
        indexes, terms = np.append(last[0], entries.index), np.append(last[1], entries.term)
        broken = np.flatnonzero((np.diff(indexes) != 1) | (np.diff(terms) < 0))
        for at in broken.tolist():
            yield findings(
                "DLEDGER_ENTRY",
                segment.path,
                f"index {int(indexes[at]) + 1}, and term {terms[at]} or later",
                f"index {entries.index[at]}, term {entries.term[at]}",
                position=int(entries.offset[at]) - segment.base,
                commit_log_offset=int(entries.offset[at]),
            )
        last = int(entries.index[-1]), int(entries.term[-1])
        if not broken.size:
            units = index_units(node, int(entries.index[0]), last[0] + 1)
            differs: Flags = np.zeros(units.size, np.bool_)
            for name in ("offset", "size", "index", "term"):
                differs |= units[name] != getattr(entries, name)
            differs |= (units["magic"] != entries.magic) & (entries.size > HEAD_SIZE)
            wrong += int(differs.sum())
    if wrong:
        expected = f"the units of entries from index {first} on"
        yield findings("DLEDGER_INDEX", f"{node.name}/{DLEDGER_INDEX}", expected, f"{wrong} units with other values")
