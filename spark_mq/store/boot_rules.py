"""The rules by which brokers recover a store when they start, by version.

They changed twice in 4.9.0 to 5.3.3 (`CommitLog.recoverNormally`, `DefaultMessageStore.start`):

| rules | clean stop: which segments are checked | clean stop: which messages are dispatched again |
| --- | --- | --- |
| 4.9 | from the third-last one | those after the last message of any queue |
| 5.0.0 to 5.3.1 | from the third-last one | none; with `recheckReputOffsetFromCq`, as in 4.9 |
| 5.3.2, 5.3.3 | from the last one that starts at or before the end of the queues | those that start after that end |

After any other stop, all three dispatch the log again from a segment that the checkpoint's times select
(`CommitLog.recoverAbnormally`).
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

_NEWEST = (5, 3, 3)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}")


class BootRules(StrEnum):
    """Versions of brokers with the same rules."""

    V4_9 = "4.9"
    V5_0 = "5.0.0 to 5.3.1"
    V5_3_2 = "5.3.2 or 5.3.3"


_OF_5 = (BootRules.V5_0, BootRules.V5_3_2)


def find_boot_rules(store: Location, given: str | None) -> Sourced[tuple[BootRules, ...]]:
    """The rules of the broker that starts next, or all that are possible.

    Args:
        store: The store, whose files show only whether the last broker was of 4.9 or 5.
        given: A version such as `4.9`, `5` or `5.3.3`; None if it is not known.

    Raises:
        OptionError: The version is neither of 4.9 nor of 5.

    """
    if given is None:
        line = find_broker_version(store)
        return Sourced((BootRules.V4_9,) if line.value == BrokerVersion.V4_9 else _OF_5, line.source)
    return _rules_of(given, "--broker-version")


def _rules_of(given: str, option: str) -> Sourced[tuple[BootRules, ...]]:
    if parse_broker_version(given) == BrokerVersion.V4_9:
        return Sourced((BootRules.V4_9,), option)
    if not _VERSION.fullmatch(given):
        raise OptionError(f"broker version {given!r} is not a version such as 5.3.3")
    numbers = tuple(map(int, given.split(".")))
    if numbers in ((5,), (5, 3)):
        return Sourced(_OF_5, option)
    if numbers < (5, 3, 2):
        return Sourced((BootRules.V5_0,), option)
    newer = "" if numbers <= _NEWEST else f"; {given} is newer than the rules known here, those of 5.3.3 are assumed"
    return Sourced((BootRules.V5_3_2,), f"{option}{newer}")


@dataclass(frozen=True)
class BrokerRelease:
    """One version of the broker.

    Attributes:
        numbers: Its numbers, such as (5, 3, 3). Two numbers count as the first version of a line: 5.1 as 5.1.0.
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
        if not _VERSION.fullmatch(version):
            raise OptionError(f"broker version {version!r} is not a version such as 4.9.7")
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
