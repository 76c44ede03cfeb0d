"""The two verbs that take records out of a log: its end is cut off, or a damaged range becomes a blank.

Both are explicit, and both keep a copy. Queues and index still have the messages afterwards: a repair mends them.

- Cut: the log ends at an offset. Later bytes of that segment become zeros, later segments are moved into the backup. A
  broker does the same when a recovery finds a damaged record, without a copy
  (`MappedFileQueue.truncateDirtyFiles`@5.3.3).
- Blank: a range of a segment becomes a blank, as at the end of a segment. A recovery that finds a blank continues with
  the next segment (`CommitLog.recoverNormally`@5.3.3, as in 4.9), so it does not cut the log at the damage. It does not
  dispatch the rest of the segment, which queues and index must therefore have. In the last segment, a recovery takes a
  blank for the end of the log: there the range cannot be blanked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.errors import OptionError
from spark_mq.format.record import BLANK_SIZE
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.repairer.changes import Backup, Change, ChangeKind, check_links
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.log.commit_log import CommitLog, Segment, SegmentSource
from spark_mq.store.store_lock import store_lock


@dataclass(frozen=True)
class LogEdit(Report):
    """The commit log offsets that were taken out of a log, or would be, and the folder with their bytes."""

    shown = ("size",)

    store: str
    start: int
    stop: int
    changes: tuple[Change, ...]
    backup: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the log that are taken out."""
        return self.stop - self.start


def cut_log(store: str, offset: int, *, apply: bool = False) -> LogEdit:
    """End the log of a store at an offset, at which a record starts or ends; without `apply`, only plan it."""
    return _edit(store, apply, lambda location: _cut(location, offset))


def blank_range(store: str, start: int, stop: int, *, apply: bool = False) -> LogEdit:
    """Make a range of a segment, which ends before a record or at its end, a blank; without `apply`, only plan it."""
    return _edit(store, apply, lambda location: _blank(location, start, stop))


def _edit(store: str, apply: bool, plan: Callable[[Location], LogEdit]) -> LogEdit:
    location = Location.resolve(store)
    if not location.is_local:
        raise OptionError(f"{location} is not on a local filesystem, where no log can be changed")
    CommitLog.open(location)
    check_form(location, Door.CHANGE)
    with store_lock(location) if apply else nullcontext():
        edit = plan(location)
        check_links(location, edit.changes)
        if not apply or not edit.changes:
            return edit
        backup = Backup.create(location)
        backup.apply(edit.changes, location)
    return replace(edit, backup=str(backup.folder))


def _cut(store: Location, offset: int) -> LogEdit:
    segments = CommitLog.open(store).segments
    segment = _segment(segments, offset)
    if segment is None:
        raise OptionError(
            f"--cut-log-at {offset}: the log has no such offset; `spark-mq segments {store}` shows its own"
        )
    _check_boundary(f"--cut-log-at {offset}", segment, offset)
    keeps_segment = offset > segment.base or segment is segments[0]
    later = [one for one in segments if one.base > segment.base or (one is segment and not keeps_segment)]
    # The last segments go first: a job that is killed leaves a log without a gap.
    changes = [Change(ChangeKind.ASIDE, one.path) for one in reversed(later)]
    if keeps_segment and offset < segment.base + segment.data_end:
        changes.append(Change(ChangeKind.CLEAR, segment.path, offset - segment.base, segment.data_end))
    end = segments[-1].base + segments[-1].data_end
    return LogEdit(str(store), offset, max(end, offset), tuple(changes))


def _blank(store: Location, start: int, stop: int) -> LogEdit:
    segments = CommitLog.open(store).segments
    segment = _segment(segments, start)
    option = f"--blank-range {start}:{stop}"
    if segment is None or not start < stop <= segment.end_offset:
        raise OptionError(f"{option} is not a range of one segment; `spark-mq segments {store}` shows the segments")
    if stop - start < BLANK_SIZE:
        raise OptionError(f"{option}: a blank has at least {BLANK_SIZE} bytes")
    if segment is segments[-1]:
        raise OptionError(
            f"{option} is in the last segment, where a boot takes a blank for the end of the log; --cut-log-at {start} "
            "ends the log there, and keeps a copy of the rest"
        )
    if stop < segment.end_offset:
        _check_boundary(option, segment, stop)
    change = Change(ChangeKind.BLANK, segment.path, start - segment.base, stop - segment.base)
    return LogEdit(str(store), start, stop, (change,))


def _check_boundary(option: str, segment: Segment, offset: int) -> None:
    """Raise `OptionError` unless a record or damage starts at an offset of a segment, or its records end there."""
    from spark_mq.store.log.record_reader import RecordChunk, RecordReader

    before = segment.base
    with SegmentSource(segment) as source:
        for part in RecordReader(source, 0).read(offset - segment.base + 1):
            if isinstance(part, RecordChunk):
                starts = part.base + part.frames.position
                ends = starts + part.frames.store_size
            else:
                starts = np.array([part.commit_log_offset])
                ends = starts + part.length
            if offset in starts or offset in ends:
                return
            before = max(before, int(starts[starts < offset].max(initial=before)))
    if offset != segment.base:
        raise OptionError(f"{option}: no record starts at commit log offset {offset}; one starts at {before}")


def _segment(segments: Sequence[Segment], offset: int) -> Segment | None:
    return next((one for one in segments if one.base <= offset < one.base + one.size), None)
