"""How far a stream has come, as Spark keeps it in a checkpoint: JSON with a fixed order of keys.

Spark compares offsets as text, so the same offset is always the same text.

| version | keys, in this order |
| --- | --- |
| 1 | `version`, `commit_log_offset`, `lost_bytes` |
| 2 | those, `read_from`, `marks`: a list of `[commit_log_offset, store_size, store_timestamp, crc]`, the newest first |

An offset without a mark is written as version 1, as the spark-mq before wrote all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Self

from spark_mq.errors import OptionError
from spark_mq.store.log.record_mark import RecordMark

_WITHOUT_MARKS = 1
_WITH_MARKS = 2
_VERSIONS = (_WITHOUT_MARKS, _WITH_MARKS)
NOTHING_YET = -1
"""The commit log offset of a stream over a log that holds nothing; it begins with whatever comes first."""


@dataclass(frozen=True)
class StreamOffset:
    """All that starts before `commit_log_offset` was given; `lost_bytes` of it were gone before they were read.

    `read_from` is the commit log offset at which the batch that ends here begins, if the broker had lost the end of
    its log, so that the batch before ended after it; else None. `marks` are records that were given, the newest first.
    """

    commit_log_offset: int
    lost_bytes: int = 0
    read_from: int | None = None
    marks: tuple[RecordMark, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark takes it."""
        values = {"commit_log_offset": self.commit_log_offset, "lost_bytes": self.lost_bytes}
        if not self.marks and self.read_from is None:
            return {"version": _WITHOUT_MARKS, **values}
        marks = [list(astuple(mark)) for mark in self.marks]
        return {"version": _WITH_MARKS, **values, "read_from": self.read_from, "marks": marks}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The offset that stands in a checkpoint. Raises `OptionError` for what no version known here wrote."""
        version = values.get("version")
        if version not in _VERSIONS:
            raise OptionError(
                f"the checkpoint's offset {dict(values)} has version {version}, this spark-mq reads versions 1 and 2: "
                "use the spark-mq that wrote it or a later one, or another checkpointLocation"
            )
        offset, lost = _integer(values, "commit_log_offset", NOTHING_YET), _integer(values, "lost_bytes", 0)
        if version == _WITHOUT_MARKS:
            return cls(offset, lost)
        read_from = None if values.get("read_from") is None else _integer(values, "read_from", 0)
        return cls(offset, lost, read_from, _marks(values))


def _marks(values: Mapping[str, Any]) -> tuple[RecordMark, ...]:
    listed = values.get("marks")
    if not isinstance(listed, list):
        raise _not_ours(values)
    marks = []
    for items in listed:
        if not isinstance(items, list) or len(items) != 4 or not all(type(item) is int for item in items):
            raise _not_ours(values)
        marks.append(RecordMark(*items))
    if not all(mark.is_valid() for mark in marks):
        raise _not_ours(values)
    return tuple(marks)


def _integer(values: Mapping[str, Any], name: str, least: int) -> int:
    value = values.get(name)
    if type(value) is not int or value < least:
        raise _not_ours(values)
    return value


def _not_ours(values: Mapping[str, Any]) -> OptionError:
    return OptionError(f"the checkpoint's offset {dict(values)} was not written by this source: use its own checkpoint")
