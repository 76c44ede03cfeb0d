"""A request for a rebuild. It is checked without Spark: a wrong argument must not wait until a JVM has started."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

from spark_mq.errors import EmptyStoreError, MissingPackageError, OptionError
from spark_mq.format.broker_version import INDEX_TAGS
from spark_mq.indexer.index_database import lost_families
from spark_mq.indexer.manifest import MANIFEST
from spark_mq.indexer.output_folder import check_file_sizes, check_output
from spark_mq.indexer.queue_extensions import ExtSettings
from spark_mq.indexer.rebuild_plan import RebuildInput, Selection
from spark_mq.indexer.report import raise_or_report
from spark_mq.indexer.tag_entries import TaggedRanges
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import REMEDY, can_read_rocksdb
from spark_mq.job.output_committer import OutputCommitter
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import Door, batch_topics, check_form, refuse_rocksdb
from spark_mq.store.config.store_paths import CONSUME_QUEUE, ROCKSDB_STORE, is_rocksdb
from spark_mq.store.index.file_names import parse_time_zone
from spark_mq.store.index.folder import check_layout_is_known
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog
from spark_mq.store.log.segment_files import CorruptRange

FAILFAST = "failfast"
PERMISSIVE = "permissive"
FILES, ROCKSDB = "files", "rocksdb"


@dataclass(frozen=True, kw_only=True)
class RebuildRequest(RebuildInput):
    """What to rebuild, from where, and how; see `spark_mq.rebuild` for the arguments.

    Queues are rebuilt in the `queue_store`: FILES, or ROCKSDB; if it is None, in both if the broker's settings say so,
    or in FILES that replace no database. The index of `tags_shown_by` shows which tags have index entries; without it,
    `tagged` or the version says so.
    """

    committer: OutputCommitter
    replace: bool
    resume: bool
    tags_shown_by: Location | None = None
    tagged: TaggedRanges | None = None
    assume_defaults: bool = False
    queue_store: str | None = None

    @classmethod
    def of(
        cls,
        store: str,
        output: str | None = None,
        *,
        only: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        broker_conf: str | BrokerConf | None = None,
        broker_version: str | None = None,
        time_zone: str | None = None,
        mode: str = FAILFAST,
        replace: bool = False,
        backup: bool = True,
        resume: bool = False,
        split_size: int = DEFAULT_SPLIT_SIZE,
        assume_defaults: bool = False,
        queue_store: str | None = None,
    ) -> Self:
        """The request with these arguments; `broker_conf` is a file of settings, or what was read from one."""
        selection = Selection.of(only, topic, queue_id)
        if mode not in (FAILFAST, PERMISSIVE):
            raise OptionError(f"--mode {mode!r} is none of {FAILFAST}, {PERMISSIVE}")
        if resume and replace:
            raise OptionError("--resume continues with existing files, --replace rebuilds them: give one of them")
        if queue_store not in (None, FILES, ROCKSDB):
            raise OptionError(f"--queue-store {queue_store!r} is none of {FILES}, {ROCKSDB}")
        if queue_store is not None and not selection.has_queues:
            raise OptionError("--queue-store has no effect on the index: leave out --only index")
        conf = broker_conf if isinstance(broker_conf, BrokerConf) else BrokerConf.of(broker_conf)
        if queue_store == ROCKSDB:
            if selection.topic is not None:
                raise OptionError(f"--queue-store {ROCKSDB} writes the queues of all topics: leave out --topic")
            selection = dataclasses.replace(selection, in_files=False, database=conf.queue_database)
        writes_both = queue_store is None and conf.is_enabled("rocksdbCQDoubleWriteEnable")
        location = Location.resolve(store).snapshot()
        versions = find_broker_versions(location, broker_version)
        if selection.has_index:
            writes, records = conf.without_index_files is None, conf.has_index_records
            selection = dataclasses.replace(selection, has_index=writes, has_index_database=records)
        target = Location.resolve(store if output is None else output)
        # A queue that is continued keeps the addresses that it has.
        is_continued = resume and selection.queue_tree is not None and (target / selection.queue_tree).is_directory
        if conf.is_enabled("enableConsumeQueueExt") and not is_continued and selection.in_files:
            selection = dataclasses.replace(selection, has_ext=True)
        if selection.has_queues and batch_topics(location):
            if selection.in_rocksdb:
                raise OptionError(f"--queue-store {ROCKSDB}: the store has batch consume queues, which are files only")
            selection = _with_batches(selection, batch_topics(location))
        elif selection.has_queues and topic is None and writes_both and not is_continued:
            selection = dataclasses.replace(selection, database=conf.queue_database)
        if not selection.trees:
            raise OptionError(f"--only index: the broker keeps none ({conf.source}: {conf.without_index_files})")
        if selection.in_rocksdb:
            setting = f"{conf.source}: rocksdbCQDoubleWriteEnable" if writes_both else f"--queue-store {ROCKSDB}"
            _check_database(setting, target / conf.queue_database, resume)
        if selection.has_index_database:
            _check_database(f"{conf.source}: indexRocksDBEnable", target / ROCKSDB_STORE, resume)
        is_told = broker_version is not None and versions.decide(INDEX_TAGS) is not None
        return cls(
            store=location,
            selection=selection,
            broker_conf=conf,
            broker_versions=versions,
            time_zone=None if time_zone is None else parse_time_zone(time_zone),
            is_permissive=mode == PERMISSIVE,
            split_size=split_size,
            committer=OutputCommitter(target, selection.trees, MANIFEST, keeps_replaced=backup),
            replace=replace,
            resume=resume,
            tags_shown_by=None if is_told else location,
            queues_shown_by=location,
            assume_defaults=assume_defaults,
            queue_store=queue_store,
        )

    def check(self) -> tuple[CommitLog, tuple[CorruptRange, ...]]:
        """The store's log, and the damage that the names and sizes of its files show. Nothing is created or changed."""
        log = CommitLog.open(self.store)
        if not log.segments:
            raise EmptyStoreError(f"{log.location} has no record: there is nothing to rebuild from")
        check_output(self.committer.output, self.store, self.committer.names)
        lost = lost_families(self.store) if self.selection.has_index_database else ()
        damage = raise_or_report([*log.gaps, *log.stray, *lost], self.is_permissive)
        if self.selection.has_queues:
            check_form(self.store, Door.FILES)
            if self.queue_store is None and not self.selection.in_rocksdb:
                refuse_rocksdb(self.committer.target(CONSUME_QUEUE))
        if not self.resume:
            self.committer.check_targets(self.replace)
        if self.replace:
            output, selection = self.committer.output, self.selection
            queues = output / CONSUME_QUEUE if selection.has_queues else None
            check_file_sizes(self.broker_conf, queues, output if selection.has_index else None)
        if self.selection.has_ext:
            ExtSettings.of(self.store, self.broker_conf)
        if self.selection.has_index and not self.assume_defaults:
            check_layout_is_known(self.store, self.broker_conf)
        return log, damage


def _with_batches(selection: Selection, topics: frozenset[str]) -> Selection:
    """The selection, with batch consume queues if it is of all topics."""
    if selection.topic is None:
        return dataclasses.replace(selection, has_batches=True)
    if selection.topic in topics:
        raise OptionError(
            f"--topic {selection.topic}: it has batch consume queues, which are made only with those of all topics: "
            "leave out --topic"
        )
    return selection


def _check_database(setting: str, target: Location, resume: bool) -> None:
    """Check that a setting can be followed: that the database `target` can be made."""
    if not can_read_rocksdb():
        raise MissingPackageError(f"{setting}: {REMEDY}")
    if not target.is_local:
        raise OptionError(f"{setting}: RocksDB writes only to a local disk: give another --output")
    if resume and is_rocksdb(target):
        raise OptionError(f"--resume: {target} is a database, which is not continued: --replace it")
