"""The settings on which staged files depend. The manifest stores them, and tasks get them as `DispatchTargets`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_mq.io.location import Location


@dataclass(frozen=True)
class DispatchTargets:
    """What the records of a split are dispatched to.

    Attributes:
        folder: The folder of staged files.
        queue_file_size: Bytes of a queue file; 0 if no units are staged.
        has_index: Whether index entries are staged.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.

    """

    folder: Location
    queue_file_size: int
    has_index: bool
    delay_levels: str


@dataclass(frozen=True)
class StagingSettings:
    """Everything on which staged files depend, except the log; and whether the job replaces existing trees.

    Attributes:
        version: The version of this package.
        store: The path or URI of the store.
        trees: The names of the trees that the job writes.
        queue_file_size: Bytes of a queue file.
        delay_levels: The delays of the delay levels, as in the broker's `messageDelayLevel`.
        replace: Whether the job replaces existing trees. Staged files do not depend on this setting.

    """

    version: str
    store: str
    trees: tuple[str, ...]
    queue_file_size: int
    delay_levels: str
    replace: bool

    def stage_the_same_as(self, other: StagingSettings) -> bool:
        """Whether staged files would be the same with the other settings."""
        return replace(self, replace=other.replace) == other

    def targets(self, folder: Location, has_queues: bool, has_index: bool) -> DispatchTargets:
        """The targets of a dispatch with these settings.

        Args:
            folder: The folder of staged files.
            has_queues: Whether units are staged.
            has_index: Whether index entries are staged.

        """
        return DispatchTargets(folder, self.queue_file_size if has_queues else 0, has_index, self.delay_levels)
