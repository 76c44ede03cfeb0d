"""Which files a broker deletes when messages are old, and when: rules over numbers, which read no file.

- A segment expires `fileReservedTime` hours after the last change of its file. The broker deletes expired segments
  oldest first, stops at the first one that has not expired, and never deletes the newest one
  (`MappedFileQueue.deleteExpiredFileByTime`@5.3.3, as in 4.9).
- It does so in the hours of `deleteWhen` (`CleanCommitLogService.isTimeToDelete`, `UtilAll.isItTimeToDo`@5.3.3).
- When the log begins later than before, it deletes queue files: in each queue from the oldest on, as long as the last
  unit of a file points before the log, and never the newest file (`MappedFileQueue.deleteExpiredFileByOffset`@5.3.3).
- Then it deletes index files by the same rule: the header has the offset of a file's last message
  (`IndexService.deleteExpiredFile`@5.3.3).

In each function a list has the files that can be deleted at all, the oldest first; the newest is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import accumulate

from spark_mq.errors import OptionError
from spark_mq.format.timestamp import EPOCH, epoch_millis, micros

MILLIS_PER_HOUR = 3_600_000

_HOURS = re.compile(r"\+?[0-9]{1,9}(;\+?[0-9]{1,9})*;*")


def expire_times(modification_times: Sequence[int], reserved: int) -> list[int]:
    """When each segment can be deleted: when it has expired, and all segments before it.

    Args:
        modification_times: The time of the last change of each file, milliseconds since the epoch.
        reserved: Milliseconds for which a file is kept after that.
    """
    return list(accumulate((time + reserved for time in modification_times), max))


def count_expired(times: Sequence[int], at: int) -> int:
    """The number of segments that are deleted at the time `at`; `times` are those of `expire_times`."""
    return sum(time <= at for time in times)


def count_before(ends: Sequence[int], min_offset: int) -> int:
    """The number of segments that end at or before a commit log offset; `ends` are ascending."""
    return sum(end <= min_offset for end in ends)


def release_offsets(last_offsets: Sequence[int]) -> list[int]:
    """For each file of a queue or of the index, the offset after which the log must begin, for the file to be deleted.

    Args:
        last_offsets: The commit log offset of the last message in each file.
    """
    return list(accumulate(last_offsets, max))


@dataclass(frozen=True)
class DeleteWhen:
    """The hours of a day in which a broker deletes expired files.

    Attributes:
        hours: The hours, 0 to 23; with other numbers nothing is ever deleted, as in a broker.
    """

    hours: frozenset[int]
    zone: tzinfo | None = None

    @classmethod
    def of(cls, text: str, source: str, zone: tzinfo | None = None) -> DeleteWhen:
        """The hours in a value of `deleteWhen`, such as `04` or `04;16`.

        Args:
            source: Where it comes from, for the error.
            zone: The broker's time zone; None for that of this machine.
        """
        if not _HOURS.fullmatch(text):
            raise OptionError(f"{source}: deleteWhen={text!r} is not an hour such as 04, or several such as 04;16")
        return cls(frozenset(int(part) for part in text.strip(";").split(";") if part), zone)

    def next_time(self, millis: int) -> int | None:
        """The first time at or after `millis` in one of the hours; None if there is none.

        Args:
            millis: Milliseconds since the epoch.
        """
        if micros(millis) is None or not any(hour < 24 for hour in self.hours):
            return None
        moment = EPOCH + timedelta(milliseconds=millis)
        try:
            if self._local(moment).hour in self.hours:
                return millis
            # Zones differ from UTC by parts of an hour, so the next local hour may begin between two hours of UTC.
            moment = moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)
            quarters = (moment + timedelta(minutes=15 * number) for number in range(1, 4 * 49))
            return next((epoch_millis(one) for one in quarters if self._local(one).hour in self.hours), None)
        except OverflowError:
            return None

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone)
