"""The plan of a rebuild: what all its stages have to know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Self

from spark_mq.errors import OptionError, UnsafeNameError
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import check_topic_name
from spark_mq.store.config.store_paths import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    ROCKSDB_STORE,
)


@dataclass(frozen=True)
class Selection:
    """The files to rebuild: of all topics and queues, or of one.

    `has_ext` is about extensions of rebuilt queues, `has_batches` about batch consume queues. With `in_files`, queues
    are written as files, and into a RocksDB database in the folder `database` if there is one; both is what a broker
    does with `rocksdbCQDoubleWriteEnable`. With `has_index_database`, the index in RocksDB is made besides its files.
    """

    has_queues: bool = True
    has_index: bool = True
    topic: str | None = None
    queue_id: int | None = None
    has_ext: bool = False
    has_batches: bool = False
    in_files: bool = True
    database: str | None = None
    has_index_database: bool = False

    @classmethod
    def of(cls, only: str | None, topic: str | None, queue_id: int | None) -> Self:
        """The selection of these arguments of a rebuild."""
        if only not in (None, CONSUME_QUEUE, INDEX):
            raise OptionError(f"--only {only!r} is none of {CONSUME_QUEUE}, {INDEX}")
        if topic is None:
            if queue_id is not None:
                raise OptionError(f"--queue-id {queue_id} needs --topic: a queue belongs to a topic")
            return cls(has_queues=only != INDEX, has_index=only != CONSUME_QUEUE)
        if only == INDEX:
            raise OptionError("--topic and --only index: an index file has keys of all topics; leave out one of them")
        if queue_id is not None and not 0 <= queue_id < 1 << 31:
            raise OptionError(f"--queue-id {queue_id}: a queue id is 0 or more, and has 31 bits")
        try:
            check_topic_name(topic)
        except UnsafeNameError as error:
            raise OptionError(f"--topic: {error}") from error
        return cls(has_index=False, topic=topic, queue_id=queue_id)

    @property
    def in_rocksdb(self) -> bool:
        """Whether queues are written into a RocksDB database."""
        return self.database is not None

    @property
    def queue_tree(self) -> str | None:
        """The path of the selected queues in a store; None if no queue is rebuilt."""
        return self._path(CONSUME_QUEUE) if self.has_queues else None

    @property
    def trees(self) -> tuple[str, ...]:
        """The paths in a store of everything that is rebuilt."""
        ext = (self._path(CONSUME_QUEUE_EXT),) if self.has_queues and self.has_ext else ()
        batches = (BATCH_CONSUME_QUEUE,) if self.has_batches else ()
        queues = (self.queue_tree,) if self.queue_tree else ()
        databases = (*filter(None, (self.database,)), *((ROCKSDB_STORE,) if self.has_index_database else ()))
        trees = *queues, *ext, *batches, *((INDEX,) if self.has_index else ()), *databases
        return tuple(dict.fromkeys(trees))

    def _path(self, tree: str) -> str:
        parts = (tree, self.topic, None if self.queue_id is None else str(self.queue_id))
        return "/".join(part for part in parts if part is not None)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether this queue is rebuilt."""
        return self.has_queues and self.topic in (None, topic) and self.queue_id in (None, queue_id)


@dataclass(frozen=True)
class DispatchSettings:
    """The settings of a broker on which queue units and index entries of records depend.

    `index_tags` says whether tags have index entries, and is None if that is decided after the log is staged.
    `has_light_queues` says whether light message queues get units, too, and `batch_topics` which topics have batch
    consume queues. With `in_rocksdb`, units have store times.
    """

    queue_file_size: int
    delay_levels: str
    index_tags: bool | None = False
    has_light_queues: bool = False
    batch_topics: tuple[str, ...] = ()
    in_rocksdb: bool = False


@dataclass(frozen=True)
class DispatchTargets:
    """What the records of a split are dispatched to: units of queues, entries of the index, and records for RocksDB."""

    folder: Location
    settings: DispatchSettings
    has_queues: bool
    has_index: bool
    has_index_database: bool = False


@dataclass(frozen=True, kw_only=True)
class StagingSettings(DispatchSettings):
    """Everything on which staged files depend, except the log.

    They do not depend on `replace`: whether the job replaces existing trees.
    """

    version: str
    store: str
    trees: tuple[str, ...]
    replace: bool

    def stage_the_same_as(self, other: StagingSettings) -> bool:
        """Whether staged files would be the same with the other settings."""
        return replace(self, replace=other.replace) == other


@dataclass(frozen=True, kw_only=True)
class RebuildInput:
    """What is rebuilt, and by which settings of the broker; without a zone, existing names of index files decide.

    The queues of the store `queues_shown_by` show which of them were deleted and used again.
    """

    store: Location
    selection: Selection
    broker_conf: BrokerConf
    broker_versions: BrokerVersions
    time_zone: tzinfo | None = None
    is_permissive: bool = False
    split_size: int
    queues_shown_by: Location | None = None


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(RebuildInput):
    """What all stages of a rebuild know; existing files of the trees in `continued` stay in place."""

    settings: DispatchSettings
    continued: tuple[str, ...]
    is_resumed: bool = False
