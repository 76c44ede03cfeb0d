"""The settings on which staged files depend. The manifest stores them, and tasks get them as `DispatchTargets`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_mq.io.location import Location


@dataclass(frozen=True)
class DispatchTargets:
    """What the records of a split are dispatched to.

    Attributes:
        queue_file_size: Bytes of a queue file; 0 if no units are staged.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.
        index_tags: Whether tags have index entries; None if that is decided after the log is staged.
    """

    folder: Location
    queue_file_size: int
    has_index: bool
    delay_levels: str
    index_tags: bool | None = False


@dataclass(frozen=True)
class StagingSettings:
    """Everything on which staged files depend, except the log; and whether the job replaces existing trees.

    Attributes:
        trees: The names of the trees that the job writes.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.
        replace: Whether the job replaces existing trees. Staged files do not depend on this setting.
        index_tags: Whether tags have index entries; None if that is decided after the log is staged.
    """

    version: str
    store: str
    trees: tuple[str, ...]
    queue_file_size: int
    delay_levels: str
    replace: bool
    index_tags: bool | None = False

    def stage_the_same_as(self, other: StagingSettings) -> bool:
        """Whether staged files would be the same with the other settings."""
        return replace(self, replace=other.replace) == other

    def targets(self, folder: Location, has_queues: bool, has_index: bool) -> DispatchTargets:
        """The targets of a dispatch with these settings."""
        queue_file_size = self.queue_file_size if has_queues else 0
        return DispatchTargets(folder, queue_file_size, has_index, self.delay_levels, self.index_tags)
