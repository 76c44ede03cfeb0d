"""The settings on which staged rows depend. The manifest stores them, and tasks get them as `DispatchTargets`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_mq.io.location import Location


@dataclass(frozen=True)
class DispatchTargets:
    """What the records of a split are dispatched to.

    Attributes:
        queue_file_size: Bytes of a queue file; 0 if no units are staged.
        entries_folder: The folder in which index entries are staged; None if no entries are staged.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.

    """

    queue_file_size: int
    entries_folder: Location | None
    delay_levels: str


@dataclass(frozen=True)
class StagingSettings:
    """Everything on which staged rows depend, except the log; and whether the job replaces existing trees.

    Attributes:
        version: The version of this package.
        store: The path or URI of the store.
        trees: The names of the trees that the job writes.
        queue_file_size: Bytes of a queue file.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.
        replace: Whether the job replaces existing trees. Staged rows do not depend on this setting.

    """

    version: str
    store: str
    trees: tuple[str, ...]
    queue_file_size: int
    delay_levels: str
    replace: bool

    def stage_the_same_as(self, other: StagingSettings) -> bool:
        """Whether staged rows would be the same with the other settings."""
        return replace(self, replace=other.replace) == other

    def targets(self, entries_folder: Location | None) -> DispatchTargets:
        """The targets of a dispatch with these settings; index entries are staged in `entries_folder`, if given."""
        return DispatchTargets(self.queue_file_size, entries_folder, self.delay_levels)
