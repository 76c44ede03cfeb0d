"""How damage is handled: it ends the job, or the report names it."""

from __future__ import annotations

from collections.abc import Iterable

from spark_mq.errors import CorruptLogError
from spark_mq.store.log.corrupt_range import CorruptRange


def raise_or_report(damage: Iterable[CorruptRange], is_permissive: bool) -> tuple[CorruptRange, ...]:
    """The damage for the report, if the mode is permissive or there is none.

    Args:
        damage: Damaged ranges of the log, and queues or index files that the log contradicts.
        is_permissive: Whether the job skips damage and reports it (`--mode permissive`).
    """
    ranges = tuple(damage)
    if ranges and not is_permissive:
        more = f" ({len(ranges)} such places in all)" if len(ranges) > 1 else ""
        raise CorruptLogError(f"{ranges[0].describe()}{more}; --mode permissive skips and reports what is damaged")
    return ranges
