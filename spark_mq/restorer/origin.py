"""Where messages come from: the store that they were in, as far as the source of a restore knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_mq.io.location import Location
from spark_mq.restorer.source_facts import SourceFacts

OFFSET_COLUMNS = frozenset(("commit_log_offset", "queue_id", "queue_offset"))
"""The columns of rows that have the offsets of a store."""


@dataclass(frozen=True)
class Origin:
    """The origin of messages.

    Attributes:
        facts: What else is known of that store; None if nothing is.
        settings: Sizes of that store's files, as a broker's settings.
        location: The store itself, if it is a directory; else None.
    """

    name: str
    has_offsets: bool
    facts: SourceFacts | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    location: Location | None = None
