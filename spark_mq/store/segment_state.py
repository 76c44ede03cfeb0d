"""The states of a commit log's files, and their damage, from a quick check of their edges.

Only a whole read finds damage in the middle of a segment (table `messages`, `spark-mq rebuild`). This check reads the
beginning of each file and the bytes before its end:

- A segment begins with a record that stores the segment's offset, or with a blank.
- A segment before the one with the live end ends with a blank (`CommitLog.DefaultAppendMessageCallback`@5.3.3): eight
  bytes that contain the number of bytes left. The blank is searched for in the last 64 MiB, and usually found in the
  last few KiB.
- All segments have one size, and each segment begins at the end of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyarrow import fs

from spark_mq.format.record import BLANK_SIZE, MAGIC_AT, MAGIC_BLANK, MAX_BLANK_SIZE, Record, is_blank
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.corrupt_range import STRAY
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.log.segment_files import is_segment_name, usual_size
from spark_mq.store.message_store import MessageStore

_FIRST_LOOK = 64 << 10
_LOOK_FACTOR = 16
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)


@dataclass(frozen=True)
class SegmentState:
    """A file of `commitlog/` that has the name of a segment.

    Attributes:
        info: Name, size and time of the last change.
        base: The commit log offset of the file's first byte; None if the file is stray.
        name: The value of column `state` of table `segments`.
        problem: The damage, as text for a person; None if the check found nothing.
        first: The live record at the file's beginning, if there is one.
    """

    info: fs.FileInfo
    base: int | None
    name: str
    problem: str | None
    first: Record | None


def segment_states(store: MessageStore) -> list[SegmentState]:
    """The states of the files of `commitlog/` that have the name of a segment, by name."""
    infos = [info for info in (store.location / COMMIT_LOG).entries() if is_segment_name(info)]
    stray = {file.file.rpartition("/")[2]: file.reason for file in store.records.stray}
    usual = usual_size([info for info in infos if info.base_name not in stray])
    states = []
    end: int | None = None
    for info in infos:
        if info.base_name in stray:
            states.append(SegmentState(info, None, STRAY, stray[info.base_name], None))
            continue
        states.append(_state(store, info, usual, end))
        if info.size:
            end = int(info.base_name) + info.size
    return states


def _state(store: MessageStore, info: fs.FileInfo, usual: int, end_before: int | None) -> SegmentState:
    base, live_end = int(info.base_name), store.get_max_phy_offset()
    first = store.find_record(base) if info.size else None
    damage = list(_damage(store, info, first)) if info.size else []
    problems = list(_misfits(info, usual, end_before)) + damage
    name = _state_name(info.size, usual, base, live_end)
    if damage and name in ("FULL", "APPENDING", "BEHIND"):
        name = "DAMAGED"
    record = first if isinstance(first, Record) else None
    return SegmentState(info, base, name, "; ".join(problems) or None, record)


def _state_name(size: int, usual: int, base: int, live_end: int) -> str:
    if size == 0:
        return "EMPTY"
    if size != usual:
        return "WRONG_SIZE"
    if base + size <= live_end:
        return "FULL"
    return "APPENDING" if base <= live_end else "BEHIND"


def _misfits(info: fs.FileInfo, usual: int, end_before: int | None) -> Iterator[str]:
    """How the file contradicts the other files."""
    base = int(info.base_name)
    if not info.size:
        yield "the file is empty"
    elif info.size != usual:
        yield f"the file has {info.size} bytes, most segments have {usual}: a broker does not start with it"
    if end_before is not None and end_before < base and info.size:
        yield f"no file has the {base - end_before} bytes before it, from commit log offset {end_before} on"


def _damage(store: MessageStore, info: fs.FileInfo, first: Record | NoRecord | None) -> Iterator[str]:
    """The damage at the edges of a file that is not empty."""
    base, live_end = int(info.base_name), store.get_max_phy_offset()
    if base == live_end:
        return  # what is there is a write in progress, or the torn last message: LOG_UNFINISHED
    head = store.records.read(base, BLANK_SIZE)
    if base > live_end:
        if head.strip(b"\0"):
            yield f"the log ends at commit log offset {live_end}, but the file begins with other bytes than zeros"
        return
    segment = store.records.segment_of(base)
    size = info.size if segment is None else segment.size
    if isinstance(first, NoRecord) and not is_blank(head, size):
        yield f"it does not begin with a record: {first}"
    if base + size < live_end and not _ends_with_blank(store, base, size):
        yield f"there is no blank at its end, in the last {min(size, MAX_BLANK_SIZE)} bytes"


def _ends_with_blank(store: MessageStore, base: int, size: int) -> bool:
    """Whether the last bytes of a segment contain the start of a blank that reaches to the segment's end."""
    look, end = _FIRST_LOOK, size
    while end > 0 and size - end < MAX_BLANK_SIZE:
        start = max(0, size - min(look, MAX_BLANK_SIZE))
        data = store.records.read(base + start, min(end + BLANK_SIZE, size) - start)
        magic_at = data.rfind(_BLANK_MAGIC)
        while magic_at >= MAGIC_AT:
            at = magic_at - MAGIC_AT
            if is_blank(data[at : at + BLANK_SIZE], size - start - at):
                return True
            magic_at = data.rfind(_BLANK_MAGIC, 0, magic_at)
        end, look = start, look * _LOOK_FACTOR
    return False
