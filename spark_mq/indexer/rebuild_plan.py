"""The plan of a rebuild: what all its stages have to know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from spark_mq.format.broker_version import BrokerVersions
from spark_mq.indexer.selection import Selection
from spark_mq.indexer.settings import StagingSettings
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf


@dataclass(frozen=True)
class RebuildPlan:
    """What is rebuilt, and how.

    Attributes:
        store: The store whose log is read.
        broker_versions: The versions whose rules apply.
        time_zone: The zone of the names of index files; None if existing names decide.
        settings: The settings on which staged rows depend.
        split_size: Bytes of the log for a task.
        is_permissive: Whether damage is skipped and reported.
        continued: The trees (`Selection.trees`) that are continued: existing files stay in place.
        is_resumed: Whether a killed job can have written some of the files.
    """

    store: Location
    broker_conf: BrokerConf
    broker_versions: BrokerVersions
    time_zone: tzinfo | None
    selection: Selection
    settings: StagingSettings
    split_size: int
    is_permissive: bool
    continued: tuple[str, ...]
    is_resumed: bool
