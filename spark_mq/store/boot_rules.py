"""The rules by which brokers recover a store when they start, by version.

They changed four times in 4.9.0 to 5.5.1 (`CommitLog.recoverNormally`, `recoverAbnormally` and
`isMappedFileMatchedRecover`, `DefaultMessageStore.start`, `ConsumeQueueStore`):

| rules | clean stop: which segments are checked | clean stop: which messages are dispatched again |
| --- | --- | --- |
| 4.9 | from the third-last one | those after the last message of any queue |
| 5.0.0 to 5.3.1 | from the third-last one | none; with `recheckReputOffsetFromCq`, as in 4.9 |
| 5.3.2, 5.3.3 | from the last one that starts at or before the end of the queues | those that start after that end |
| 5.4.0 to 5.5.1 | as 5.3.2, if its first record is whole; at most ten (`commitLogRecoverMaxNum`) | as 5.3.2 |

After any other stop, all dispatch the log again from a segment that the checkpoint selects: by its times up to 5.4.0,
by the offset up to which queues were flushed (`logicsPhysicalOffset`) since 5.5.0. Since 5.4.0, both are at most ten
segments. Records of format V2 end the log for brokers before 5.1.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.store.config.broker_version import BrokerVersion, find_broker_version, parse_broker_version
from spark_mq.store.config.sourced import Sourced

_NEWEST = (5, 5, 1)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}")


class BootRules(StrEnum):
    """Versions of brokers with the same rules, in order."""

    V4_9 = "4.9"
    V5_0 = "5.0.0"
    V5_1 = "5.1.0 to 5.3.1"
    V5_3_2 = "5.3.2 or 5.3.3"
    V5_4 = "5.4.0"
    V5_5 = "5.5.0 or 5.5.1"

    @property
    def since(self) -> tuple[int, ...]:
        """The numbers of the first version."""
        return tuple(map(int, self.value.split()[0].split(".")))

    @property
    def newest(self) -> BrokerRelease:
        """The last version with these rules that is known."""
        numbers = {BootRules.V4_9: (4, 9, 7), BootRules.V5_0: (5, 0, 0), BootRules.V5_4: (5, 4, 0)}
        return BrokerRelease(numbers.get(self) or tuple(map(int, self.value.split()[-1].split("."))), self, "")


_OF_5 = tuple(BootRules)[1:]


def find_boot_rules(store: Location, given: str | None) -> Sourced[tuple[BrokerRelease, ...]]:
    """The broker that starts next, or one for each set of rules that is possible.

    Args:
        store: The store, whose files show only whether the last broker was of 4.9 or 5.
        given: A version such as `4.9`, `5` or `5.3.3`; None if it is not known.

    Raises:
        OptionError: The version is neither of 4.9 nor of 5.

    """
    if given is None:
        line = find_broker_version(store)
        rules = (BootRules.V4_9,) if line.value == BrokerVersion.V4_9 else _OF_5
        return Sourced(tuple(one.newest for one in rules), line.source)
    found = _rules_of(given, "--broker-version")
    numbers = tuple(map(int, given.split(".")))
    if len(found.value) == 1 and len(numbers) == 3:
        return Sourced((BrokerRelease(numbers, found.value[0], found.source),), found.source)
    return Sourced(tuple(one.newest for one in found.value), found.source)


def _rules_of(given: str, option: str) -> Sourced[tuple[BootRules, ...]]:
    """The rules of a version; of two numbers, those of the whole line: 5.3 is 5.3.0 to 5.3.3."""
    line = parse_broker_version(given)
    if not _VERSION.fullmatch(given):
        raise OptionError(f"broker version {given!r} is not a version such as 5.3.3")
    if line == BrokerVersion.V4_9:
        return Sourced((BootRules.V4_9,), option)
    numbers = tuple(map(int, given.split(".")))
    if len(numbers) == 1:
        return Sourced(_OF_5, option)
    newest = [rules for rules in _OF_5 if rules.since <= (*numbers, 0, 0)[:3]]
    within = [rules for rules in _OF_5 if rules.since[: len(numbers)] == numbers]
    newer = "" if numbers <= _NEWEST else f"; {given} is newer than the rules known here, those of 5.5.1 are assumed"
    return Sourced(tuple(dict.fromkeys([*newest[-1:], *within])), f"{option}{newer}")


@dataclass(frozen=True)
class BrokerRelease:
    """One version of the broker.

    Attributes:
        numbers: Its numbers, such as (5, 3, 3).
        rules: Its rules.
        source: Why these rules apply, as text for a person.

    """

    numbers: tuple[int, ...]
    rules: BootRules
    source: str

    @classmethod
    def of(cls, version: str) -> Self:
        """The release with this version.

        Raises:
            OptionError: The version is neither of 4.9 nor of 5, or brokers of it have different rules.

        Example:
            >>> BrokerRelease.of("5.3.3").rules
            <BootRules.V5_3_2: '5.3.2 or 5.3.3'>
        """
        rules = _rules_of(version, "--as")
        if len(rules.value) > 1:
            raise OptionError(f"brokers of {version} recover by different rules: give a version such as 5.3.1 or 5.3.3")
        return cls(tuple(map(int, version.split("."))), rules.value[0], rules.source)

    @property
    def deletes_empty_files(self) -> bool:
        """Whether a last file without a byte is deleted; brokers before 5.1.3 do not start with it."""
        return self.numbers >= (5, 1, 3)

    @property
    def skips_folders(self) -> bool:
        """Whether a folder among files that are mapped is skipped; brokers before 5.1.0 do not start with it."""
        return self.numbers >= (5, 1)
