"""The consume queues that exist before a rebuild: those of the store, and those that are continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_mq.errors import OutputExistsError
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.selection import Selection
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.queue.folders import QueueFolder, queue_folders


@dataclass(frozen=True)
class ExistingQueues:
    """The queues that exist.

    Attributes:
        continued: The selected queues of the output whose files are continued.
    """

    of_store: tuple[QueueFolder, ...]
    continued: Mapping[Queue, QueueFolder]

    def not_continued(self) -> list[QueueFolder]:
        """The queues of the store that are not continued."""
        return [folder for folder in self.of_store if (folder.topic, folder.queue_id) not in self.continued]

    def stale_files(self, file_ranges: Mapping[Queue, range], file_size: int) -> list[Location]:
        """The files of continued queues that are after the end of their queue: their units are stale.

        Args:
            file_ranges: The numbers of the files that each queue has; a queue without an entry has no stale file.
        """
        return [
            folder.location / info.base_name
            for queue, folder in self.continued.items()
            for info in folder.files
            if queue in file_ranges and int(info.base_name) // file_size >= file_ranges[queue].stop
        ]


def find_existing_queues(plan: RebuildPlan, output: Location) -> ExistingQueues:
    """The queues of the store, and those in `output` that are continued."""
    selection = plan.selection
    is_continued = selection.queue_tree in plan.continued
    folders = _selected(output, selection) if is_continued else []
    file_size = plan.settings.queue_file_size
    for folder in folders:
        for info in folder.files:
            if info.size != file_size:
                raise OutputExistsError(
                    f"{folder.location / info.base_name} has {info.size} bytes, which cannot be continued with "
                    f"files of {file_size}: give the broker's settings (--broker-conf), or --replace"
                )
    of_store = tuple(_selected(plan.store, selection))
    return ExistingQueues(of_store, {(folder.topic, folder.queue_id): folder for folder in folders})


def _selected(store: Location, selection: Selection) -> list[QueueFolder]:
    """The selected queues of a store that have files."""
    folders = queue_folders(store / CONSUME_QUEUE)
    return [folder for folder in folders if selection.has_queue(folder.topic, folder.queue_id)]
